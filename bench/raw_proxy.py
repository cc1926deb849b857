"""How little Python needs to pass a request on: asyncio.Protocol and llhttp on both sides, one task per request. An upper bound, no design.

`python -m bench.raw_proxy PORT UPSTREAM [PORT UPSTREAM]`, an upstream being http://HOST:PORT or https://…. No limits, deadlines,
back-pressure, retries: a client that pipelines or an upstream that misbehaves is not served. Certificates are verified; $SSL_CERT_FILE.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import httptools
import uvloop


@dataclass(slots=True)
class Upstream:
    """One origin and its idle connections."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    idle: list[Answer] = field(default_factory=list)

    async def connection(self) -> Answer:
        """An idle one, else a new one."""
        while self.idle:
            found = self.idle.pop()
            if not found.transport.is_closing():
                return found
        name = self.host if self.tls else None
        loop = asyncio.get_running_loop()
        return (await loop.create_connection(Answer, self.host, self.port, ssl=self.tls, server_hostname=name))[1]


class Client(asyncio.Protocol):
    """The side towards whoever asks."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._parser = httptools.HttpRequestParser(self)
        self._body: list[bytes] = []
        self._task: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]

    def data_received(self, content: bytes) -> None:
        """Called by the loop."""
        self._parser.feed_data(content)

    def on_url(self, url: bytes) -> None:
        """Called by the parser."""
        self._path = url

    def on_body(self, piece: bytes) -> None:
        """Called by the parser."""
        self._body.append(piece)

    def on_message_complete(self) -> None:
        """Called by the parser."""
        body, self._body = b"".join(self._body), []
        self._task = self._loop.create_task(self._forward(self._path, body))

    async def _forward(self, path: bytes, body: bytes) -> None:
        try:
            answer = await self._upstream.connection()
            await answer.fetch(self.transport, path, body)
        except OSError:
            self.transport.abort()
        else:
            self._upstream.idle.append(answer)


class Answer(asyncio.Protocol):
    """The side towards the upstream: one connection."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]

    def connection_lost(self, error: Exception | None) -> None:
        """Called by the loop."""
        if self._done is not None and not self._done.done():
            self._done.set_exception(ConnectionResetError())

    def fetch(self, client: asyncio.Transport, path: bytes, body: bytes) -> asyncio.Future[None]:
        """Asks, and passes the answer on; done when it is whole."""
        self._client, self._stream, self._whole = client, False, False
        self._pieces: list[bytes] = []
        self._head = b""
        self._parser = httptools.HttpResponseParser(self)
        self._done = self._loop.create_future()
        self.transport.write(b"POST %b HTTP/1.1\r\n%bcontent-length: %d\r\n\r\n%b" % (path, _FIELDS, len(body), body))
        return self._done

    def data_received(self, content: bytes) -> None:
        """Called by the loop."""
        self._parser.feed_data(content)
        if self._stream and (piece := b"".join(self._pieces)):
            self._pieces = []
            end = b"\r\n0\r\n\r\n" if self._whole else b"\r\n"
            self._send(b"%b%x\r\n%b%b" % (self._head, len(piece), piece, end))
            self._head = b""
        elif self._stream and self._whole:
            self._send(self._head + b"0\r\n\r\n")
        if self._whole and self._done is not None and not self._done.done():
            self._done.set_result(None)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser."""
        if name.lower() == b"content-type":
            self._stream = value.startswith(b"text/event-stream")

    def on_headers_complete(self) -> None:
        """Called by the parser."""
        if self._stream:
            status = self._parser.get_status_code()
            self._head = b"HTTP/1.1 %d \r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n" % status

    def on_body(self, piece: bytes) -> None:
        """Called by the parser."""
        self._pieces.append(piece)

    def on_message_complete(self) -> None:
        """Called by the parser."""
        self._whole = True
        if not self._stream:
            body, status = b"".join(self._pieces), self._parser.get_status_code()
            head = b"HTTP/1.1 %d \r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % (status, len(body))
            self._send(head + body)

    def _send(self, content: bytes) -> None:
        if not self._client.is_closing():
            self._client.write(content)


_FIELDS = b"host: upstream\r\ncontent-type: application/json\r\nauthorization: Bearer upstream\r\n"


async def serve(upstreams: dict[int, str]) -> None:
    """Serves on each port until killed."""
    loop = asyncio.get_running_loop()
    for port, url in upstreams.items():
        parts = urlsplit(url)
        tls = ssl.create_default_context() if parts.scheme == "https" else None
        upstream = Upstream(parts.hostname or "", parts.port or 0, tls)
        await loop.create_server(lambda upstream=upstream: Client(upstream), "127.0.0.1", port, backlog=1024)  # type: ignore[misc]
    await asyncio.Event().wait()


if __name__ == "__main__":
    words = sys.argv[1:]
    uvloop.run(serve({int(port): upstream for port, upstream in zip(words[::2], words[1::2], strict=True)}))
