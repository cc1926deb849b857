"""How an answer leaves: whole, with everything in its headers, or as a stream whose last chunk carries what headers could not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from aiohttp import web

from data_plane.meter import Meter, Record, note
from data_plane.replies import error_event
from n4n.core.chat import Chunk, Usage
from n4n.core.errors import GatewayError
from n4n.core.stream_tail import StreamTail, with_note

DONE = b"data: [DONE]\n\n"
USAGE_WAIT_S = 2.0  # how long a finish chunk waits for the usage that belongs on it
KEEP_ALIVE_S = 15.0  # silence after which an open stream gets a comment; intermediaries close at 30 to 60 s
KEEP_ALIVE = b": n4n\n\n"
END_WAIT_S = 0.1  # and for the end mark once the usage has come: reading it keeps the connection reusable


class ClientGone(Exception):
    """The client closed its connection or stopped reading; `response` is the stream that it left."""

    def __init__(self, response: web.StreamResponse) -> None:
        super().__init__("the client is gone")
        self.response = response


class Answer(Protocol):
    """What the engine tells a client through, whatever the skin. Nothing is sent before there is output."""

    wake_at: float | None  # when the stream may be taken as ended though the upstream keeps it open (the router's clock)
    quiet_until: float | None  # when the client is due a sign of life; None: not before it has seen output

    def put(self, chunks: Sequence[Chunk]) -> bool:
        """Output that may go; it leaves with the next `flush` or `finish`, all in one write. True: there is something to write."""
        ...

    async def flush(self) -> None:
        """What was put goes out, or a sign of life where nothing was; ClientGone when nobody takes it."""
        ...

    async def finish(self, usage: Usage | None) -> None:
        """The answer is whole and its record settled."""
        ...

    @property
    def response(self) -> web.StreamResponse:
        """What was sent, for the server; there is one once `finish` was called."""
        ...


def answer_headers(record: Record) -> dict[str, str]:
    """The response headers of §2.2 that every answer bears."""
    headers = {
        "server": "n4n",
        "x-request-id": record.request_id,
        "x-n4n-fallback-attempts": str(record.fallback_attempts),
        "x-n4n-overhead-ms": f"{record.overhead_s * 1000:.1f}",
    }
    endpoint = record.selected
    if endpoint is not None:
        headers["x-n4n-provider"] = endpoint.provider.name
        headers["x-n4n-endpoint"] = endpoint.id
        headers["x-n4n-model"] = endpoint.model
    if record.catalog_version is not None:
        headers["x-n4n-catalog-version"] = str(record.catalog_version)
    if record.cache_control is not None:
        headers["cache-control"] = record.cache_control
    return headers


@asynccontextmanager
async def _taken(response: web.StreamResponse) -> AsyncIterator[None]:
    """What is written inside is taken by the client, or it is ClientGone; the connection itself cuts off one that reads nothing."""
    try:
        yield
    except ConnectionError as error:
        raise ClientGone(response) from error


class WholeAnswer:
    """One JSON body."""

    def __init__(self, request: web.BaseRequest, record: Record) -> None:
        self._request, self._record = request, record
        self._payload = b""
        self.wake_at: float | None = None
        self.quiet_until: float | None = None
        self._response: web.StreamResponse | None = None

    @property
    def response(self) -> web.StreamResponse:
        """The response, made by `finish`."""
        assert self._response is not None
        return self._response

    def put(self, chunks: Sequence[Chunk]) -> bool:
        """Keeps the one chunk that is the answer."""
        self._payload = chunks[-1].payload
        return True

    async def flush(self) -> None:
        """A body goes out whole, by `finish`."""

    async def finish(self, usage: Usage | None) -> None:
        """Sends the response, the block spliced into the body as it came; ClientGone when nobody takes it."""
        record = self._record
        headers = answer_headers(record)
        if record.cost_usd is not None:
            headers["x-n4n-usage-cost-usd"] = f"{record.cost_usd:f}"
        if record.no_store:
            headers["x-n4n-cache-status"] = "bypass"
        else:
            headers["x-n4n-cache-status"] = "hit" if usage is not None and usage.cached_tokens > 0 else "miss"
        response = web.Response(body=with_note(self._payload, note(record)), content_type="application/json", headers=headers)
        self._response = response
        if record.closing():
            response.force_close()
        async with _taken(response):
            await response.prepare(self._request)
            await response.write_eof()


class _EventStream(web.StreamResponse):
    """A stream whose head leaves with the first events instead of in a write of its own."""

    _send_headers_immediately = False


class StreamAnswer:
    """Server-sent events in OpenAI's shape."""

    def __init__(
        self,
        request: web.BaseRequest,
        record: Record,
        meter: Meter,
        *,
        include_usage: bool,
        keep_alive_s: float = KEEP_ALIVE_S,
    ) -> None:
        self._request, self._record, self._meter = request, record, meter
        self._keep_alive_s = keep_alive_s
        self._tail = StreamTail(include_usage)
        self._unsent: list[bytes] = []
        self.wake_at: float | None = None
        self.quiet_until: float | None = None
        self._response: web.StreamResponse | None = None

    @property
    def response(self) -> web.StreamResponse:
        """The open stream."""
        assert self._response is not None
        return self._response

    def put(self, chunks: Sequence[Chunk]) -> bool:
        """Takes what may go now; the chunk with the finish reason is kept back for its usage."""
        for chunk in chunks:
            self._take(self._tail.receive(chunk))
        if self._tail.waiting:
            latest = self._record.clock() + (END_WAIT_S if self._tail.complete else USAGE_WAIT_S)
            self.wake_at = latest if self.wake_at is None else min(self.wake_at, latest)
        else:
            self.wake_at = None
        return bool(self._unsent)

    def _take(self, payloads: Sequence[bytes]) -> None:
        if payloads and self._record.interrupt is None:  # from here on an error is an event, not a status
            self._record.interrupt = self.interrupt
            self._meter.stream_opened()
        for payload in payloads:
            self._unsent += (b"data: ", payload, b"\n\n")

    async def flush(self) -> None:
        """Writes what came together together; a comment where nothing did."""
        await self._write(b"".join(self._unsent) or KEEP_ALIVE, last=False)

    async def finish(self, usage: Usage | None) -> None:
        """The last chunks, with the block on the last one, and the end mark."""
        self._take(self._tail.finish(usage, note(self._record)))
        self._unsent.append(DONE)
        await self._write(b"".join(self._unsent), last=True)

    async def interrupt(self, error: GatewayError) -> web.StreamResponse:
        """One last event that says so; never a bare close, never a false finish."""
        self._unsent.append(error_event(error, self._record))
        await self._write(b"".join(self._unsent), last=True)
        return self.response

    async def _write(self, piece: bytes, *, last: bool) -> None:
        self._unsent.clear()
        if self._response is None:
            self._response = _EventStream(headers=self._headers())
            if self._record.closing():
                self._response.force_close()
        async with _taken(self._response):
            if not self._response.prepared:
                await self._response.prepare(self._request)
            await (self._response.write_eof(piece) if last else self._response.write(piece))
        self.quiet_until = self._record.clock() + self._keep_alive_s

    def _headers(self) -> dict[str, str]:
        headers = answer_headers(self._record)
        headers["content-type"] = "text/event-stream; charset=utf-8"
        headers.setdefault("cache-control", "no-cache")
        headers["x-accel-buffering"] = "no"
        headers["x-n4n-cache-status"] = "bypass" if self._record.no_store else "miss"
        return headers
