"""Streams whose every byte is looked at: how soon they begin, whether they are whole; and streams that are broken off.

`python -m bench.streams` reads one JSON object from standard input (`Wish` below) and prints one (`Streams`). A closed loop:
each connection asks again as soon as its stream has ended. Broken off: the connection is closed when the first event has come.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import asdict, dataclass
from urllib.parse import urlsplit

import uvloop

from bench import payloads
from bench.peers import Target
from bench.programs import asked_of
from bench.samples import quantile

EVENT = b"data: "


@dataclass(frozen=True, slots=True)
class Wish:
    """`count` of them at once, for so many seconds, or until so many were `broken_off`."""

    url: str
    key: str
    model: str
    connections: int
    seconds: float
    broken_off: int = 0


@dataclass(frozen=True, slots=True)
class Streams:
    """Streams that ended; milliseconds to their first event; those that were not whole."""

    count: int
    seconds: float
    ttfb_p50_ms: float
    ttfb_p95_ms: float
    incomplete: int


def run_streams(target: Target, cpu: int, *, connections: int, seconds: float) -> Streams:
    """In a process of its own on that CPU."""
    return Streams(**asked_of("bench.streams", asdict(Wish(target.chat_url, target.key, target.model, connections, seconds)), cpu))


def break_off(target: Target, cpu: int, *, connections: int, count: int) -> Streams:
    """So many streams, each closed after its first event."""
    return Streams(**asked_of("bench.streams", asdict(Wish(target.chat_url, target.key, target.model, connections, 3600, count)), cpu))


class _Reader(asyncio.Protocol):
    """One connection, one stream after the other; where they are broken off, one stream."""

    def __init__(self, request: bytes, all_of_them: _Round) -> None:
        self._request, self._round = request, all_of_them

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]
        self._ask()

    def connection_lost(self, error: Exception | None) -> None:
        self._round.lost(self._over)

    def _ask(self) -> None:
        self._received, self._first, self._over = b"", 0.0, False
        self._begun = time.perf_counter()
        self._transport.write(self._request)

    def data_received(self, content: bytes) -> None:
        self._received += content
        if not self._first and EVENT in self._received:
            self._first = time.perf_counter() - self._begun
            if self._round.breaks:
                self._over = True
                self._round.note(self._first, whole=True)
                self._transport.abort()
                return
        if self._received.endswith(b"\r\n0\r\n\r\n"):
            good = self._received.startswith(b"HTTP/1.1 200 ") and payloads.fault_in(self._received, stream=True) is None
            self._round.note(self._first, whole=good)
            if self._round.ended:
                self._over = True
                self._transport.close()
            else:
                self._ask()


class _Round:
    """All connections together."""

    def __init__(self, wish: Wish) -> None:
        self.breaks = wish.broken_off > 0
        self.ended = False
        self.first: list[float] = []
        self.incomplete = 0
        self.left = wish.broken_off
        self.vacant = asyncio.Semaphore(wish.connections)

    def note(self, first: float, *, whole: bool) -> None:
        if not self.ended:
            self.first.append(first)
            self.incomplete += not whole

    def lost(self, over: bool) -> None:
        self.vacant.release()
        self.incomplete += not over and not self.ended


async def _read(wish: Wish) -> Streams:
    parts, body = urlsplit(wish.url), payloads.request(stream=True, model=wish.model)
    head = f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
    head += f"Authorization: Bearer {wish.key}\r\nContent-Length: {len(body)}\r\n\r\n"
    request, together, loop = head.encode() + body, _Round(wish), asyncio.get_running_loop()
    begun = time.perf_counter()
    for _ in range(wish.broken_off or wish.connections):
        await together.vacant.acquire()
        await loop.create_connection(lambda: _Reader(request, together), parts.hostname or "", parts.port or 80)
    if wish.broken_off:
        for _ in range(wish.connections):  # all have ended
            await together.vacant.acquire()
    else:
        await asyncio.sleep(wish.seconds)
    took, together.ended = time.perf_counter() - begun, True
    first = sorted(together.first)
    return Streams(len(first), took, quantile(first, 0.5) * 1000, quantile(first, 0.95) * 1000, together.incomplete)


if __name__ == "__main__":
    print(json.dumps(asdict(uvloop.run(_read(Wish(**json.load(sys.stdin)))))))
