"""The recorded answers in tests/vectors, and what a client has to get of each: shared by the tests of every dialect.

The files are data: what a provider's server sent, and how it has to read (see docs/errors.md).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from n4n.core.chat import ChatRequest, Chunk, Done, Event, Failed
from n4n.core.chat_request import read_chat
from n4n.core.dialects import Dialect
from n4n.core.errors import Failure
from n4n.core.stream_tail import StreamTail

Vector = dict[str, Any]
_NO_DETAILS = {"prompt_tokens_details", "completion_tokens_details"}
_FOLDER = Path(__file__).parent.parent / "vectors"


def every_vector() -> list[Vector]:
    """All of them, by name."""
    return [json.loads(file.read_text()) for file in sorted(_FOLDER.glob("*.json"))]


def vectors_of(dialect: str) -> list[Vector]:
    """The vectors of one dialect, as their files name it: openai_chat, anthropic_messages, gemini_generate, …"""
    return [vector for vector in every_vector() if vector["dialect"] == dialect]


def named(vector: Vector) -> str:
    """The vector's name, for a test's id."""
    return str(vector["id"])


def request_of(vector: Vector) -> ChatRequest:
    """What the client had asked."""
    return read_chat(json.dumps({"model": "m", "messages": [{}], "stream": vector["stream"], **vector["request_context"]}).encode())


def now_of(vector: Vector) -> float:
    """When the answer came, in Unix seconds."""
    return datetime.fromisoformat(vector.get("now", "2026-03-02T10:00:00Z")).timestamp()


def pieces_of(vector: Vector) -> list[bytes]:
    """The stream as it was read."""
    return [base64.b64decode(piece) for piece in vector["upstream"]["chunks_b64"]]


def events_of(dialect: Dialect, vector: Vector, pieces: Iterable[bytes]) -> list[Event]:
    """The events of a stream in these pieces."""
    decoder = dialect.decoder(request_of(vector))
    return [event for piece in pieces for event in decoder.feed(piece)] + decoder.end()


def client_joins(payloads: Sequence[bytes]) -> dict[str, Any]:
    """What a client has after the last chunk. Written apart from the gateway's own joining, on purpose."""
    choices: dict[int, dict[str, Any]] = {}
    usage = None
    for payload in payloads:
        chunk = json.loads(payload)
        usage = chunk.get("usage") or usage
        for said in chunk["choices"]:
            mine = choices.setdefault(said["index"], {"index": said["index"], "message": {}, "calls": {}, "finishes": []})
            for name, value in said["delta"].items():
                if name == "tool_calls":
                    for fragment in value:
                        call = mine["calls"].setdefault(fragment["index"], {"id": "", "name": "", "arguments": ""})
                        call["id"] += fragment.get("id") or ""
                        call["name"] += fragment["function"].get("name") or ""
                        call["arguments"] += fragment["function"].get("arguments") or ""
                elif isinstance(value, str) and name != "role":
                    mine["message"][name] = (mine["message"].get(name) or "") + value
            if said["finish_reason"] is not None:
                mine["finishes"].append(said["finish_reason"])
    return {"choices": [choices[index] for index in sorted(choices)], "usage": usage}


def check_usage(got: dict[str, Any] | None, expected: dict[str, Any] | None) -> None:
    """The same counts; of details that one side does not give, zero."""
    if expected is None:
        assert not got
        return
    assert got is not None
    for name, value in expected.items():
        if name in _NO_DETAILS:
            inner = got.get(name) or {}
            assert {key: inner.get(key) or 0 for key in value} == {key: count or 0 for key, count in value.items()}
        else:
            assert got[name] == value


def check_message(got: dict[str, Any], calls: list[dict[str, Any]], expected: dict[str, Any]) -> None:
    """The same texts and calls."""
    for name in ("content", "refusal", "reasoning_content"):
        assert (got.get(name) or None) == (expected.get(name) or None), name
    wanted = expected.get("tool_calls") or []
    assert len(calls) == len(wanted)
    for call, want in zip(calls, wanted, strict=True):
        assert call["name"] == want["function"]["name"]
        assert _same_arguments(call["arguments"], want["function"]["arguments"])
        assert call["id"] if want["id"] == "@any" else call["id"] == want["id"]


def _same_arguments(got: str, expected: str) -> bool:
    try:
        return bool(json.loads(got) == json.loads(expected))
    except ValueError:
        return got == expected


def check_failure(got: Failure, expected: dict[str, Any]) -> None:
    """The same class, hint and code."""
    assert got.failure_class == expected["class"]
    if expected["retry_after_s"] is None:
        assert got.retry_after_s is None
    else:
        assert got.retry_after_s == pytest.approx(expected["retry_after_s"], abs=0.5)
    if "provider_code" in expected:
        assert (got.code or None) == (str(expected["provider_code"]) if expected["provider_code"] is not None else None)


def check_stream(vector: Vector, events: list[Event]) -> None:
    """What the client joins of a stream."""
    expected = vector["expected"]
    chunks = [event for event in events if isinstance(event, Chunk)]
    ends = [event for event in events if isinstance(event, Done | Failed)]
    assert len(ends) == 1 and events[-1] is ends[0]
    if expected["outcome"] != "ok":
        assert isinstance(ends[0], Failed)
        check_failure(ends[0].failure, expected["error"])
        got = client_joins([chunk.payload for chunk in chunks])
        assert got["choices"][0]["message"].get("content") == expected["before_error"]["content"]
        return
    assert isinstance(ends[0], Done)
    usage = next((chunk.usage for chunk in reversed(chunks) if chunk.usage), None)
    tail = StreamTail(request_of(vector).include_usage)
    payloads = [payload for chunk in chunks for payload in tail.receive(chunk)]
    payloads += tail.finish(usage, b'{"cost_usd":null}')
    got = client_joins(payloads)
    assert json.loads(payloads[-1])["n4n"] == {"cost_usd": None}
    assert (json.loads(payloads[-1])["choices"] == []) is (expected["stream"]["usage_chunk"] is True)
    check_usage(got["usage"], expected["completion"].get("usage") if request_of(vector).include_usage else None)
    assert len(got["choices"]) == len(expected["completion"]["choices"])
    for choice, want in zip(got["choices"], expected["completion"]["choices"], strict=True):
        assert choice["finishes"] == [want["finish_reason"]]
        check_message(choice["message"], [choice["calls"][index] for index in sorted(choice["calls"])], want["message"])


def check_whole(vector: Vector, got: Chunk | Failure) -> None:
    """What the client reads of a whole answer."""
    expected = vector["expected"]
    if expected["outcome"] != "ok":
        assert isinstance(got, Failure)
        check_failure(got, expected["error"])
        assert "http" not in got.message and "<" not in got.message
        return
    assert isinstance(got, Chunk)
    whole = json.loads(got.payload)
    check_usage(whole.get("usage"), expected["completion"]["usage"])
    for choice, want in zip(whole["choices"], expected["completion"]["choices"], strict=True):
        assert choice["finish_reason"] == want["finish_reason"]
        calls = [{"id": call["id"], **call["function"]} for call in choice["message"].get("tool_calls") or []]
        check_message(choice["message"], calls, want["message"])


def read_whole(dialect: Dialect, vector: Vector) -> Chunk | Failure:
    """A whole answer through its dialect, whatever its status."""
    upstream = vector["upstream"]
    headers, body = upstream["headers"], upstream["body"].encode()
    if upstream["status"] == 200:
        return dialect.decode(body, headers.get("content-type", ""), request_of(vector))
    return dialect.failure(upstream["status"], headers, body, now_of(vector))


def check_every_split(dialect: Dialect, vector: Vector) -> None:
    """A stream reads the same, to the event, wherever it is cut in two and in any size of pieces.

    Signs of life, which depend on how a body arrives, do not count.
    """

    def told(pieces: Iterable[bytes]) -> list[Event]:
        return [event for event in events_of(dialect, vector, pieces) if isinstance(event, Chunk | Done | Failed)]

    raw = b"".join(pieces_of(vector))
    expected = told([raw])
    check_stream(vector, expected)
    for cut in range(1, len(raw)):
        assert told((raw[:cut], raw[cut:])) == expected
    for size in (1, 2, 3, 7):
        assert told(raw[at : at + size] for at in range(0, len(raw), size)) == expected
