"""The same upstream as mock.c for machines without a C compiler: `python -m bench.mock PORT GAP_MS ANSWER PIECE...`. Slower.

It speaks TLS where $MOCK_CERTIFICATE and $MOCK_KEY name PEM files.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
from pathlib import Path

import uvloop


class Mock(asyncio.Protocol):
    """One connection; it answers requests that have a content-length and do not overlap."""

    def __init__(self, answer: bytes, pieces: list[bytes], gap: float) -> None:
        self._answer = answer
        self._pieces = pieces
        self._gap = gap
        self._received = b""
        self._turn: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]

    def connection_lost(self, error: Exception | None) -> None:
        """Called by the loop."""
        if self._turn is not None:
            self._turn.cancel()

    def data_received(self, content: bytes) -> None:
        """Called by the loop."""
        self._received += content
        head, mark, body = self._received.partition(b"\r\n\r\n")
        if not mark or len(body) < _length(head):
            return
        self._received = b""
        if b'"stream":true' in body or b'"stream": true' in body:
            self._send_from(0, asyncio.get_running_loop())
        else:
            self._transport.write(self._answer)

    def _send_from(self, number: int, loop: asyncio.AbstractEventLoop) -> None:
        if number == len(self._pieces) - 2:
            self._transport.write(self._pieces[-2] + self._pieces[-1])
            return
        self._transport.write(self._pieces[number])
        self._turn = loop.call_later(self._gap, self._send_from, number + 1, loop)


def _tls() -> ssl.SSLContext | None:
    certificate = os.environ.get("MOCK_CERTIFICATE")
    if certificate is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, os.environ["MOCK_KEY"])
    return context


def _length(head: bytes) -> int:
    _, found, rest = head.lower().partition(b"content-length:")
    return int(rest.split(b"\r\n", 1)[0]) if found else 0


async def serve(port: int, gap_ms: float, answer: bytes, pieces: list[bytes]) -> None:
    """Serves until killed."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Mock(answer, pieces, gap_ms / 1000), "127.0.0.1", port, backlog=1024, ssl=_tls())
    await server.serve_forever()


if __name__ == "__main__":
    port, gap_ms, *files = sys.argv[1:]
    answer, *pieces = (Path(file).read_bytes() for file in files)
    uvloop.run(serve(int(port), float(gap_ms), answer, pieces))
