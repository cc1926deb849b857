"""Marks in a chat that only some providers know."""

from __future__ import annotations

import json

import msgspec

from n4n.core.chat_request import read_chat
from n4n.core.dialects.marks import unmarked
from n4n.core.skins.messages import read_messages

MARK = {"type": "ephemeral"}


def test_a_chat_without_marks_stays_the_bytes_it_was() -> None:
    fields = read_chat(b'{"model":"m", "messages":[{ "role":"user","content":"say cache_control" }],"tools":[{ }]}').fields

    assert {name: bytes(raw) for name, raw in unmarked(fields).items()} == {name: bytes(raw) for name, raw in fields.items()}


def test_marks_are_taken_out_wherever_they_may_stand() -> None:
    asked = {
        "model": "m",
        "cache_control": MARK,
        "messages": [
            {"role": "system", "content": [{"type": "text", "text": "s", "cache_control": MARK}, "odd"]},
            {"role": "assistant", "content": "x", "reasoning_details": [{"type": "reasoning.text"}]},
            {"role": "user", "content": "x", "cache_control": MARK},
            "odd",
        ],
        "tools": [{"type": "function", "function": {"name": "f", "cache_control": MARK}, "cache_control": MARK}],
    }
    got = {name: json.loads(bytes(raw)) for name, raw in unmarked(read_chat(json.dumps(asked).encode()).fields).items()}

    assert got == {
        "model": "m",
        "messages": [
            {"role": "system", "content": [{"type": "text", "text": "s"}, "odd"]},
            {"role": "assistant", "content": "x"},
            {"role": "user", "content": "x"},
            "odd",
        ],
        "tools": [{"type": "function", "function": {"name": "f"}}],
    }


def test_a_translated_request_bears_no_marks_afterwards() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": [{"type": "text", "text": "x", "cache_control": MARK}]}]}
    fields = unmarked(read_messages(json.dumps(body).encode()).fields)

    assert json.loads(bytes(fields["messages"])) == [{"role": "user", "content": [{"type": "text", "text": "x"}]}]


def test_what_is_no_list_or_too_deep_stays_as_it_is() -> None:
    deep = b'[{"cache_control":' + b"[" * 5000 + b"]" * 5000 + b"}]"
    fields = {"tools": msgspec.Raw(b'{"x":"cache_control"}')}

    assert bytes(unmarked(fields)["tools"]) == b'{"x":"cache_control"}'
    assert unmarked({"messages": deep})["messages"] == deep  # type: ignore[dict-item]
