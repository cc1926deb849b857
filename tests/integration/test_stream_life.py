"""The life of a stream: deadlines of every phase, signs of life, what leaves together, how it ends, and clients that go."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping

import pytest

from tests.support import answers
from tests.support.answers import DONE, EVENTS, completion, delta, error, error_event, partial, rate_limited, sse, usage, usage_chunk
from tests.support.router import KEY, RunningRouter, catalog, running_router
from tests.support.script import Answer, Chunk, Fin, Gate, Hang, Head, Raw, Rst, Sleep, Slice, Wait, event
from tests.support.upstream import ScriptedUpstream

TIMES = {"connect_ms": 500, "first_token_ms": 300, "idle_ms": 300, "total_ms": 1500}
LONG = ("one ", "two ", "three ", "four ")
PING = Raw(b": ping\n\n")


def model(guard: int = 1, **times: int) -> dict[str, object]:
    """A model of short patience."""
    return {"timeouts": {**TIMES, **times}, "stream_guard": {"chunks": guard, "max_hold_ms": 5000}, "retry": {"backoff_ms": 1}}


def events(text: str) -> list[dict]:
    """The JSON of every data event but [DONE]."""
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ") and line != "data: [DONE]"]


def said(text: str) -> str:
    """All text of a stream."""
    return "".join(choice["delta"].get("content") or "" for chunk in events(text) for choice in chunk["choices"])


async def streamed(answer: Answer, policy: Mapping[str, object], *, then: Answer | None = None, **body: object) -> tuple[int, str, float]:
    """Status, body and seconds of one streamed request."""
    async with ScriptedUpstream() as upstream:
        upstream.script(answer, then=then or error(500))
        async with running_router(catalog(upstream.base_url, model=policy)) as house:
            began = time.monotonic()
            async with house.chat(stream=True, **body) as reply:
                text = await reply.text()
            return reply.status, text, time.monotonic() - began


# Deadlines.


@pytest.mark.parametrize("guard", [0, 1, 3])
@pytest.mark.parametrize(
    "answer",
    [
        (EVENTS, Head(), Hang()),
        (*partial(), Hang()),
        (EVENTS, *(PING, Sleep(0.05)) * 40, Hang()),
        (*partial(), *(PING, Sleep(0.05)) * 40, Hang()),
        (*partial(), *(delta({}), Sleep(0.05)) * 40, Hang()),
    ],
    ids=["head", "role", "comments", "role and comments", "empty deltas"],
)
async def test_nothing_but_output_counts_as_a_first_token(answer: Answer, guard: int) -> None:
    status, text, took = await streamed(answer, model(guard, total_ms=10_000))

    told = json.loads(text)["error"] if status != 200 else events(text)[-1]["error"]
    assert (status, told["code"]) in ((504, "timeout"), (200, "stream_interrupted"))
    assert told["n4n"]["attempts"][0]["class"] == "timeout" and 0.25 < took < 4
    assert status == 504 or guard == 0, "what was not released is not begun"


async def test_comments_keep_an_idle_stream_alive_and_silence_does_not() -> None:
    alive = (*partial("a"), *(Sleep(0.1), PING) * 6, delta({"content": "b"}), delta({}, finish="stop"), DONE)
    status, text, _ = await streamed(alive, model())
    assert (status, said(text)) == (200, "ab") and text.endswith("data: [DONE]\n\n")

    _, text, took = await streamed((*partial("a"), Sleep(2), delta({}, finish="stop"), DONE), model())
    assert events(text)[-1]["error"]["n4n"]["attempts"][0]["class"] == "timeout" and took < 1.9


@pytest.mark.parametrize("drip", [Slice(1, 0.02), Slice(3, 0.05)])
@pytest.mark.parametrize("guard", [1, 6])
async def test_a_slow_drip_ends_at_the_deadline(drip: Slice, guard: int) -> None:
    answer = (*partial("a", "b"), drip, *(delta({"content": "c"}) for _ in range(50)), delta({}, finish="stop"), DONE)
    status, text, took = await streamed(answer, model(guard, total_ms=900))

    assert 0.8 < took < 3
    if guard == 1:
        assert events(text)[-1]["error"]["code"] == "stream_interrupted" and said(text).startswith("ab")
    else:
        assert (status, json.loads(text)["error"]["code"]) == (504, "timeout")


async def test_the_callers_deadline_ends_a_stream_that_has_begun() -> None:
    async with ScriptedUpstream() as upstream:
        upstream.script((*partial("a"), *(Sleep(0.05), delta({"content": "x"})) * 100))
        async with running_router(catalog(upstream.base_url, model=model())) as house:
            began = time.monotonic()
            async with house.chat(stream=True, headers={"x-n4n-timeout-ms": "400"}) as answer:
                text = await answer.text()
    assert time.monotonic() - began < 3
    last = events(text)[-1]
    assert last["error"]["code"] == "stream_interrupted" and last["choices"][0]["finish_reason"] == "error" and "[DONE]" not in text


# Ends.


@pytest.mark.parametrize(
    "ending",
    [(DONE,), (), (Fin(),), (Rst(),), (usage_chunk(), DONE), (usage_chunk(),), (usage_chunk(), Rst())],
    ids=["done", "end", "cut", "reset", "usage", "usage and end", "usage and reset"],
)
@pytest.mark.parametrize("guard", [1, 6])
async def test_what_comes_after_the_last_finish_reason_cannot_spoil_an_answer(ending: Answer, guard: int) -> None:
    status, text, took = await streamed((*partial("a", "b"), delta({}, finish="stop"), *ending), model(guard))

    assert (status, said(text)) == (200, "ab") and text.endswith("data: [DONE]\n\n") and took < 1.9
    assert [one["choices"][0]["finish_reason"] for one in events(text)] == [None, None, None, "stop"]


async def test_a_connection_kept_open_after_the_finish_is_left_after_two_seconds() -> None:
    async with ScriptedUpstream() as upstream:
        upstream.script((*partial("a"), delta({}, finish="stop"), Hang()), (*partial("a"), delta({}, finish="stop"), usage_chunk(), Hang()))
        async with running_router(catalog(upstream.base_url)) as house:
            took = []
            for _ in range(2):
                began = time.monotonic()
                async with house.chat(stream=True) as answer:
                    text = await answer.text()
                took.append(time.monotonic() - began)
                assert said(text) == "a" and text.endswith("data: [DONE]\n\n")
            await asyncio.gather(*map(upstream.closed, upstream.calls))
    assert 1.5 < took[0] < 4, "usage may still come"
    assert took[1] < 1.9, "it has come"


@pytest.mark.parametrize("pause_s", [0.0, 0.005])
async def test_a_connection_whose_end_comes_a_packet_after_the_end_mark_is_used_again(pause_s: float) -> None:
    async with ScriptedUpstream() as upstream:
        upstream.script(then=(*sse("a"), Sleep(pause_s)))
        async with running_router(catalog(upstream.base_url)) as house:
            for _ in range(5):
                async with house.chat(stream=True) as answer:
                    assert said(await answer.text()) == "a"
    assert (len(upstream.calls), upstream.connections) == (5, 1)


async def test_a_client_that_leaves_with_its_whole_answer_was_served() -> None:
    async with ScriptedUpstream() as upstream:
        upstream.script(then=(*sse("a"), Hang()))
        async with running_router(catalog(upstream.base_url)) as house:
            reader, writer = await raw_stream(house)
            async with asyncio.timeout(5):
                await reader.readuntil(b"data: [DONE]")
            writer.transport.abort()
            (line,) = await house.logged()
    assert (line["status"], line["outcome"]) == (200, "success")
    assert [one["outcome"] for one in line["routing"]["attempts"]] == ["ok"]  # type: ignore[index]


@pytest.mark.parametrize(
    ("body", "chunks"),
    [
        ({}, [(1, False), (1, False), (1, False)]),
        ({"stream_options": {"include_usage": False}}, [(1, False), (1, False), (1, False)]),
        ({"stream_options": {"include_usage": True}}, [(1, False), (1, False), (1, False), (0, True)]),
    ],
)
@pytest.mark.parametrize("habit", ["own chunk", "with the finish", "after each chunk", "none"])
async def test_usage_is_shown_exactly_as_asked(body: Mapping[str, object], chunks: list[tuple[int, bool]], habit: str) -> None:
    def chunk(**members: object) -> Chunk:
        told = {"own chunk": {}, "none": {}, "with the finish": {}}.get(habit, {"usage": usage(3, 1)})
        if habit == "with the finish" and members["choices"][0]["finish_reason"]:  # type: ignore[index]
            told = {"usage": usage(3, 1)}
        return Chunk({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "x", **members, **told})  # type: ignore[dict-item]

    begun = [chunk(choices=[{"index": 0, "delta": told, "finish_reason": None}]) for told in ({"role": "assistant"}, {"content": "a"})]
    last = chunk(choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}])
    tail = (usage_chunk(usage(3, 1)),) if habit == "own chunk" else ()
    _, text, _ = await streamed((EVENTS, *begun, last, *tail, DONE), model(), **body)

    assert [(len(one["choices"]), bool(one.get("usage"))) for one in events(text)] == chunks
    block = events(text)[-1]["n4n"]["usage"]
    assert block["estimated"] is (habit == "none") and (habit == "none" or block["total_tokens"] == 4)


@pytest.mark.parametrize(
    ("answer", "stream", "ok"),
    [
        (completion("whole"), True, True),
        (sse("wh", "ole"), False, True),
        (sse("wh", "ole", finish=None), False, False),
        ((*partial("a"), error_event("server_error")), False, False),
        ((answers.JSON, answers.Whole(b'{"error":{"message":"x","type":"server_error"}}')), True, False),
        ((EVENTS, Raw(b"[1,2]")), True, False),
        ((EVENTS, Raw(b'"text"')), True, False),
    ],
)
async def test_the_form_asked_for_is_given_whatever_form_came(answer: Answer, stream: bool, ok: bool) -> None:
    async with ScriptedUpstream() as upstream:
        upstream.script(then=answer)
        async with running_router(catalog(upstream.base_url, model=model(6))) as house, house.chat(stream=stream) as reply:
            text = await reply.text()
    if not ok:
        assert (reply.status, json.loads(text)["error"]["code"]) == (502, "server_error")
    elif stream:
        assert said(text) == "whole" and text.endswith("data: [DONE]\n\n")
    else:
        assert json.loads(text)["choices"][0]["message"]["content"] == "whole"


# Signs of life to the client.


async def test_a_released_stream_that_pauses_gets_comments_and_the_sdk_sees_none_of_them() -> None:
    gate = Gate()
    async with ScriptedUpstream() as upstream:
        upstream.script((*partial("a"), Wait(gate), delta({"content": "b"}), delta({}, finish="stop"), DONE))
        async with running_router(catalog(upstream.base_url, model=model(idle_ms=5000, total_ms=9000))) as house:
            house.router.keep_alive_s = 0.05
            async with house.chat(stream=True) as answer:
                text = ""
                async with asyncio.timeout(4):
                    while text.count(": n4n\n\n") < 3:
                        text += (await answer.content.readany()).decode()
                gate.open()
                text += (await answer.content.read()).decode()
    assert said(text) == "ab" and text.endswith("data: [DONE]\n\n")
    assert not text.startswith(":") and text.index(": n4n") > text.index('"a"')


async def test_comments_of_the_provider_are_no_reason_to_be_silent() -> None:
    async with ScriptedUpstream() as upstream:
        upstream.script((*partial("a"), *(PING, Sleep(0.02)) * 20, delta({}, finish="stop"), DONE))
        async with running_router(catalog(upstream.base_url, model=model())) as house:
            house.router.keep_alive_s = 0.1
            async with house.chat(stream=True) as answer:
                text = await answer.text()
    assert 2 <= text.count(": n4n\n\n") <= 12 and ": ping" not in text


async def test_nothing_is_sent_before_release_comments_included() -> None:
    async with ScriptedUpstream() as upstream:
        upstream.script((*partial("a"), *(PING, Sleep(0.02)) * 10, Hang()), sse("pong"))
        async with running_router(catalog(upstream.base_url, upstream.base_url, model=model(3))) as house:
            house.router.keep_alive_s = 0.02
            async with house.chat(stream=True) as answer:
                text = await answer.text()
    assert text.startswith("data: ") and said(text) == "pong"


async def test_held_output_is_released_in_time_while_comments_keep_coming() -> None:
    policy = {**model(3), "stream_guard": {"chunks": 3, "max_hold_ms": 100}}
    async with ScriptedUpstream() as upstream:
        upstream.script((*partial("a"), *(PING, Sleep(0.02)) * 200, Hang()))
        async with running_router(catalog(upstream.base_url, model={**policy, "timeouts": {}})) as house:
            async with house.chat(stream=True) as answer, asyncio.timeout(2):
                assert b'"a"' in await answer.content.readany()


# What leaves together.


async def raw_stream(house: RunningRouter, **body: object) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A streamed request on a bare socket."""
    reader, writer = await asyncio.open_connection("127.0.0.1", house.port)
    asked = json.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": "x"}], **body}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\ncontent-length: {len(asked)}\r\n\r\n"
    writer.write(head.encode() + asked)
    return reader, writer


@pytest.mark.parametrize(
    ("tail", "ends"),
    [
        ((delta({}, finish="stop"), usage_chunk(), DONE), b"data: [DONE]\n\n\r\n0\r\n\r\n"),
        ((error_event("server_error"),), b"\n\n\r\n0\r\n\r\n"),
    ],
    ids=["whole", "error"],
)
async def test_what_came_in_one_read_leaves_in_one_write_head_and_end_included(tail: Answer, ends: bytes) -> None:
    steps = [step for step in (*partial(*LONG), *tail) if isinstance(step, Chunk | Raw)]
    together = b"".join(event(step.json) if isinstance(step, Chunk) else step.content for step in steps)
    writes: list[bytes] = []
    async with ScriptedUpstream() as upstream:
        upstream.script((EVENTS, Raw(together)))
        async with running_router(catalog(upstream.base_url, model=model())) as house:
            reader, writer = await raw_stream(house)
            call = await upstream.arrived()
            async with asyncio.timeout(5):
                while not b"".join(writes).endswith(b"0\r\n\r\n"):
                    writes.append(await reader.read(1 << 20))
            assert call.json["stream"] is True
            writer.close()
    assert len(writes) == 1 and writes[0].startswith(b"HTTP/1.1 200 OK\r\n") and writes[0].endswith(ends)


# Clients that go.

Moment = Callable[[ScriptedUpstream, RunningRouter], Awaitable[None]]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("answer", "calls"),
    [
        (answers.hang_before_headers(), 1),
        (answers.hang_after_headers(), 1),
        ((*partial("a"), Hang()), 1),
        ((*partial(*LONG), Hang()), 1),
        ((*partial("a"), *(PING, Sleep(0.01)) * 1000), 1),
        ((*partial(*LONG), *(Sleep(0.01), delta({"content": "x"})) * 1000), 1),
        ((answers.JSON, answers.Headers((("content-length", "99"),)), Head(), Slice(1, 0.05), Raw(b'{"id": "x", "object": "y"')), 1),
        ((*partial(*LONG), delta({}, finish="stop"), Hang()), 1),
    ],
    ids=[
        "waiting for the head",
        "waiting for a token",
        "in the hold",
        "after release",
        "comments",
        "flowing",
        "in the body",
        "in the grace",
    ],
)
async def test_a_client_that_goes_closes_the_upstream_and_nobody_else_is_asked(answer: Answer, calls: int, stream: bool) -> None:
    patient = {"stream_guard": {"chunks": 3, "max_hold_ms": 5000}}
    async with ScriptedUpstream() as e1, ScriptedUpstream() as e2:
        e1.script(then=answer)
        async with running_router(catalog(e1.base_url, e2.base_url, model=patient)) as house:
            _, writer = await raw_stream(house, stream=stream)
            call = await e1.arrived()
            await asyncio.sleep(0.1)  # so that it is in the middle of things
            left = time.monotonic()
            writer.transport.abort()
            closed = await e1.closed(call)
            (line,) = await house.logged()
    assert closed - left < 0.5
    assert (len(e1.calls), len(e2.calls)) == (calls, 0)
    assert (line["status"], line["outcome"]) == (499, "cancelled")
    assert [one["outcome"] for one in line["routing"]["attempts"]] == ["cancelled"]  # type: ignore[index]


@pytest.mark.parametrize(
    "answer",
    [error(503), rate_limited(retry_after=1), error(500)],
    ids=["backing off", "waiting for a cooldown", "backing off from a fault"],
)
async def test_a_client_that_goes_while_the_router_waits_is_not_tried_for_again(answer: Answer) -> None:
    slow = {"retry": {"max_retries": 2, "backoff_ms": 20_000}}
    async with ScriptedUpstream() as e1:
        e1.script(then=answer)
        async with running_router(catalog(e1.base_url, model=slow)) as house:
            house.router.draw = lambda: 0.02  # 0.4 s of backoff
            _, writer = await raw_stream(house)
            await e1.finished(await e1.arrived())
            writer.transport.abort()
            (line,) = await house.logged()
            await asyncio.sleep(1.3)  # longer than it would have waited
    assert len(e1.calls) == 1 and line["outcome"] == "cancelled"


async def test_a_client_that_goes_before_dispatch_is_not_dispatched_for() -> None:
    async with ScriptedUpstream() as e1, running_router(catalog(e1.base_url)) as house:
        _, writer = await asyncio.open_connection("127.0.0.1", house.port)
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\ncontent-length: 999\r\n\r\n"
        writer.write(head.encode() + b'{"model": "m"')
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.transport.abort()
        (line,) = await house.logged()
    assert e1.calls == [] and line["outcome"] in ("cancelled", "rejected")
