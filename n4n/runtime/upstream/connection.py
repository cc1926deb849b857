"""One connection to a provider: what comes is parsed as it comes, kept within bounds, and waited for with one future.

    IDLE ──send_soon──▶ LEAVING ──leave──▶ BUSY              any byte before the request has left, or the peer's end: not sent
    IDLE ──send──▶ BUSY ──whole answer, `settle`──▶ IDLE     any byte while idle, or the peer's end: closed
                    │
                    └──`settle` a moment before the end──▶ TRAILING ──end──▶ IDLE     too late, or too much: closed

The buffer for reading is one for all connections of a worker: the loop fills it and hands it over in one step, and nothing is
kept of it. Reading into a buffer of ours spares, with TLS, an allocation of 256 KiB for every record, which is half of the cost.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from enum import Enum
from typing import Protocol

from n4n.runtime.upstream.answer import Answer

READ_BUFFER = 64 << 10
MOST_KEPT = 128 << 10  # bytes of a body that wait to be taken; with more the provider is not read from any more
LARGE_BODY = 64 << 10  # not worth copying behind its head
PART = 256 << 10  # of a large request, in one turn of the loop: with TLS the loop encrypts what it is given at once, 31 MiB in 110 ms
TRAILING_S = 0.1  # what ends an answer after the last event came usually comes with it
_NOTHING = memoryview(b"")
_LEAST_S = 0.001  # of a timer: the loop's clock may be a little behind


class State(Enum):
    """What a connection is doing."""

    IDLE = "idle"
    LEAVING = "leaving"
    BUSY = "busy"
    TRAILING = "trailing"
    CLOSED = "closed"


class Owner(Protocol):
    """What a connection tells its pool."""

    def freed(self, connection: Connection) -> None:
        """It may be lent again."""

    def lost(self, connection: Connection) -> None:
        """It is gone."""


class Connection(asyncio.BufferedProtocol):
    """One connection. `answer` is what has come of the current one."""

    __slots__ = (
        "_alarm",
        "_alarm_at",
        "_buffer",
        "_clock",
        "_for_head",
        "_full",
        "_loop",
        "_owner",
        "_paused",
        "_poll",
        "_rest",
        "_transport",
        "_unsent",
        "_waiter",
        "_wake_at",
        "answer",
        "idle_until",
        "sent",
        "state",
    )  # fmt: skip

    def __init__(self, owner: Owner, buffer: memoryview, clock: Callable[[], float]) -> None:
        self._owner, self._buffer, self._clock = owner, buffer, clock
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[bool] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = self._wake_at = self.idle_until = 0.0
        self._for_head = self._paused = False
        self.answer = Answer()
        self.state = State.IDLE
        self.sent = True  # False: nothing of the newest request has left
        self._unsent = b""
        self._rest = _NOTHING  # of a large request
        self._full = False  # the provider takes no more just now

    def __repr__(self) -> str:
        return f"<Connection {self.state.value}, {self.answer!r}>"

    # --- called by the pool and by replies ---

    @property
    def looks_usable(self) -> bool:
        """Whether it is idle as far as the loop has seen."""
        return self.state is State.IDLE and not self._transport.is_closing()

    @property
    def is_usable(self) -> bool:
        """Whether it is idle and nothing has come on it, the peer's end included, be it that the loop has not seen it yet."""
        return self.state is State.IDLE and not self._transport.is_closing() and not self._poll.poll(0)

    def send(self, head: bytes, body: bytes) -> bool:
        """A request. False: the connection was gone, nothing was sent."""
        self.answer.begin()
        self.state, self.sent = State.BUSY, True
        if len(body) < LARGE_BODY:
            self._transport.write(head + body)
        else:
            self._rest = memoryview(body)
            self._transport.write(head)
            self._more()
        return not self._transport.is_closing()

    def _more(self) -> None:
        """Some more of a large request. What the provider answers meanwhile is read as ever."""
        rest = self._rest
        if not rest or self._full or self.state is not State.BUSY or self._transport.is_closing():
            return
        self._rest = rest[PART:] if len(rest) > PART else _NOTHING
        self._transport.write(rest[:PART])
        if self._rest:
            self._loop.call_soon(self._more)

    def send_soon(self, request: bytes) -> None:
        """A request, which goes out with `leave`. Where it cannot, `head` is done, and `sent` stays False."""
        self.answer.begin()
        self.state, self.sent, self._unsent = State.LEAVING, False, request

    def leave(self) -> None:
        """What `send_soon` was given goes out, unless something has come on the connection, the peer's end included."""
        unsent, self._unsent = self._unsent, b""
        if self.state is not State.LEAVING or self.answer.broken:
            return
        if self._transport.is_closing() or self._poll.poll(0):
            self._spoilt()
            return
        self._transport.write(unsent)
        if self._transport.is_closing():
            self._spoilt()
        else:
            self.state, self.sent = State.BUSY, True

    def _spoilt(self) -> None:
        self.answer.broken = True
        if self._waiter is not None:
            self._wake_if_due(self._waiter)

    def head(self, at: float) -> asyncio.Future[bool]:
        """Done with the head of the answer or with what spoils it; False: the time came first."""
        answer = self.answer
        return self._expect(at, due=answer.head_done or answer.broken, for_head=True)

    def news(self, at: float) -> asyncio.Future[bool]:
        """Done with some of the body, its end, or what spoils it; False: the time came first."""
        answer = self.answer
        return self._expect(at, due=answer.size > 0 or answer.complete or answer.broken, for_head=False)

    def take(self) -> bytes:
        """The body that came; lets the provider send more."""
        taken = self.answer.take()
        if self._paused:
            self._paused = False
            if not self._transport.is_closing():
                self._transport.resume_reading()
        return taken

    def settle(self) -> None:
        """The answer is not read any more though all may be well with it: lent again, at once or when its end comes in a moment."""
        if self.answer.complete:
            self._free()
        elif self.state is State.BUSY and not self.answer.broken:
            self.state = State.TRAILING
            self.take()
            self._wake_at = self._clock() + TRAILING_S
            self._arm(self._wake_at)
        else:
            self.abort()

    def abort(self) -> None:
        """Closes it now; what was not sent yet is not sent."""
        if self.state is not State.CLOSED:
            self.state = State.CLOSED
            self._disarm()
            self._rest = _NOTHING
            self._transport.abort()

    # --- called by the loop ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected, and with TLS also checked."""
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]  # uvloop's transports are no subclass
        self._poll = select.poll()
        self._poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)

    def get_buffer(self, _: int) -> memoryview:
        """Where to read to."""
        return self._buffer

    def buffer_updated(self, count: int) -> None:
        """Bytes came."""
        if self.state is State.IDLE:
            self.abort()
            return
        if self.state is State.LEAVING:  # before anything was asked: this is nobody's answer
            self._spoilt()
            return
        answer = self.answer
        answer.feed(self._buffer[:count])
        if self.state is State.TRAILING:
            self._trail()
            return
        if answer.size > MOST_KEPT and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        if self._waiter is not None:
            self._wake_if_due(self._waiter)

    def pause_writing(self) -> None:
        """The provider takes no more just now."""
        self._full = True

    def resume_writing(self) -> None:
        """It does again."""
        self._full = False
        self._more()

    def eof_received(self) -> None:
        """The peer sends no more."""
        self.answer.end(in_order=True)
        self._over()

    def connection_lost(self, error: Exception | None) -> None:
        """Gone, for whatever reason."""
        self.answer.end(in_order=False)
        self.answer.close()
        self._over()
        self.state = State.CLOSED
        self._disarm()
        self._owner.lost(self)

    # --- within ---

    def _over(self) -> None:
        if self.state in (State.IDLE, State.TRAILING):
            self.abort()
        elif self._waiter is not None:
            self._wake_if_due(self._waiter)

    def _trail(self) -> None:
        if self.answer.complete:
            self._free()
        elif self.answer.broken or self.answer.size > MOST_KEPT:
            self.abort()

    def _free(self) -> None:
        if not self.answer.keep or self._transport.is_closing() or self._rest or self._transport.get_write_buffer_size():
            self.abort()
            return
        self.take()
        self.state = State.IDLE
        self._owner.freed(self)

    def _expect(self, at: float, *, due: bool, for_head: bool) -> asyncio.Future[bool]:
        """One wait at a time. A future that is cancelled is forgotten; what it waited for is not lost."""
        self._waiter = waiter = self._loop.create_future()
        if due:
            waiter.set_result(True)
        else:
            self._for_head, self._wake_at = for_head, at
            if self._alarm is None or self._alarm_at > at:
                self._arm(at)
        return waiter

    def _wake_if_due(self, waiter: asyncio.Future[bool]) -> None:
        answer = self.answer
        if answer.size or answer.complete or answer.broken or (self._for_head and answer.head_done):
            self._waiter = None
            if not waiter.done():
                waiter.set_result(True)

    def _arm(self, at: float) -> None:
        """One timer serves many waits: it is set again when it rings too early, and seldom has to be set earlier."""
        self._disarm()
        self._alarm, self._alarm_at = self._loop.call_at(at, self._ring), at

    def _ring(self) -> None:
        self._alarm = None
        waiter = self._waiter if self._waiter is not None and not self._waiter.done() else None
        if waiter is None and self.state is not State.TRAILING:
            return
        if self._clock() < self._wake_at:
            self._arm(max(self._wake_at, self._loop.time() + _LEAST_S))
        elif waiter is not None:
            waiter.set_result(False)
        else:
            self.abort()

    def _disarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
