"""How providers of one dialect differ, and what of a request from another skin none of them would take."""

from __future__ import annotations

import json
from typing import Any

import pytest

from n4n.core.catalog import Endpoint, EndpointId, ModelId, Provider
from n4n.core.chat import ChatRequest, UpstreamRequest
from n4n.core.chat_request import read_chat
from n4n.core.dialects.table import DIALECTS
from n4n.core.document import QUIRKS
from n4n.core.skins.messages import read_messages

MARK = {"type": "ephemeral"}
THOUGHT = {"type": "reasoning.text", "text": "t", "signature": "s", "format": "anthropic-claude-v1", "index": 0}


def chat(**fields: object) -> ChatRequest:
    return read_chat(json.dumps({"model": "asked", "messages": [{"role": "user", "content": "hi"}], **fields}).encode())


def messages(**fields: object) -> ChatRequest:
    asked = {"model": "asked", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}], **fields}
    return read_messages(json.dumps(asked).encode())


def sent(asked: ChatRequest, *quirks: str, dialect: str = "openai", **fields: Any) -> UpstreamRequest:
    assert set(quirks) <= set(QUIRKS)
    provider = Provider("p", dialect, "https://example.test/v1", quirks=frozenset(quirks))
    return DIALECTS[dialect].encode(asked, Endpoint(EndpointId("e1"), ModelId("asked"), provider, (), "theirs", **fields), "secret")


def body(asked: ChatRequest, *quirks: str, **fields: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(sent(asked, *quirks, **fields).body)
    del found["model"], found["messages"]
    return found


@pytest.mark.parametrize("dialect", ["openai", "azure"])
@pytest.mark.parametrize(
    ("asked", "quirks", "kept"),
    [
        ({"max_tokens": 5}, (), {"max_tokens": 5}),
        ({"max_completion_tokens": 5}, (), {"max_completion_tokens": 5}),
        ({"max_completion_tokens": 5}, ("max_tokens",), {"max_tokens": 5}),
        ({"max_tokens": 5}, ("max_completion_tokens",), {"max_completion_tokens": 5}),
        ({"max_tokens": 5, "max_completion_tokens": 7}, ("max_tokens",), {"max_tokens": 5}),
        ({"max_tokens": None, "max_completion_tokens": 7}, ("max_tokens",), {"max_tokens": 7}),
        ({"max_tokens": 900}, ("max_completion_tokens",), {"max_completion_tokens": 100}),
        ({"seed": 5}, ("random_seed",), {"random_seed": 5}),
        ({"seed": 5, "random_seed": 6}, ("random_seed",), {"random_seed": 6}),
        ({"temperature": 1}, ("random_seed", "max_tokens"), {"temperature": 1}),
    ],
)
def test_a_member_goes_out_under_the_name_that_the_provider_knows(
    asked: dict[str, object], quirks: tuple[str, ...], kept: dict[str, object], dialect: str
) -> None:
    assert body(chat(**asked), *quirks, dialect=dialect, max_output_tokens=100) == kept


@pytest.mark.parametrize("options", [None, {"include_usage": True}, {"include_usage": False}])
@pytest.mark.parametrize(("supports", "sent_on"), [(None, True), ({"tools"}, True), ({"stop", "stream_options"}, True), ({"stop"}, False)])
def test_usage_is_not_asked_of_who_refuses_to_be_asked(supports: set[str] | None, sent_on: bool, options: object) -> None:
    asked = chat(stream=True, **({} if options is None else {"stream_options": options}))
    got = body(asked, supports=None if supports is None else frozenset(supports))

    assert got == {"stream": True, **({"stream_options": {"include_usage": True}} if sent_on else {})}


def test_what_only_claude_takes_does_not_reach_those_who_speak_chat() -> None:
    asked = messages(
        top_k=5,
        stop_sequences=["a", "b", "c", "d", "e"],
        cache_control=MARK,
        system=[{"type": "text", "text": "s", "cache_control": MARK}],
        messages=[
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "t", "signature": "s"}, {"type": "text", "text": "a"}]},
            {"role": "user", "content": "go on"},
        ],
    )
    got = sent(asked, "max_tokens")
    read = json.loads(got.body)

    assert read["stop"] == ["a", "b", "c", "d"] and read["max_tokens"] == 9
    assert read["messages"][0]["content"] in ("s", [{"type": "text", "text": "s"}])
    assert read["messages"][2] == {"role": "assistant", "content": "a"}
    assert read.keys() == {"model", "messages", "max_tokens", "stop"}
    assert got.warnings == (
        "top_k was left out: endpoint e1 has no word for it",
        "stop was shortened to 4 texts: endpoint e1 takes no more",
    )


def test_who_knows_marks_and_top_k_gets_them() -> None:
    asked = messages(top_k=5, stop_sequences=["a"], system=[{"type": "text", "text": "s", "cache_control": MARK}])
    got = sent(asked, "marks", "top_k")
    read = json.loads(got.body)

    assert read["top_k"] == 5 and read["stop"] == ["a"] and got.warnings == ()
    assert read["messages"][0]["content"] == [{"type": "text", "text": "s", "cache_control": MARK}]


@pytest.mark.parametrize(
    ("quirks", "kept"),
    [
        ((), {}),
        (("reasoning_content",), {"reasoning_content": "t"}),
        (("marks",), {"reasoning_content": "t", "reasoning_details": [THOUGHT]}),
    ],
)
def test_reasoning_that_another_provider_signed_stays_behind(quirks: tuple[str, ...], kept: dict[str, object]) -> None:
    turn = {"role": "assistant", "content": "a", "reasoning_content": "t", "reasoning_details": [THOUGHT]}
    read = json.loads(sent(chat(messages=[{"role": "user", "content": "hi"}, turn]), *quirks).body)

    assert read["messages"][1] == {"role": "assistant", "content": "a", **kept}


def test_a_chat_without_marks_goes_out_as_it_came() -> None:
    turn = {"role": "assistant", "content": "a", "reasoning_content": "t"}
    asked = chat(messages=[{"role": "user", "content": "hi"}, turn], top_k=5, stop=["a"] * 6)
    read = json.loads(sent(asked).body)

    assert read == {"model": "theirs", "messages": [{"role": "user", "content": "hi"}, turn], "top_k": 5, "stop": ["a"] * 6}
