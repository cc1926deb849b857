"""A balancer for tests with several routers: passes bytes on and knows nothing of HTTP but /ready.

Its rules are those of the compose file's: a new connection goes to the ready member that has the fewest; a member that refuses
the connection is passed over and the next one is tried, and nothing else is ever tried again; /ready is asked at an interval,
and a member that does not answer 200 (because it drains, or is gone) gets no new connections while those it has go on.

    with running_balancer([port_a, port_b]) as balancer:
        ...                                 # http://127.0.0.1:{balancer.port}
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import TypeVar

T = TypeVar("T")
INTERVAL_S = 0.1  # between two looks at /ready
ANSWER_S = 1.0  # how long a member may take to answer one, or to take a connection
PIECE = 64 << 10
_ASK_READY = b"GET /ready HTTP/1.1\r\nhost: balancer\r\nconnection: close\r\n\r\n"


@dataclass(slots=True, eq=False)
class Member:
    """One router behind the balancer."""

    host: str
    port: int
    ready: bool = False
    connections: int = 0  # open now
    served: int = 0  # connections it got so far
    refused: int = 0  # connections it refused so far


@dataclass(slots=True, eq=False)
class Balancer:
    """Listens on a free loopback port in the running loop."""

    ports: Sequence[int]
    host: str = "127.0.0.1"
    members: list[Member] = field(init=False)
    turned_away: int = 0  # clients for whom there was no member
    port: int = 0
    _server: asyncio.Server | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.members = [Member(self.host, port) for port in self.ports]

    async def start(self) -> None:
        """Looks at the members once, then listens."""
        await asyncio.gather(*(self._check(member) for member in self.members))
        self._server = await asyncio.start_server(self._connected, self.host, 0, limit=PIECE)
        self.port = self._server.sockets[0].getsockname()[1]
        self._own(asyncio.create_task(self._watch()))

    async def stop(self) -> None:
        """Closes everything."""
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def __aenter__(self) -> Balancer:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.stop()

    def add(self, port: int) -> None:
        """One more member; it gets connections once it is ready."""
        self.members.append(Member(self.host, port))

    async def settled(self, *ready: bool, within: float = 10.0) -> None:
        """Waits until the members are as ready as this, in their order."""
        async with asyncio.timeout(within):
            while [member.ready for member in self.members] != list(ready):  # noqa: ASYNC110  # a few looks, in tests
                await asyncio.sleep(INTERVAL_S / 4)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL_S)
            await asyncio.gather(*(self._check(member) for member in self.members))

    async def _check(self, member: Member) -> None:
        try:
            async with asyncio.timeout(ANSWER_S):
                reader, writer = await asyncio.open_connection(member.host, member.port)
                try:
                    writer.write(_ASK_READY)
                    member.ready = (await reader.readline()).split()[1:2] == [b"200"]
                finally:
                    writer.close()
        except OSError:
            member.ready = False

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._own(task)
        try:
            found = await self._member()
            if found is None:
                self.turned_away += 1
                return
            member, upstream_reader, upstream_writer = found
            try:
                await _both(_passed(reader, upstream_writer), _passed(upstream_reader, writer))
            finally:
                member.connections -= 1
                upstream_writer.transport.abort() if upstream_writer.transport.get_write_buffer_size() else upstream_writer.close()
        except asyncio.CancelledError:
            writer.transport.abort()
        finally:
            writer.close()

    async def _member(self) -> tuple[Member, asyncio.StreamReader, asyncio.StreamWriter] | None:
        """The ready member with the fewest connections that takes this one."""
        tried: set[Member] = set()
        while left := [member for member in self.members if member.ready and member not in tried]:
            member = min(left, key=lambda one: (one.connections, one.served))  # equals take turns, as HAProxy's do
            tried.add(member)
            member.connections += 1
            try:
                async with asyncio.timeout(ANSWER_S):
                    reader, writer = await asyncio.open_connection(member.host, member.port, limit=PIECE)
            except ConnectionRefusedError:
                member.connections -= 1
                member.refused += 1
                continue
            except OSError:
                member.connections -= 1
                return None
            member.served += 1
            return member, reader, writer
        return None

    def _own(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _both(*ways: object) -> None:
    """Both directions until both ended, or one broke: then neither goes on."""
    tasks = [asyncio.ensure_future(way) for way in ways]  # type: ignore[arg-type]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _passed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One direction: bytes as they come, no more than the other side takes; an end is an end there, a reset a reset."""
    try:
        while piece := await reader.read(PIECE):
            writer.write(piece)
            await writer.drain()
        with suppress(OSError):
            writer.write_eof()
    except OSError:
        writer.transport.abort()
        raise


class HostedBalancer:
    """A balancer whose loop runs on another thread; every wait blocks the calling thread."""

    def __init__(self, balancer: Balancer, loop: asyncio.AbstractEventLoop) -> None:
        self._balancer, self._loop = balancer, loop

    @property
    def port(self) -> int:
        """Where clients go."""
        return self._balancer.port

    @property
    def members(self) -> tuple[Member, ...]:
        """The members, to be read."""
        return tuple(self._balancer.members)

    @property
    def turned_away(self) -> int:
        """Clients for whom there was no member."""
        return self._balancer.turned_away

    def add(self, port: int) -> None:
        """See `Balancer.add`."""
        self._loop.call_soon_threadsafe(self._balancer.add, port)

    def settled(self, *ready: bool, within: float = 10.0) -> None:
        """See `Balancer.settled`."""
        asyncio.run_coroutine_threadsafe(self._balancer.settled(*ready, within=within), self._loop).result()


@contextmanager
def running_balancer(ports: Sequence[int]) -> Iterator[HostedBalancer]:
    """A balancer on a thread of its own for as long as the block lasts."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="balancer", daemon=True)
    thread.start()
    balancer = Balancer(ports)
    try:
        asyncio.run_coroutine_threadsafe(balancer.start(), loop).result()
        yield HostedBalancer(balancer, loop)
    finally:
        asyncio.run_coroutine_threadsafe(balancer.stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
