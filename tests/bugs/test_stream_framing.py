"""Streams whose framing is a liberty of their provider."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from tests.bugs.streams import chunk, events, said, stream_of, two_endpoints
from tests.support.answers import EVENTS, partial, sse
from tests.support.router import catalog, running_router
from tests.support.script import Answer, Gate, Headers, Raw, Sleep, Slice, Wait, compact
from tests.support.upstream import ScriptedUpstream

CHUNKS = [
    compact(one.json) for one in (chunk({"role": "assistant"}), chunk({"content": "a\\nb"}), chunk({"content": "c"}), chunk(finish="stop"))
]
COMMENT = Raw(b": OPENROUTER PROCESSING\n\n")


def framed(end: bytes, prefix: bytes = b"data: ", done: bool = True) -> bytes:
    """The chunks, each ended in this way."""
    lines = [*CHUNKS, b"[DONE]"] if done else CHUNKS
    return b"".join(prefix + line + end for line in lines)


@pytest.mark.parametrize("size", [0, 1, 7])
@pytest.mark.parametrize("end", [b"\n", b"\n\n", b"\r\n", b"\r\n\r\n", b"\r", b"\n\n\n"], ids=repr)
@pytest.mark.parametrize("prefix", [b"data: ", b"data:", b"event: message\ndata: "])
async def test_every_event_arrives_once_however_events_are_separated(end: bytes, prefix: bytes, size: int) -> None:
    """one-api #277 (case 3): one newline between events glued them together."""
    text, _ = await stream_of((EVENTS, Slice(size), Raw(framed(end, prefix))))

    assert said(text) == "a\\nbc" and len(events(text)) == 4 and text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize("end", [b"\n", b"\n\n", b"\r\n\r\n"], ids=repr)
@pytest.mark.parametrize("kind", ["text/event-stream", "application/json", ""])
async def test_a_stream_in_reply_to_a_plain_request_becomes_one_answer(end: bytes, kind: str) -> None:
    """one-api #277 (case 3): the provider streams although no stream was asked."""
    async with ScriptedUpstream() as upstream:
        upstream.script((Headers((("content-type", kind),)), Raw(framed(end))))
        async with running_router(catalog(upstream.base_url)) as house, house.chat() as answer:
            body = json.loads(await answer.text())
    assert (answer.status, body["object"]) == (200, "chat.completion")
    assert body["choices"][0]["message"]["content"] == "a\\nbc" and body["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("body", [b"data: {not json}\n\n", b"data: {}\ndata: {}\n\n", b"\x00\x01", b'data: "x"\n\n'])
async def test_what_is_no_answer_at_all_goes_to_the_next_endpoint_and_never_to_the_client(body: bytes, stream: bool) -> None:
    """one-api #277 (case 3): a parser's message became the client's error."""
    async with two_endpoints() as (e1, _, house):
        e1.script((EVENTS, Raw(body)))
        async with house.chat(stream=stream) as answer:
            text = await answer.text()
    assert (answer.status, answer.headers["x-n4n-endpoint"]) == (200, "e2")
    assert "pong" in text and "json" not in text.lower()


COMMENTS = {
    "before the head's first data": (EVENTS, *(COMMENT, Sleep(0.01)) * 20, *sse("a", "b")[1:]),
    "between all chunks": tuple(step for one in sse("a", "b") for step in (one, *((COMMENT,) if type(one).__name__ == "Chunk" else ()))),
    "without a blank line": (EVENTS, Raw(b": ping\n: ping\r\n:\n"), *sse("a", "b")[1:]),
}


@pytest.mark.parametrize("place", COMMENTS)
async def test_comments_are_no_data(place: str) -> None:
    """openai-go #227 (case 4): keep-alive comments before the first data broke JSON parsers."""
    text, _ = await stream_of(COMMENTS[place])

    assert said(text) == "ab" and text.endswith("data: [DONE]\n\n")


async def test_comments_do_not_fill_the_guard_and_do_not_stop_the_clock_of_the_first_token() -> None:
    """openai-go #227 (case 4)."""
    model = {"stream_guard": {"chunks": 3, "max_hold_ms": 5000}, "timeouts": {"first_token_ms": 300, "idle_ms": 5000}}
    async with two_endpoints(model) as (e1, e2, house):
        e1.script((EVENTS, *(COMMENT, Sleep(0.02)) * 200))
        began = time.monotonic()
        async with house.chat(stream=True) as answer:
            assert said(await answer.text()) == "pong"
        assert (answer.headers["x-n4n-endpoint"], len(e1.calls), len(e2.calls)) == ("e2", 1, 1)
        assert 0.25 < time.monotonic() - began < 1.5


async def test_comments_reset_the_idle_clock() -> None:
    """openai-go #227 (case 4)."""
    answer: Answer = (*partial("a"), *(Sleep(0.1), COMMENT) * 6, chunk({"content": "b"}), chunk(finish="stop"))

    text, _ = await stream_of(answer, {"timeouts": {"idle_ms": 250}})

    assert said(text) == "ab"


async def test_an_event_is_passed_on_before_the_next_one_begins_also_where_no_blank_line_follows() -> None:
    """one-api #277 (case 3): waiting for a blank line that never comes would hold each event back by one."""
    gate = Gate()
    async with ScriptedUpstream() as upstream:
        upstream.script((EVENTS, Raw(b"data: " + CHUNKS[0] + b"\ndata: " + CHUNKS[1] + b"\n"), Wait(gate), *sse("z")[2:]))
        async with running_router(catalog(upstream.base_url, model={"stream_guard": {"chunks": 1}})) as house:
            async with house.chat(stream=True) as answer, asyncio.timeout(3):
                assert b"a\\\\nb" in await answer.content.readany()
                gate.open()
                assert said((await answer.content.read()).decode()) == "z"
