"""`Upstream`: sends a request, once, to where it belongs, and yields the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from types import TracebackType

from n4n.core.chat import UpstreamRequest
from n4n.runtime.resolver import LookUp, Names
from n4n.runtime.upstream.connection import LARGE_BODY, READ_BUFFER, Connection, State
from n4n.runtime.upstream.dial import Dialer, proxy_of
from n4n.runtime.upstream.faults import BAD_HEADER, NO_ANSWER, PROXY_REFUSED, REFUSED, Phases, UpstreamFault, broken, late, unsent
from n4n.runtime.upstream.heads import Heads, parted
from n4n.runtime.upstream.pool import Origin, Pool
from n4n.runtime.upstream.reply import Reply


class Upstream:
    """The connections to providers. One per worker, made inside its loop.

    `proxy` is N4N_EGRESS_PROXY as it was written (StartFailed: it cannot be used); `most` is how many connections may lead to one
    origin, 0: any number.
    """

    def __init__(self, clock: Callable[[], float], look_up: LookUp | None = None, *, proxy: str = "", most: int = 0) -> None:
        egress = proxy_of(proxy)
        self.clock, self._most = clock, most
        self._names = Names(clock, look_up)
        self._dialer = Dialer(self._names, egress)
        self.heads = Heads(None if egress is None else egress.authorization)
        self._leaving: list[Connection] = []
        self._loop = asyncio.get_running_loop()
        self._pools: dict[Origin, Pool] = {}
        self._buffer = memoryview(bytearray(READ_BUFFER))
        self._all_gone = asyncio.Event()
        self._all_gone.set()

    def send(self, request: UpstreamRequest, request_id: str, phases: Phases, extra: bytes = b"") -> Sending:
        """Sends one POST, labelled with the request's id; use with `async with`, which yields the head of the answer.

        `extra`: whole header lines of this request alone.

        UpstreamFault when none comes. Leaving the context closes the connection unless the answer was read to its end (or nearly, and
        nothing was wrong), so that a cancelled request stops the provider too.
        """
        return Sending(self, request, request_id, phases, extra)

    def soon(self, connection: Connection, request: bytes, *, alone: bool) -> None:
        """What is sent in one turn of the loop leaves at its end, all in a row: then whoever is at the other side, if it is this machine,
        wakes once for many requests, and each connection is asked in the very moment before whether it still stands. A request that is
        `alone` leaves at once."""
        connection.send_soon(request)
        if alone:
            connection.leave()
            return
        if not self._leaving:
            self._loop.call_soon(self._leave)
        self._leaving.append(connection)

    def _leave(self) -> None:
        leaving, self._leaving = self._leaving, []
        for connection in leaving:
            connection.leave()

    async def sent(self, pool: Pool, gone: Connection | None, start: bytes, body: bytes, bounds: tuple[float, float, str]) -> Connection:
        """A connection that the request went out on, in place of one that was `gone` before any of it had left. Where that happens once
        more, another is taken, once: none of this is another attempt."""
        if gone is not None:
            gone.abort()
        elif (connection := pool.lend_now()) is not None:
            if connection.send(start, body):
                return connection
            connection.abort()
        connection = await self._connection(pool, *bounds)
        if connection.send(start, body):
            return connection
        connection.abort()
        raise unsent(NO_ANSWER)

    async def _connection(self, pool: Pool, connect_by: float, until: float, ended: str) -> Connection:
        """One to send on. UpstreamFault: there is none, nothing was sent."""
        try:
            async with asyncio.timeout_at(min(connect_by, until)):
                lent = await pool.lend()
                return lent if lent is not None else await self._made(pool)
        except TimeoutError as error:
            raise late("connect" if connect_by <= until else ended, may_have_run=False) from error

    async def _made(self, pool: Pool) -> Connection:
        connection = Connection(pool, self._buffer, self.clock)
        try:
            await self._dialer.connect(pool.origin, connection)
        except BaseException:
            pool.give_back_slot()
            raise
        if connection.state is State.CLOSED:
            pool.give_back_slot()
            raise unsent(REFUSED)
        pool.made(connection)
        return connection

    def pool(self, origin: Origin) -> Pool:
        """The connections to an origin."""
        pool = self._pools.get(origin)
        if pool is None:
            pool = self._pools[origin] = Pool(origin, self._most, self.clock, self._emptied)
            self._all_gone.clear()
        return pool

    def _emptied(self, pool: Pool) -> None:
        if self._pools.get(pool.origin) is pool:
            del self._pools[pool.origin]
        if not self._pools:
            self._all_gone.set()

    def keep_only(self, urls: Iterable[tuple[str, bool]]) -> None:
        """Base URLs still in the catalog, and whether each may be inside. Connections to others close when their request ends."""
        self.heads.forget()
        origins = {parted(url, allow_private=inside)[0] for url, inside in set(urls)}
        for origin, pool in tuple(self._pools.items()):
            pool.retired = origin not in origins
            if pool.retired:
                pool.close_idle()

    async def close(self) -> None:
        """Closes every connection."""
        for pool in tuple(self._pools.values()):
            pool.close()
        await self._all_gone.wait()
        await self._names.close()


class Sending:
    """One request on its way."""

    __slots__ = ("_connection", "_extra", "_phases", "_reply", "_request", "_request_id", "_upstream")

    def __init__(self, upstream: Upstream, request: UpstreamRequest, request_id: str, phases: Phases, extra: bytes) -> None:
        self._upstream, self._request, self._request_id, self._phases, self._extra = upstream, request, request_id, phases, extra

    async def __aenter__(self) -> Reply:
        upstream = self._upstream
        request, request_id, phases = self._request, self._request_id, self._phases
        sent = upstream.clock()
        left = phases.deadline - sent
        if left <= 0:
            raise late("total", may_have_run=False)
        until, ended = sent + phases.first_byte_s, "first_token"
        if phases.deadline < until:
            until, ended = phases.deadline, "total"
        head = upstream.heads.of(request)
        if not (request_id.isascii() and request_id.isprintable()):
            raise unsent(BAD_HEADER)
        start = b"%b%b\r\n%bcontent-length: %d\r\n\r\n" % (head.start, request_id.encode(), self._extra, len(request.body))
        pool = upstream.pool(head.origin)
        connection = pool.lend_soon() if len(request.body) < LARGE_BODY else None
        connect_s = 0.0
        try:
            if connection is not None:
                upstream.soon(connection, start + request.body, alone=pool.lent == 1)
                came = await connection.head(until)
            if connection is None or not connection.sent:
                begun = upstream.clock()
                connection = await upstream.sent(pool, connection, start, request.body, (sent + phases.connect_s, until, ended))
                connect_s = upstream.clock() - begun
                came = await connection.head(until)
            if not came:
                raise late(ended)
            if not connection.answer.head_done:
                raise broken(NO_ANSWER)
            if head.proxied and connection.answer.status == 407:
                raise unsent(PROXY_REFUSED)
        except (UpstreamFault, asyncio.CancelledError):
            if connection is not None:
                connection.abort()
            raise
        self._connection, self._reply = connection, Reply(connection, phases, upstream.clock, sent, connect_s)
        return self._reply

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._reply.detach()
        if kind is None or self._connection.answer.complete:
            self._connection.settle()
        else:
            self._connection.abort()
