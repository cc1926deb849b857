"""The recorded answers of providers: each read whole, and each stream in every split of its bytes.

The files in tests/vectors are data: what a provider's server sent, and what a client has to get (see docs/errors.md).
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
from n4n.core.dialects.table import DIALECTS
from n4n.core.errors import Failure
from n4n.core.quota_headers import read_quotas
from n4n.core.stream_tail import StreamTail

FILES = sorted((Path(__file__).parent.parent / "vectors").glob("*.json"))
NAMES = {"openai_chat": "openai", "azure_openai": "azure", "openai_responses": "openai_responses"}  # a vector's word ▸ the dialect
VECTORS: list[dict[str, Any]] = [
    vector for file in FILES if (vector := json.loads(file.read_text()))["dialect"] in NAMES and NAMES[vector["dialect"]] in DIALECTS
]
STREAMS = [vector for vector in VECTORS if vector["stream"]]
WHOLE = [vector for vector in VECTORS if not vector["stream"]]
PASSED_ON = ("openai_chat", "azure_openai")  # dialects whose words are the client's own
NO_DETAILS = {"prompt_tokens_details", "completion_tokens_details"}


def named(vector: dict[str, Any]) -> str:
    return str(vector["id"])


def request_of(vector: dict[str, Any]) -> ChatRequest:
    return read_chat(json.dumps({"model": "m", "messages": [{}], "stream": vector["stream"], **vector["request_context"]}).encode())


def dialect_of(vector: dict[str, Any]) -> Dialect:
    return DIALECTS[NAMES[vector["dialect"]]]


def now_of(vector: dict[str, Any]) -> float:
    return datetime.fromisoformat(vector.get("now", "2026-03-02T10:00:00Z")).timestamp()


def pieces_of(vector: dict[str, Any]) -> list[bytes]:
    return [base64.b64decode(piece) for piece in vector["upstream"]["chunks_b64"]]


def events_of(vector: dict[str, Any], pieces: Iterable[bytes]) -> list[Event]:
    decoder = dialect_of(vector).decoder(request_of(vector))
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


def same_arguments(got: str, expected: str) -> bool:
    try:
        return bool(json.loads(got) == json.loads(expected))
    except ValueError:
        return got == expected


def check_usage(got: dict[str, Any] | None, expected: dict[str, Any] | None) -> None:
    if expected is None:
        assert not got
        return
    assert got is not None
    for name, value in expected.items():
        if name in NO_DETAILS:
            inner = got.get(name) or {}
            assert {key: inner.get(key) or 0 for key in value} == {key: count or 0 for key, count in value.items()}
        else:
            assert got[name] == value


def check_message(got: dict[str, Any], calls: list[dict[str, Any]], expected: dict[str, Any]) -> None:
    for name in ("content", "refusal", "reasoning_content"):
        assert (got.get(name) or None) == (expected.get(name) or None), name
    wanted = expected.get("tool_calls") or []
    assert len(calls) == len(wanted)
    for call, want in zip(calls, wanted, strict=True):
        assert call["name"] == want["function"]["name"]
        assert same_arguments(call["arguments"], want["function"]["arguments"])
        assert call["id"] if want["id"] == "@any" else call["id"] == want["id"]


def check_failure(got: Failure, expected: dict[str, Any]) -> None:
    assert got.failure_class == expected["class"]
    if expected["retry_after_s"] is None:
        assert got.retry_after_s is None
    else:
        assert got.retry_after_s == pytest.approx(expected["retry_after_s"], abs=0.5)
    if "provider_code" in expected:
        assert (got.code or None) == (str(expected["provider_code"]) if expected["provider_code"] is not None else None)


def check_stream(vector: dict[str, Any], events: list[Event]) -> None:
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


@pytest.mark.parametrize("vector", STREAMS, ids=named)
def test_a_recorded_stream_reads_as_it_was_split(vector: dict[str, Any]) -> None:
    check_stream(vector, events_of(vector, pieces_of(vector)))


@pytest.mark.parametrize("vector", STREAMS, ids=named)
def test_a_recorded_stream_reads_the_same_in_every_split(vector: dict[str, Any]) -> None:
    raw = b"".join(pieces_of(vector))
    expected = events_of(vector, [raw])
    check_stream(vector, expected)

    for cut in range(1, len(raw)):
        assert events_of(vector, (raw[:cut], raw[cut:])) == expected
    for size in (1, 2, 3, 7):
        assert events_of(vector, (raw[at : at + size] for at in range(0, len(raw), size))) == expected


@pytest.mark.parametrize("vector", [vector for vector in STREAMS if vector["dialect"] == "openai_chat"], ids=named)
def test_a_recorded_stream_passes_byte_for_byte(vector: dict[str, Any]) -> None:
    raw = b"".join(pieces_of(vector))
    payloads = [event.payload for event in events_of(vector, [raw]) if isinstance(event, Chunk)]

    assert sum(payload in raw for payload in payloads) >= len(payloads) - ("multi_line_data" in vector["kinds"])


@pytest.mark.parametrize("vector", WHOLE, ids=named)
def test_a_recorded_answer_reads_whole(vector: dict[str, Any]) -> None:
    upstream, expected = vector["upstream"], vector["expected"]
    headers, body = upstream["headers"], upstream["body"].encode()
    if upstream["status"] == 200:
        got = dialect_of(vector).decode(body, headers.get("content-type", ""), request_of(vector))
    else:
        got = dialect_of(vector).failure(upstream["status"], headers, body, now_of(vector))

    if expected["outcome"] != "ok":
        assert isinstance(got, Failure)
        check_failure(got, expected["error"])
        assert "http" not in got.message and "<" not in got.message
        return
    assert isinstance(got, Chunk)
    assert got.payload == body or vector["dialect"] not in PASSED_ON
    whole = json.loads(got.payload)
    check_usage(whole.get("usage"), expected["completion"]["usage"])
    for choice, want in zip(whole["choices"], expected["completion"]["choices"], strict=True):
        assert choice["finish_reason"] == want["finish_reason"]
        calls = [{"id": call["id"], **call["function"]} for call in choice["message"].get("tool_calls") or []]
        check_message(choice["message"], calls, want["message"])


@pytest.mark.parametrize("vector", [vector for vector in VECTORS if "rate_limit" in vector["expected"]], ids=named)
def test_what_a_recorded_answer_says_about_limits_is_read(vector: dict[str, Any]) -> None:
    quotas = read_quotas(vector["upstream"]["headers"], now_of(vector))

    for family, expected in vector["expected"]["rate_limit"].items():
        for name, value in expected.items():
            assert getattr(quotas[family], name) == pytest.approx(value, abs=0.01)
