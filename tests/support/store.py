"""A store as tests use it: opened, watched, closed in time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from n4n.core.breaker import Breaker
from n4n.runtime.stores import Store, settings_of

READY_S = 10.0
PATIENT_S = 1.0  # a deadline for tests of something else: this machine does other things too


class Changes(list[tuple[Breaker, str]]):
    """Every change of a store's state, and when, on the loop's clock."""

    def __init__(self) -> None:
        super().__init__()
        self.at: list[float] = []
        self._news = asyncio.Event()

    def __call__(self, state: Breaker, reason: str) -> None:
        self.append((state, reason))
        self.at.append(asyncio.get_running_loop().time())
        self._news.set()

    async def until(self, holds: Callable[[], bool], within_s: float = READY_S) -> None:
        """Waits for a change after which it holds; AssertionError: it did not come."""
        try:
            async with asyncio.timeout(within_s):
                while not holds():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError(f"after {within_s} s: {self}") from None

    async def until_reason(self, why: str, within_s: float = READY_S) -> None:
        """Waits until it was told to be open for this reason."""
        await self.until(lambda: (Breaker.OPEN, why) in self, within_s)


@asynccontextmanager
async def open_store(url: str, changes: Changes | None = None, *, deadline_s: float = PATIENT_S) -> AsyncIterator[Store]:
    """A store that can be used."""
    async with starting_store(url, changes, deadline_s=deadline_s) as store:
        assert await store.ready(READY_S), store
        yield store


@asynccontextmanager
async def starting_store(url: str, changes: Changes | None = None, *, deadline_s: float = PATIENT_S) -> AsyncIterator[Store]:
    """A store that may not find its server."""
    store = Store(settings_of(url, deadline_s=deadline_s), changes)
    try:
        yield store
    finally:
        async with asyncio.timeout(5):
            await store.close()
