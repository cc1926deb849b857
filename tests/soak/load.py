"""Steady load: so many requests a second whatever becomes of them, half of them streams, each answer read to its end and checked."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import aiohttp

from tests.soak.upstream import TEXT

WHOLE_S = 30.0  # far beyond what any answer here takes


@dataclass(frozen=True, slots=True)
class Sent:
    """One request: when it was sent (`time.monotonic()`), how long until the head and until the end, what was wrong (empty: nothing)."""

    at: float
    stream: bool
    first_s: float
    total_s: float
    version: int
    fault: str


@dataclass
class Load:
    """What was sent so far, in the order of its ends."""

    url: str
    key: str
    rate: float
    sent: list[Sent] = field(default_factory=list)
    _begun: set[float] = field(default_factory=set)  # of those under way
    _stop: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def failed(self) -> list[Sent]:
        """Those with a fault."""
        return [one for one in list(self.sent) if one.fault]

    @property
    def oldest(self) -> float:
        """When the oldest request under way was sent; infinite: none is under way."""
        return min(list(self._begun), default=float("inf"))

    def between(self, begin: float, end: float) -> list[Sent]:
        """Those that were sent in this span."""
        return [one for one in list(self.sent) if begin <= one.at < end]

    async def run(self) -> None:
        """Sends until it is told to stop, then waits for what is under way."""
        loop = asyncio.get_running_loop()
        timeout = aiohttp.ClientTimeout(total=WHOLE_S)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as http, asyncio.TaskGroup() as group:
            begun, number = loop.time(), 0
            while not self._stop.is_set():
                group.create_task(self._one(http, stream=number % 2 == 1))
                number += 1
                await asyncio.sleep(begun + number / self.rate - loop.time())

    async def _one(self, http: aiohttp.ClientSession, *, stream: bool) -> None:
        began = time.monotonic()
        first, version, fault = 0.0, 0, ""
        self._begun.add(began)
        body = {"model": "m", "messages": [{"role": "user", "content": "ping"}], "stream": stream}
        try:
            async with http.post(f"{self.url}/v1/chat/completions", json=body, headers={"authorization": f"Bearer {self.key}"}) as answer:
                first = time.monotonic() - began
                version = int(answer.headers.get("x-n4n-catalog-version", "0"))
                content = await answer.read()
                fault = problem(answer.status, content, stream=stream)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            fault = f"{type(error).__name__}: {error}"
        self._begun.discard(began)
        self.sent.append(Sent(began, stream, first, time.monotonic() - began, version, fault))

    def stop(self) -> None:
        """Sends nothing more. On the load's own loop."""
        self._stop.set()


def problem(status: int, content: bytes, *, stream: bool) -> str:
    """What is wrong with an answer; empty: it is whole, and nothing is in it twice."""
    if status != 200:
        return f"status {status}: {content[:300].decode(errors='replace')}"
    if not stream:
        return "" if json.loads(content)["choices"][0]["message"]["content"] == TEXT else "another text"
    events = [line[6:] for line in content.decode().splitlines() if line.startswith("data: ")]
    if not events or events[-1] != "[DONE]":
        return f"the stream broke off: {content[-300:].decode(errors='replace')}"
    choices = [choice for event in events[:-1] for choice in json.loads(event)["choices"]]
    if [choice["finish_reason"] for choice in choices if choice["finish_reason"]] != ["stop"]:
        return "not one finish"
    return "" if "".join(choice["delta"].get("content") or "" for choice in choices) == TEXT else "another text"


@contextmanager
def steady(url: str, key: str, rate: float = 50.0) -> Iterator[Load]:
    """Load on a thread of its own for as long as the block lasts; at its end everything under way has ended."""
    load, loop = Load(url, key, rate), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_until_complete, args=(load.run(),), name="steady-load")
    thread.start()
    try:
        yield load
    finally:
        loop.call_soon_threadsafe(load.stop)
        thread.join()
        loop.close()


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` of them do not exceed; 0.0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
