"""Counting: which vocabulary, which answers, which texts; the ratio that learns; and what travels."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from n4n.core.counting.encodings import encoding_of, is_own
from n4n.core.counting.ratios import Ratios
from n4n.core.counting.sample import is_sampled
from n4n.core.counting.texts import Output, Prompt, output_of, prompt_of
from n4n.core.counting.wire import LENGTH, Counted, Question, Unreadable, counted, packed, question


@pytest.mark.parametrize(
    ("model", "encoding"),
    [
        ("gpt-4o-mini", "o200k"), ("gpt-4", "cl100k"), ("gpt-4-turbo", "cl100k"), ("gpt-4.1", "o200k"), ("GPT-3.5-turbo", "cl100k"),
        ("gpt-35-turbo", "cl100k"), ("text-embedding-3-small", "cl100k"), ("openai/gpt-4", "cl100k"), ("us.openai.gpt-4", "cl100k"),
        ("o3-mini", "o200k"), ("claude-sonnet-5", "o200k"), ("accounts/fireworks/models/gpt-oss-20b", "o200k"), ("", "o200k"),
    ],
)  # fmt: skip
def test_a_models_name_tells_its_vocabulary(model: str, encoding: str) -> None:
    assert encoding_of(model) == encoding


def test_only_models_with_a_published_vocabulary_are_counted_by_their_own() -> None:
    assert [is_own(model) for model in ("openai/gpt-4o-mini", "o3", "claude-sonnet-5", "")] == [True, True, False, False]


def test_the_share_is_told_by_ids_alone() -> None:
    ids = [f"att_{number:024x}" for number in range(5000)]

    assert 60 <= sum(is_sampled(one, 50) for one in ids) <= 140
    assert all(is_sampled(one, 1) for one in ids)
    assert not any(is_sampled(one, 0) for one in ids)
    assert [one for one in ids[:200] if is_sampled(one, 50)] == [one for one in ids[:200] if is_sampled(one, 50)]


def test_a_ratio_learns_from_counts_and_believes_no_nonsense() -> None:
    ratios = Ratios()
    assert repr(ratios) == "<Ratios 4.00 bytes to a token in, 4.00 out>"

    for _ in range(60):
        ratios.learn(300, 100, 500, 100)
    assert ratios.input == pytest.approx(3, abs=0.01)
    assert ratios.output == pytest.approx(5, abs=0.01)

    ratios.learn(10**9, None, 10**9, None)
    ratios.learn(10**9, 7, 10**9, 7)
    assert ratios.input == pytest.approx(3, abs=0.01), "a side that was not counted, or says little, teaches nothing"
    ratios.learn(10**9, 8, 0, 8)
    assert ratios.input == pytest.approx(3 + 0.1 * 61, abs=0.01)
    assert ratios.output == pytest.approx(5 - 0.1 * 4.5, abs=0.01)


CHAT = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "hi"}], "name": "ann"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "42"},
    ],
}
PROMPTS: dict[str, tuple[object, set[str], int, bool]] = {
    "chat": (CHAT, {"system", "be brief", "user", "hi", "ann", "assistant", "f", "{}", "tool", "42"}, 4 * 3 + 3, True),
    "chat with tools": (
        {"messages": [{"role": "user", "content": "hi"}], "tools": [{"type": "function"}]},
        {"user", "hi", '[{"type":"function"}]'}, 6, False,
    ),
    "chat with a picture": (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:…"}}, {"type": "text", "text": "?"}]}]},
        {"user", "?"}, 6, False,
    ),
    "chat with a sound": (
        {"messages": [{"role": "user", "content": [{"input_audio": {"data": "…"}, "text": "?"}]}]}, {"user", "?"}, 6, False,
    ),
    "responses": (
        {
            "instructions": "be brief",
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
                {"type": "function_call", "name": "f", "arguments": "{}", "call_id": "c"},
                {"type": "function_call_output", "call_id": "c", "output": "42"},
            ],
        },
        {"be brief", "user", "hi", "f", "{}", "42"}, 6, True,
    ),
    "responses of one text": ({"input": "hi"}, {"hi"}, 0, True),
    "anthropic": (
        {
            "system": [{"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}],
            "messages": [
                {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "redacted_thinking", "data": "x"},
                    {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}},
                ]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "42"}]},
            ],
        },
        {"be brief", "assistant", "hm", "f", '{"a":1}', "user", "42"}, 9, False,
    ),
    "gemini": (
        {
            "systemInstruction": {"parts": [{"text": "be brief"}]},
            "contents": [
                {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {"a": 1}}}]},
                {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"b": 2}}}, {"text": "hi"}]},
            ],
            "generationConfig": {"temperature": 1, "responseSchema": {"type": "OBJECT"}},
        },
        {"be brief", "model", "f", '{"a":1}', "user", '{"b":2}', "hi", '{"responseSchema":{"type":"OBJECT"}}'}, 9, False,
    ),
    "gemini without a schema": (
        {"contents": [{"parts": [{"text": "hi"}]}], "generationConfig": {"temperature": 1}}, {"hi"}, 0, True,
    ),
    "bedrock": (
        {
            "system": [{"text": "be brief"}, {"cachePoint": {"type": "default"}}],
            "messages": [
                {"role": "assistant", "content": [{"toolUse": {"toolUseId": "t", "name": "f", "input": {"a": 1}}}]},
                {"role": "user", "content": [{"toolResult": {"toolUseId": "t", "content": [{"json": {"b": 2}}, {"text": "42"}]}}]},
            ],
        },
        {"be brief", "assistant", "f", '{"a":1}', "user", '{"b":2}', "42"}, 9, True,
    ),
    "texts": ({"prompt": ["one", "two"]}, {"one", "two"}, 0, True),
    "tokens": ({"input": [[1, 2, 3], [4]]}, set(), 4, True),
    "vectors at gemini": ({"requests": [{"model": "m", "content": {"parts": [{"text": "hi"}]}}]}, {"hi"}, 0, True),
}  # fmt: skip


@pytest.mark.parametrize("name", PROMPTS)
def test_the_texts_of_a_prompt_are_found_in_every_dialects_words(name: str) -> None:
    body, texts, more, exact = PROMPTS[name]

    found = prompt_of(json.dumps(body).encode())

    assert found is not None
    assert (set(found.texts), found.more, found.exact) == (texts, more, exact)


@pytest.mark.parametrize("body", [b"", b"no json", b"[]", b"{}", b'{"model":"m"}', b'{"messages":null}'])
def test_a_body_without_texts_has_nothing_to_count(body: bytes) -> None:
    assert prompt_of(body) is None


def events(*said: object) -> list[bytes]:
    return [json.dumps(one).encode() for one in said]


def chat(delta: object, index: int = 0) -> object:
    return {"choices": [{"index": index, "delta": delta}]}


def block(delta: object, index: int = 0) -> object:
    return {"type": "content_block_delta", "index": index, "delta": delta}


CALL = {"index": 0, "function": {"name": "f", "arguments": "{"}}
OUTPUTS: dict[str, tuple[list[bytes], Output]] = {
    "chat stream": (events(chat({"content": "Hel"}), chat({"content": "lo"}), chat({"content": "!"}, 1)), Output(["Hello", "!"], [])),
    "chat reasoning": (
        events(chat({"reasoning_content": "h"}), chat({"reasoning_content": "m"}), chat({"refusal": "no"})), Output(["no"], ["hm"]),
    ),
    "chat calls": (
        events(chat({"tool_calls": [CALL]}), chat({"tool_calls": [{"index": 0, "function": {"arguments": "}"}}]})),
        Output(["f", "{}"], [], exact=False),
    ),
    "chat call of old": (events(chat({"function_call": {"name": "f", "arguments": ""}})), Output(["f"], [], exact=False)),
    "chat whole": (events({"choices": [{"message": {"content": "Hello"}}, {"message": {"content": "Hi"}}]}), Output(["Hello", "Hi"], [])),
    "chat sound": (events({"choices": [{"message": {"content": "a", "audio": {"data": "…"}}}]}), Output(["a", ""], [], exact=False)),
    "texts": (events({"choices": [{"text": "one", "index": 0}]}, {"choices": [{"text": " two", "index": 0}]}), Output(["one two"], [])),
    "anthropic stream": (
        events(block({"type": "thinking_delta", "thinking": "hm"}), block({"type": "text_delta", "text": "a"}, 1), block({"text": "b"}, 1)),
        Output(["ab"], ["hm"]),
    ),
    "anthropic calls": (
        events(
            {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "name": "f", "input": {}}},
            block({"type": "input_json_delta", "partial_json": "{}"}), {"type": "message_stop"}, block("odd"),
        ),
        Output(["f", "{}"], [], exact=False),
    ),
    "anthropic whole": (
        events({"type": "message", "content": [{"type": "text", "text": "a"}, {"type": "tool_use", "name": "f", "input": {"a": 1}}]}),
        Output(["a", "f", '{"a":1}'], [], exact=False),
    ),
    "responses stream": (
        events(
            {"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": "hm"},
            {"type": "response.output_text.delta", "output_index": 1, "delta": "a"},
            {"type": "response.output_text.delta", "output_index": 1, "delta": "b"},
            {"type": "response.output_text.done", "output_index": 1, "text": "ab"},
            {"type": "response.output_item.added", "output_index": 2, "item": {"type": "function_call", "name": "f"}},
            {"type": "response.output_item.added", "output_index": 3, "item": {"type": "message"}},
            {"type": "response.function_call_arguments.delta", "output_index": 2, "delta": "{}"},
        ),
        Output(["ab", "f", "{}"], ["hm"], exact=False),
    ),
    "responses whole": (
        events({"object": "response", "output": [
            {"type": "reasoning", "summary": [{"text": "hm"}, "odd"]}, {"type": "message", "content": [{"text": "a"}]},
            {"type": "function_call", "name": "f", "arguments": "{}"}, "odd",
        ]}),
        Output(["a", "f", "{}"], ["hm"], exact=False),
    ),
    "one piece is none": ([*events(chat({"content": "a"})), b"no json", b"[]"], Output(["a"], [], exact=False)),
    "choices that are none": (
        events({"choices": ["odd", {"delta": "odd"}]}, chat({"content": "a"}), chat({"tool_calls": ["odd"]})), Output(["a"], []),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OUTPUTS)
def test_the_texts_of_an_answer_are_joined_as_they_read(name: str) -> None:
    pieces, expected = OUTPUTS[name]

    assert output_of(pieces) == expected


@pytest.mark.parametrize("pieces", [[], [b""], events({"object": "list", "data": []}), events({"content": "odd"}, {"type": "ping"})])
def test_an_answer_without_texts_has_nothing_to_count(pieces: list[bytes]) -> None:
    assert output_of(pieces) is None


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.sampled_from(["text", "user", "image"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["messages", "content", "text", "role", "parts", "input", "type", "choices", "delta", "tool_calls", "function"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(_JSON)
def test_nothing_that_travels_breaks_the_counting(value: object) -> None:
    body = json.dumps(value).encode()

    assert prompt_of(body) is None or isinstance(prompt_of(body), Prompt)
    assert output_of([body]) is None or isinstance(output_of([body]), Output)


def test_questions_and_counts_travel_as_they_are_and_noise_is_refused() -> None:
    asked = Question(7, "gpt-4o", b"{}", [b"a", b"b"])
    told = Counted(7, "o200k", 8, True, None, False, 2)

    assert question(packed(asked)[LENGTH:]) == asked
    assert counted(packed(told)[LENGTH:]) == told
    assert int.from_bytes(packed(told)[:LENGTH], "big") == len(packed(told)) - LENGTH
    for read in (question, counted):
        with pytest.raises(Unreadable):
            read(b"\xc1noise")
