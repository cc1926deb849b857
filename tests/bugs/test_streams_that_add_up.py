"""Nothing of a stream outlives it: no thread, no task, no memory, however many there were and however they ended."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from dataclasses import dataclass

from tests.bugs.streams import chunk
from tests.support.answers import DONE, EVENTS, USAGE
from tests.support.router import KEY, RunningRouter, catalog, running_router
from tests.support.script import Answer, Raw, event
from tests.support.upstream import ScriptedUpstream

STREAMS, CHUNKS, AT_ONCE = 2000, 50, 40  # `python -m tests.soak.memory --streams 20000` is the whole case
BODY = b'{"model": "m", "stream": true, "messages": [{"role": "user", "content": "ping"}]}'
STEADY = 50  # looks, 10 ms apart


def stream_of_chunks() -> Answer:
    """A stream of so many chunks, a few of which always come together."""
    words = [event(chunk({"content": f"word{number} "}).json) for number in range(CHUNKS)]
    pieces = (Raw(b"".join(words[at : at + 5])) for at in range(0, CHUNKS, 5))
    return (EVENTS, *pieces, chunk(finish="stop"), Raw(event({"choices": [], "usage": dict(USAGE)})), DONE)


async def one(house: RunningRouter, *, leaves: bool) -> None:
    """One stream on a connection of its own, read to its end, or left after its first words."""
    reader, writer = await asyncio.open_connection("127.0.0.1", house.port)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: n4n\r\nauthorization: Bearer {KEY}\r\ncontent-length: {len(BODY)}\r\n\r\n"
    writer.write(head.encode() + BODY)
    try:
        await reader.readuntil(b"word0 " if leaves else b"data: [DONE]\n\n")
    finally:
        writer.transport.abort()


@dataclass(frozen=True, slots=True)
class Left:
    """What is there when no stream is."""

    blocks: int  # of memory, as the interpreter counts them
    tasks: int
    threads: int


async def left(house: RunningRouter, upstream: ScriptedUpstream) -> Left:
    same, seen = 0, _now()
    async with asyncio.timeout(20):
        while house.web.running or same < STEADY:  # those that were left end within half a second, on a busy machine later
            await asyncio.sleep(0.01)
            same, seen = (same + 1 if _now() == seen else 0), _now()
    house.log()
    upstream.calls.clear()
    await asyncio.sleep(0.05)
    gc.collect()
    return Left(sys.getallocatedblocks(), *_now())


def _now() -> tuple[int, int]:
    return len(asyncio.all_tasks()), threading.active_count()


async def test_thousands_of_streams_leave_nothing_behind() -> None:
    """LiteLLM #6404 (case 30): a thread for each chunk."""
    async with ScriptedUpstream() as upstream:
        upstream.script(then=stream_of_chunks())
        async with running_router(catalog(upstream.base_url)) as house:
            marks: list[Left] = []
            for begin in range(0, STREAMS, STREAMS // 4):
                for number in range(begin, begin + STREAMS // 4, AT_ONCE):
                    await asyncio.gather(*(one(house, leaves=at % 10 == 0) for at in range(number, number + AT_ONCE)))
                    house.log()
                marks.append(await left(house, upstream))

    assert {(mark.tasks, mark.threads) for mark in marks[1:]} == {(marks[0].tasks, marks[0].threads)}
    assert marks[-1].blocks - marks[1].blocks < STREAMS / 2 / 2, "half a block for each stream between these marks"
