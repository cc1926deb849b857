"""A closed loop of requests over a fixed number of connections: by wrk where it is installed, else by this module itself.

`python -m bench.load URL BODY_FILE CONNECTIONS SECONDS` (key in $KEY, authority in $CA) is the own generator; both print the same line
of JSON. wrk does not verify a certificate.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import uvloop

from bench.machine import Cpu, pinned
from bench.peers import Target

WRK = shutil.which("wrk")
NAME = "wrk" if WRK else "bench.load (asyncio)"
PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run saw: whole and correct answers, how long it took, latencies from the request's first byte to the answer's last."""

    requests: int
    seconds: float
    errors: int
    p50_ms: float
    p99_ms: float


def run_load(
    target: Target, body: Path, *, connections: int, seconds: float, cpus: Sequence[Cpu], midway: Callable[[], None] | None = None
) -> Outcome:
    """One run, in a process of its own on these CPUs; `midway` is called once while it runs. RuntimeError with the generator's words."""
    if WRK:
        script = Path(__file__).with_name("post.lua")
        seconds_whole = f"{max(1, round(seconds))}s"
        command = [
            WRK,
            "-t1",
            f"-c{connections}",
            f"-d{seconds_whole}",
            "--timeout",
            f"{PATIENCE_S:.0f}s",
            "-s",
            str(script),
            target.chat_url,
        ]
    else:
        command = [sys.executable, "-m", "bench.load", target.chat_url, str(body), str(connections), str(seconds)]
    environ = os.environ | {"KEY": target.key, "BODY": str(body)} | ({"CA": str(target.ca)} if target.ca else {})
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environ, stdout=pipe, stderr=pipe, text=True, preexec_fn=pinned(*cpus)) as program:
        try:
            if midway is not None:
                time.sleep(seconds / 2)
                midway()
            said, complaint = program.communicate(timeout=seconds + 2 * PATIENCE_S)
        except BaseException:
            program.kill()
            raise
    line = next((line for line in reversed(said.splitlines()) if line.startswith("{")), None)
    if program.returncode or line is None:
        raise RuntimeError(f"{NAME} failed: {(complaint or said).strip()[-300:]}")
    return Outcome(**json.loads(line))


def cpu_used() -> float:
    """CPU seconds of all generators that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class _Caller(asyncio.Protocol):
    """One connection that asks again as soon as it has its answer."""

    def __init__(self, request: bytes, tally: _Tally) -> None:
        self._request = request
        self._tally = tally

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]
        self._ask()

    def connection_lost(self, error: Exception | None) -> None:
        self._tally.lost()

    def _ask(self) -> None:
        self._received = b""
        self._needed = 0  # bytes of the whole answer; 0: not known yet, -1: until the last chunk
        self._begun = time.perf_counter()
        self._transport.write(self._request)

    def data_received(self, content: bytes) -> None:
        self._received += content
        if self._needed == 0:
            self._needed = _needed(self._received)
        if (0 < self._needed <= len(self._received)) or (self._needed < 0 and self._received.endswith(b"\r\n0\r\n\r\n")):
            good = self._received.startswith(b"HTTP/1.1 200 ") and (self._needed > 0 or b"data: [DONE]" in self._received)
            self._tally.count(time.perf_counter() - self._begun, good)
            if self._tally.ended:
                self._transport.close()
            else:
                self._ask()


class _Tally:
    """All connections together."""

    def __init__(self) -> None:
        self.latencies: list[float] = []
        self.errors = 0
        self.ended = False

    def count(self, seconds: float, good: bool) -> None:
        if not self.ended:
            self.latencies.append(seconds)
            self.errors += not good

    def lost(self) -> None:
        self.errors += not self.ended

    def quantile(self, share: float) -> float:
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000 if ordered else 0.0


def _needed(received: bytes) -> int:
    head, mark, _ = received.partition(b"\r\n\r\n")
    if not mark:
        return 0
    _, found, rest = head.lower().partition(b"\r\ncontent-length:")
    return len(head) + 4 + int(rest.split(b"\r\n", 1)[0]) if found else -1


async def _generate(url: str, body: bytes, connections: int, seconds: float) -> Outcome:
    parts = urlsplit(url)
    head = f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
    head += f"Authorization: Bearer {os.environ.get('KEY', '')}\r\nContent-Length: {len(body)}\r\n\r\n"
    tally, loop = _Tally(), asyncio.get_running_loop()
    begun = time.perf_counter()
    tls = ssl.create_default_context(cafile=os.environ.get("CA")) if parts.scheme == "https" else None
    for _ in range(connections):
        await loop.create_connection(lambda: _Caller(head.encode() + body, tally), parts.hostname or "", parts.port or 80, ssl=tls)
    await asyncio.sleep(seconds)
    took, tally.ended = time.perf_counter() - begun, True
    good = len(tally.latencies) - min(tally.errors, len(tally.latencies))
    return Outcome(good, took, tally.errors, tally.quantile(0.5), tally.quantile(0.99))


if __name__ == "__main__":
    url, file, connections, seconds = sys.argv[1:]
    outcome = uvloop.run(_generate(url, Path(file).read_bytes(), int(connections), float(seconds)))
    print(json.dumps({name: getattr(outcome, name) for name in Outcome.__slots__}))
