"""Clients: so many requests a second whatever becomes of them, in turn to every router; what each was told, and when."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import aiohttp

LOST, TOO_MANY = 0, 429  # the status of a request without an answer, and of one too many
PAUSE_S = 0.05
PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Ended:
    """One request, sent at `at` (`time.monotonic()`). Times that the router told are in milliseconds."""

    at: float
    router: int
    status: int
    took_s: float
    overhead_ms: float = 0.0
    queued_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Asked:
    """One request to make: model, treatment at the provider (see `provider`), headers; `leaves_s`: its client leaves after so long."""

    model: str
    how: Mapping[str, object]
    headers: Mapping[str, str]
    max_tokens: int | None = None
    text: str = "ping"
    leaves_s: float | None = None

    def body(self) -> bytes:
        """As JSON."""
        bound = {} if self.max_tokens is None else {"max_tokens": self.max_tokens}
        messages = [{"role": "user", "content": self.text}]
        return json.dumps({"model": self.model, "messages": messages, "user": json.dumps(self.how), **bound}).encode()


class Crowd:
    """Clients of these routers. A router that is down is passed over."""

    def __init__(self, ports: Callable[[], Sequence[int]], key: str) -> None:
        self._ports, self._key = ports, key
        self._turn = 0
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=PATIENCE_S),
            headers={"authorization": f"Bearer {key}"},
        )

    async def close(self) -> None:
        """No more of them."""
        await self._http.close()

    async def steady(self, rate: float, seconds: float, asked: Callable[[int], Asked]) -> list[Ended]:
        """An open load; returns when all have ended."""
        begun, number, tasks = time.monotonic(), 0, list[asyncio.Task[Ended]]()
        while (due := begun + number / rate) < begun + seconds:
            await asyncio.sleep(due - time.monotonic())
            tasks.append(asyncio.create_task(self.one(asked(number))))
            number += 1
        return await asyncio.gather(*tasks)

    async def together(self, count: int, at_once: int, asked: Callable[[int], Asked], ended: list[Ended]) -> int:
        """So many requests, so many of them at a time, put into `ended`; who is told 429 asks again. Returns how often that was."""
        numbers, refused = iter(range(count)), 0

        async def client() -> None:
            nonlocal refused
            for number in numbers:
                while (one := await self.one(asked(number))).status == TOO_MANY:
                    refused += 1
                    await asyncio.sleep(PAUSE_S)
                ended.append(one)

        await asyncio.gather(*(client() for _ in range(at_once)))
        return refused

    async def one(self, asked: Asked) -> Ended:
        """One request to its end."""
        ports = self._ports()
        self._turn += 1
        router, began = self._turn % len(ports), time.monotonic()
        url = f"http://127.0.0.1:{ports[router]}/v1/chat/completions"
        try:
            async with (
                asyncio.timeout(asked.leaves_s),
                self._http.post(url, data=asked.body(), headers={"content-type": "application/json", **asked.headers}) as answer,
            ):
                await answer.read()
                told = answer.headers
                status = answer.status
        except (aiohttp.ClientError, TimeoutError):
            return Ended(began, router, LOST, time.monotonic() - began)
        overhead, queued = (float(told.get(name, 0)) for name in ("x-n4n-overhead-ms", "x-n4n-queue-ms"))
        return Ended(began, router, status, time.monotonic() - began, overhead, queued)
