"""The Messages skin, what comes in: what is read of a request, what is refused, and what it means as a chat."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from n4n.core.chat import ChatRequest
from n4n.core.chat_request import read_chat
from n4n.core.errors import MalformedRequest
from n4n.core.skins import messages_chat
from n4n.core.skins.messages import read_messages
from n4n.core.skins.messages_chat import losses
from n4n.core.skins.messages_count import IMAGE_TOKENS, count_body, rough_count
from n4n.core.skins.messages_errors import envelope
from n4n.core.skins.messages_turns import sealed, unsealed

HELLO: list[object] = [{"role": "user", "content": "Hello"}]
MARK = {"type": "ephemeral"}
PNG = {"type": "base64", "media_type": "image/png", "data": "aGk="}


def read(**fields: object) -> ChatRequest:
    return read_messages(json.dumps({"model": "m", "max_tokens": 9, "messages": HELLO, **fields}).encode())


def chat(**fields: object) -> Any:
    """The chat that a request means, read as JSON."""
    asked = read(**fields)
    made = {name: json.loads(bytes(raw)) for name, raw in asked.fields.items()}
    assert read_chat(json.dumps(made).encode()).model == "m"
    return made


def told(*turns: object, **fields: object) -> Any:
    return chat(messages=list(turns), **fields)["messages"]


def user(*blocks: object) -> dict[str, object]:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: object) -> dict[str, object]:
    return {"role": "assistant", "content": list(blocks)}


def text(words: str, **more: object) -> dict[str, object]:
    return {"type": "text", "text": words, **more}


def result(call: str, content: object = None, **more: object) -> dict[str, object]:
    return {"type": "tool_result", "tool_use_id": call, **({} if content is None else {"content": content}), **more}


# ── reading


def test_a_request_keeps_the_words_of_its_client() -> None:
    raw = (
        b'{"model":"m","max_tokens":5,"stream":true,"messages":[{ "role":"user","content":"x"}],"models":["a","b"],'
        b'"provider":{"sort":"price"},"unsupported_params":"reject","x":1.0}'
    )
    asked = read_messages(raw)

    assert (asked.model, asked.stream, asked.max_output_tokens, asked.body_bytes) == ("m", True, 5, len(raw))
    assert (asked.models, asked.provider_object, asked.unsupported_params, asked.n) == (("a", "b"), {"sort": "price"}, "reject", 1)
    assert asked.native is not None and asked.native.dialect == "anthropic"
    assert list(asked.native.fields) == ["model", "max_tokens", "stream", "messages", "x"]
    assert bytes(asked.native.fields["messages"]) == b'[{ "role":"user","content":"x"}]'


@pytest.mark.parametrize("thread", [{"type": "create"}, {"type": "continue", "previous_message_id": "msg_1"}])
def test_a_thread_that_somebody_would_have_to_keep_is_refused_in_the_word_that_sdks_know(thread: object) -> None:
    with pytest.raises(MalformedRequest) as raised:
        read(thread=thread)

    error = {"message": str(raised.value), "type": raised.value.kind, "param": raised.value.param, "code": raised.value.code}
    said: Any = envelope({"error": error})["error"]
    assert (said["type"], said["param"]) == ("invalid_request_error", "thread")
    assert said["details"] == {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
    assert read(thread=None).model == "m"


def test_betas_ride_in_the_native_members() -> None:
    asked = read_messages(b'{"model":"m","messages":[{"role":"user","content":"x"}]}', beta=" a-1 ,b-2,")

    assert asked.native is not None and bytes(asked.native.fields["anthropic_beta"]) == b'["a-1","b-2"]'
    assert asked.max_output_tokens is None
    for header in ("a b", "a," * 65 + "a", "ä"):
        with pytest.raises(MalformedRequest) as raised:
            read_messages(b'{"model":"m","messages":[{"role":"user","content":"x"}]}', beta=header)
        assert raised.value.param == "anthropic-beta"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"", None),
        (b"[]", None),
        (b"\xff", None),
        (b'{"model":"m","messages":[{"role":"user","content":"\\ud83d"}]}', None),
        (b'{"messages":[{}]}', "model"),
        (b'{"model":7,"messages":[{}]}', "model"),
        (b'{"model":"m"}', "messages"),
        (b'{"model":"m","messages":[]}', "messages"),
        (b'{"model":"m","messages":["x"]}', "messages"),
        (b'{"model":"m","messages":[{}],"stream":1}', "stream"),
        (b'{"model":"m","messages":[{}],"max_tokens":-1}', "max_tokens"),
        (b'{"model":"m","messages":[{}],"max_tokens":"x"}', "max_tokens"),
        (b'{"model":"m","messages":[{}],"api_base":"http://x"}', "api_base"),
        (b'{"model":"m","messages":[{}],"api_key":"x"}', "api_key"),
        (b'{"model":"m","messages":[{}],"models":[]}', "models"),
        (b'{"model":"m","messages":[{}],"unsupported_params":"x"}', "unsupported_params"),
        (b'{"model":"m","messages":[{}],"provider":1}', "provider"),
        (b'{"model":"m","messages":[{}],"tools":1}', "tools"),
        (b'{"model":"m","messages":[{}],"tool_choice":"auto"}', "tool_choice"),
        (b'{"model":"m","messages":[{}],"thinking":1}', "thinking"),
        (b'{"model":"m","messages":[{}],"output_config":1}', "output_config"),
    ],
)
def test_what_is_refused_of_a_chat_is_refused_here(body: bytes, param: str | None) -> None:
    with pytest.raises(MalformedRequest) as raised:
        read_messages(body)
    assert raised.value.param == param


@pytest.mark.parametrize(
    ("fields", "features"),
    [
        ({}, set()),
        ({"tools": []}, set()),
        ({"tools": [{"name": "t"}]}, {"tools"}),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, {"tools", "web_search"}),
        ({"tool_choice": {"type": "auto"}}, {"tool_choice"}),
        ({"tool_choice": {"type": "any", "disable_parallel_tool_use": True}}, {"tool_choice", "forced_tool_choice", "parallel_tools"}),
        ({"tool_choice": {"type": "tool", "name": "t"}}, {"tool_choice", "forced_tool_choice"}),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, {"reasoning"}),
        ({"thinking": {"type": "disabled"}}, set()),
        ({"output_config": {"effort": "low"}}, {"reasoning"}),
        ({"output_config": {"format": {"type": "json_schema", "schema": {}}}}, {"json_schema"}),
        ({"output_format": {"type": "json_schema", "schema": {}}}, {"json_schema"}),
        ({"system": [text("x", cache_control=MARK)]}, {"prompt_caching"}),
        ({"temperature": 0}, {"sampling_params"}),
        ({"temperature": None, "stop_sequences": ["x"]}, {"stop"}),
        ({"messages": [user({"type": "image", "source": PNG})]}, {"vision"}),
        ({"messages": [user(result("t", [{"type": "image", "source": PNG}, {"type": "document"}]))]}, {"vision", "pdf_input"}),
        ({"messages": [{"role": "user", "content": "say image"}, {"role": "image"}]}, set()),
        ({"messages": [user({"type": "image", "content": 7})]}, set()),
    ],
)
def test_the_features_that_a_request_uses_are_found(fields: dict[str, object], features: set[str]) -> None:
    assert read(**fields).features == features


# ── as a chat


def test_a_plain_request_is_a_plain_chat() -> None:
    assert chat(system="Be kind.", stream=True, temperature=0.5, top_p=0.9, top_k=4, stop_sequences=["x"]) == {
        "model": "m",
        "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello"}],
        "stream": True,
        "max_completion_tokens": 9,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 4,
        "stop": ["x"],
    }
    assert chat(max_tokens=0)["max_completion_tokens"] == 1
    assert "max_completion_tokens" not in chat(max_tokens=None)


def test_the_translation_is_made_when_it_is_needed_and_once() -> None:
    asked = read(messages=[{"role": "robot", "content": "x"}])

    with pytest.raises(MalformedRequest) as raised:
        asked.fields["messages"]
    assert raised.value.param == "messages[0].role"
    with pytest.raises(MalformedRequest) as raised:
        read(messages=[{"role": "user", "content": 7}]).fields["messages"]
    assert raised.value.param == "messages[0].content"


def test_instructions_keep_their_marks() -> None:
    assert told({"role": "system", "content": "Two."}, *HELLO, system=[text("One.", cache_control=MARK), text("")])[:2] == [
        {"role": "system", "content": [text("One.", cache_control=MARK)]},
        {"role": "system", "content": "Two."},
    ]
    assert told(*HELLO, system="") == HELLO


def test_results_are_messages_behind_the_calls_and_their_images_follow() -> None:
    got = told(
        user(text("?")),
        assistant(
            text("Let "),
            text("me."),
            {"type": "tool_use", "id": "a", "name": "look", "input": {"at": 1.0}},
            {"type": "tool_use", "id": "b", "name": "look", "input": {}},
        ),
        user(
            text("and?"),
            result("a", [text("sun"), text("warm"), {"type": "image", "source": PNG}], cache_control=MARK),
            result("b", "rain", is_error=True),
            result("c"),
        ),
    )

    assert got[1] == {
        "role": "assistant",
        "content": "Let me.",
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"at": 1.0}'}},
            {"id": "b", "type": "function", "function": {"name": "look", "arguments": "{}"}},
        ],
    }
    assert got[2:] == [
        {"role": "tool", "tool_call_id": "a", "content": "sun\nwarm", "cache_control": MARK},
        {"role": "tool", "tool_call_id": "b", "content": "rain"},
        {"role": "tool", "tool_call_id": "c", "content": ""},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}, text("and?")]},
    ]


@pytest.mark.parametrize(
    ("block", "part"),
    [
        (
            {"type": "image", "source": {"type": "url", "url": "https://x.test/a.png"}},
            {"type": "image_url", "image_url": {"url": "https://x.test/a.png"}},
        ),
        (
            {"type": "document", "title": "a.pdf", "source": {"type": "base64", "media_type": "application/pdf", "data": "aGk="}},
            {"type": "file", "file": {"file_data": "data:application/pdf;base64,aGk=", "filename": "a.pdf"}},
        ),
        ({"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "words"}}, text("words")),
        ({"type": "image", "source": {"type": "base64", "data": 7}}, {"type": "image_url", "image_url": {"url": ""}}),
        ({"type": "document", "source": {"type": "content", "content": "words"}}, text("words")),
        (
            {"type": "document", "source": {"type": "content", "content": [text("words")]}, "cache_control": MARK},
            text("words", cache_control=MARK),
        ),
    ],
)
def test_blocks_become_parts(block: object, part: object) -> None:
    assert told(user(text("See:"), block))[0]["content"] == [text("See:"), part]


def test_reasoning_goes_back_beside_the_text() -> None:
    foreign = {"type": "reasoning.encrypted", "data": "é", "format": "google-gemini-v1", "index": 0}
    got = told(
        *HELLO,
        assistant(
            {"type": "thinking", "thinking": "Hm", "signature": "s"},
            {"type": "thinking", "thinking": "no", "signature": ""},
            text("a"),
            text("b"),
            {"type": "redacted_thinking", "data": "r"},
            {"type": "redacted_thinking", "data": sealed(foreign)},
            {"type": "redacted_thinking", "data": "n4n.v1.!"},
            {"type": "tool_use", "id": "t", "name": "n", "input": {}},
        ),
    )

    assert got[1]["content"] == "ab"
    assert got[1]["reasoning_details"] == [
        {"type": "reasoning.text", "text": "Hm", "signature": "s", "format": "anthropic-claude-v1", "index": 0},
        {"type": "reasoning.encrypted", "data": "r", "format": "anthropic-claude-v1", "index": 3},
        foreign,
    ]
    assert unsealed(sealed(foreign)) == foreign
    assert unsealed("n4n.v1.WzFd") is None


def test_an_answer_of_nothing_is_no_message() -> None:
    assert told(*HELLO, assistant(), {"role": "assistant", "content": "x"}) == [*HELLO, {"role": "assistant", "content": "x"}]
    assert told(user(), *HELLO) == HELLO


def test_tools_are_functions() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "number", "minimum": 1.0}}}
    got = chat(
        tools=[
            {"name": "a", "description": "A.", "input_schema": schema, "strict": True, "cache_control": MARK},
            {"name": "b", "type": "custom"},
            {"name": "bash", "type": "bash_20250124"},
            {"type": "web_search_20250305", "name": "web_search", "user_location": {"type": "approximate", "city": "Bern"}},
        ],
        tool_choice={"type": "tool", "name": "a", "disable_parallel_tool_use": True},
    )

    assert got["tools"] == [
        {"type": "function", "function": {"name": "a", "description": "A.", "parameters": schema, "strict": True}, "cache_control": MARK},
        {"type": "function", "function": {"name": "b"}},
    ]
    assert got["tool_choice"] == {"type": "function", "function": {"name": "a"}} and got["parallel_tool_calls"] is False
    assert got["web_search_options"] == {"user_location": {"type": "approximate", "approximate": {"city": "Bern"}}}
    assert chat(tools=[{"type": "web_search_20250305", "name": "web_search"}])["web_search_options"] == {}


@pytest.mark.parametrize(("kind", "word"), [("auto", "auto"), ("any", "required"), ("none", "none"), ("odd", None)])
def test_every_choice_has_its_word(kind: str, word: str | None) -> None:
    assert chat(tool_choice={"type": kind}).get("tool_choice") == word


@pytest.mark.parametrize(
    ("fields", "effort"),
    [
        ({"thinking": {"type": "adaptive"}}, "high"),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}}, "max"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "low"),
        ({"thinking": {"type": "enabled", "budget_tokens": 8000}}, "medium"),
        ({"thinking": {"type": "enabled", "budget_tokens": 32000}}, "high"),
        ({"thinking": {"type": "disabled"}, "output_config": {"effort": "low"}}, None),
        ({"output_config": {"effort": "low"}}, "low"),
        ({"thinking": {"type": "odd"}}, None),
    ],
)
def test_reasoning_is_an_effort(fields: dict[str, object], effort: str | None) -> None:
    assert chat(**fields).get("reasoning_effort") == effort


@pytest.mark.parametrize("place", ["output_config", "output_format"])
@pytest.mark.parametrize("strict", [True, False])
def test_the_format_of_the_output_is_a_json_schema(place: str, strict: bool) -> None:
    schema = {"type": "object", "properties": {"a": {}}, "required": ["a"] if strict else [], "additionalProperties": False}
    wanted = {"type": "json_schema", "schema": schema}
    got = chat(**{place: {"format": wanted} if place == "output_config" else wanted})

    assert got["response_format"] == {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": strict}}
    assert "response_format" not in chat(output_format={"type": "odd"})


def test_the_user_is_opaque_and_short() -> None:
    long = "user_" + "a" * 90

    assert chat(metadata={"user_id": "u"})["user"] == "u"
    assert chat(metadata={"user_id": long})["user"] == hashlib.sha256(long.encode()).hexdigest()
    assert "user" not in chat(metadata={"user_id": 7}) and "user" not in chat(metadata=None)


def test_tiers_and_the_mark_on_the_whole_are_kept() -> None:
    got = chat(service_tier="standard_only", cache_control=MARK)

    assert (got["service_tier"], got["cache_control"]) == ("default", MARK)


def test_what_a_chat_cannot_say_is_told() -> None:
    asked = read(
        messages=[
            user(
                result("a", "x", is_error=True),
                result("b", "x", is_error=True),
                {"type": "document", "source": {"type": "url", "url": "https://x.test"}},
            ),
            assistant(text("x"), {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}),
            user({"type": "image", "source": {"type": "file", "file_id": "f"}}, {"type": "search_result"}),
        ],
        tools=[{"name": "t"}, {"type": "bash_20250124", "name": "bash"}, {"type": "web_search_20250305", "name": "w"}],
        container="c",
        context_management={},
    )

    assert losses(asked) == (
        "container was left out: only Messages has a word for it",
        "is_error of a tool_result was left out: only Messages has a word for it",
        "messages[0].content[0] (document) was left out: only Messages has a word for it",
        "messages[1].content[1] (server_tool_use) was left out: only Messages has a word for it",
        "messages[2].content[0] (image) was left out: only Messages has a word for it",
        "messages[2].content[1] (search_result) was left out: only Messages has a word for it",
        "tools[1] (bash_20250124) was left out: only Messages has a word for it",
    )
    assert losses(read()) == ()
    assert losses(read_chat(b'{"model":"m","messages":[{}]}')) == ()


def test_a_request_too_deep_to_be_written_again_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_deep(system: object, messages: object) -> None:
        raise RecursionError

    monkeypatch.setattr(messages_chat, "chat_messages", too_deep)
    with pytest.raises(MalformedRequest, match="nested too deeply"):
        read().fields["model"]


# ── counting


def test_text_is_counted_by_its_bytes_and_what_is_in_base64_by_what_it_costs() -> None:
    def body(content: object, **more: object) -> bytes:
        return json.dumps({"model": "m", "messages": [{"role": "user", "content": content}], **more}).encode()

    plain = rough_count(body("x" * 4000))
    image = {"type": "image", "source": {"type": "base64", "data": "A" * 100_000}}
    document = {"type": "document", "source": {"type": "base64", "data": "A" * 80_000}}

    assert 1000 <= plain <= 1020
    assert rough_count(body("x" * 4000, max_tokens=5, metadata={"user_id": "u" * 400})) == plain
    assert IMAGE_TOKENS < rough_count(body([image])) < IMAGE_TOKENS + 50
    assert IMAGE_TOKENS + 2000 < rough_count(body([result("t", [image, document])])) < IMAGE_TOKENS + 2100
    assert (
        IMAGE_TOKENS
        < rough_count(body([{"type": "image", "source": {"type": "url", "url": "https://x.test"}}, text("x")]))
        < IMAGE_TOKENS + 50
    )
    assert rough_count(body(7)) == rough_count(b'{"messages":[{"role":"user","content":7  }]}') > 0
    assert rough_count(b'{"messages":0}') == 1
    assert count_body(7, b'{"estimated":true}') == b'{"input_tokens":7,"n4n":{"estimated":true}}'


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"tools": [{"name": "t"}, {"name": "t", "type": "custom"}]}, ()),
        ({"tools": [{"type": "web_search_20250305"}, {"type": "bash_20250124"}]}, ("web_search", "bash_20250124")),
        ({"mcp_servers": [{"type": "url", "url": "https://a.example", "name": "a"}]}, ("mcp_servers",)),
        ({"mcp_servers": []}, ()),
    ],
)  # fmt: skip
def test_the_tools_that_only_messages_knows_are_named(fields: dict[str, object], names: tuple[str, ...]) -> None:
    assert read(**fields).native_tools == names
