"""The dialect `anthropic`, what goes out: a chat translated into Messages, and a client's own Messages passed through."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from n4n.core import json_bytes
from n4n.core.catalog import Endpoint, EndpointId, ModelId, Provider
from n4n.core.chat import ChatRequest, Native, UpstreamRequest
from n4n.core.chat_request import read_chat
from n4n.core.dialects import anthropic
from n4n.core.dialects.anthropic import Anthropic
from n4n.core.errors import MalformedRequest, Untellable
from n4n.core.skins.messages import read_messages

ANTHROPIC = Anthropic()
HELLO: list[object] = [{"role": "user", "content": "Hello"}]
OLDER = frozenset(("tools", "reasoning", "assistant_prefill", "sampling_params", "json_schema", "tool_choice", "forced_tool_choice"))
TOOL = {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": {"type": "object", "properties": {}}}}


def chat(**fields: object) -> ChatRequest:
    return read_chat(json.dumps({"model": "asked", "messages": HELLO, **fields}).encode())


def messages(**fields: object) -> ChatRequest:
    return read_messages(json.dumps({"model": "asked", "max_tokens": 9, "messages": HELLO, **fields}).encode())


def endpoint(**fields: Any) -> Endpoint:
    provider = Provider("p", "anthropic", fields.pop("base_url", "https://example.test"), headers=fields.pop("headers", {}))
    fields.setdefault("max_output_tokens", 4000)
    return Endpoint(EndpointId("e1"), ModelId("asked"), provider, (), fields.pop("upstream_model", "theirs"), **fields)


def encoded(sent: ChatRequest, **fields: Any) -> UpstreamRequest:
    return ANTHROPIC.encode(sent, endpoint(**fields), "secret")


def body(sent: ChatRequest, **fields: Any) -> Any:
    return json.loads(encoded(sent, **fields).body)


def turns(*said: object, **fields: Any) -> Any:
    return body(chat(messages=list(said)), **fields)["messages"]


def user(content: object, **more: object) -> dict[str, object]:
    return {"role": "user", "content": content, **more}


def called(*calls: tuple[str, str, str], **more: object) -> dict[str, object]:
    made = [{"id": name, "type": "function", "function": {"name": function, "arguments": text}} for name, function, text in calls]
    return {"role": "assistant", "content": None, "tool_calls": made, **more}


def result(call: str, content: object, **more: object) -> dict[str, object]:
    return {"role": "tool", "tool_call_id": call, "content": content, **more}


# ── where it goes, and with what


@pytest.mark.parametrize(
    ("base_url", "url"),
    [
        ("https://api.anthropic.com", "https://api.anthropic.com/v1/messages"),
        ("https://api.anthropic.com/v1", "https://api.anthropic.com/v1/messages"),
        ("https://x.services.ai.azure.com/anthropic", "https://x.services.ai.azure.com/anthropic/v1/messages"),
    ],
)
def test_the_path_joins_every_base_url(base_url: str, url: str) -> None:
    assert encoded(chat(), base_url=base_url).url == url


@pytest.mark.parametrize(
    ("secret", "header"),
    [
        ("sk-ant-api03-x", ("x-api-key", "sk-ant-api03-x")),
        ("0123abcd", ("x-api-key", "0123abcd")),
        ("sk-ant-oat01-x", ("authorization", "Bearer sk-ant-oat01-x")),
        ("eyJhbGc.eyJzdWI.c2ln", ("authorization", "Bearer eyJhbGc.eyJzdWI.c2ln")),
    ],
)
def test_a_key_goes_out_as_a_key_and_a_token_as_a_bearer(secret: str, header: tuple[str, str]) -> None:
    sent = ANTHROPIC.encode(chat(), endpoint(), secret)

    assert sent.headers == (
        ("content-type", "application/json"),
        ("accept", "application/json"),
        ("anthropic-version", "2023-06-01"),
        header,
    )


def test_without_a_secret_there_is_no_credential() -> None:
    names = [name for name, _ in ANTHROPIC.encode(chat(stream=True), endpoint(), None).headers]

    assert names == ["content-type", "accept", "anthropic-version"]


def test_the_catalogs_headers_win_and_betas_add_up() -> None:
    sent = read_messages(b'{"model":"m","messages":[{"role":"user","content":"?"}]}', beta="files-api-2025-04-14, mcp-client-2025-11-20")
    headers = {"Anthropic-Beta": "context-1m-2025-08-07,files-api-2025-04-14", "anthropic-version": "2030-01-01", "X-Team": "a"}
    encoded = ANTHROPIC.encode(sent, endpoint(headers=headers, body={}), "s")

    found = dict(encoded.headers)
    assert found["anthropic-beta"] == "context-1m-2025-08-07,files-api-2025-04-14,mcp-client-2025-11-20"
    assert (found["anthropic-version"], found["x-team"]) == ("2030-01-01", "a")
    assert b"anthropic_beta" not in encoded.body


@pytest.mark.parametrize(("betas", "header"), [(["a-1", "b c"], "a-1"), ("a-1", None), ([], None)])
def test_the_catalogs_body_may_name_betas_as_clouds_do(betas: object, header: str | None) -> None:
    sent = encoded(chat(), body={"anthropic_beta": betas, "inference_geo": "us"})

    assert dict(sent.headers).get("anthropic-beta") == header
    assert json.loads(sent.body)["inference_geo"] == "us" and b"anthropic_beta" not in sent.body


def test_counting_asks_for_the_input_of_the_same_request() -> None:
    sent = ANTHROPIC.encode_count(messages(system="s", stream=True, temperature=0.5, tools=[{"name": "t"}]), endpoint(), "s")

    assert sent.url == "https://example.test/v1/messages/count_tokens"
    assert json.loads(sent.body) == {"model": "theirs", "messages": HELLO, "system": "s", "tools": [{"name": "t"}]}


# ── a chat's messages


def test_a_plain_chat_stays_plain() -> None:
    assert body(chat(stream=True, max_tokens=7, temperature=0.5)) == {
        "max_tokens": 7,
        "messages": [{"role": "user", "content": "Hello"}],
        "temperature": 0.5,
        "stream": True,
        "model": "theirs",
    }
    assert encoded(chat(stream=True)).warnings == ()


def test_instructions_are_hoisted_wherever_they_stand() -> None:
    sent = body(chat(messages=[{"role": "system", "content": "One."}, *HELLO, {"role": "developer", "content": "Two."}]))

    assert sent["system"] == [{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}]
    assert sent["messages"] == HELLO
    assert body(chat(messages=[{"role": "system", "content": "One."}, *HELLO]))["system"] == "One."


def test_neighbours_of_a_role_are_one_turn_and_blank_ones_none() -> None:
    got = turns(user("a"), user("  "), user([{"type": "text", "text": "b"}, {"type": "text", "text": ""}]), user("c"))

    assert got == [{"role": "user", "content": [{"type": "text", "text": word} for word in "abc"]}]


def test_results_of_one_turn_stand_together_before_everything_else() -> None:
    got = turns(
        user("weather?"),
        called(("call_a", "look", '{"at":  1.0}'), ("call_b", "look", "")),
        result("call_a", "sun"),
        result("call_b", [{"type": "text", "text": "rain"}, {"type": "image_url", "image_url": {"url": "https://x.test/a.png"}}]),
        user("and?"),
    )

    assert got[1] == {
        "role": "assistant",
        "content": [
            {"type": "tool_use", "id": "call_a", "name": "look", "input": {"at": 1.0}},
            {"type": "tool_use", "id": "call_b", "name": "look", "input": {}},
        ],
    }
    assert got[2] == {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "call_a", "content": "sun"},
            {
                "type": "tool_result",
                "tool_use_id": "call_b",
                "content": [
                    {"type": "text", "text": "rain"},
                    {"type": "image", "source": {"type": "url", "url": "https://x.test/a.png"}},
                ],
            },
            {"type": "text", "text": "and?"},
        ],
    }


def test_arguments_go_out_as_they_were_written() -> None:
    text = '{"big": 123456789012345678901234567890, "f": 1.10, "s": "\\u00e9"}'

    assert text.encode() in encoded(chat(messages=[user("?"), called(("a", "look", text))])).body
    assert turns(user("?"), called(("a", "look", '{"broken')))[1]["content"][0]["input"] == {"INVALID_JSON": '{"broken'}
    assert turns(user("?"), called(("a", "look", "[1]")))[1]["content"][0]["input"] == {"INVALID_JSON": "[1]"}


def test_ids_are_made_fit_alike_for_call_and_result() -> None:
    got = turns(user("?"), called(("functions.look:0", "look", "{}")), result("functions.look:0", ""))

    assert got[1]["content"][0]["id"] == got[2]["content"][0]["tool_use_id"] == "functions_look_0"
    assert "content" not in got[2]["content"][0]
    anonymous = turns(user("?"), {"role": "assistant", "tool_calls": [{"function": {"name": "look"}}]})
    assert anonymous[1]["content"][0]["id"] == "call_0"


def test_the_old_function_call_is_a_call_with_a_result() -> None:
    got = turns(
        user("?"),
        {"role": "assistant", "content": "Wait.", "function_call": {"name": "look", "arguments": '{"a":1}'}},
        {"role": "function", "name": "look", "content": "sun"},
        {"role": "function", "name": "look", "content": "stray"},
    )

    assert got[1]["content"][1] == {"type": "tool_use", "id": "call_1", "name": "look", "input": {"a": 1}}
    assert [block["tool_use_id"] for block in got[2]["content"]] == ["call_1", ""]


def test_a_chat_that_begins_with_the_assistant_is_given_a_beginning() -> None:
    sent = encoded(chat(messages=[{"role": "assistant", "content": "Hi! \n"}]))

    assert json.loads(sent.body)["messages"] == [{"role": "user", "content": "…"}, {"role": "assistant", "content": "Hi!"}]
    assert sent.warnings == ("a user message was put before the first one, which is the assistant's: Messages begins with the user",)


def test_a_refusal_is_said_again_and_so_is_a_refusal_part() -> None:
    got = turns(
        user("?"),
        {"role": "assistant", "content": None, "refusal": "No."},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "Never."}], "refusal": " "},
    )

    assert got[1]["content"] == [{"type": "text", "text": "No."}, {"type": "text", "text": "Never."}]


@pytest.mark.parametrize(
    ("part", "block"),
    [
        (
            {"type": "image_url", "image_url": {"url": "data:image/PNG;x=1;base64,aGk=", "detail": "auto"}},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
        ),
        (
            {"type": "image_url", "image_url": "data:image/svg+xml;charset=utf-8,%3Csvg%2F%3E"},
            {
                "type": "image",
                "source": {"type": "base64", "media_type": "image/svg+xml", "data": base64.b64encode(b"<svg/>").decode()},
            },
        ),
        (
            {"type": "image_url", "image_url": {"url": "data:,hi"}},
            {"type": "image", "source": {"type": "base64", "media_type": "text/plain", "data": "aGk="}},
        ),
        (
            {"type": "image_url", "image_url": {"url": "HTTPS://x.test/a.png"}},
            {"type": "image", "source": {"type": "url", "url": "HTTPS://x.test/a.png"}},
        ),
        (
            {"type": "file", "file": {"file_data": "data:application/pdf;base64,aGk=", "filename": "a.pdf"}},
            {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "aGk="}, "title": "a.pdf"},
        ),
        (
            {"type": "file", "file": {"file_data": "aGk="}},
            {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "aGk="}},
        ),
        (
            {"type": "input_text", "text": "x", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
            {"type": "text", "text": "x", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
        ),
        (
            {"type": "text", "text": "x", "prompt_cache_breakpoint": {"mode": "explicit", "ttl": "12h"}},
            {"type": "text", "text": "x", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
        ),
        (
            {"type": "text", "text": "x", "prompt_cache_breakpoint": {"mode": "explicit"}},
            {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}},
        ),
    ],
)
def test_parts_become_blocks(part: object, block: object) -> None:
    assert turns(user([{"type": "text", "text": "See:"}, part]))[0]["content"][1] == block


@pytest.mark.parametrize(
    ("part", "why"),
    [
        ({"type": "file", "file": {"file_id": "file-1"}}, "takes no file by an id of OpenAI"),
        ({"type": "input_audio", "input_audio": {}}, "takes no input_audio"),
        ({"type": "image_url"}, "takes no image_url"),
    ],
)
def test_a_question_that_messages_cannot_hold_is_not_asked_without_a_part_of_it(part: object, why: str) -> None:
    with pytest.raises(Untellable) as caught:
        encoded(chat(messages=[user([{"type": "text", "text": "See:"}, part])]))

    assert caught.value.message == f"messages[0].content[1]: endpoint e1 {why}"


def test_what_is_soft_is_left_out_and_named_once() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://x.test/a.png", "detail": "high"}}
    sent = encoded(chat(messages=[user([image], name="ann"), user([image], name="bob")]))

    assert sent.warnings == (
        "the name of a message was left out: endpoint e1 has no word for it",
        "messages[0].content[0].image_url.detail was left out: endpoint e1 has no word for it",
        "messages[1].content[0].image_url.detail was left out: endpoint e1 has no word for it",
    )


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": [{"text": "x"}]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content"),
        ({"tools": "x"}, "tools"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": 1}}}, "response_format.json_schema.schema"),
        ({"stop": 7}, "stop"),
        ({"temperature": "hot"}, "temperature"),
    ],
)
def test_what_no_provider_could_read_is_refused_by_its_place(fields: dict[str, object], param: str) -> None:
    with pytest.raises(MalformedRequest) as raised:
        encoded(chat(**fields))

    assert raised.value.param == param and raised.value.message.startswith(param)


@pytest.mark.parametrize("error", [RecursionError(), json_bytes.NotJson("x")])
def test_a_body_that_can_be_read_but_not_written_is_refused_too(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_deep(asked: ChatRequest, at: Endpoint) -> None:
        raise error

    monkeypatch.setattr(anthropic, "members", too_deep)
    for send in (ANTHROPIC.encode, ANTHROPIC.encode_count):
        with pytest.raises(MalformedRequest, match="nested too deeply"):
            send(chat(), endpoint(), None)


# ── marks


def test_of_too_many_marks_the_first_and_the_last_stay() -> None:
    mark = {"type": "ephemeral"}
    sent = encoded(
        chat(
            messages=[
                {"role": "system", "content": [{"type": "text", "text": "s", "cache_control": mark}]},
                user("q", cache_control=mark),
                called(("a", "look", "{}")),
                result("a", [{"type": "text", "text": "r", "cache_control": mark}], cache_control={"type": "ephemeral", "ttl": "1h"}),
                user([{"type": "text", "text": "x", "cache_control": mark}]),
            ],
            tools=[{**TOOL, "cache_control": mark}],
        )
    )

    read = json.loads(sent.body)
    assert read["tools"][0]["cache_control"] == mark
    assert "cache_control" not in read["system"][0]
    assert read["messages"][0]["content"][0]["cache_control"] == mark
    assert [block.get("cache_control") for block in read["messages"][2]["content"]] == [{"type": "ephemeral", "ttl": "1h"}, mark]
    assert sent.warnings == ("1 cache_control marks were left out: Messages takes 4",)


def test_a_mark_on_the_whole_counts_and_a_mark_on_a_function_does_too() -> None:
    tool = {"type": "function", "function": {"name": "f", "cache_control": {"type": "ephemeral"}}}
    sent = body(chat(tools=[tool], cache_control={"type": "ephemeral"}))

    assert sent["tools"] == [
        {"name": "f", "input_schema": {"type": "object", "properties": {}}, "cache_control": {"type": "ephemeral"}},
    ]
    assert sent["cache_control"] == {"type": "ephemeral"}


@pytest.mark.parametrize(
    ("fields", "mark"),
    [
        ({"prompt_cache_key": "k"}, {"type": "ephemeral"}),
        ({"prompt_cache_key": "k", "prompt_cache_retention": "24h"}, {"type": "ephemeral", "ttl": "1h"}),
        ({"prompt_cache_key": ""}, None),
        ({"prompt_cache_key": "k", "messages": [user("q", cache_control={"type": "ephemeral"})]}, None),
    ],
)
def test_a_cache_key_asks_for_caching_where_nothing_is_marked(fields: dict[str, object], mark: object) -> None:
    assert body(chat(**fields)).get("cache_control") == mark


# ── tools and answers


@pytest.mark.parametrize(
    ("fields", "choice"),
    [
        ({}, None),
        ({"tool_choice": "auto"}, {"type": "auto"}),
        ({"tool_choice": "required"}, {"type": "any"}),
        ({"tool_choice": "none"}, {"type": "none"}),
        ({"tool_choice": {"type": "function", "function": {"name": "look"}}}, {"type": "tool", "name": "look"}),
        ({"function_call": {"name": "look"}}, {"type": "tool", "name": "look"}),
        ({"parallel_tool_calls": True}, None),
        ({"parallel_tool_calls": False}, {"type": "auto", "disable_parallel_tool_use": True}),
        ({"parallel_tool_calls": False, "tool_choice": "required"}, {"type": "any", "disable_parallel_tool_use": True}),
        ({"parallel_tool_calls": False, "tool_choice": "none"}, {"type": "none"}),
    ],
)
def test_every_form_of_choice_has_its_word(fields: dict[str, object], choice: object) -> None:
    assert body(chat(tools=[TOOL], **fields)).get("tool_choice") == choice


def test_a_choice_of_nothing_is_none() -> None:
    assert "tool_choice" not in body(chat(tool_choice="required"))


def test_allowed_tools_are_the_ones_that_go_out() -> None:
    other = {"type": "function", "function": {"name": "other"}}
    allowed = {"mode": "required", "tools": [{"type": "function", "function": {"name": "look"}}, {"type": "mcp"}]}
    sent = body(chat(tools=[TOOL, other], tool_choice={"type": "allowed_tools", "allowed_tools": allowed}))

    assert [tool["name"] for tool in sent["tools"]] == ["look"]
    assert sent["tool_choice"] == {"type": "any"}


@pytest.mark.parametrize(
    ("fields", "warning"),
    [
        ({"tool_choice": "sometimes"}, "tool_choice was left out: endpoint e1 knows no choice sometimes"),
        ({"tool_choice": {"type": "custom"}}, "tool_choice was left out: endpoint e1 knows no choice of type custom"),
        ({"tools": [TOOL, {"type": "custom"}]}, "tools[1] was left out: endpoint e1 takes no tool of type custom"),
    ],
)
def test_a_tool_or_choice_without_a_word_is_named(fields: dict[str, object], warning: str) -> None:
    sent = encoded(chat(**{"tools": [TOOL], **fields}))

    assert sent.warnings == (warning,)
    assert [tool["name"] for tool in json.loads(sent.body)["tools"]] == ["look"]


def test_a_call_that_is_no_function_is_named() -> None:
    sent = encoded(chat(messages=[user("?"), {"role": "assistant", "content": "x", "tool_calls": [{"id": "a", "type": "custom"}]}]))

    assert sent.warnings == ("messages[1].tool_calls[0] was left out: endpoint e1 takes no call of type custom",)


def test_tools_keep_their_schema_and_strict_ones_are_closed() -> None:
    loose = {"type": "function", "function": {"name": "a", "parameters": {"type": "object", "x-y": [1.0]}}}
    strict = {"type": "function", "function": {"name": "b", "strict": True, "parameters": {"type": "object", "x-y": 1}}}
    old = {"name": "c", "parameters": None}
    sent = body(chat(tools=[loose, strict], functions=[old]))

    assert sent["tools"] == [
        {"name": "a", "input_schema": {"type": "object", "x-y": [1.0]}},
        {"name": "b", "strict": True, "input_schema": {"type": "object", "additionalProperties": False, "description": "{x-y: 1}"}},
        {"name": "c", "input_schema": {"type": "object", "properties": {}}},
    ]


def test_a_json_schema_becomes_the_format_of_the_output() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}}
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": schema}}
    closed = {
        "type": "object",
        "properties": {"n": {"type": "integer", "description": "{minimum: 1}"}},
        "additionalProperties": False,
    }

    assert body(chat(response_format=wanted))["output_config"] == {"format": {"type": "json_schema", "schema": closed}}
    older = encoded(chat(response_format=wanted), supports=frozenset(("tools", "sampling_params")))
    assert json.loads(older.body)["system"].startswith("Answer with JSON and nothing else. It has to conform to this JSON schema: {")
    assert older.warnings == ("response_format is asked for in words: endpoint e1 has no json_schema",)


def test_json_of_any_shape_is_asked_for_in_words() -> None:
    sent = encoded(chat(response_format={"type": "json_object"}))

    assert json.loads(sent.body)["system"] == "Answer with one JSON object and nothing else."
    assert sent.warnings == ("response_format is asked for in words: endpoint e1 has no json_object",)
    assert "system" not in body(chat(response_format={"type": "text"}))


# ── reasoning


@pytest.mark.parametrize(
    ("fields", "thinking", "effort"),
    [
        ({}, None, None),
        ({"reasoning_effort": "minimal"}, {"type": "adaptive"}, "low"),
        ({"reasoning_effort": "xhigh"}, {"type": "adaptive"}, "xhigh"),
        ({"reasoning_effort": "none"}, {"type": "disabled"}, None),
        ({"reasoning": {"enabled": False}}, {"type": "disabled"}, None),
        ({"reasoning": {"enabled": True}}, {"type": "adaptive"}, "medium"),
        ({"reasoning": {"max_tokens": 2000, "exclude": True}}, {"type": "adaptive", "display": "omitted"}, None),
        ({"reasoning": {"effort": "high"}, "include_reasoning": True}, {"type": "adaptive", "display": "summarized"}, "high"),
        ({"include_reasoning": True}, None, None),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 1024}, "reasoning_effort": "low"},
            {"type": "enabled", "budget_tokens": 1024},
            None,
        ),
    ],
)
def test_reasoning_is_asked_for_as_newer_models_want_it(fields: dict[str, object], thinking: object, effort: object) -> None:
    sent = body(chat(**fields))

    assert sent.get("thinking") == thinking
    assert sent.get("output_config") == (None if effort is None else {"effort": effort})


@pytest.mark.parametrize(
    ("fields", "thinking"),
    [
        ({"reasoning_effort": "low"}, {"type": "enabled", "budget_tokens": 2048}),
        ({"reasoning_effort": "max"}, {"type": "enabled", "budget_tokens": 32000}),
        ({"reasoning_effort": "odd"}, {"type": "enabled", "budget_tokens": 8192}),
        ({"reasoning_effort": "high", "max_tokens": 3000}, {"type": "enabled", "budget_tokens": 1500}),
        ({"reasoning_effort": "high", "max_tokens": 1100}, {"type": "enabled", "budget_tokens": 1024}),
        ({"reasoning": {"max_tokens": 5000}}, {"type": "enabled", "budget_tokens": 5000}),
        ({"reasoning": {"max_tokens": 500, "exclude": False}}, {"type": "enabled", "budget_tokens": 1024, "display": "summarized"}),
        ({"reasoning_effort": "none"}, {"type": "disabled"}),
    ],
)
def test_reasoning_is_given_a_budget_where_models_want_that(fields: dict[str, object], thinking: object) -> None:
    assert body(chat(**fields), supports=OLDER, max_output_tokens=64000)["thinking"] == thinking


@pytest.mark.parametrize(
    ("fields", "warning"),
    [
        ({"max_tokens": 1024}, "reasoning was left out: endpoint e1 needs more than 1024 max_tokens for it"),
        (
            {"tools": [TOOL], "tool_choice": "required"},
            "reasoning was left out: endpoint e1 does not reason where a tool call is forced",
        ),
        (
            {"messages": [user("?"), called(("a", "look", "{}")), result("a", "x")]},
            "reasoning was left out: endpoint e1 does not reason on between calls that it did not make",
        ),
    ],
)
def test_reasoning_yields_to_what_it_cannot_stand_beside(fields: dict[str, object], warning: str) -> None:
    sent = encoded(chat(reasoning_effort="high", **fields), supports=OLDER)

    assert "thinking" not in json.loads(sent.body)
    assert sent.warnings == (warning,)


def test_signed_reasoning_returns_to_its_place_and_foreign_one_stays_behind() -> None:
    details = [
        {"type": "reasoning.text", "text": "b", "signature": "s2", "format": "anthropic-claude-v1", "index": 2},
        {"type": "reasoning.encrypted", "data": "r", "format": "anthropic-claude-v1", "index": 9},
        {"type": "reasoning.text", "text": "a", "signature": "s1", "format": "anthropic-claude-v1", "index": 0},
        {"type": "reasoning.text", "text": "x", "format": "anthropic-claude-v1", "index": 1},
        {"type": "reasoning.text", "text": "x", "signature": "g", "format": "google-gemini-v1", "index": 1},
        {"type": "reasoning.summary", "format": "anthropic-claude-v1"},
        "odd",
    ]
    told = called(("c1", "look", "{}"), ("c2", "look", "{}"), reasoning_details=details)
    got = body(chat(messages=[user("?"), told, result("c1", "1"), result("c2", "2")], reasoning_effort="high"), supports=OLDER)

    kinds = [block["type"] for block in got["messages"][1]["content"]]
    assert kinds == ["thinking", "tool_use", "thinking", "tool_use", "redacted_thinking"]
    assert got["messages"][1]["content"][0] == {"type": "thinking", "thinking": "a", "signature": "s1"}
    assert got["messages"][1]["content"][4] == {"type": "redacted_thinking", "data": "r"}
    assert got["thinking"]["type"] == "enabled"


def test_signed_reasoning_without_a_place_comes_first_in_its_order() -> None:
    details = [{"type": "reasoning.text", "signature": name, "format": "anthropic-claude-v1"} for name in ("s1", "s2")]
    got = turns(user("?"), {"role": "assistant", "content": "x", "reasoning_details": details}, user("!"))

    assert [block.get("signature") for block in got[1]["content"]] == ["s1", "s2", None]
    assert turns(user("?"), {"role": "assistant", "content": "x", "reasoning_details": "odd"}, user("!"))[1]["content"] == "x"


# ── the rest of a chat


@pytest.mark.parametrize(
    ("fields", "supports", "kept", "warnings"),
    [
        ({"temperature": 1.7}, None, {"temperature": 1}, ["temperature was lowered to 1, the most that Messages takes"]),
        ({"temperature": 0, "top_p": 1}, None, {"temperature": 0}, []),
        (
            {"temperature": 0, "top_p": 0.5},
            None,
            {"temperature": 0},
            ["top_p was left out: endpoint e1 takes only one of temperature and top_p"],
        ),
        ({"top_p": 0.5, "top_k": 40.0}, None, {"top_p": 0.5, "top_k": 40}, []),
        (
            {"temperature": 0.5, "top_p": 0.5},
            frozenset(("tools", "stop")),
            {},
            [
                "temperature was left out: endpoint e1 does not support sampling_params",
                "top_p was left out: endpoint e1 does not support sampling_params",
            ],
        ),
        (
            {"temperature": 0.5, "top_p": 1, "reasoning_effort": "low"},
            None,
            {},
            ["temperature was left out: endpoint e1 takes none while it reasons"],
        ),
        ({"temperature": 0.5, "reasoning_effort": "none"}, None, {"temperature": 0.5}, []),
    ],
)
def test_sampling_goes_out_where_it_is_admitted(
    fields: dict[str, object], supports: frozenset[str] | None, kept: dict[str, object], warnings: list[str]
) -> None:
    sent = encoded(chat(**fields), supports=supports)

    read = json.loads(sent.body)
    assert {name: read[name] for name in ("temperature", "top_p", "top_k") if name in read} == kept
    assert list(sent.warnings) == warnings


@pytest.mark.parametrize(
    ("fields", "most", "tokens", "warnings"),
    [
        ({}, 900, 900, []),
        ({}, None, 4096, ["max_tokens was set to 4096: nothing says how much endpoint e1 writes"]),
        ({"max_completion_tokens": 5}, 900, 5, []),
        ({"max_tokens": 5000}, 900, 900, ["max_tokens was lowered to 900, the most that endpoint e1 writes"]),
        ({"max_tokens": 5000}, None, 5000, []),
    ],
)
def test_max_tokens_is_always_said(fields: dict[str, object], most: int | None, tokens: int, warnings: list[str]) -> None:
    sent = encoded(chat(**fields), max_output_tokens=most)

    assert json.loads(sent.body)["max_tokens"] == tokens
    assert list(sent.warnings) == warnings


@pytest.mark.parametrize(
    ("fields", "name", "value"),
    [
        ({"stop": "END"}, "stop_sequences", ["END"]),
        ({"stop": ["a", "b"]}, "stop_sequences", ["a", "b"]),
        ({"user": "u1"}, "metadata", {"user_id": "u1"}),
        ({"safety_identifier": "s1", "user": "u1"}, "metadata", {"user_id": "s1"}),
        ({"metadata": {"user_id": "m1"}}, "metadata", {"user_id": "m1"}),
        ({"service_tier": "priority"}, "service_tier", "auto"),
        ({"service_tier": "default"}, "service_tier", "standard_only"),
        ({"stream_options": {"include_usage": True}, "n": 1, "frequency_penalty": 0.0, "store": False}, "stream_options", None),
    ],
)
def test_other_words_have_their_counterparts(fields: dict[str, object], name: str, value: object) -> None:
    sent = encoded(chat(**fields))

    assert json.loads(sent.body).get(name) == value
    assert sent.warnings == ()


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"stop": ["a", " \n"]}, "a blank stop sequence was left out: endpoint e1 takes none"),
        ({"metadata": {"a": "b"}}, "metadata was left out: endpoint e1 has no word for it"),
        ({"service_tier": "flex"}, "service_tier was left out: endpoint e1 has no tier flex"),
        ({"n": 2}, "n was left out: endpoint e1 has no word for it"),
        ({"seed": 7}, "seed was left out: endpoint e1 has no word for it"),
        ({"made_up": {"a": 1}}, "made_up was left out: endpoint e1 has no word for it"),
    ],
)
def test_what_messages_has_no_word_for_is_named(fields: dict[str, object], what: str) -> None:
    assert encoded(chat(**fields)).warnings == (what,)


def test_what_the_endpoint_lacks_is_left_out_and_said() -> None:
    sent = encoded(chat(tools=[TOOL], tool_choice="auto", reasoning_effort="low", seed=1), supports=frozenset(("sampling_params",)))

    assert json.loads(sent.body).keys() == {"max_tokens", "messages", "model"}
    assert sent.warnings == (
        "reasoning_effort was left out: endpoint e1 does not support reasoning",
        "seed was left out: endpoint e1 does not support seed",
        "tool_choice was left out: endpoint e1 does not support tool_choice",
        "tools was left out: endpoint e1 does not support tools",
    )


def test_the_endpoints_body_is_laid_over_in_its_own_words() -> None:
    sent = body(chat(reasoning_effort="low"), body={"output_config": {"effort": "max"}, "inference_geo": "us"})

    assert (sent["output_config"], sent["inference_geo"]) == ({"effort": "max"}, "us")


# ── a client's own Messages


def test_a_clients_own_members_go_out_as_they_came() -> None:
    raw = (
        b'{"max_tokens": 7,"messages":[{"role":"user","content":[{ "type":"text","text":"\xc3\xa9" }]}],"model":"asked",'
        b'"x-new":{"b" : 1.0},'
        b'"stream":true,"models":["a"],"system":[{"type":"text","text":"s","cache_control":{"type":"ephemeral"}}]}'
    )
    sent = ANTHROPIC.encode(read_messages(raw), endpoint(), "s")

    expected = raw.replace(b'"asked"', b'"theirs"').replace(b'"models":["a"],', b"").replace(b'"max_tokens": 7', b'"max_tokens":7')
    assert sent.body == expected
    assert sent.warnings == ()


def test_a_clients_own_max_tokens_is_filled_and_lowered() -> None:
    assert body(messages(max_tokens=None))["max_tokens"] == 4000
    assert body(messages(max_tokens=None), max_output_tokens=None)["max_tokens"] == 4096
    assert body(messages(max_tokens=0))["max_tokens"] == 0
    lowered = encoded(messages(max_tokens=9000))
    assert json.loads(lowered.body)["max_tokens"] == 4000
    assert lowered.warnings == ("max_tokens was lowered to 4000, the most that endpoint e1 writes",)


def test_what_the_endpoint_lacks_is_taken_out_of_a_clients_own_members() -> None:
    search = {"type": "web_search_20250305", "name": "web_search"}
    sent = encoded(
        messages(
            temperature=0.5,
            thinking={"type": "adaptive"},
            output_config={"effort": "low", "format": {"type": "json_schema", "schema": {}}},
            tools=[search, {"name": "t", "input_schema": {}}],
            tool_choice={"type": "auto", "disable_parallel_tool_use": True},
        ),
        supports=frozenset(("tools", "tool_choice", "stop")),
    )

    read = json.loads(sent.body)
    assert read.keys() == {"model", "max_tokens", "messages", "tools", "tool_choice"}
    assert read["tools"] == [{"name": "t", "input_schema": {}}] and read["tool_choice"] == {
        "type": "auto",
        "disable_parallel_tool_use": True,
    }
    assert sent.warnings == (
        "output_config.format was left out: endpoint e1 does not support json_schema",
        "thinking was left out: endpoint e1 does not support reasoning",
        "output_config.effort was left out: endpoint e1 does not support reasoning",
        "temperature was left out: endpoint e1 does not support sampling_params",
        "the tool web_search_20250305 was left out: endpoint e1 does not support web_search",
    )


def test_a_choice_is_left_out_with_its_tools() -> None:
    sent = encoded(
        messages(tools=[{"name": "t"}], tool_choice={"type": "any", "disable_parallel_tool_use": True}, output_config={"effort": "low"}),
        supports=frozenset(("reasoning", "sampling_params", "web_search")),
    )

    assert json.loads(sent.body).keys() == {"model", "max_tokens", "messages", "output_config"}
    assert sent.warnings == (
        "tool_choice was left out: endpoint e1 does not support forced_tool_choice",
        "tools was left out: endpoint e1 does not support tools",
    )


def test_one_call_at_a_time_may_be_the_only_thing_an_endpoint_lacks() -> None:
    asked = messages(output_config=None, tool_choice={"disable_parallel_tool_use": True}, thinking={"type": "adaptive"})
    sent = encoded(asked, supports=frozenset(("sampling_params",)))

    assert json.loads(sent.body).keys() == {"model", "max_tokens", "messages", "output_config"}
    assert "tool_choice.disable_parallel_tool_use was left out: endpoint e1 does not support parallel_tools" in sent.warnings
    wanted = {"format": {"type": "json_schema", "schema": {}}}
    kept = body(messages(output_config=wanted, thinking={"type": "adaptive"}), supports=frozenset(("json_schema",)))
    assert kept["output_config"] == wanted and "thinking" not in kept


def test_a_choice_goes_with_the_last_of_its_tools() -> None:
    search = {"type": "web_search_20250305", "name": "web_search"}
    sent = body(messages(tools=[search], tool_choice={"type": "auto"}), supports=frozenset(("tools",)))

    assert sent.keys() == {"model", "max_tokens", "messages"}


def test_reasoning_that_claude_did_not_sign_stays_behind() -> None:
    talk = [
        user("?"),
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "a", "signature": ""},
                {"type": "redacted_thinking", "data": "n4n.v1.e30="},
                {"type": "redacted_thinking", "data": ""},
                {"type": "thinking", "thinking": "b", "signature": "n4n.v1.e30="},
                {"type": "thinking", "thinking": "c", "signature": "s"},
                {"type": "redacted_thinking", "data": "r"},
                "odd",
                {"type": "text", "text": "x"},
            ],
        },
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "a", "signature": ""}]},
        {"role": "user", "content": []},
        "odd",
    ]
    got = body(messages(messages=talk))["messages"]

    assert got[1]["content"] == [
        {"type": "thinking", "thinking": "c", "signature": "s"},
        {"type": "redacted_thinking", "data": "r"},
        "odd",
        {"type": "text", "text": "x"},
    ]
    assert got[2:] == [{"role": "user", "content": []}, "odd"]


def test_a_request_in_other_words_than_these_is_translated() -> None:
    asked = chat()
    other = ChatRequest(fields=asked.fields, model="asked", native=Native("openai_responses", {}))

    assert body(other)["messages"] == HELLO
