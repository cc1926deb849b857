"""How workers take in clients from the one queue they share: two of them in one loop, on a real socket."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from aiohttp import web

from data_plane import intake
from data_plane.intake import PATIENCE_S, SharedIntake
from data_plane.listeners import listening_socket
from data_plane.tally import Tally, row_of, shared_memory


@pytest.fixture
def queue() -> Iterator[socket.socket]:
    """A listening socket that nobody accepts from yet."""
    with listening_socket("127.0.0.1", 0, workers=2) as sock:
        yield sock


@pytest.fixture
def memory() -> Iterator[int]:
    """The tally of two workers."""
    descriptor = shared_memory(2)
    yield descriptor
    os.close(descriptor)


async def answer(_: web.BaseRequest) -> web.Response:
    return web.Response(text="pong")


@asynccontextmanager
async def worker(number: int, sock: socket.socket, memory: int) -> AsyncIterator[tuple[SharedIntake, web.Server]]:
    """One that has not started to take in clients."""
    server = web.Server(answer, access_log=None)
    mine = sock.dup()
    mine.setblocking(False)
    one = SharedIntake(server, mine, Tally(memory, row_of(number, 0)))
    try:
        yield one, server
    finally:
        await one.stop()
        await server.shutdown(0.1)


Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def clients(stack: AsyncExitStack, sock: socket.socket, count: int) -> list[Client]:
    """So many connections at once."""
    made = await asyncio.gather(*(asyncio.open_connection(*sock.getsockname()) for _ in range(count)))
    for _, writer in made:
        stack.callback(writer.close)
    return made


async def ask(client: Client) -> bytes:
    """One request on this connection; the answer's status line."""
    reader, writer = client
    writer.write(b"GET / HTTP/1.1\r\nhost: n4n\r\n\r\n")
    line = await reader.readline()
    await reader.readuntil(b"pong")
    return line


async def ask_all(connections: list[Client]) -> set[bytes]:
    async with asyncio.timeout(10):
        return set(await asyncio.gather(*map(ask, connections)))


GOOD = {b"HTTP/1.1 200 OK\r\n"}


async def test_two_workers_hold_as_many_connections(queue: socket.socket, memory: int) -> None:
    async with AsyncExitStack() as stack:
        (one, first), (two, second) = [await stack.enter_async_context(worker(number, queue, memory)) for number in (1, 2)]
        await one.start()
        await two.start()

        assert await ask_all(await clients(stack, queue, 128)) == GOOD
        assert 60 <= len(first.connections) <= 68
        assert len(first.connections) + len(second.connections) == 128


async def test_a_worker_that_comes_late_takes_what_comes_next(queue: socket.socket, memory: int) -> None:
    async with AsyncExitStack() as stack:
        (one, first), (two, second) = [await stack.enter_async_context(worker(number, queue, memory)) for number in (1, 2)]
        await one.start()
        assert await ask_all(await clients(stack, queue, 40)) == GOOD
        await two.start()
        assert await ask_all(await clients(stack, queue, 40)) == GOOD

        assert (len(first.connections), len(second.connections)) == (40, 40)


async def test_who_is_asleep_is_waited_for_once(queue: socket.socket, memory: int) -> None:
    async with AsyncExitStack() as stack:
        one, first = await stack.enter_async_context(worker(1, queue, memory))
        Tally(memory, row_of(2, 0)).tell(0)  # and never again
        await one.start()
        clock = asyncio.get_running_loop().time
        begun = clock()
        assert await ask_all(await clients(stack, queue, 200)) == GOOD
        took = clock() - begun

        assert len(first.connections) == 200
        assert took < 50 * PATIENCE_S, "not once for each connection"


class Starved:
    """A socket whose process may open no more files, `times` times."""

    def __init__(self, sock: socket.socket, times: int) -> None:
        self._sock, self._times = sock, times
        self.refused = asyncio.Event()

    def fileno(self) -> int:
        return self._sock.fileno()

    def accept(self) -> tuple[socket.socket, object]:
        self._times -= 1
        if self._times >= 0:
            self.refused.set()
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return self._sock.accept()

    def close(self) -> None:
        self._sock.close()


async def test_a_worker_without_descriptors_leaves_the_queue_to_the_other(
    queue: socket.socket, memory: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(intake, "PAUSE_S", 0.2)
    async with AsyncExitStack() as stack:
        (one, first), (two, second) = [await stack.enter_async_context(worker(number, queue, memory)) for number in (1, 2)]
        starved = Starved(one._sock, 1)
        one._sock = starved  # type: ignore[assignment]
        await one.start()
        early = await clients(stack, queue, 1)
        await asyncio.wait_for(starved.refused.wait(), 5)
        await two.start()

        assert await ask_all(early + await clients(stack, queue, 19)) == GOOD
        assert (len(first.connections), len(second.connections)) == (0, 20)
        assert caplog.messages == ["cannot accept connections: Too many open files; trying again in 0 s"]

        await asyncio.sleep(0.2)  # the pause
        assert await ask_all(await clients(stack, queue, 20)) == GOOD
        assert len(first.connections) == 20


async def test_who_waits_in_the_queue_at_a_stop_is_taken_in(queue: socket.socket, memory: int) -> None:
    async with AsyncExitStack() as stack:
        one, first = await stack.enter_async_context(worker(1, queue, memory))
        Tally(memory, row_of(2, 0)).tell(0)  # another's turn
        await one.start()
        waiting = await clients(stack, queue, 30)
        await one.stop()

        assert await ask_all(waiting) == GOOD
        assert len(first.connections) == 30
