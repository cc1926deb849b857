"""Limits of a small fleet on a virtual clock: what is admitted beyond a bucket while routers die and Redis is away, and who gets it."""

from __future__ import annotations

import pytest

from tests.simulation.limits import RPM, Plot, Seen, picture, simulated

PLOT = Plot(seconds=70, routers=12, accounts=60, rate=50, deaths=4, dying=(12, 18), away=(25, 45), parted=(60, 64))


@pytest.fixture(scope="module")
def seen() -> Seen:
    """One run of a few thousand requests."""
    return simulated(PLOT)


def test_while_all_is_well_no_account_is_admitted_more_than_its_bucket_lets_through(seen: Seen) -> None:
    assert max(most for at, most in seen.beyond(1) if at < PLOT.away[0]) <= 0.01


def test_while_redis_is_away_at_most_a_fifth_of_a_bucket_more_is_admitted(seen: Seen) -> None:
    assert max(most for at, most in seen.beyond(1) if PLOT.away[0] <= at < PLOT.away[1]) <= 0.2


def test_a_redis_that_lost_everything_and_half_a_fleet_cut_off_cost_a_third_of_a_bucket_at_most(seen: Seen) -> None:
    assert max(most for _, most in seen.beyond(1)) <= 0.35


def test_the_limits_are_used_though_routers_die_and_nothing_is_held_at_rest(seen: Seen) -> None:
    hot = [one for one in seen.admitted if one[1] in seen.hot]
    assert len(seen.hot) >= 5
    assert len(hot) >= 0.95 * len(seen.hot) * (RPM / 60 * PLOT.seconds + RPM)
    assert seen.held == 0


def test_who_is_below_its_limit_is_hardly_ever_refused(seen: Seen) -> None:
    cool = set(range(PLOT.accounts)) - set(seen.hot)
    asked, admitted = (sum(one[1] in cool for one in events) for events in (seen.asked, seen.admitted))
    assert admitted >= 0.95 * asked


def test_a_router_that_is_asked_little_is_admitted_as_large_a_share_as_one_that_is_asked_much(seen: Seen) -> None:
    assert seen.between_routers(PLOT.away[0]) > 0.9


def test_the_picture_tells_what_happened(seen: Seen) -> None:
    drawn = picture(seen)
    assert drawn.count("<polyline") == 4 and "Redis is away" in drawn
