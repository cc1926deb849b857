"""The dialect `openai_responses`, what goes out: a chat in the words of Responses, and a client's own words but for what cannot be."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from n4n.core import json_bytes
from n4n.core.catalog import Endpoint, EndpointId, ModelId, Provider
from n4n.core.chat import ChatRequest, Native, UpstreamRequest
from n4n.core.chat_request import read_chat
from n4n.core.dialects import responses
from n4n.core.dialects.table import DIALECTS
from n4n.core.errors import MalformedRequest, Untellable

RESPONSES = DIALECTS["openai_responses"]
USER = {"role": "user", "content": "hi"}
SEALED = {"type": "reasoning.encrypted", "data": "zzz", "id": "rs_1", "format": "openai-responses-v1", "index": 0}
LOOK = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"a":1}'}}


def request(**fields: object) -> ChatRequest:
    return read_chat(json.dumps({"model": "asked", "messages": [USER], **fields}).encode())


def native(features: frozenset[str] = frozenset(), **fields: object) -> ChatRequest:
    members = json_bytes.members(json.dumps({"model": "asked", "input": "hi", **fields}).encode())
    most = fields.get("max_output_tokens")
    return ChatRequest(
        {},
        "asked",
        features=features,
        max_output_tokens=most if isinstance(most, int) else None,
        native=Native("openai_responses", members),
    )


def endpoint(**fields: Any) -> Endpoint:
    provider = Provider("p", "openai_responses", "https://example.test/v1", headers=fields.pop("headers", {}))
    return Endpoint(EndpointId("e1"), ModelId("asked"), provider, (), "theirs", **fields)


def sent(asked: ChatRequest, **fields: Any) -> UpstreamRequest:
    return RESPONSES.encode(asked, endpoint(**fields), "key1")


def body(asked: ChatRequest, **fields: Any) -> dict[str, Any]:
    got = sent(asked, **fields)
    made: dict[str, Any] = json.loads(got.body)
    assert made.pop("store") is False
    assert made.pop("model") == "theirs"
    return made


def items(*messages: Mapping[str, object]) -> Any:
    return body(request(messages=list(messages)))["input"]


# ── a chat


def test_a_request_goes_to_the_responses_of_its_provider() -> None:
    got = sent(request(stream=True), headers={"x-a": "b"})

    assert got.url == "https://example.test/v1/responses"
    assert dict(got.headers) == {
        "content-type": "application/json",
        "accept": "text/event-stream",
        "authorization": "Bearer key1",
        "x-a": "b",
    }
    assert json.loads(got.body) == {"input": [USER], "stream": True, "store": False, "model": "theirs"}
    assert RESPONSES.encode(request(), endpoint(), None).headers == (("content-type", "application/json"), ("accept", "application/json"))


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (USER, [USER]),
        ({"role": "system", "content": "be brief"}, [{"role": "system", "content": "be brief"}]),
        ({"role": "developer", "content": None}, [{"role": "developer", "content": ""}]),
        ({"role": "assistant", "content": "yes"}, [{"role": "assistant", "content": "yes"}]),
        ({"role": "assistant", "content": None}, []),
        (
            {
                "role": "user",
                "content": [{"type": "text", "text": "a", "prompt_cache_breakpoint": {"mode": "explicit"}}, {"type": "input_text"}],
            },
            [
                {
                    "role": "user",
                    "content": [
                        {"type": "input_text", "text": "a", "prompt_cache_breakpoint": {"mode": "explicit"}},
                        {"type": "input_text", "text": ""},
                    ],
                }
            ],
        ),
        (
            {
                "role": "user",
                "content": [
                    {"type": "image_url", "image_url": {"url": "https://x/y.png", "detail": "low"}},
                    {"type": "image_url", "image_url": "data:z"},
                ],
            },
            [
                {
                    "role": "user",
                    "content": [
                        {"type": "input_image", "image_url": "https://x/y.png", "detail": "low"},
                        {"type": "input_image", "image_url": "data:z", "detail": "auto"},
                    ],
                }
            ],
        ),
        (
            {
                "role": "user",
                "content": [
                    {"type": "file", "file": {"file_data": "data:", "filename": "a.pdf"}},
                    {"type": "file", "file": {"file_id": "f1"}},
                    {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}},
                ],
            },
            [
                {
                    "role": "user",
                    "content": [
                        {"type": "input_file", "file_data": "data:", "filename": "a.pdf"},
                        {"type": "input_file", "file_id": "f1"},
                        {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}},
                    ],
                }
            ],
        ),
        (
            {"role": "assistant", "content": "no", "refusal": "I cannot"},
            [{"role": "assistant", "content": [{"type": "output_text", "text": "no"}, {"type": "refusal", "refusal": "I cannot"}]}],
        ),
        (
            {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "refusal", "refusal": "b"}]},
            [{"role": "assistant", "content": [{"type": "output_text", "text": "a"}, {"type": "refusal", "refusal": "b"}]}],
        ),
        (
            {"role": "assistant", "content": None, "tool_calls": [LOOK, {"id": "call_2"}]},
            [
                {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": '{"a":1}'},
                {"type": "function_call", "call_id": "call_2", "name": "", "arguments": "{}"},
            ],
        ),
        (
            {"role": "tool", "tool_call_id": "call_1", "content": "ok"},
            [{"type": "function_call_output", "call_id": "call_1", "output": "ok"}],
        ),
        (
            {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "a"}]},
            [{"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "a"}]}],
        ),
    ],
)
def test_every_message_becomes_items(message: Mapping[str, object], expected: object) -> None:
    assert items(message) == expected


def test_results_of_custom_tools_and_of_old_functions_find_their_calls() -> None:
    custom = {"id": "call_9", "type": "custom", "custom": {"name": "patch", "input": "+a"}}
    got = items(
        {"role": "assistant", "tool_calls": [custom]},
        {"role": "tool", "tool_call_id": "call_9", "content": "done"},
        {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "1"},
    )

    assert got == [
        {"type": "custom_tool_call", "call_id": "call_9", "name": "patch", "input": "+a"},
        {"type": "custom_tool_call_output", "call_id": "call_9", "output": "done"},
        {"type": "function_call", "call_id": "call_messages[2]", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_messages[2]", "output": "1"},
    ]


@pytest.mark.parametrize(
    ("details", "places"),
    [
        ([SEALED], "rma"),
        ([{**SEALED, "index": 2}], "mra"),
        ([{**SEALED, "index": 9}], "mra"),
        ([{**SEALED, "index": 2}, SEALED], "rmra"),
        ([{**SEALED, "id": None, "index": "x"}], "rma"),
        ([{**SEALED, "format": "anthropic-claude-v1"}, {**SEALED, "type": "reasoning.text"}, {**SEALED, "data": 5}, "odd"], "ma"),
        ("odd", "ma"),
    ],
)
def test_sealed_reasoning_returns_to_its_place_and_others_do_not(details: object, places: str) -> None:
    got = items({"role": "assistant", "content": "b", "tool_calls": [LOOK], "reasoning_details": details})

    kinds = {"reasoning": "r", None: "m", "function_call": "a"}
    assert "".join(kinds[item.get("type")] for item in got) == places
    for item in got:
        if item.get("type") == "reasoning":
            assert item["encrypted_content"] == "zzz" and item["summary"] == []


def test_reasoning_behind_which_nothing_stands_is_left_out() -> None:
    assert items({"role": "assistant", "content": None, "reasoning_details": [SEALED]}) == []


SCHEMA = {"name": "a", "schema": {"type": "object"}, "strict": True}
PLACE = {"type": "approximate", "approximate": {"country": "DE"}}


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"max_tokens": 100}, {"max_output_tokens": 100}),
        ({"max_completion_tokens": 5000}, {"max_output_tokens": 5000}),
        (
            {"temperature": 0.50, "top_p": 1, "user": "u", "service_tier": "flex"},
            {"temperature": 0.5, "top_p": 1, "user": "u", "service_tier": "flex"},
        ),
        (
            {"prompt_cache_key": "k", "metadata": {"a": "b"}, "safety_identifier": "s"},
            {"prompt_cache_key": "k", "metadata": {"a": "b"}, "safety_identifier": "s"},
        ),
        ({"temperature": None, "stop": None, "seed": None, "n": 1}, {}),
        ({"stream_options": {"include_usage": True}}, {}),
        ({"stream_options": {"include_obfuscation": False}}, {"stream_options": {"include_obfuscation": False}}),
        ({"reasoning_effort": "low"}, {"reasoning": {"effort": "low"}, "include": ["reasoning.encrypted_content"]}),
        (
            {"reasoning": {"effort": "high", "summary": "detailed"}},
            {"reasoning": {"effort": "high", "summary": "detailed"}, "include": ["reasoning.encrypted_content"]},
        ),
        ({"reasoning": {"enabled": True}}, {"reasoning": {"effort": "medium"}, "include": ["reasoning.encrypted_content"]}),
        ({"reasoning": {"enabled": False}}, {"reasoning": {"effort": "none"}, "include": ["reasoning.encrypted_content"]}),
        ({"include_reasoning": True}, {"reasoning": {"summary": "auto"}, "include": ["reasoning.encrypted_content"]}),
        ({"include_reasoning": False}, {}),
        ({"logprobs": True, "top_logprobs": 3}, {"top_logprobs": 3, "include": ["message.output_text.logprobs"]}),
        ({"response_format": {"type": "text"}}, {}),
        (
            {"response_format": {"type": "json_object"}, "verbosity": "low"},
            {"text": {"format": {"type": "json_object"}, "verbosity": "low"}},
        ),
        ({"response_format": {"type": "json_schema", "json_schema": SCHEMA}}, {"text": {"format": {"type": "json_schema", **SCHEMA}}}),
        (
            {
                "tools": [
                    {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}, "strict": True}}
                ],
                "parallel_tool_calls": False,
            },
            {
                "tools": [{"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}, "strict": True}],
                "parallel_tool_calls": False,
            },
        ),
        (
            {"tools": [{"type": "function", "function": {"name": "f"}}]},
            {"tools": [{"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}, "strict": False}]},
        ),
        (
            {"functions": [{"name": "f", "parameters": {}}], "function_call": {"name": "f"}},
            {
                "tools": [{"type": "function", "name": "f", "parameters": {}, "strict": False}],
                "tool_choice": {"type": "function", "name": "f"},
            },
        ),
        (
            {
                "tools": [
                    {
                        "type": "custom",
                        "custom": {"name": "p", "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": "x"}}},
                    }
                ]
            },
            {"tools": [{"type": "custom", "name": "p", "format": {"type": "grammar", "syntax": "lark", "definition": "x"}}]},
        ),
        (
            {
                "tools": [
                    {"type": "custom", "custom": {"name": "p", "description": "d", "format": {"type": "text"}}},
                    {"type": "custom", "custom": {"name": "q"}},
                ]
            },
            {"tools": [{"type": "custom", "name": "p", "description": "d", "format": {"type": "text"}}, {"type": "custom", "name": "q"}]},
        ),
        ({"tools": [{"type": "web_search", "x": 1}]}, {"tools": [{"type": "web_search", "x": 1}]}),
        ({"web_search_options": {}}, {"tools": [{"type": "web_search"}]}),
        (
            {"web_search_options": {"search_context_size": "low", "user_location": PLACE}},
            {"tools": [{"type": "web_search", "search_context_size": "low", "user_location": {"type": "approximate", "country": "DE"}}]},
        ),
        (
            {"web_search_options": {"user_location": {"country": "DE"}}},
            {"tools": [{"type": "web_search", "user_location": {"country": "DE"}}]},
        ),
        ({"tool_choice": "required"}, {"tool_choice": "required"}),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, {"tool_choice": {"type": "function", "name": "f"}}),
        ({"tool_choice": {"type": "custom", "custom": {"name": "p"}}}, {"tool_choice": {"type": "custom", "name": "p"}}),
        ({"tool_choice": {"type": "web_search"}}, {"tool_choice": {"type": "web_search"}}),
        (
            {
                "tool_choice": {
                    "type": "allowed_tools",
                    "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "f"}}, {"type": "mcp"}]},
                }
            },
            {"tool_choice": {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "f"}, {"type": "mcp"}]}},
        ),
    ],
)
def test_every_parameter_that_responses_knows_is_translated(asked: dict[str, object], expected: dict[str, object]) -> None:
    got = sent(request(**asked))

    made = json.loads(got.body)
    assert {name: value for name, value in made.items() if name not in ("model", "store", "input")} == expected
    assert got.warnings == ()


@pytest.mark.parametrize(
    ("asked", "fields", "warning"),
    [
        ({"stop": ["a"]}, {}, "stop was left out: endpoint e1 has no word for it"),
        ({"seed": 7}, {}, "seed was left out: endpoint e1 has no word for it"),
        ({"n": 2}, {}, "n was left out: endpoint e1 has no word for it"),
        ({"custom": {"a": 1}}, {}, "custom was left out: endpoint e1 has no word for it"),
        ({"max_tokens": 1}, {}, "max_tokens was raised to 16, the least that endpoint e1 accepts"),
        ({"max_tokens": 900}, {"max_output_tokens": 100}, "max_tokens was lowered to 100, the most that endpoint e1 writes"),
        ({"reasoning_effort": "low"}, {"supports": frozenset()}, "reasoning_effort was left out: endpoint e1 does not support reasoning"),
        ({"messages": [{**USER, "name": "bob"}, {**USER, "name": "eve"}]}, {}, "name was left out: endpoint e1 has no word for it"),
        (
            {"messages": [{**USER, "cache_control": {}, "audio": {"id": "a"}}]},
            {},
            "messages[0].audio was left out: endpoint e1 has no word for it",
        ),
        (
            {"messages": [{**USER, "cache_control": {"type": "e"}}]},
            {},
            "messages[0].cache_control was left out: endpoint e1 has no word for it",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]}]},
            {},
            "cache_control was left out: endpoint e1 caches by itself",
        ),
        (
            {"messages": [{"role": "assistant", "content": [{"type": "image_url", "image_url": "u"}]}]},
            {},
            "messages[0].content[0] was left out: endpoint e1 takes no image_url of an assistant",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}},
            {},
            "response_format.json_schema.name is missing: it was set to answer",
        ),
    ],
)
def test_what_is_not_said_is_named(asked: dict[str, object], fields: dict[str, object], warning: str) -> None:
    assert sent(request(**asked), **fields).warnings == (warning,)


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        ({"messages": [{"role": "user"}, {"role": "god"}]}, "messages[1].role"),
        ({"messages": [{"content": "a"}]}, "messages[0]"),
        ({"messages": [{"role": "user", "content": [{"type": 5}]}]}, "messages[...].content[...].type"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function"),
        ({"tool_choice": 5}, "tool_choice"),
        ({"reasoning": "hard"}, "reasoning"),
    ],
)
def test_a_chat_that_nobody_could_read_is_refused_with_the_place(asked: dict[str, object], param: str) -> None:
    with pytest.raises(MalformedRequest) as caught:
        sent(request(**asked))
    assert caught.value.param is not None and caught.value.param.startswith(param.split("[")[0])


@pytest.mark.parametrize("error", [RecursionError(), json_bytes.NotJson("x")])
def test_what_can_be_read_but_not_written_is_refused(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_deep(asked: ChatRequest, at: Endpoint) -> None:
        raise error

    monkeypatch.setattr(responses, "members", too_deep)
    with pytest.raises(MalformedRequest, match="nested too deeply"):
        sent(request())


def test_what_the_catalog_says_of_the_body_wins_but_nothing_is_stored_unless_it_says_so() -> None:
    got = sent(request(reasoning_effort="low"), body={"reasoning": {"summary": "auto"}, "store": True})

    made = json.loads(got.body)
    assert made["reasoning"] == {"effort": "low", "summary": "auto"}
    assert made["store"] is True


TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
ARGUMENTS = st.dictionaries(TEXT, st.one_of(TEXT, st.integers()), max_size=2).map(json.dumps)


@given(st.lists(st.tuples(TEXT, TEXT, st.lists(st.tuples(TEXT, TEXT, ARGUMENTS), max_size=3)), max_size=4))
def test_texts_calls_and_ids_of_a_conversation_survive(turns: list[tuple[str, str, list[tuple[str, str, str]]]]) -> None:
    messages: list[Mapping[str, object]] = [USER]
    for asked, answered, calls in turns:
        made = [{"id": name, "type": "function", "function": {"name": called, "arguments": said}} for name, called, said in calls]
        messages += [{"role": "user", "content": asked}, {"role": "assistant", "content": answered, "tool_calls": made}]
        messages += [{"role": "tool", "tool_call_id": name, "content": answered} for name, _, _ in calls]

    got = iter(items(*messages)[1:])
    for asked, answered, calls in turns:
        assert next(got) == {"role": "user", "content": asked}
        assert next(got) == {"role": "assistant", "content": answered}
        assert [next(got) for _ in calls] == [
            {"type": "function_call", "call_id": name, "name": called, "arguments": said} for name, called, said in calls
        ]
        assert [next(got) for _ in calls] == [{"type": "function_call_output", "call_id": name, "output": answered} for name, _, _ in calls]
    assert list(got) == []


# ── a client's own words


def test_a_clients_own_members_pass_but_for_the_model_and_the_store() -> None:
    asked = native(store=True, background=False, instructions="be 1.50", unknown={"a": [1.50]}, conversation=None)

    assert json.loads(sent(asked).body) == {
        "model": "theirs",
        "input": "hi",
        "store": False,
        "instructions": "be 1.50",
        "unknown": {"a": [1.5]},
        "conversation": None,
    }
    assert b"[1.5]" in sent(asked).body


@pytest.mark.parametrize(
    ("features", "asked", "expected", "warnings"),
    [
        ("tools", {"tools": [{}], "tool_choice": "auto"}, {}, ["tools was", "tool_choice was"]),
        ("parallel_tools", {"parallel_tool_calls": False}, {}, ["parallel_tool_calls was"]),
        ("json_schema", {"text": {"format": {}, "verbosity": "low"}}, {"text": {"verbosity": "low"}}, ["text.format was"]),
        ("json_schema", {"text": {"verbosity": "low"}}, {"text": {"verbosity": "low"}}, []),
        ("json_schema", {"text": "odd"}, {"text": "odd"}, []),
        (
            "reasoning",
            {"reasoning": {}, "include": ["reasoning.encrypted_content", "a"]},
            {"include": ["a"]},
            [
                "reasoning was",
                "reasoning.encrypted_content in include was",
            ],
        ),
        ("logprobs", {"top_logprobs": 1, "include": ["a"]}, {"include": ["a"]}, ["top_logprobs was"]),
        (
            "web_search",
            {"tools": [{"type": "web_search_preview"}, {"type": "function"}]},
            {"tools": [{"type": "function"}]},
            ["web_search in tools was"],
        ),
        ("sampling_params", {"temperature": 1, "top_p": 1}, {}, ["temperature was", "top_p was"]),
    ],
)
def test_what_an_endpoint_does_not_have_is_taken_out_and_named(
    features: str, asked: dict[str, object], expected: dict[str, object], warnings: list[str]
) -> None:
    got = sent(native(frozenset((features,)), **asked), supports=frozenset(("stop",)))

    made = json.loads(got.body)
    assert {name: value for name, value in made.items() if name not in ("model", "store", "input")} == expected
    assert len(got.warnings) == len(warnings)
    assert all(line.startswith(start) for line, start in zip(got.warnings, warnings, strict=True))


def test_a_wish_for_more_than_the_endpoint_writes_is_lowered() -> None:
    got = sent(native(max_output_tokens=900), max_output_tokens=100)

    assert json.loads(got.body)["max_output_tokens"] == 100
    assert got.warnings == ("max_output_tokens was lowered to 100, the most that endpoint e1 writes",)
    assert json.loads(sent(native(max_output_tokens=90), max_output_tokens=100).body)["max_output_tokens"] == 90


REASONS = frozenset(("reasoning",))


@pytest.mark.parametrize(
    ("asked", "include"),
    [
        (native(REASONS, reasoning={"effort": "low"}), ["reasoning.encrypted_content"]),
        (native(REASONS, reasoning={"effort": "low"}, include=None), ["reasoning.encrypted_content"]),
        (native(REASONS, reasoning={}, include=["a"], store=True), ["a", "reasoning.encrypted_content"]),
        (native(REASONS, reasoning={}, include=["reasoning.encrypted_content"]), ["reasoning.encrypted_content"]),
        (native(REASONS, reasoning={}, store=False), None),
        (native(), None),
    ],
)
def test_who_lets_the_provider_keep_its_reasoning_gets_it_to_keep(asked: ChatRequest, include: object) -> None:
    assert json.loads(sent(asked).body).get("include") == include


def test_reasoning_that_cannot_be_read_there_is_left_out() -> None:
    ours = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "zzz"}
    foreign = {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "n4n.v1.eyJ9"}
    kept_nowhere = {"type": "reasoning", "id": "rs_3", "summary": []}
    got = sent(native(input=[USER, ours, foreign, kept_nowhere]))

    assert json.loads(got.body)["input"] == [USER, ours]
    assert got.warnings == ("input[3] was left out: endpoint e1 keeps no reasoning: send its encrypted_content too",)
    assert sent(native(input=[ours])).warnings == ()
    assert json.loads(sent(native(input='say {"type": "reasoning"}')).body)["input"] == 'say {"type": "reasoning"}'


@pytest.mark.parametrize(
    "asked",
    [
        native(REASONS, include="odd"),
        native(input=[{"type": "reasoning", "encrypted_content": 5}]),
        native(input={"type": "reasoning"}),
    ],
)
def test_own_words_that_nobody_could_read_are_refused(asked: ChatRequest) -> None:
    with pytest.raises(MalformedRequest):
        sent(asked)


def test_a_question_that_cannot_be_told_is_not_asked_without_a_part_of_it() -> None:
    with pytest.raises(Untellable) as caught:
        sent(request(messages=[{"role": "user", "content": [{"type": "video", "cache_control": None}]}]))

    assert caught.value.message == "messages[0].content[0]: endpoint e1 takes no video"
