"""The recorded answers of Anthropic: read as a chat, and in Anthropic's own words through the Messages skin, in every split."""

from __future__ import annotations

import json

import pytest

from n4n.core.chat import Chunk, Done, Event, Failed
from n4n.core.dialects.anthropic import Anthropic
from n4n.core.errors import Failure
from n4n.core.quota_headers import read_quotas
from n4n.core.skins.messages import read_messages
from n4n.core.skins.messages_answer import whole
from n4n.core.skins.messages_stream import MessagesStream
from tests.support.messages import joined
from tests.support.vectors import (
    Vector,
    check_every_split,
    check_failure,
    check_stream,
    check_whole,
    events_of,
    named,
    now_of,
    pieces_of,
    read_whole,
    vectors_of,
)

VECTORS = vectors_of("anthropic_messages")
STREAMS = [vector for vector in VECTORS if vector["stream"]]
WHOLE = [vector for vector in VECTORS if not vector["stream"]]
DIALECT = Anthropic()
NATIVE = read_messages(b'{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"?"}]}')
NOTE = b'{"cost_usd":null}'


@pytest.mark.parametrize("vector", STREAMS, ids=named)
def test_a_recorded_stream_reads_as_it_was_split(vector: Vector) -> None:
    check_stream(vector, events_of(DIALECT, vector, pieces_of(vector)))


@pytest.mark.parametrize("vector", STREAMS, ids=named)
def test_a_recorded_stream_reads_the_same_in_every_split(vector: Vector) -> None:
    check_every_split(DIALECT, vector)


@pytest.mark.parametrize("vector", WHOLE, ids=named)
def test_a_recorded_answer_reads_whole(vector: Vector) -> None:
    check_whole(vector, read_whole(DIALECT, vector))


@pytest.mark.parametrize("vector", [vector for vector in VECTORS if "rate_limit" in vector["expected"]], ids=named)
def test_what_a_recorded_answer_says_about_limits_is_read(vector: Vector) -> None:
    quotas = read_quotas(vector["upstream"]["headers"], now_of(vector))

    for family, expected in vector["expected"]["rate_limit"].items():
        assert quotas[family].limit == expected["limit"]
        assert quotas[family].remaining == expected["remaining"]
        assert quotas[family].reset_s == pytest.approx(expected["reset_s"], abs=0.01)


def native_events(raw: bytes, size: int) -> list[Event]:
    decoder = DIALECT.decoder(NATIVE)
    events = [event for at in range(0, len(raw), size) for event in decoder.feed(raw[at : at + size])] + decoder.end()
    return [event for event in events if isinstance(event, Chunk | Done | Failed)]


@pytest.mark.parametrize("vector", STREAMS, ids=named)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 100_000])
def test_a_client_of_messages_gets_a_recorded_stream_byte_for_byte(vector: Vector, size: int) -> None:
    raw = b"".join(pieces_of(vector))
    events = native_events(raw, size)
    stream = MessagesStream()
    chunks = [event for event in events if isinstance(event, Chunk)]
    frames = [frame for chunk in chunks for frame in stream.receive(chunk)]

    assert all(frame in raw for frame in frames)
    if vector["expected"]["outcome"] != "ok":
        assert isinstance(events[-1], Failed)
        check_failure(events[-1].failure, vector["expected"]["error"])
        return
    assert events[-1] == Done()
    usage = next(chunk.usage for chunk in reversed(chunks) if chunk.usage)
    told = vector["expected"]["completion"]["usage"]
    assert (usage.prompt_tokens, usage.completion_tokens) == (told["prompt_tokens"], told["completion_tokens"])
    assert stream.waiting and stream.complete
    message = joined([*frames, *stream.finish(usage, NOTE)])
    want = vector["expected"]["completion"]["choices"][0]["message"]
    assert "".join(block["text"] for block in message["content"] if block["type"] == "text") == (want["content"] or "")
    calls = [(block["id"], block["name"], block["input"]) for block in message["content"] if block["type"] == "tool_use"]
    assert calls == [
        (call["id"], call["function"]["name"], json.loads(call["function"]["arguments"])) for call in want.get("tool_calls", [])
    ]
    assert message["n4n"] == {"cost_usd": None}


@pytest.mark.parametrize("vector", [vector for vector in WHOLE if vector["expected"]["outcome"] == "ok"], ids=named)
def test_a_client_of_messages_gets_a_recorded_answer_as_it_came(vector: Vector) -> None:
    body = vector["upstream"]["body"]
    got = DIALECT.decode(body.encode(), "application/json", NATIVE)

    assert not isinstance(got, Failure)
    assert got.payload == body.encode() and got.shape == "anthropic"
    assert whole(got, got.usage, NOTE) == body[:-1].encode() + b',"n4n":' + NOTE + b"}"
