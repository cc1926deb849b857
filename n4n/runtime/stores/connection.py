"""One connection to one server, shared by all callers: commands of one loop tick leave in one write, replies are matched in order.

Redis answers in the order it was asked (https://redis.io/docs/latest/develop/reference/protocol-spec/). So what was sent is a queue, and
each reply belongs to its head, whether anybody still waits for it or not. When that order is in doubt, because something came that is no
reply or that nobody asked for, the connection ends and everything on it fails at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol, cast

from hiredis import ProtocolError, Reader

from n4n.core.errors import StoreRefused, StoreUnavailable
from n4n.runtime.stores.calls import NO_ANSWER, Call, Unheard
from n4n.runtime.stores.commands import pack
from n4n.runtime.stores.replies import Ask, Ill, Moved, NoScript, NotNow, Refused, ReplyError, Verdict, Wrong, verdict
from n4n.runtime.stores.tally import Tally

READ_BUFFER = 64 << 10
SILENCE_SPANS = (
    8  # deadlines without a byte while something is asked, and the connection is given up; also the time over which misses are judged
)
LOST = "the connection to Redis was lost"
FULL = "too many commands wait for Redis to answer"
GARBLED = "Redis sent something that is no answer"
ASKING, PING = pack(b"ASKING"), pack(b"PING")
_MORE = object()  # what the reader says when no whole reply is left


class Bounds(Protocol):
    """The settings that a connection keeps."""

    @property
    def deadline_s(self) -> float: ...

    @property
    def most_pending(self) -> int: ...

    @property
    def most_pending_bytes(self) -> int: ...


class Owner(Protocol):
    """What a connection tells its link."""

    def lost(self, connection: Connection, why: str) -> None:
        """It ended; everything on it has failed."""

    def send_on(self, connection: Connection, call: Call, where: Moved | Ask) -> None:
        """Another node is to be asked."""

    def unserved(self) -> None:
        """The cluster does not serve a slot that this node was asked for."""


class Connection(asyncio.BufferedProtocol):
    """`buffer` is lent by the loop's thread for one step at a time, so that all connections of a worker can share it."""

    __slots__ = ("_asked_at", "_bounds", "_buffer", "_gets", "_heard_at", "_is_lost", "_loop", "_out", "_owner", "_pending",
                 "_reader", "_silence", "_size", "_tally", "_transport")  # fmt: skip

    def __init__(self, owner: Owner, bounds: Bounds, buffer: memoryview) -> None:
        self._owner, self._bounds, self._buffer = owner, bounds, buffer
        self._loop = asyncio.get_running_loop()
        self._pending: deque[Call] = deque()
        self._size = 0  # bytes of what is pending
        self._out: list[bytes] = []
        self._reader = Reader(replyError=ReplyError, notEnoughData=_MORE)
        self._gets = self._reader.gets
        self._tally = Tally(SILENCE_SPANS * bounds.deadline_s)
        self._asked_at = self._heard_at = 0.0
        self._silence: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self._is_lost = False

    def __repr__(self) -> str:
        return f"<Connection {'lost' if self._is_lost else 'open'}, {len(self._pending)} pending>"

    # --- called by links ---

    @property
    def is_open(self) -> bool:
        """Whether it has not ended."""
        return not self._is_lost

    @property
    def pending(self) -> int:
        """Commands whose reply has not come."""
        return len(self._pending)

    @property
    def heard_at(self) -> float:
        """When something came last, on the loop's clock."""
        return self._heard_at

    def send(self, call: Call) -> None:
        """Takes a command along with this tick's. StoreUnavailable: a bound is reached, or the connection has ended."""
        pending, packed = self._pending, call.packed
        size = self._size + len(packed)
        if self._is_lost or len(pending) >= self._bounds.most_pending or size > self._bounds.most_pending_bytes:
            raise StoreUnavailable(LOST if self._is_lost else FULL)
        if not pending:
            self._asked_at = self._loop.time()
        pending.append(call)
        self._size = size
        call.carrier = self
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(packed)

    def send_asking(self, call: Call) -> None:
        """The same with leave to use a slot that is still on its way here."""
        self.send(Unheard(ASKING, "ASKING"))
        self.send(call)

    def ping(self) -> Call:
        """Asks for a sign of life that counts like any call."""
        call = Unheard(PING, "PING")
        self.send(call)
        return call

    def end(self, why: str) -> None:
        """Closes it now; all that is pending fails with `why`."""
        if self._is_lost:
            return
        self._is_lost = True
        if self._silence is not None:
            self._silence.cancel()
        if self._transport is not None:
            self._transport.abort()
        pending, self._pending = self._pending, deque()
        self._size = 0
        self._out.clear()
        self._owner.lost(self, why)
        for call in pending:
            call.fail(StoreUnavailable(why))

    # --- called by deadlines ---

    def missed(self, calls: int, now: float) -> None:
        """So many ran out of time here."""
        if self._is_lost:
            return
        if self._tally.missed(calls, now):
            self.end(NO_ANSWER)
        elif self._silence is None:
            self._silence = self._loop.call_at(self._silent_at(), self._listen)

    def _silent_at(self) -> float:
        return max(self._asked_at, self._heard_at) + SILENCE_SPANS * self._bounds.deadline_s

    def _listen(self) -> None:
        self._silence = None
        if not self._pending:
            return
        if self._loop.time() >= self._silent_at():
            self.end(NO_ANSWER)
        else:
            self._silence = self._loop.call_at(self._silent_at(), self._listen)

    # --- called by the loop ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected, and with TLS also checked."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are no subclass
        if self._is_lost:
            self._transport.abort()

    def get_buffer(self, _: int) -> memoryview:
        """Where to read to."""
        return self._buffer

    def buffer_updated(self, count: int) -> None:
        """Replies, whole and in part."""
        if self._is_lost:
            return
        self._heard_at = self._loop.time()
        try:
            self._reader.feed(self._buffer, 0, count)  # type: ignore[arg-type]  # any buffer
            self._take()
        except ProtocolError:
            self.end(GARBLED)

    def connection_lost(self, error: Exception | None) -> None:
        """The peer closed it, or the network did."""
        self.end(LOST)

    def _take(self) -> None:
        gets, hits = self._gets, 0
        while (reply := gets()) is not _MORE:
            if not self._pending:
                self.end(GARBLED)
                return
            call = self._pending.popleft()
            self._size -= len(call.packed)
            if type(reply) is ReplyError:
                self._take_error(call, verdict(str(reply)))
            else:
                hits += call.answer(reply)
        self._tally.hits += hits

    def _take_error(self, call: Call, means: Verdict) -> None:
        match means:
            case _ if call.is_done():
                pass  # nobody waits, so nothing is tried again for nobody
            case Moved() | Ask():
                self._owner.send_on(self, call, means)
            case NoScript() if call.script is not None:
                self._teach(call, call.script.with_source(call.packed))
            case NoScript():
                call.fail(StoreRefused("NOSCRIPT", call.name))
            case NotNow(code):
                self._owner.unserved()
                call.fail(StoreRefused(code, call.name))
            case Refused(code):
                self._tally.hits += 1
                call.fail(StoreRefused(code, call.name))
            case Ill(code):
                call.fail(StoreRefused(code, call.name))
                self.missed(1, self._loop.time())
            case Wrong(code):
                call.fail(StoreRefused(code, call.name))
                self.end(f"Redis was left: it answered {code}")

    def _teach(self, call: Call, packed: bytes) -> None:
        """The script did not run: once more with its source. It keeps its deadline."""
        call.packed, call.script = packed, None
        try:
            self.send(call)
        except StoreUnavailable as error:
            call.fail(error)

    def _flush(self) -> None:
        if self._transport is not None and self._out:
            self._transport.write(self._out[0] if len(self._out) == 1 else b"".join(self._out))
            self._out.clear()
