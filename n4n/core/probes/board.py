"""What probers share, as a fold over their turns: who lives, when each task is due again, what each spent today.

n4n/runtime/probes/turn.lua does the same in Redis, in one step, by Redis' clock; the two are tested as a pair. A turn may be repeated: a
claim is granted again to who holds it, and what was spent is told as a total. A task that nobody has seen before is spread over its
interval, so that a new catalog, or an empty Redis, makes no storm. A lease ends by itself: the task of a prober that died is due again.
Times are milliseconds on one clock, Unix time; money is pico-USD.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

DAY_MS = 86_400_000
SOON_MS = 1.0  # of a task that is due and not granted at once with so many others: ask in the next turn


class Ended(msgspec.Struct, frozen=True):
    """A task was carried out and is due again in so many ms."""

    task: str
    again_ms: float


class Claim(msgspec.Struct, frozen=True):
    """A task that seems due. `spread_ms`: when it is due if nobody ever saw it; `budget_pico` of its purse for a day, None: no bound."""

    task: str
    lease_ms: float
    spread_ms: float
    purse: str = ""
    cost_pico: int = 0
    budget_pico: int | None = None


class Turn(msgspec.Struct, frozen=True):
    """What a prober says. `spent`: all that it spent itself on `day` (days since 1970), by purse, with what is under way at its highest;

    `most`: how many claims are granted at once, so that what was overdue, of a dead prober say, makes no storm.
    """

    me: str
    alive_ms: float
    day: int = 0
    ended: tuple[Ended, ...] = ()
    spent: Mapping[str, int] = {}  # a struct makes its own
    claims: tuple[Claim, ...] = ()
    most: int = 1_000_000


class Answer(msgspec.Struct, frozen=True):
    """What a prober hears. `waits`: of every claim, 0: it is granted, else how many ms until it may be asked for again."""

    now_ms: float
    members: frozenset[str]
    waits: tuple[float, ...]
    spent: Mapping[str, int]  # of all probers today, by purse


class Board:
    """Empty at first."""

    def __init__(self) -> None:
        self._members: dict[str, float] = {}
        self._due: dict[str, float] = {}
        self._leases: dict[str, str] = {}
        self._spent: dict[tuple[str, str], int] = {}  # by purse and prober
        self._day = -1

    def __repr__(self) -> str:
        return f"<Board: {len(self._members)} probers, {len(self._due)} tasks, {len(self._leases)} leased>"

    def turn(self, told: Turn, now: float) -> Answer:
        """One prober's turn."""
        self._members = {name: until for name, until in self._members.items() if until > now}
        self._members[told.me] = now + told.alive_ms
        day = int(now // DAY_MS)
        if day != self._day:
            self._spent, self._day = {}, day
        for purse, pico in told.spent.items() if told.day == day else ():
            self._spent[(purse, told.me)] = pico
        for one in told.ended:
            if self._leases.get(one.task) == told.me:
                del self._leases[one.task]
                self._due[one.task] = now + one.again_ms
        totals: dict[str, int] = {}
        for (purse, _), pico in self._spent.items():
            totals[purse] = totals.get(purse, 0) + pico
        waits: list[float] = []
        for claim in told.claims:
            waits.append(self._claim(told.me, claim, totals, now, told.most - waits.count(0.0)))
        return Answer(now, frozenset(self._members), tuple(waits), totals)

    def _claim(self, me: str, claim: Claim, totals: dict[str, int], now: float, left: int) -> float:
        due = self._due.get(claim.task)
        if due is None:
            due = self._due[claim.task] = now + claim.spread_ms
        if due > now and self._leases.get(claim.task) != me:
            return due - now
        if left <= 0:
            return SOON_MS
        spent = totals.get(claim.purse, 0) + claim.cost_pico
        if claim.budget_pico is not None and spent > claim.budget_pico:
            self._leases.pop(claim.task, None)
            self._due[claim.task] = (now // DAY_MS + 1) * DAY_MS + claim.spread_ms
            return self._due[claim.task] - now
        if claim.cost_pico:
            totals[claim.purse] = spent
            self._spent[(claim.purse, me)] = self._spent.get((claim.purse, me), 0) + claim.cost_pico
        self._due[claim.task], self._leases[claim.task] = now + claim.lease_ms, me
        return 0.0
