"""When a dead program is started again."""

from __future__ import annotations

import pytest

from n4n.cli.restarts import Restarts, after_death


def pauses(deaths: int, draw: float) -> list[float]:
    state, found = Restarts(), []
    for _ in range(deaths):
        state, pause_s = after_death(state, 0.5, draw)
        found.append(pause_s)
    return found


def test_the_pause_doubles_up_to_ten_seconds() -> None:
    assert pauses(8, draw=0.999999) == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10], rel=1e-3)


def test_chance_takes_away_at_most_half_of_it() -> None:
    assert pauses(7, draw=0.0) == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0]


def test_a_program_that_lived_for_half_a_minute_starts_with_a_clean_slate() -> None:
    state, _ = after_death(Restarts(in_a_row=9), 30.0, 0.0)

    assert state == Restarts(in_a_row=1)


def test_a_thousand_deaths_overflow_nothing() -> None:
    assert after_death(Restarts(in_a_row=10_000), 0.0, 0.5)[1] == 7.5
