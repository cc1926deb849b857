"""What a call takes while little happens: several targets asked in turn, one request at a time, at a steady pace.

`python -m bench.latency` reads one JSON object from standard input (`Wish` below) and prints one: for each target, in milliseconds,
the quantiles of the whole answer, of its first content and of the content that opens a stream guard by default. All targets see
the same machine; what one adds is the difference of two quantiles of one run.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from urllib.parse import urlsplit

from bench import payloads
from bench.peers import Target
from bench.programs import asked_of
from bench.samples import quantile

CONTENT = b'"content":"'
LEAST = 8


@dataclass(frozen=True, slots=True)
class Wish:
    """(url, key, model) of each; `rate` requests a second to each; the guard's opening content is the `nth`."""

    targets: list[tuple[str, str, str]]
    stream: bool
    rate: float
    count: int
    nth: int


@dataclass(frozen=True, slots=True)
class Taken:
    """Milliseconds of one target."""

    p50: float
    p95: float
    first_p50: float
    first_p95: float
    nth_p50: float


def ask_in_turn(targets: Sequence[Target], cpu: int, *, stream: bool, rate: float, seconds: float, nth: int = 1) -> list[Taken]:
    """In a process of its own on that CPU."""
    asked = [(target.chat_url, target.key, target.model) for target in targets]
    wish = Wish(asked, stream, rate, max(LEAST, round(seconds * rate)), nth)
    return [Taken(**taken) for taken in asked_of("bench.latency", asdict(wish), cpu)["taken"]]


class _Line:
    """A kept connection to one target."""

    def __init__(self, url: str, key: str, model: str, wish: Wish) -> None:
        parts, body = urlsplit(url), payloads.request(stream=wish.stream, model=model)
        head = f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
        self._request = f"{head}Authorization: Bearer {key}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
        self._where = (parts.hostname or "", parts.port or 80)
        self._nth = wish.nth
        self._socket: socket.socket | None = None

    def ask(self) -> tuple[float, float, float]:
        """Seconds to the first content, to the n-th, to the end. RuntimeError: the answer is not a good one."""
        begun, received, seen = time.perf_counter(), b"", [0.0, 0.0]
        self._connected().sendall(self._request)
        while True:
            piece = self._connected().recv(65536)
            received += piece
            now, contents = time.perf_counter() - begun, received.count(CONTENT)
            seen = [at or (now if contents >= wanted else 0.0) for at, wanted in zip(seen, (1, self._nth), strict=True)]
            if not piece or not received.startswith(b"HTTP/1.1 200 "[: len(received)]):
                raise RuntimeError(f"no good answer: {received[:200]!r}")
            if _is_whole(received):
                return seen[0], seen[1], now

    def _connected(self) -> socket.socket:
        if self._socket is None:
            self._socket = socket.create_connection(self._where, timeout=30)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._socket


def _is_whole(received: bytes) -> bool:
    head, mark, body = received.partition(b"\r\n\r\n")
    _, found, rest = head.lower().partition(b"\r\ncontent-length:")
    return bool(mark) and (len(body) >= int(rest.split(b"\r\n", 1)[0]) if found else body.endswith(b"\r\n0\r\n\r\n"))


def _measure(wish: Wish) -> list[Taken]:
    lines = [_Line(*target, wish) for target in wish.targets]
    samples: list[list[tuple[float, float, float]]] = [[] for _ in lines]
    pause, due = 1.0 / wish.rate / len(lines), time.perf_counter()
    warm = min(20, wish.count // 4)
    for number in range(warm + wish.count):
        for line, taken in zip(lines, samples, strict=True):
            due = max(due + pause, time.perf_counter())
            time.sleep(max(0.0, due - time.perf_counter()))
            times = line.ask()
            if number >= warm:
                taken.append(times)
    return [_taken(one) for one in samples]


def _taken(samples: Sequence[tuple[float, float, float]]) -> Taken:
    first, nth, whole = (sorted(one[index] * 1000 for one in samples) for index in range(3))
    return Taken(quantile(whole, 0.5), quantile(whole, 0.95), quantile(first, 0.5), quantile(first, 0.95), quantile(nth, 0.5))


if __name__ == "__main__":
    print(json.dumps({"taken": [asdict(taken) for taken in _measure(Wish(**json.load(sys.stdin)))]}))
