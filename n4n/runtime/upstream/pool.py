"""The connections of one origin: the one used last is lent first, the others close when nobody needed them for a while.

A call takes an idle connection, or a slot in which to make one, or its turn in the queue for either. A connection that was
given to somebody who had just left goes to the next.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from n4n.runtime.upstream.connection import Connection

KEEP_ALIVE_S = 15.0  # shorter than most providers' own, so that a pooled connection is rarely stale
_SWEEP_S = 0.05  # between two looks at what is idle, at least
_CAUTION_S = 1.0  # before the time at which a provider says that it closes


class Origin(NamedTuple):
    """Where a connection leads. What may go to an address inside this network is never lent to what may not."""

    secure: bool
    host: str  # as in the URL, in lower case, an IPv6 address without its brackets
    port: int
    allow_private: bool


class Pool:
    """See above. `empty` is called when the last connection is gone."""

    def __init__(self, origin: Origin, most: int, clock: Callable[[], float], empty: Callable[[Pool], None]) -> None:
        self.origin, self.most, self._clock, self._empty = origin, most, clock, empty
        self.taken = 0  # slots: connections that are open, or are being made
        self.retired = False  # its endpoints have left the catalog
        self._all: set[Connection] = set()
        self._idle: dict[Connection, None] = {}  # in the order in which they became so
        self._queue: deque[asyncio.Future[Connection | None]] = deque()
        self._sweep: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<Pool {self.taken} of {self.most or 'any number'} taken, {len(self._idle)} idle, {len(self._queue)} wait>"

    @property
    def lent(self) -> int:
        """Connections that are in use, or are being made."""
        return self.taken - len(self._idle)

    def lend_now(self) -> Connection | None:
        """An idle connection."""
        idle = self._idle
        while idle:
            connection, _ = idle.popitem()
            if connection.idle_until > self._clock() and connection.is_usable:
                return connection
            connection.abort()
        return None

    def lend_soon(self) -> Connection | None:
        """As `lend_now`, for a request that is sent with `send_soon`, which asks the socket itself."""
        idle = self._idle
        while idle:
            connection, _ = idle.popitem()
            if connection.idle_until > self._clock() and connection.looks_usable:
                return connection
            connection.abort()
        return None

    async def lend(self) -> Connection | None:
        """An idle connection, or None: the caller has a slot and makes one. Waits for either; whoever calls bounds the time."""
        while True:
            connection = self.lend_now()
            if connection is not None:
                return connection
            if not self.most or self.taken < self.most:
                self.taken += 1
                return None
            turn: asyncio.Future[Connection | None] = asyncio.get_running_loop().create_future()
            self._queue.append(turn)
            try:
                connection = await turn
            except asyncio.CancelledError:
                self._left_the_queue(turn)
                raise
            if connection is None or connection.is_usable:
                return connection
            connection.abort()

    def _left_the_queue(self, turn: asyncio.Future[Connection | None]) -> None:
        if turn.cancelled():
            with suppress(ValueError):
                self._queue.remove(turn)
        elif (connection := turn.result()) is None:
            self.give_back_slot()
        else:
            self.freed(connection)

    def give_back_slot(self) -> None:
        """A slot is free again: no connection came about in it, or it is gone."""
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.taken -= 1
        if not self.taken:
            self._empty(self)

    def made(self, connection: Connection) -> None:
        """A connection came about in a slot."""
        self._all.add(connection)

    # --- called by connections ---

    def freed(self, connection: Connection) -> None:
        """One may be lent again."""
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(connection)
                return
        if self.retired:
            connection.abort()
            return
        told = connection.answer.kept_alive_s
        kept = KEEP_ALIVE_S if told is None else min(KEEP_ALIVE_S, told - _CAUTION_S)
        connection.idle_until = self._clock() + kept
        self._idle[connection] = None
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(KEEP_ALIVE_S, self._expire)

    def lost(self, connection: Connection) -> None:
        """One is gone."""
        if connection in self._all:
            self._all.discard(connection)
            self._idle.pop(connection, None)
            self.give_back_slot()

    # --- over time ---

    def _expire(self) -> None:
        """Closes what nobody needed."""
        self._sweep = None
        now = self._clock()
        while (oldest := next(iter(self._idle), None)) is not None and oldest.idle_until <= now:
            del self._idle[oldest]
            oldest.abort()
        if oldest is not None:
            wait = max(oldest.idle_until - now, _SWEEP_S)
            self._sweep = asyncio.get_running_loop().call_later(wait, self._expire)

    def close_idle(self) -> None:
        """Closes what is idle now."""
        while self._idle:
            self._idle.popitem()[0].abort()

    def close(self) -> None:
        """Closes all, busy ones too."""
        self.retired = True
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for connection in tuple(self._all):
            connection.abort()
