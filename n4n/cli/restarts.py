"""When to start a program again that died: a growing, jittered pause, forgotten once it has lived for a while."""

from __future__ import annotations

from dataclasses import dataclass

FIRST_S, LONGEST_S = 0.2, 10.0
SOUND_AFTER_S = 30.0  # a program that lived this long starts with a clean slate


@dataclass(frozen=True, slots=True)
class Restarts:
    """How often in a row a program died young."""

    in_a_row: int = 0


def after_death(before: Restarts, lived_s: float, draw: float) -> tuple[Restarts, float]:
    """The new count and the pause in seconds before the next start. `draw` in [0, 1) spreads it over the upper half of its range."""
    in_a_row = 1 if lived_s >= SOUND_AFTER_S else before.in_a_row + 1
    longest = min(LONGEST_S, FIRST_S * 2.0 ** min(in_a_row - 1, 10))
    return Restarts(in_a_row), longest * (0.5 + draw / 2)
