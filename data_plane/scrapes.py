"""Pages of metrics for whoever asks: made beside the loop, one of each kind at a time, and those who ask meanwhile share it.

Whoever may reach the port may ask, and a page of a large catalog takes a second of CPU and more: a flood of questions must not be a flood
of pages. One that was dear is given again until its makers have rested for as long as it took them twice over.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

DEAR_S = 0.1  # of CPU; whatever costs less is made anew every time
RESTS = 2.0  # times what the page took
LONGEST_REST_S = 5.0


class Page:
    """One kind of page; `make` runs in a thread. `told` is called on the loop before it is made."""

    def __init__(self, make: Callable[[], bytes], told: Callable[[], None], clock: Callable[[], float]) -> None:
        self._make, self._told, self._clock = make, told, clock
        self._under_way: asyncio.Task[bytes] | None = None
        self._last, self._good_until = b"", 0.0
        self.dear_s = DEAR_S

    async def read(self) -> bytes:
        """The page as it is now, or was a moment ago. It may raise what `make` does."""
        if self._clock() < self._good_until:
            return self._last
        if self._under_way is None:
            self._under_way = asyncio.create_task(self._made())
            self._under_way.add_done_callback(self._over)
        return await asyncio.shield(self._under_way)

    async def _made(self) -> bytes:
        self._told()
        self._last, took_s = await asyncio.to_thread(self._timed)
        if took_s > self.dear_s:
            self._good_until = self._clock() + min(LONGEST_REST_S, RESTS * took_s)
        return self._last

    def _timed(self) -> tuple[bytes, float]:
        begun = time.thread_time()
        return self._make(), time.thread_time() - begun

    def _over(self, made: asyncio.Task[bytes]) -> None:
        self._under_way = None
        if not made.cancelled():
            made.exception()  # whoever still waits is told; where nobody does, nobody need be
