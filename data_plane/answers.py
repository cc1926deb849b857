"""How an answer leaves: whole, with everything in its headers, or as a stream whose last chunk carries what headers could not."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from functools import lru_cache, partial
from typing import Protocol

from data_plane.aside import Aside
from data_plane.meter import Meter, note
from data_plane.outgoing import Way
from data_plane.record import Record
from data_plane.replies import error_body
from n4n.core.chat import ChatRequest, Chunk, Usage
from n4n.core.errors import GatewayError
from n4n.core.large import LARGE
from n4n.core.skins.skin import Frames, Skin

USAGE_WAIT_S = 2.0  # how long a finish chunk waits for the usage that belongs on it
KEEP_ALIVE_S = 15.0  # silence after which an open stream gets a comment; intermediaries close at 30 to 60 s
END_WAIT_S = 0.1  # and for the end mark once the usage has come: reading it keeps the connection reusable


_HIT, _MISS, _BYPASS = (b"x-n4n-cache-status: %b\r\n" % status for status in (b"hit", b"miss", b"bypass"))
_EVENT_STREAM = b"content-type: text/event-stream; charset=utf-8\r\nx-accel-buffering: no\r\n"


class ClientGone(Exception):
    """The client closed its connection or stopped reading"""


class Answer(Protocol):
    """What the engine tells a client through, whatever the skin. Nothing is sent before there is output."""

    @property
    def wake_at(self) -> float | None:
        """When the stream may be taken as ended though the upstream keeps it open (the router's clock)."""
        ...

    @property
    def quiet_until(self) -> float | None:
        """When the client is due a sign of life; None: not before it has seen output."""
        ...

    def put(self, chunks: Sequence[Chunk]) -> bool:
        """Output that may go; it leaves with the next `flush` or `finish`, all in one write. True: there is something to write."""
        ...

    def flush(self) -> Coroutine[object, object, None]:
        """What was put goes out, or a sign of life where nothing was; ClientGone when nobody takes it."""
        ...

    async def finish(self, usage: Usage | None) -> None:
        """The answer is whole and its record settled."""
        ...


def answer_fields(record: Record) -> bytes:
    """The header lines of §2.2 that every answer bears."""
    endpoint, version, cache_control = record.selected, record.catalog_version, record.cache_control
    return b"server: n4n\r\nx-request-id: %b\r\nx-n4n-fallback-attempts: %d\r\nx-n4n-overhead-ms: %.1f\r\n%b%b%b%b%b" % (
        record.request_id.encode(),
        record.fallback_attempts,
        record.overhead_s * 1000,
        b"" if endpoint is None else _endpoint_fields(endpoint.provider.name, endpoint.id, endpoint.model),
        b"" if version is None else b"x-n4n-catalog-version: %d\r\n" % version,
        b"" if cache_control is None else b"cache-control: %b\r\n" % cache_control.encode(),
        record.limit_fields,
        b"" if not record.queued_s else b"x-n4n-queue-ms: %d\r\n" % (record.queued_s * 1000),
    )


@lru_cache(4096)
def _endpoint_fields(provider: str, endpoint: str, model: str) -> bytes:
    return f"x-n4n-provider: {provider}\r\nx-n4n-endpoint: {endpoint}\r\nx-n4n-model: {model}\r\n".encode()


class WholeAnswer:
    """One JSON body."""

    def __init__(self, outgoing: Way, record: Record, skin: Skin, asked: ChatRequest, aside: Aside) -> None:
        self._outgoing, self._record, self._skin, self._asked, self._aside = outgoing, record, skin, asked, aside
        self._chunk: Chunk | None = None
        self.wake_at: float | None = None
        self.quiet_until: float | None = None

    def put(self, chunks: Sequence[Chunk]) -> bool:
        """Keeps the one chunk that is the answer."""
        self._chunk = chunks[-1]
        return True

    async def flush(self) -> None:
        """A body goes out whole, by `finish`."""

    async def finish(self, usage: Usage | None) -> None:
        """Sends the response, n4n's block in it; ClientGone when nobody takes it."""
        assert self._chunk is not None
        record, cached = self._record, usage is not None and usage.cached_tokens > 0
        say = self._skin.whole
        if len(self._chunk.payload) < LARGE:
            body = say(self._chunk, self._asked, usage, note(record))
        else:
            body = await self._aside.do(partial(say, self._chunk, self._asked, usage, note(record)))
        record.bytes_out = len(body)
        status = _BYPASS if record.no_store else _HIT if cached else _MISS
        cost = b"" if record.cost_usd is None else b"x-n4n-usage-cost-usd: %b\r\n" % record.cost_usd.encode()
        try:
            self._outgoing.whole(200, answer_fields(record) + cost + status, body, last=record.closing())
            if self._outgoing.clogged:
                await self._outgoing.room()
        except ConnectionError as error:
            raise ClientGone from error


class StreamAnswer:
    """Server-sent events."""

    def __init__(
        self,
        outgoing: Way,
        record: Record,
        meter: Meter,
        skin: Skin,
        frames: Frames,
        *,
        keep_alive_s: float = KEEP_ALIVE_S,
    ) -> None:
        self._outgoing, self._record, self._meter = outgoing, record, meter
        self._keep_alive_s = keep_alive_s
        self._skin, self._frames = skin, frames
        self._unsent: list[bytes] = []
        self.wake_at: float | None = None
        self.quiet_until: float | None = None

    def put(self, chunks: Sequence[Chunk]) -> bool:
        """Takes what may go now; the chunk with the finish reason is kept back for its usage."""
        for chunk in chunks:
            self._take(self._frames.receive(chunk))
        if self._frames.waiting:
            latest = self._record.clock() + (END_WAIT_S if self._frames.complete else USAGE_WAIT_S)
            self.wake_at = latest if self.wake_at is None else min(self.wake_at, latest)
        else:
            self.wake_at = None
        return bool(self._unsent)

    def _take(self, frames: Sequence[bytes]) -> None:
        if frames and self._record.interrupt is None:  # from here on an error is an event, not a status
            self._record.interrupt = self.interrupt
            self._meter.stream_opened()
        self._unsent += frames

    def flush(self) -> Coroutine[object, object, None]:
        """Writes what came together together; a comment where nothing did."""
        return self._in_turn(last=False) if self._much else self._write(b"".join(self._unsent) or self._skin.keep_alive, last=False)

    async def finish(self, usage: Usage | None) -> None:
        """The last chunks, with the block on the last one, and the end mark."""
        self._take(self._frames.finish(usage, note(self._record)))
        await (self._in_turn(last=True) if self._much else self._write(b"".join(self._unsent), last=True))

    async def interrupt(self, error: GatewayError) -> None:
        """One last event that says so; never a bare close, never a false finish."""
        self._unsent.append(self._frames.error(error_body(error, self._record)))
        await self._write(b"".join(self._unsent), last=True)

    @property
    def _much(self) -> bool:
        """Whether several frames wait that are not worth copying together."""
        return len(self._unsent) > 1 and sum(map(len, self._unsent)) > LARGE

    async def _in_turn(self, *, last: bool) -> None:
        *before, end = self._unsent
        for frame in before:
            await self._write(frame, last=False)
            await asyncio.sleep(0)
        await self._write(end, last=last)

    async def _write(self, piece: bytes, *, last: bool) -> None:
        self._unsent.clear()
        try:
            head = b"" if self._outgoing.begun else self._outgoing.begin(self._fields(), last=self._record.closing())
            self._outgoing.piece(head, piece, end=last)
            self._record.bytes_out += len(piece)
            if not last and self._outgoing.clogged:
                await self._outgoing.room()
        except ConnectionError as error:
            raise ClientGone from error
        self.quiet_until = self._record.clock() + self._keep_alive_s

    def _fields(self) -> bytes:
        record = self._record
        fresh = b"" if record.cache_control is not None else b"cache-control: no-cache\r\n"
        return answer_fields(record) + _EVENT_STREAM + fresh + (_BYPASS if record.no_store else _MISS)
