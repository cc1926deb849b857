"""A prober's share of all tasks, and when each of them is due; the times others agreed on are the board's.

absent ──plan, or another prober is gone──▶ DUE       at once, to ask the board, which knows when it really is
DUE ─────granted──▶ RUNNING                           it is carried out here
DUE ─────refused──▶ DUE                               later: another has it, or it is not time
RUNNING ─ended────▶ DUE                               after its interval
any ─────no longer ours, or gone──▶ absent            what runs may end, and nobody is told

A task belongs to the live prober with the highest hash of its name and the prober's (rendezvous hashing, Thaler and Ravishankar 1998):
when a prober comes or goes, only its own share moves. Times are seconds on one monotonic clock.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from hashlib import blake2b

import msgspec

CATCHING_UP = 2.0  # times the planned rate
JITTER = 0.1  # of an interval, to both sides: the mean stays what was planned


class Task(msgspec.Struct, frozen=True):
    """Something to do again and again. `purse`: who pays for it, empty: it costs nothing; `cost_pico`: at most, each time."""

    name: str
    interval_s: float
    lease_s: float  # longer than it can take
    purse: str = ""
    cost_pico: int = 0


def owner(task: str, members: Iterable[str]) -> str | None:
    """Whose task it is; None: there is nobody."""
    return max(members, key=lambda member: blake2b(f"{member}\0{task}".encode(), digest_size=8).digest(), default=None)


def most_at_once(rate_per_s: float, turn_s: float) -> int:
    """How many tasks a turn may begin: what was put off is caught up with, and no faster."""
    return max(2, math.ceil(CATCHING_UP * rate_per_s * turn_s))


def jittered(interval_s: float, draw: float) -> float:
    """An interval to the next time, a little shorter or longer. `draw` in [0, 1)."""
    return interval_s * (1 - JITTER + 2 * JITTER * draw)


class Schedule:
    """Of one prober. Until it knows who lives, it has no share."""

    def __init__(self, me: str) -> None:
        self._me = me
        self._tasks: Mapping[str, Task] = {}
        self._members: frozenset[str] = frozenset()
        self._owners: dict[str, str | None] = {}
        self._due: dict[str, float] = {}  # of our share
        self._running: set[str] = set()
        self._rate = 0.0

    def __repr__(self) -> str:
        share = f"{len(self._due)} of {len(self._tasks)} tasks, {len(self._running)} running"
        return f"<Schedule of {self._me}: {share}, {len(self._members)} probers>"

    @property
    def share(self) -> Collection[str]:
        """The names of our tasks."""
        return self._due.keys()

    @property
    def running(self) -> int:
        """How many are being carried out."""
        return len(self._running)

    @property
    def members(self) -> frozenset[str]:
        """Who lived last."""
        return self._members

    @property
    def rate_per_s(self) -> float:
        """How many of our tasks are planned in a second."""
        return self._rate

    def plan(self, tasks: Mapping[str, Task], now: float) -> None:
        """All tasks there are, of everybody."""
        self._tasks = tasks
        self._owners = {name: owner(name, self._members) for name in tasks}
        self._take_up(now)

    def know(self, members: Iterable[str], now: float) -> None:
        """Who lives."""
        members = frozenset(members)
        if members != self._members:
            self._members = members
            self._owners = {name: owner(name, members) for name in self._tasks}
            self._take_up(now)

    def _take_up(self, now: float) -> None:
        self._due = {name: self._due.get(name, now) for name, whose in self._owners.items() if whose == self._me}
        self._rate = sum(1 / self._tasks[name].interval_s for name in self._due)

    def due(self, now: float, most: int) -> list[Task]:
        """What is due and not running, the longest overdue first, up to `most`."""
        found = sorted((at, name) for name, at in self._due.items() if at <= now and name not in self._running)
        return [self._tasks[name] for _, name in found[: max(0, most)]]

    def next_due(self) -> float:
        """When the next one is; infinite: there is none."""
        return min((at for name, at in self._due.items() if name not in self._running), default=math.inf)

    def granted(self, name: str) -> None:
        """It is carried out from now on."""
        self._running.add(name)

    def refused(self, name: str, until: float) -> None:
        """Not before an instant."""
        if name in self._due:
            self._due[name] = until

    def ended(self, name: str, again_at: float) -> None:
        """It was carried out."""
        self._running.discard(name)
        self.refused(name, again_at)
