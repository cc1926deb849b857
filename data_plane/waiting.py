"""Requests that wait for the same quota: one asks at a time, when it is due, in the order of n4n/core/limits/line.py."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from n4n.core.limits.line import Line, Place
from n4n.core.limits.subjects import Priority


class WaitingLine:
    """Those that wait for one account's quota on this router. `clock`: monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._line = clock, Line()
        self._due: dict[Place, float] = {}
        self._turns: dict[Place, asyncio.Future[None]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._line)

    def must_wait(self, priority: Priority) -> bool:
        """Whether one that comes now would overtake somebody."""
        return self._line.must_wait(priority)

    def join(self, priority: Priority, tenant: str) -> Place:
        """A place; `gone` gives it up. LineFull: there is none."""
        return self._line.join(priority, tenant)

    async def turn(self, place: Place, due: float, until: float) -> bool:
        """Waits until it may ask, not before `due`; again, where it asked in vain. False: not before `until`."""
        turn = self._turns[place] = asyncio.get_running_loop().create_future()
        self._due[place] = due
        self._line.again(place)
        self._begin()
        try:
            async with asyncio.timeout(max(0.0, until - self._clock())):
                await turn
        except TimeoutError:
            return False
        finally:
            del self._turns[place]
        return True

    def gone(self, place: Place, *, served: bool) -> None:
        """It waits no more; the next may ask."""
        self._line.gone(place, served=served)
        self._due.pop(place, None)
        self._begin()

    def _begin(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        place = self._line.turn()
        if place is None:
            return
        turn, wait = self._turns.get(place), self._due[place] - self._clock()
        if wait > 0 or turn is None or turn.done():
            self._line.again(place)
            if turn is not None and not turn.done():
                self._timer = asyncio.get_running_loop().call_later(wait, self._begin)
            return
        turn.set_result(None)
