"""Content as the conventions tell it: bounded, marked where it is cut, and without what looks like a key."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from n4n.core.content import CUT, MOST, MOST_READ, Heard, input_messages

KEY = "sk-n4n-abcdefghijkl-" + "s" * 43


def asked(**fields: object) -> Any:
    told = input_messages(json.dumps(fields).encode())
    return None if told is None else json.loads(told)


def heard(*payloads: object, reasons: tuple[str, ...] = ("stop",)) -> Any:
    made = Heard()
    for one in payloads:
        made.take(json.dumps(one).encode())
    told = made.messages(reasons)
    return None if told is None else json.loads(told)


def text(content: str) -> dict[str, str]:
    return {"type": "text", "content": content}


def test_a_chat_is_its_messages_with_their_parts() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"at":"Rome"}'}}
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    assert asked(
        messages=[
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "What is it?"}, image, "stray"]},
            {"role": "assistant", "content": None, "tool_calls": [call, "stray", {"id": "c2", "function": "odd"}]},
            {"role": "tool", "tool_call_id": "c1", "content": "18 degrees"},
            {"role": "somebody", "content": 5},
            "stray",
        ]
    ) == [
        {"role": "system", "parts": [text("Be brief.")]},
        {"role": "user", "parts": [text("What is it?"), {"type": "image_url"}]},
        {
            "role": "assistant",
            "parts": [
                {"type": "tool_call", "id": "c1", "name": "weather", "arguments": '{"at":"Rome"}'},
                {"type": "tool_call", "id": "c2", "name": "", "arguments": "null"},
            ],
        },
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "18 degrees"}]},
        {"role": "user", "parts": []},
    ]


def test_messages_of_anthropic_have_their_system_prompt_and_blocks() -> None:
    assert asked(
        system=[{"type": "text", "text": "Be brief."}],
        messages=[
            {
                "role": "assistant",
                "content": [{"type": "thinking", "thinking": "hm"}, {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}}],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "yes"}, {"type": "image"}]}],
            },
            {"role": "user", "content": [{"type": "Image!", "source": {"data": "AAAA"}}]},
        ],
    ) == [
        {"role": "system", "parts": [text("Be brief.")]},
        {
            "role": "assistant",
            "parts": [{"type": "reasoning", "content": "hm"}, {"type": "tool_call", "id": "t", "name": "f", "arguments": '{"a":1}'}],
        },
        {"role": "user", "parts": [{"type": "tool_call_response", "id": "t", "response": "yes"}]},
        {"role": "user", "parts": [{"type": "other"}]},
    ]


def test_responses_have_their_instructions_and_items() -> None:
    assert asked(
        instructions="Be brief.",
        input=[
            {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "7"},
        ],
    ) == [
        {"role": "system", "parts": [text("Be brief.")]},
        {"role": "user", "parts": [text("Hi")]},
        {"role": "assistant", "parts": [{"type": "reasoning", "content": "hm"}]},
        {"role": "assistant", "parts": [{"type": "tool_call", "id": "c", "name": "f", "arguments": "{}"}]},
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c", "response": "7"}]},
    ]


@pytest.mark.parametrize("name", ["prompt", "input"])
def test_texts_to_complete_or_embed_are_what_a_user_says(name: str) -> None:
    assert asked(**{name: "Hi"}) == [{"role": "user", "parts": [text("Hi")]}]
    assert asked(**{name: ["Hi", "Ho", 5]}) == [{"role": "user", "parts": [text("Hi"), text("Ho")]}]
    assert asked(**{name: [1, 2, 3]}) == [{"role": "user", "parts": []}]


@pytest.mark.parametrize("body", [b"", b"not json", b"[]", b"{}", b'{"model": "m"}'])
def test_a_body_that_says_nothing_is_nothing(body: bytes) -> None:
    assert input_messages(body) is None


def test_the_newest_messages_are_told_where_not_all_find_room() -> None:
    long = [{"role": "user", "content": f"{number} " + "x" * 1000} for number in range(100)]
    told = asked(messages=long)
    assert told[0] == {"role": "system", "parts": [text(f"{101 - len(told)} earlier messages left out{CUT}")]}
    assert told[-1]["parts"][0]["content"].startswith("99 ")
    assert 25 < len(told) < 35


def test_one_message_that_is_too_long_is_cut_and_marked() -> None:
    [only] = asked(messages=[{"role": "user", "content": "\x01" * 40_000}])
    assert only["role"] == "user"
    assert only["parts"][0]["content"].endswith(f"\x01{CUT}")
    many = asked(messages=[{"role": "user", "content": [{"type": "text", "text": "x" * 50}] * 2000}])
    assert len(many[-1]["parts"]) < 2000


def test_a_body_that_is_too_large_to_be_read_is_said_to_be_left_out() -> None:
    assert asked(prompt="x" * MOST_READ) == [{"role": "system", "parts": [text(f"{MOST_READ + 14} bytes left out{CUT}")]}]


def test_nothing_that_looks_like_a_key_is_told() -> None:
    told = json.dumps(asked(messages=[{"role": "user", "content": f"mine is {KEY}."}, {"role": KEY, "content": [{"type": KEY}]}]))
    assert KEY not in told
    assert "s" * 16 not in told
    assert "mine is [key]." in told
    half = {"choices": [{"index": 0, "delta": {"content": KEY[:20]}}]}, {"choices": [{"index": 0, "delta": {"content": KEY[20:]}}]}
    assert heard(*half) == [{"role": "assistant", "parts": [text("[key]")], "finish_reason": "stop"}]


def test_half_a_surrogate_pair_is_told_as_a_question() -> None:
    assert input_messages(b'{"prompt": "a\\ud800b"}') == '[{"role":"user","parts":[{"type":"text","content":"a?b"}]}]'


def test_a_stream_of_chat_is_one_message_for_each_choice() -> None:
    def chunk(index: int, **delta: object) -> dict[str, object]:
        return {"choices": [{"index": index, "delta": delta}]}

    call = {"index": 1, "id": "c", "function": {"name": "f", "arguments": '{"a"'}}
    assert heard(
        chunk(0, role="assistant", content="Hel"),
        chunk(1, content="Other"),
        chunk(0, content="lo", reasoning_content="hm"),
        chunk(0, tool_calls=[call]),
        chunk(0, tool_calls=[{"index": 1, "function": {"arguments": ":1}"}}, {"index": 2, "function": {"name": "g"}}]),
        reasons=("stop",),
    ) == [
        {
            "role": "assistant",
            "parts": [
                text("Hello"),
                {"type": "reasoning", "content": "hm"},
                {"type": "tool_call", "name": "f", "arguments": '{"a":1}'},
                {"type": "tool_call", "name": "g", "arguments": ""},
            ],
            "finish_reason": "stop",
        },
        {"role": "assistant", "parts": [text("Other")], "finish_reason": ""},
    ]


def test_events_of_other_dialects_are_one_message() -> None:
    assert heard(
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hel"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "lo"}},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "name": "f", "input": {}}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "{}"}},
        reasons=("tool_use",),
    ) == [
        {
            "role": "assistant",
            "parts": [text("Hello"), {"type": "tool_call", "name": "f", "arguments": "{}"}],
            "finish_reason": "tool_use",
        }
    ]
    assert heard({"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "Hi"}, reasons=()) == [
        {"role": "assistant", "parts": [text("Hi")], "finish_reason": ""}
    ]


@pytest.mark.parametrize("payload", [b"not json", b"[]", b'{"data": [{"embedding": [0.1]}]}'])
def test_what_says_nothing_is_not_heard(payload: bytes) -> None:
    made = Heard()
    made.take(payload)
    assert made.messages(()) is None


def test_an_answer_is_heard_as_far_as_there_is_room() -> None:
    made = Heard()
    for _ in range(1000):
        made.take(json.dumps({"choices": [{"index": 0, "delta": {"content": "y" * 100}}]}).encode())
    [only] = json.loads(made.messages(("stop",)) or "")
    assert made.cut
    assert "cut" in repr(made)
    assert only["parts"][0]["content"].endswith(CUT)
    assert MOST // 2 <= len(only["parts"][0]["content"]) < MOST
    whole = Heard()
    whole.take(b"{" + b" " * MOST_READ + b"}")
    assert json.loads(whole.messages(()) or "") == [{"role": "system", "parts": [text(f"the answer is left out{CUT}")]}]
    assert repr(Heard()) == "<Heard: 0 characters>"


_MEMBERS = "role content type text tool_calls function input summary output index delta arguments output_index message thinking"
_NAMES = st.sampled_from(tuple(_MEMBERS.split()))
_WORDS = ["text", "user", "tool", "tool_use", "response.x.delta", "content_block_delta", KEY, "x" * 40_000]
_TEXTS = st.text(max_size=40) | st.sampled_from(_WORDS)
_SAID = st.recursive(
    st.none() | st.booleans() | st.integers() | _TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_NAMES, inner, max_size=4),
    max_leaves=12,
)
_ASKED = st.dictionaries(st.sampled_from(["messages", "system", "instructions", "input", "prompt"]), _SAID, max_size=3)
_ANSWERED = st.dictionaries(st.sampled_from(["choices", "type", "index", "delta", "output", "content", "output_index"]), _SAID, max_size=4)


@given(_ASKED)
def test_whatever_is_asked_is_told_within_the_bound_and_without_keys(body: dict[str, object]) -> None:
    told = input_messages(json.dumps(body).encode())
    if told is not None:
        assert len(told.encode()) <= MOST
        assert KEY not in told
        for message in json.loads(told):
            assert set(message) == {"role", "parts"}


@given(st.lists(_ANSWERED, max_size=3))
def test_whatever_is_answered_is_told_within_the_bound_and_without_keys(payloads: list[dict[str, object]]) -> None:
    made = Heard()
    for one in payloads:
        made.take(json.dumps(one).encode())
    told = made.messages(("stop",))
    if told is not None:
        assert len(told.encode()) <= MOST
        assert KEY not in told


@pytest.mark.parametrize(
    "secret",
    [
        "sk-ant-api03-" + "a1B2" * 6, "gsk_" + "a1B2" * 6, "xai-" + "a1B2" * 6, "hf_" + "a1B2" * 6, "ghp_" + "a1B2" * 9,
        "xoxb-" + "1234-" * 6,
        "AIza" + "a1B2" * 9, "ya29." + "a1B2" * 9, "AKIA" + "A1B2" * 4, "ASIA" + "A1B2" * 4,
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
        "-----BEGIN RSA PRIVATE KEY-----\\nMIIEow\\n-----END RSA PRIVATE KEY-----",
    ],
    ids=lambda secret: secret[:8],
)  # fmt: skip
def test_what_looks_like_a_key_is_struck_out_of_what_was_asked(secret: str) -> None:
    told = input_messages(json.dumps({"messages": [{"role": "user", "content": f"use {secret}, please"}]}).encode())
    assert told is not None
    assert "use [key]" in told
    assert "MIIEow" not in told
    assert secret[-10:] not in told or secret.startswith("-----")


@pytest.mark.parametrize("begins", ["eyJ", "sk-", "-----BEGIN ", "AIza", "ya29.", "gh", "eyJaaaaaaaaaaa."])
def test_no_text_takes_long_to_be_searched_for_keys(begins: str) -> None:
    body = json.dumps({"prompt": begins * (200_000 // len(begins))}).encode()
    begun = time.thread_time()
    assert input_messages(body) is not None
    assert time.thread_time() - begun < 0.5
