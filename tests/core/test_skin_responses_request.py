"""The skin of /v1/responses, its requests: what is read, what is refused by name, and the chat that it means."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from n4n.core.catalog import Endpoint, EndpointId, ModelId, Provider
from n4n.core.chat import ChatRequest
from n4n.core.chat_request import read_chat
from n4n.core.dialects.table import DIALECTS
from n4n.core.errors import MalformedRequest, RequestError, Untellable
from n4n.core.skins.responses import read_responses
from n4n.core.skins.responses_chat import losses
from n4n.core.skins.responses_tools import Called, called_in
from n4n.core.skins.responses_turns import sealed, unsealed


def body(**fields: object) -> bytes:
    return json.dumps({"model": "m", "input": "hi", **fields}).encode()


def read(**fields: object) -> ChatRequest:
    return read_responses(body(**fields))


def chat(**fields: object) -> dict[str, Any]:
    """The chat that a request means, without the model."""
    return {name: json.loads(bytes(raw)) for name, raw in read(**fields).fields.items() if name != "model"}


def messages(*items: object) -> Any:
    return chat(input=list(items))["messages"]


def refused(raw: bytes) -> RequestError:
    with pytest.raises((MalformedRequest, Untellable)) as caught:
        dict(read_responses(raw).fields)
    return caught.value


# ── what is read


def test_a_small_request_reads_with_its_defaults() -> None:
    request = read()

    assert (request.model, request.stream, request.max_output_tokens, request.features) == ("m", False, None, frozenset())
    assert request.native is not None and request.native.dialect == "openai_responses"
    assert {name: bytes(raw) for name, raw in request.native.fields.items()} == {"model": b'"m"', "input": b'"hi"'}
    assert request.body_bytes == len(body())


def test_what_is_n4ns_own_is_read_as_everywhere_and_stays_here() -> None:
    request = read(stream=True, models=["a"], provider={"order": ["x"]}, unsupported_params="reject", max_output_tokens=7, custom=1)

    assert (request.stream, request.models, request.unsupported_params, request.provider_object) == (
        True,
        ("a",),
        "reject",
        {"order": ["x"]},
    )
    assert request.max_output_tokens == 7
    assert request.native is not None
    assert set(request.native.fields) == {"model", "input", "stream", "max_output_tokens", "custom"}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"tools": [{"type": "function", "name": "f"}]}, {"tools"}),
        ({"tools": [{"type": "custom", "name": "f"}], "parallel_tool_calls": True}, {"tools", "parallel_tools"}),
        ({"tools": [{"type": "namespace", "name": "n", "tools": []}]}, {"tools"}),
        ({"tools": [{"type": "web_search"}]}, {"web_search"}),
        ({"tools": [{"type": "web_search_preview_2025"}, {"type": "mcp"}]}, {"web_search"}),
        ({"tools": [], "parallel_tool_calls": True}, set()),
        ({"tool_choice": "auto"}, {"tool_choice"}),
        ({"tool_choice": "required"}, {"tool_choice", "forced_tool_choice"}),
        ({"tool_choice": {"type": "function", "name": "f"}}, {"tool_choice", "forced_tool_choice"}),
        ({"text": {"format": {"type": "json_schema", "schema": {}}}}, {"json_schema"}),
        ({"text": {"format": {"type": "json_object"}}}, {"json_object"}),
        ({"text": {"format": {"type": "text"}, "verbosity": "low"}}, set()),
        ({"text": None, "tools": None, "include": None, "reasoning": None, "store": None, "background": None}, set()),
        ({"reasoning": {"effort": "low"}}, {"reasoning"}),
        ({"temperature": 0.5, "prompt_cache_key": "k"}, {"sampling_params", "prompt_caching"}),
        ({"include": ["message.output_text.logprobs", "x"]}, {"logprobs"}),
        ({"include": ["reasoning.encrypted_content"], "top_logprobs": 2}, {"logprobs"}),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "u"}, {"type": "input_file", "file_id": "f"}]}]},
            {"vision", "pdf_input"},
        ),
        ({"input": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]}, {"audio_input"}),
        ({"input": 'say "input_image"'}, set()),
        ({"input": [{"role": "user", "content": "a", "x": "item_reference"}]}, set()),
        ({"input": [{"role": "user", "content": 5}, {"role": "input_image"}]}, set()),
    ],
)
def test_the_features_a_request_uses(fields: dict[str, object], expected: set[str]) -> None:
    assert read(**fields).features == expected


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id", "send the whole conversation in input"),
        ({"conversation": "conv_1"}, "conversation", "send the whole conversation in input"),
        ({"conversation": {"id": "c"}}, "conversation", "send the whole conversation in input"),
        ({"background": True}, "background", "ask for a stream"),
        ({"background": "yes"}, "background", "must be true or false"),
        ({"store": "yes"}, "store", "must be true or false"),
        ({"input": None}, "input", "input is missing"),
        ({"input": []}, "input", "at least one item"),
        ({"input": {"role": "user"}}, "input", "a text, or a list"),
        ({"input": [{"role": "user"}, {"type": "item_reference", "id": "msg_1"}]}, "input[1]", "send the item itself"),
        ({"max_output_tokens": 0}, "max_output_tokens", "from 1"),
        ({"tools": {"type": "function"}}, "tools", "a list of tools"),
        ({"parallel_tool_calls": 1}, "parallel_tool_calls", "true or false"),
        ({"text": "json"}, "text", "must be an object"),
        ({"reasoning": {"effort": 5}}, "reasoning", "must be an object"),
        ({"include": "all"}, "include", "a list of texts"),
        ({"stream": 1}, "stream", "true or false"),
        ({"model": None}, "model", "the name of a model"),
        ({"models": []}, "models", "1 to 64"),
        ({"api_base": "https://x"}, "api_base", "cannot be set"),
        # only where the chat is needed
        ({"prompt": {"id": "p"}}, "prompt", "write out what it says"),
        ({"prompt": {"id": "p"}, "input": None}, "prompt", "write out what it says"),
        ({"tool_choice": {"type": "mcp", "server_label": "s"}}, "tool_choice", "speak the Responses API themselves"),
        ({"input": [{"type": "computer_call_output", "call_id": "c", "output": {}}]}, "input[0]", "input[0] (computer_call_output)"),
        ({"input": [{"type": "compaction", "encrypted_content": "x"}]}, "input[0]", "input[0] (compaction)"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]}, "input[0].content[0]", "(input_image)"),
        ({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "input[0].content[0]", "(input_file)"),
        ({"input": [{"role": "god", "content": "a"}]}, "input[0].role", "user, system, developer or assistant"),
        ({"input": [{"role": "user", "content": 5}]}, "input[0].content", "expected"),
        ({"input": [{"type": "function_call", "name": "f", "arguments": {}}]}, "input[0].arguments", "expected"),
        ({"instructions": 5}, "instructions", "a text, not a number"),
        ({"tools": [{"type": "function", "name": 5}]}, "tools[0].name", "expected"),
    ],
)
def test_what_cannot_be_is_refused_by_name(fields: dict[str, object], param: str, words: str) -> None:
    error = refused(body(**fields))

    assert error.param == param
    assert words in error.message


@pytest.mark.parametrize("raw", [b"", b"[]", b"{", b'{"model":"m","input":"\xff"}', b'{"model":"m"}', b'{"model":"m","input":"\\ud83d"}'])
def test_what_is_no_request_is_refused(raw: bytes) -> None:
    assert refused(raw).message


def test_what_is_nested_too_deeply_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_deep(value: object) -> bytes:
        raise RecursionError

    request = read()
    monkeypatch.setattr("n4n.core.json_bytes.encode", too_deep)
    with pytest.raises(MalformedRequest, match="nested too deeply"):
        dict(request.fields)


def test_a_text_that_is_not_ascii_reads() -> None:
    text = "日本 👩‍👩‍👧"
    request = read_responses(f'{{"model":"m","input":"{text}"}}'.encode())

    assert json.loads(bytes(request.fields["messages"])) == [{"role": "user", "content": text}]


# ── the chat it means

USER = {"role": "user", "content": "hi"}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "look", "arguments": '{"a":1}'}
MADE = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"a":1}'}}
SAID = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "a"}, {"type": "output_text", "text": "b"}],
}
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "zzz"}
DETAIL = {"type": "reasoning.encrypted", "data": "zzz", "id": "rs_1", "format": "openai-responses-v1"}


def test_a_text_is_a_message_of_the_user_and_instructions_go_first() -> None:
    assert chat(instructions="be brief") == {"messages": [{"role": "system", "content": "be brief"}, USER]}
    assert chat(instructions="") == {"messages": [USER]}


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([{"role": "user", "content": "hi"}], [USER]),
        (
            [{"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "a"}]}],
            [{"role": "developer", "content": "a"}],
        ),
        ([{"role": "user", "content": None}], [{"role": "user", "content": ""}]),
        (
            [
                {
                    "role": "user",
                    "content": [{"type": "input_text", "text": "a", "prompt_cache_breakpoint": {"mode": "explicit"}}, {"type": "text"}],
                }
            ],
            [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "a", "prompt_cache_breakpoint": {"mode": "explicit"}},
                        {"type": "text", "text": ""},
                    ],
                }
            ],
        ),
        (
            [
                {
                    "role": "user",
                    "content": [
                        {"type": "input_image", "image_url": "u", "detail": "low"},
                        {"type": "input_image", "image_url": "v"},
                        {"type": "input_file", "file_data": "d", "filename": "f"},
                        {"type": "input_file", "file_url": "https://x"},
                        {"type": "input_file", "file_id": "i"},
                        {"type": "input_audio", "input_audio": {"data": "AA"}},
                    ],
                }
            ],
            [
                {
                    "role": "user",
                    "content": [
                        {"type": "image_url", "image_url": {"url": "u", "detail": "low"}},
                        {"type": "image_url", "image_url": {"url": "v"}},
                        {"type": "file", "file": {"file_data": "d", "filename": "f"}},
                        {"type": "file", "file": {"file_data": "https://x"}},
                        {"type": "file", "file": {"file_id": "i"}},
                        {"type": "input_audio", "input_audio": {"data": "AA"}},
                    ],
                }
            ],
        ),
        ([SAID], [{"role": "assistant", "content": "ab"}]),
        ([{"role": "assistant", "content": "a"}], [{"role": "assistant", "content": "a"}]),
        (
            [{"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}],
            [{"role": "assistant", "content": None, "refusal": "no"}],
        ),
        (
            [
                USER,
                CALL,
                {**CALL, "call_id": None, "arguments": None},
                {"type": "function_call_output", "call_id": "call_1", "output": "ok"},
            ],
            [
                USER,
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        MADE,
                        {"id": "fc_1", "type": "function", "function": {"name": "look", "arguments": "{}"}},
                    ],
                },
                {"role": "tool", "tool_call_id": "call_1", "content": "ok"},
            ],
        ),
        (
            [
                {
                    "type": "function_call_output",
                    "call_id": "c",
                    "output": [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "u"}],
                }
            ],
            [
                {
                    "role": "tool",
                    "tool_call_id": "c",
                    "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "u"}}],
                }
            ],
        ),
        ([SAID, CALL], [{"role": "assistant", "content": "ab", "tool_calls": [MADE]}]),
        ([SAID, SAID, CALL], [{"role": "assistant", "content": "ab"}, {"role": "assistant", "content": "ab", "tool_calls": [MADE]}]),
        ([CALL, SAID], [{"role": "assistant", "content": None, "tool_calls": [MADE]}, {"role": "assistant", "content": "ab"}]),
        (
            [
                {"type": "custom_tool_call", "call_id": "c", "name": "patch", "input": "+a\n"},
                {"type": "custom_tool_call_output", "call_id": "c", "output": "ok"},
            ],
            [
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {"id": "c", "type": "function", "function": {"name": "patch", "arguments": '{"input":"+a\\n"}'}},
                    ],
                },
                {"role": "tool", "tool_call_id": "c", "content": "ok"},
            ],
        ),
        (
            [{**CALL, "namespace": "crm"}],
            [
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {"id": "call_1", "type": "function", "function": {"name": "crm__look", "arguments": '{"a":1}'}},
                    ],
                }
            ],
        ),
        ([{"type": "web_search_call", "id": "ws", "action": {}}, SAID], [{"role": "assistant", "content": "ab"}]),
        ([THOUGHT, SAID], [{"role": "assistant", "content": "ab", "reasoning_details": [{**DETAIL, "index": 0}]}]),
        (
            [THOUGHT, SAID, THOUGHT, CALL],
            [
                {
                    "role": "assistant",
                    "content": "ab",
                    "reasoning_details": [{**DETAIL, "index": 0}, {**DETAIL, "index": 2}],
                    "tool_calls": [MADE],
                }
            ],
        ),
        (
            [SAID, THOUGHT, SAID],
            [{"role": "assistant", "content": "ab"}, {"role": "assistant", "content": "ab", "reasoning_details": [{**DETAIL, "index": 0}]}],
        ),
        ([SAID, THOUGHT, USER], [{"role": "assistant", "content": "ab", "reasoning_details": [{**DETAIL, "index": 1}]}, USER]),
        ([THOUGHT, USER], [USER]),
        ([{"type": "reasoning", "summary": []}, SAID], [{"role": "assistant", "content": "ab"}]),
        ([{**THOUGHT, "encrypted_content": "n4n.v1.tampered"}, SAID], [{"role": "assistant", "content": "ab"}]),
        ([{**THOUGHT, "encrypted_content": "n4n.v1.NQ=="}, SAID], [{"role": "assistant", "content": "ab"}]),
    ],
)
def test_items_are_messages(items: list[object], expected: list[object]) -> None:
    assert messages(*items) == expected


def test_what_another_provider_sealed_comes_back_as_it_was() -> None:
    entries: list[dict[str, object]] = [
        {"type": "reasoning.text", "text": "hm é", "signature": "sig", "format": "anthropic-claude-v1", "index": 0},
        {"type": "reasoning.encrypted", "data": "d", "format": "anthropic-claude-v1", "index": 1},
    ]
    content = sealed(entries)

    assert content is not None and content.startswith("n4n.v1.")
    assert unsealed(content) == entries
    assert messages({**THOUGHT, "encrypted_content": content}, SAID)[0]["reasoning_details"] == entries
    assert sealed([{"type": "reasoning.text", "text": "hm"}]) is None


SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
PATCH = {"type": "custom", "name": "patch", "description": "d", "format": {"type": "grammar", "syntax": "lark", "definition": "start: x"}}
PATCHED = {
    "name": "patch",
    "description": "d\nThe input has to conform to this lark grammar:\nstart: x",
    "parameters": {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"], "additionalProperties": False},
}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"max_output_tokens": 7, "temperature": 0.5, "user": "u"}, {"max_completion_tokens": 7, "temperature": 0.5, "user": "u"}),
        ({"stream": True, "stream_options": {"include_obfuscation": False}, "store": True}, {"stream": True}),
        ({"temperature": None, "metadata": {"a": "b"}}, {"metadata": {"a": "b"}}),
        ({"reasoning": {"effort": "low", "summary": "auto"}}, {"reasoning_effort": "low"}),
        ({"text": {"format": {"type": "text"}, "verbosity": "low"}}, {"verbosity": "low"}),
        ({"text": {"format": {"type": "json_object"}}}, {"response_format": {"type": "json_object"}}),
        (
            {"text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": True}}},
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}}},
        ),
        (
            {"text": {"format": {"type": "json_schema", "schema": SCHEMA, "description": "d"}}},
            {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "description": "d", "schema": SCHEMA}}},
        ),
        ({"include": ["message.output_text.logprobs"], "top_logprobs": 3}, {"logprobs": True, "top_logprobs": 3}),
        (
            {
                "tools": [
                    {"type": "function", "name": "f", "description": "d", "parameters": SCHEMA, "strict": True},
                    {"type": "function", "name": "g", "parameters": None},
                ],
                "parallel_tool_calls": False,
            },
            {
                "tools": [
                    {"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA, "strict": True}},
                    {"type": "function", "function": {"name": "g"}},
                ],
                "parallel_tool_calls": False,
            },
        ),
        ({"tools": [PATCH]}, {"tools": [{"type": "function", "function": PATCHED}]}),
        (
            {"tools": [{"type": "namespace", "name": "crm", "tools": [{"type": "function", "name": "f", "parameters": {}}]}]},
            {"tools": [{"type": "function", "function": {"name": "crm__f", "parameters": {}}}]},
        ),
        ({"tools": [{"type": "web_search"}], "tool_choice": "auto", "parallel_tool_calls": True}, {"web_search_options": {}}),
        (
            {
                "tools": [
                    {
                        "type": "web_search_preview",
                        "search_context_size": "low",
                        "user_location": {"type": "approximate", "city": "Bonn", "region": None},
                    }
                ],
                "tool_choice": {"type": "web_search_preview"},
            },
            {
                "web_search_options": {
                    "search_context_size": "low",
                    "user_location": {"type": "approximate", "approximate": {"city": "Bonn"}},
                }
            },
        ),
        ({"tools": [{"type": "mcp", "server_label": "s"}]}, {}),
        ({"tool_choice": "none"}, {}),
    ],
)
def test_parameters_are_those_of_a_chat(fields: dict[str, object], expected: dict[str, object]) -> None:
    assert chat(**fields) == {"messages": [USER], **expected}


F = {"type": "function", "name": "f"}


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("required", "required"),
        ({"type": "function", "name": "f"}, {"type": "function", "function": {"name": "f"}}),
        ({"type": "custom", "name": "patch"}, {"type": "function", "function": {"name": "patch"}}),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [F, {"type": "mcp"}]},
            {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "f"}}]}},
        ),
    ],
)
def test_a_choice_of_tools_is_that_of_a_chat(said: object, expected: object) -> None:
    assert chat(tools=[F], tool_choice=said)["tool_choice"] == expected


def test_a_call_finds_the_tool_behind_its_function() -> None:
    request = read(tools=[F, PATCH, {"type": "namespace", "name": "crm", "tools": [{"type": "custom", "name": "q"}]}])

    assert called_in(request) == {"f": Called("f"), "patch": Called("patch", custom=True), "crm__q": Called("q", "crm", custom=True)}
    assert called_in(read_chat(b'{"model":"m","messages":[{}]}')) == {}


def test_what_a_chat_cannot_say_is_named() -> None:
    request = read(
        input=[USER, {"type": "web_search_call", "id": "ws"}, {"type": "mcp_list_tools", "id": "x"}],
        tools=[F, {"type": "mcp", "server_label": "s"}, {"type": "image_generation"}],
        truncation="auto",
        max_tool_calls=3,
        context_management=[],
        store=True,
    )

    assert losses(request) == tuple(
        f"{name} was left out: only the Responses API has a word for it"
        for name in (
            "truncation",
            "max_tool_calls",
            "input[1] (web_search_call)",
            "input[2] (mcp_list_tools)",
            "tools[1] (mcp)",
            "tools[2] (image_generation)",
        )
    )
    assert losses(read()) == ()
    assert losses(read_chat(b'{"model":"m","messages":[{}],"truncation":"auto"}')) == ()


ENDPOINT = Endpoint(EndpointId("e"), ModelId("m"), Provider("p", "openai_responses", "https://example.test/v1"), (), "theirs")
WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
ITEM = st.one_of(
    st.builds(lambda text: {"role": "user", "content": text}, WORDS),
    st.builds(lambda text: {"role": "assistant", "content": text}, WORDS.filter(bool)),
    st.builds(
        lambda name, text: {"type": "function_call", "call_id": name, "name": "f", "arguments": json.dumps({"a": text})}, WORDS, WORDS
    ),
    st.builds(lambda name, text: {"type": "function_call_output", "call_id": name, "output": text}, WORDS, WORDS),
)


@given(st.lists(ITEM, min_size=1, max_size=8))
def test_items_by_way_of_a_chat_are_the_same_items(items: list[dict[str, object]]) -> None:
    translated = read_responses(json.dumps({"model": "m", "input": items}).encode()).fields
    asked = read_chat(json.dumps({name: json.loads(bytes(raw)) for name, raw in translated.items()}).encode())
    sent = json.loads(DIALECTS["openai_responses"].encode(asked, ENDPOINT, None).body)

    assert sent["input"] == items


@pytest.mark.parametrize(
    ("tools", "names"),
    [
        ([{"type": "function", "name": "f"}, {"type": "custom", "name": "c"}], ()),
        ([{"type": "web_search_preview"}, {"type": "web_search"}, {"type": "mcp"}], ("web_search", "mcp")),
        ([{"type": "a b\n" + "x" * 90}], ("a?b?" + "x" * 36,)),
        ([{"type": f"t{number}"} for number in range(20)], tuple(f"t{number}" for number in range(8))),
    ],
)
def test_the_apis_own_tools_are_named(tools: list[object], names: tuple[str, ...]) -> None:
    assert read_responses(body(tools=tools)).native_tools == names
