"""Drift of service levels: a creep is flagged, a Monday's peak is not."""

from __future__ import annotations

import random

import pytest

from n4n.core.sla import DRIFTS, LEAST_HOURS, WEEK_H, Level, drift

DAY_H = 24


def usual(hour: int, draw: random.Random) -> float:
    """Milliseconds: busier by day than by night, and never quite the same."""
    return (900.0 if 8 <= hour % DAY_H < 18 else 700.0) * draw.uniform(0.9, 1.1)


def weeks(count: int, seed: int, factor: float = 1.0) -> list[Level]:
    draw = random.Random(seed)
    hours = count * WEEK_H
    return [Level(hour, usual(hour, draw) * (1 + (factor - 1) * hour / hours)) for hour in range(hours)]


@pytest.mark.parametrize("seed", range(5))
def test_a_creep_from_800_ms_to_3_s_over_weeks_is_flagged_by_its_factor(seed: int) -> None:
    found = drift(weeks(4, seed, factor=3000 / 800))
    assert found is not None
    assert found.flagged
    # the oldest week is at 1 to 1.69 times the start, the newest at 3.06 to 3.75: like hours differ by 2.2 to 3.1 times
    assert 2.2 < found.ratio < 3.1
    assert found.now > found.baseline * DRIFTS


@pytest.mark.parametrize("seed", range(5))
def test_a_month_that_is_as_ever_is_not_flagged(seed: int) -> None:
    found = drift(weeks(4, seed))
    assert found is not None
    assert not found.flagged
    assert found.ratio == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("every", [True, False])
def test_a_monday_peak_is_not_flagged(every: bool) -> None:
    levels = weeks(4, 7)
    peaks = range(4) if every else [3]
    mondays = {week * WEEK_H + hour for week in peaks for hour in range(DAY_H)}
    found = drift([Level(one.hour, one.value * 4) if one.hour in mondays else one for one in levels])
    assert found is not None
    assert not found.flagged


def test_what_grew_faster_is_an_improvement_and_not_flagged() -> None:
    found = drift(weeks(4, 3, factor=0.3))
    assert found is not None
    assert found.ratio < 1
    assert not found.flagged


@pytest.mark.parametrize(
    "levels",
    [
        [],
        [Level(5, 800.0)],
        weeks(1, 1),
        [Level(hour, 800.0) for hour in range(LEAST_HOURS - 1)] + [Level(hour + WEEK_H, 800.0) for hour in range(LEAST_HOURS - 1)],
        [Level(hour, 0.0) for hour in range(2 * WEEK_H)],
        [Level(hour, 800.0) for hour in range(24)] + [Level(WEEK_H * 2 + 60 + hour, 800.0) for hour in range(24)],  # no like hours
    ],
)
def test_what_has_no_like_hours_says_nothing(levels: list[Level]) -> None:
    assert drift(levels) is None


def test_hours_that_are_missing_are_passed_over() -> None:
    levels = [level for level in weeks(4, 2, factor=4.0) if level.hour % 3]
    found = drift(levels)
    assert found is not None
    assert found.flagged
