"""How an answer leaves: whole, with everything in its headers, or as a stream whose last chunk carries what headers could not."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from aiohttp import web

from data_plane.meter import Meter, Record, cost_usd, note
from data_plane.replies import error_event
from n4n.core.chat import Chunk, Usage
from n4n.core.errors import GatewayError
from n4n.core.stream_tail import StreamTail, with_note

DONE = b"data: [DONE]\n\n"
USAGE_WAIT_S = 2.0  # how long a finish chunk waits for the usage that belongs on it
END_WAIT_S = 0.1  # and for the end mark once the usage has come: reading it keeps the connection reusable


class ClientGone(Exception):
    """The client closed its connection or stopped reading; `response` is the stream that it left."""

    def __init__(self, response: web.StreamResponse) -> None:
        super().__init__("the client is gone")
        self.response = response


class Answer(Protocol):
    """What the engine tells a client through, whatever the skin. Nothing is sent before the first `send`."""

    started: bool
    wake_at: float | None  # when the stream may be taken as ended though the upstream keeps it open (the router's clock)

    async def send(self, chunks: Sequence[Chunk]) -> None:
        """Output that may go now; ClientGone when nobody takes it."""
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


class WholeAnswer:
    """One JSON body."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._payload = b""
        self.started = False
        self.wake_at: float | None = None
        self._response: web.StreamResponse | None = None

    @property
    def response(self) -> web.StreamResponse:
        """The response, made by `finish`."""
        assert self._response is not None
        return self._response

    async def send(self, chunks: Sequence[Chunk]) -> None:
        """Keeps the one chunk that is the answer."""
        self._payload = chunks[-1].payload

    async def finish(self, usage: Usage | None) -> None:
        """Makes the response, the block spliced into the body as it came."""
        record = self._record
        headers = answer_headers(record)
        cost = cost_usd(record)
        if cost is not None:
            headers["x-n4n-usage-cost-usd"] = f"{cost:f}"
        if record.no_store:
            headers["x-n4n-cache-status"] = "bypass"
        else:
            headers["x-n4n-cache-status"] = "hit" if usage is not None and usage.cached_tokens > 0 else "miss"
        self._response = web.Response(body=with_note(self._payload, note(record)), content_type="application/json", headers=headers)


class StreamAnswer:
    """Server-sent events in OpenAI's shape."""

    def __init__(self, request: web.BaseRequest, record: Record, meter: Meter, include_usage: bool, slow_reader_s: float) -> None:
        self._request, self._record, self._meter, self._slow_reader_s = request, record, meter, slow_reader_s
        self._tail = StreamTail(include_usage)
        self.wake_at: float | None = None
        self.started = False
        self._response: web.StreamResponse | None = None

    @property
    def response(self) -> web.StreamResponse:
        """The open stream."""
        assert self._response is not None
        return self._response

    async def send(self, chunks: Sequence[Chunk]) -> None:
        """Writes what came together together."""
        payloads = [payload for chunk in chunks for payload in self._tail.receive(chunk)]
        if self._tail.waiting:
            wait_s = END_WAIT_S if self._tail.complete else USAGE_WAIT_S
            latest = self._record.clock() + wait_s
            self.wake_at = latest if self.wake_at is None else min(self.wake_at, latest)
        else:
            self.wake_at = None
        await self._write(b"".join([b"data: %b\n\n" % payload for payload in payloads]))

    async def finish(self, usage: Usage | None) -> None:
        """The last chunk, with the block on it, and the end mark."""
        payloads = self._tail.finish(usage, note(self._record))
        await self._write(b"".join([b"data: %b\n\n" % payload for payload in payloads]) + DONE)
        await self._end()

    async def interrupt(self, error: GatewayError) -> web.StreamResponse:
        """One last event that says so; never a bare close, never a false finish."""
        await self._write(error_event(error, self._record.request_id))
        await self._end()
        return self.response

    async def _write(self, piece: bytes) -> None:
        try:
            async with asyncio.timeout(self._slow_reader_s):
                if not self.started:
                    await self._open()
                if piece:
                    await self.response.write(piece)
        except TimeoutError as error:
            if self._request.transport is not None:
                self._request.transport.abort()
            raise ClientGone(self.response) from error
        except ConnectionError as error:
            raise ClientGone(self.response) from error

    async def _open(self) -> None:
        headers = answer_headers(self._record)
        headers["content-type"] = "text/event-stream; charset=utf-8"
        headers.setdefault("cache-control", "no-cache")
        headers["x-accel-buffering"] = "no"
        headers["x-n4n-cache-status"] = "bypass" if self._record.no_store else "miss"
        self._response = web.StreamResponse(headers=headers)
        self.started = True
        self._record.interrupt = self.interrupt
        self._meter.stream_opened()
        await self._response.prepare(self._request)

    async def _end(self) -> None:
        try:
            await self.response.write_eof()
        except ConnectionError as error:
            raise ClientGone(self.response) from error
