"""How a day's money stretches the intervals: rather late than dearer than the operator allowed.

A day is one of UTC. What is left of the money, over what is left of the day, is compared with what all probes of a provider would cost
in that time at their planned intervals; all of its intervals grow by the same factor. The board refuses what would pass the budget all
the same, so that a day never costs more, whatever the estimates were worth.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from n4n.core.catalog import PICO, Provider
from n4n.core.probes.board import DAY_MS
from n4n.core.probes.schedule import Task

DEFAULT_PICO = PICO  # one US dollar a day and provider, where its catalog entry says nothing
_DAY_S = DAY_MS / 1000
_LEAST_RATIO = 0.02  # of true cost to estimate


def budget_of(provider: Provider) -> int:
    """What probes of a provider may cost in a day, in pico-USD."""
    return DEFAULT_PICO if provider.probe_budget_pico is None else provider.probe_budget_pico


def planned_pico_per_s(tasks: Iterable[Task]) -> dict[str, float]:
    """What all tasks would cost at their planned intervals if each cost what it may at most, by purse."""
    found: dict[str, float] = {}
    for task in tasks:
        if task.cost_pico:
            found[task.purse] = found.get(task.purse, 0.0) + task.cost_pico / task.interval_s
    return found


def stretch(planned: float, ratio: float, spent_pico: int, budget_pico: int, now_ms: float) -> float:
    """How many times longer every interval of a purse is, at least 1; infinite: nothing is left.

    `planned`: see above, of the purse; `ratio`: what probes truly cost of what they may at most.
    """
    if planned <= 0:
        return 1.0
    left_pico, left_s = budget_pico - spent_pico, _DAY_S - now_ms % DAY_MS / 1000
    if left_pico <= 0:
        return math.inf
    return max(1.0, planned * max(ratio, _LEAST_RATIO) * left_s / left_pico)


def again_s(interval_s: float, factor: float, now_ms: float, draw: float) -> float:
    """When a stretched task is due again, in seconds: not long after midnight, when there is money again. `draw` in [0, 1)."""
    tomorrow_s = _DAY_S - now_ms % DAY_MS / 1000 + interval_s * draw
    return min(interval_s * factor, max(tomorrow_s, interval_s))


class Receipts:
    """What one prober spent on one day, by purse: `total` with what is under way at its highest; `ratio` of truth to estimate."""

    def __init__(self) -> None:
        self.day = 0
        self._spent: dict[str, int] = {}
        self._open: dict[str, tuple[str, int]] = {}  # by task
        self._estimated: dict[str, int] = {}  # of what is settled, over all days
        self._true: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<Receipts of day {self.day}: {self.totals()}>"

    def on(self, day: int) -> None:
        """Today's day; with a new one it begins at nothing."""
        if day != self.day:
            self.day, self._spent = day, {}

    def begin(self, task: Task) -> None:
        """It is under way."""
        if task.cost_pico:
            self._open[task.name] = (task.purse, task.cost_pico)

    def settle(self, name: str, true_pico: int | None) -> None:
        """It cost this much; None: nobody knows, it counts at its highest."""
        purse, most = self._open.pop(name, ("", 0))
        if not most:
            return
        true = most if true_pico is None else true_pico
        self._spent[purse] = self._spent.get(purse, 0) + true
        self._estimated[purse] = self._estimated.get(purse, 0) + most
        self._true[purse] = self._true.get(purse, 0) + true

    def totals(self) -> dict[str, int]:
        """What the board is told."""
        found = dict(self._spent)
        for purse, most in self._open.values():
            found[purse] = found.get(purse, 0) + most
        return found

    def ratio(self, purse: str) -> float:
        """1 until something is known."""
        estimated = self._estimated.get(purse, 0)
        return self._true[purse] / estimated if estimated else 1.0
