"""Intervals are wide where little was measured, and hold the truth about as often as they say."""

from __future__ import annotations

import random

import pytest

from n4n.core.confidence import mean_of, share_of


def test_few_values_tell_little() -> None:
    assert mean_of([]) is None and share_of(0, 0) is None
    assert mean_of([5.0]) == (5.0, None)
    assert mean_of([4.0, 6.0]) == (5.0, pytest.approx(12.706))
    assert mean_of([1.0] * 100) == (1.0, 0.0)


def test_no_failure_in_twenty_is_no_proof_of_none() -> None:
    share, low, high = share_of(0, 20) or pytest.fail("nothing was counted")

    assert (share, low) == (0.0, pytest.approx(0.0, abs=1e-9)) and 0.15 < high < 0.17
    assert share_of(20, 20) == (1.0, pytest.approx(1 - high), pytest.approx(1.0))


@pytest.mark.parametrize("count", [5, 60])
def test_they_hold_the_truth_nineteen_times_in_twenty(count: int) -> None:
    dice, held, shares = random.Random(1), 0, 0
    for _ in range(400):
        mean, half = mean_of([dice.gauss(3, 1) for _ in range(count)]) or pytest.fail("nothing was counted")
        held += half is not None and abs(mean - 3) <= half
        _, low, high = share_of(sum(dice.random() < 0.3 for _ in range(count)), count) or pytest.fail("nothing was counted")
        shares += low <= 0.3 <= high

    assert 0.92 <= held / 400 <= 0.98 and shares / 400 >= 0.9
