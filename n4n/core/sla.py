"""Drift of service levels: like hours of the week against like hours, so that a Monday's peak is no drift and a creep is one.

The newest week of a period is laid beside its oldest. For each hour of the week that both have, the newer value is divided by the older;
the drift is the median of these. One bad Monday is 24 of 168 hours and moves no median; a level that has grown stands in all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

WEEK_H = 168
DRIFTS = 1.5  # times the older week
LEAST_HOURS = 24  # that both weeks must have; fewer say nothing


@dataclass(frozen=True, slots=True)
class Level:
    """One number of one hour. `hour`: hours since 1970, UTC."""

    hour: int
    value: float


@dataclass(frozen=True, slots=True)
class Drift:
    """`now`, `baseline`: the median of the newest and the oldest week; `ratio` 1.0: no drift."""

    now: float
    baseline: float
    ratio: float

    @property
    def flagged(self) -> bool:
        """Whether somebody should know."""
        return self.ratio > DRIFTS


def drift(levels: Sequence[Level]) -> Drift | None:
    """Of the newest week in `levels` against the oldest. None: they do not tell, as there are fewer than 24 like hours in both."""
    if not levels:
        return None
    first, last = min(level.hour for level in levels), max(level.hour for level in levels)
    if last - first < WEEK_H:
        return None  # the two weeks would be one
    old = _week(level for level in levels if level.hour < first + WEEK_H)
    new = _week(level for level in levels if level.hour > last - WEEK_H and level.hour >= first + WEEK_H)
    alike = [hour for hour in new if old.get(hour, 0.0) > 0.0]
    if len(alike) < LEAST_HOURS:
        return None
    return Drift(median(new.values()), median(old.values()), median(new[hour] / old[hour] for hour in alike))


def _week(levels: Iterable[Level]) -> dict[int, float]:
    return {level.hour % WEEK_H: level.value for level in levels}
