"""Who goes next of those that wait for the same quota: interactive first, then tenants in turn, then who came first.

    join ──▶ WAITING        LineFull: too many wait already
    WAITING ──turn──▶ ASKS   the only one that may ask for quota
    ASKS ──gone──▶ out       it has it, or gave up: the next one's turn
    ASKS ──again──▶ WAITING  it was short once more, and keeps its place
    WAITING ──gone──▶ out    its time is up, or its client left

A newcomer must join where somebody of its rank or above waits (`must_wait`): nobody is overtaken from behind.
"""

from __future__ import annotations

from itertools import count

import msgspec

from n4n.core.limits.subjects import Priority

MOST_WAITING = 1_000
_RANKS = {priority: rank for rank, priority in enumerate(Priority)}


class Place(msgspec.Struct, eq=False):
    """One that waits."""

    number: int
    rank: int
    tenant: str


class LineFull(Exception):
    """Nobody more can wait."""


class Line:
    """Those that wait for one quota on this router."""

    __slots__ = ("_asks", "_most", "_numbers", "_served", "_waiting")

    def __init__(self, most: int = MOST_WAITING) -> None:
        self._most, self._numbers = most, count()
        self._waiting: list[Place] = []
        self._asks: Place | None = None
        self._served: dict[str, int] = {}  # turns that a tenant had, of those that wait: who had least goes first

    def __len__(self) -> int:
        return len(self._waiting)

    def __repr__(self) -> str:
        return f"<Line {[(place.tenant, place.rank) for place in self._waiting]}>"

    def must_wait(self, priority: Priority) -> bool:
        """Whether one that comes now would overtake somebody."""
        return any(place.rank <= _RANKS[priority] for place in self._waiting)

    def join(self, priority: Priority, tenant: str) -> Place:
        """A place in the line. LineFull: there is none."""
        if len(self._waiting) >= self._most:
            raise LineFull
        if tenant not in self._served:
            self._served[tenant] = min(self._served.values(), default=0)
        place = Place(next(self._numbers), _RANKS[priority], tenant)
        self._waiting.append(place)
        return place

    def turn(self) -> Place | None:
        """Whose turn begins now; None: nobody waits, or somebody asks already."""
        if self._asks is not None or not self._waiting:
            return None
        self._asks = min(self._waiting, key=lambda place: (place.rank, self._served[place.tenant], place.number))
        return self._asks

    def again(self, place: Place) -> None:
        """It was its turn and quota was short: it waits on."""
        if self._asks is place:
            self._asks = None

    def gone(self, place: Place, *, served: bool) -> None:
        """It waits no more; `served`: it has its quota. Told again, it changes nothing."""
        if place not in self._waiting:
            return
        self.again(place)
        self._waiting.remove(place)
        if served:
            self._served[place.tenant] += 1
        if not any(one.tenant == place.tenant for one in self._waiting):
            del self._served[place.tenant]
