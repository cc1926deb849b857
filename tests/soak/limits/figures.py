"""What a run came to: figures beside their bounds, and whether all of them hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One number that was measured; `bound` in words, empty where it is only told."""

    what: str
    value: float
    bound: str = ""
    holds: bool = True

    def __str__(self) -> str:
        mark = "" if not self.bound else "  ok" if self.holds else "  FAILED"
        return f"  {self.what:<58}{self.value:>10,.2f}   {self.bound:<12}{mark}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run."""

    run: str
    figures: Sequence[Figure]

    @property
    def holds(self) -> bool:
        """Whether every bound is kept."""
        return all(one.holds for one in self.figures)

    def __str__(self) -> str:
        return "\n".join([f"{self.run}: {'ok' if self.holds else 'FAILED'}", *map(str, self.figures)])


def told(what: str, value: float) -> Figure:
    """Without a bound."""
    return Figure(what, value)


def at_most(what: str, value: float, bound: float) -> Figure:
    """A bound from above."""
    return Figure(what, value, f"≤ {bound:,g}", value <= bound)


def at_least(what: str, value: float, bound: float) -> Figure:
    """A bound from below."""
    return Figure(what, value, f"≥ {bound:,g}", value >= bound)


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` of them do not exceed; 0.0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
