"""Whether this process stood still: stopped by a signal, or out of CPU. What timed out meanwhile says nothing of a provider."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

TICK_S = 0.1
WORTH_S = 0.25  # of being late
KEPT = 64


class Stalls:
    """`clock`: monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seen: deque[tuple[float, float]] = deque(maxlen=KEPT)  # when it went on, how long it had stood

    def __repr__(self) -> str:
        return f"<Stalls: {len(self._seen)}>"

    async def keep(self) -> None:
        """Until it is cancelled."""
        before = self._clock()
        while True:
            await asyncio.sleep(TICK_S)
            now = self._clock()
            if now - before - TICK_S > WORTH_S:
                self._seen.append((now, now - before - TICK_S))
            before = now

    def longest_since(self, begun: float) -> float:
        """The longest stand since an instant, in seconds; 0: none."""
        return max((stood for at, stood in self._seen if at >= begun), default=0.0)
