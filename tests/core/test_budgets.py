"""Windows begin and end where the calendar says, rolling ones let go slot by slot, and an edit never arms one again."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from n4n.core.budgets import (
    CALENDAR,
    DAY_MS,
    HOUR_MS,
    Budget,
    Slots,
    Span,
    Unit,
    calendar_span,
    factor_of_account,
    factor_of_cap,
    is_window,
    level,
    pico_of,
    resaved,
    rolling_ms,
    slots_of,
    told_amount,
    usd_of,
)
from n4n.core.errors import BudgetExceeded
from n4n.core.ordering import key
from tests.support.endpoints import endpoint

instants = st.datetimes(datetime(1971, 1, 1), datetime(2099, 12, 1)).map(lambda at: at.replace(tzinfo=UTC))


def ms(*parts: int) -> int:
    return round(datetime(*parts, tzinfo=UTC).timestamp()) * 1000  # type: ignore[misc, arg-type]


@pytest.mark.parametrize(
    ("window", "at", "span"),
    [
        ("day", ms(2026, 11, 30), (ms(2026, 11, 29), ms(2026, 11, 30), ms(2026, 12, 1))),
        ("day", ms(2026, 11, 30) - 1, (ms(2026, 11, 28), ms(2026, 11, 29), ms(2026, 11, 30))),
        ("day", ms(2027, 3, 28, 1), (ms(2027, 3, 27), ms(2027, 3, 28), ms(2027, 3, 29))),  # clocks change in Europe; in UTC they do not
        ("week", ms(2026, 11, 30), (ms(2026, 11, 23), ms(2026, 11, 30), ms(2026, 12, 7))),  # a Monday
        ("week", ms(2026, 11, 30) - 1, (ms(2026, 11, 16), ms(2026, 11, 23), ms(2026, 11, 30))),
        ("week", ms(2027, 1, 1), (ms(2026, 12, 21), ms(2026, 12, 28), ms(2027, 1, 4))),
        ("month", ms(2026, 12, 31, 23, 59, 59), (ms(2026, 11, 1), ms(2026, 12, 1), ms(2027, 1, 1))),
        ("month", ms(2027, 1, 1), (ms(2026, 12, 1), ms(2027, 1, 1), ms(2027, 2, 1))),
        ("month", ms(2028, 2, 29, 12), (ms(2028, 1, 1), ms(2028, 2, 1), ms(2028, 3, 1))),
        ("month", ms(2027, 3, 1) - 1, (ms(2027, 1, 1), ms(2027, 2, 1), ms(2027, 3, 1))),
    ],
)
def test_a_calendar_window_is_the_one_of_utc(window: str, at: int, span: tuple[int, int, int]) -> None:
    assert calendar_span(window, at) == Span(*span)


@given(st.sampled_from(CALENDAR), instants)
def test_windows_follow_each_other_without_a_gap(window: str, at: datetime) -> None:
    now = round(at.timestamp() * 1000)
    span = calendar_span(window, now)
    assert span.previous < span.begins <= now < span.ends
    assert calendar_span(window, span.ends) == Span(span.begins, span.ends, calendar_span(window, span.ends).ends)
    assert calendar_span(window, span.begins - 1).begins == span.previous
    begins = datetime.fromtimestamp(span.begins / 1000, UTC)
    assert (begins.hour, begins.minute, begins.second) == (0, 0, 0)
    assert {"day": True, "week": begins.weekday() == 0, "month": begins.day == 1}[window]
    assert timedelta(days=1) <= timedelta(milliseconds=span.ends - span.begins) <= timedelta(days=31)


def test_a_window_never_begins_before_its_budget_was_given() -> None:
    budget = Budget(Unit.USD, 5, "month", since_ms=ms(2026, 11, 30, 15))
    assert budget.span(ms(2026, 11, 30, 16)) == Span(ms(2026, 11, 30, 15), ms(2026, 11, 30, 15), ms(2026, 12, 1))
    assert budget.span(ms(2026, 12, 1)) == Span(ms(2026, 11, 30, 15), ms(2026, 12, 1), ms(2027, 1, 1))
    assert budget.begins(ms(2026, 12, 1, 5)) == ms(2026, 12, 1)
    rolling = Budget(Unit.USD, 5, "24h", since_ms=ms(2026, 11, 30, 15))
    assert (rolling.begins(ms(2026, 11, 30, 16)), rolling.begins(ms(2026, 12, 5))) == (ms(2026, 11, 30, 15), ms(2026, 12, 4))


@pytest.mark.parametrize(
    ("window", "span", "slots"),
    [
        ("1h", HOUR_MS, Slots(60_000, 60)),
        ("24h", DAY_MS, Slots(HOUR_MS, 24)),
        ("7d", 7 * DAY_MS, Slots(6 * HOUR_MS, 28)),
        ("30d", 30 * DAY_MS, Slots(DAY_MS, 30)),
        ("25h", 25 * HOUR_MS, Slots(HOUR_MS, 25)),
        ("92d", 92 * DAY_MS, Slots(DAY_MS, 92)),
    ],
)
def test_a_rolling_window_is_covered_by_its_slots(window: str, span: int, slots: Slots) -> None:
    assert (rolling_ms(window), slots_of(window), is_window(window)) == (span, slots, True)
    assert slots.slot_ms * slots.count >= span and slots.count >= 24
    now = ms(2026, 11, 30, 15)
    assert now - slots.first(now) >= span


@pytest.mark.parametrize("window", ["", "0h", "93d", "30m", "1", "d", "-1d", "1.5d", "year", "100000d", "٣d"])
def test_what_is_no_window_is_none(window: str) -> None:
    assert not is_window(window) and slots_of(window) is None


def test_a_budget_goes_by_unit_and_window() -> None:
    assert (Budget(Unit.USD, 1, "day").name, Budget(Unit.TOKENS, 1, "30d").name) == ("usd/day", "tokens/30d")
    assert (told_amount(Unit.USD, 1_500_000_000_000), told_amount(Unit.TOKENS, 2000)) == ("1.5 USD", "2000 tokens")
    assert (pico_of("0.000001"), usd_of(10**12), usd_of(-5 * 10**11), usd_of(1)) == (10**6, "1", "-0.5", "0.000000000001")


def test_saving_again_arms_nothing_and_only_what_is_new_begins_now() -> None:
    """Case 21: a budget that is given to a key begins at nothing, and giving it again changes nothing."""
    given = resaved((), [Budget(Unit.USD, 10, "day")], 1000)
    assert [one.since_ms for one in given] == [1000]
    assert resaved(given, [Budget(Unit.USD, 10, "day")], 2000) == given
    raised = resaved(given, [Budget(Unit.USD, 20, "day", soft=True), Budget(Unit.TOKENS, 5, "week")], 3000)
    assert [(one.amount, one.since_ms) for one in raised] == [(20, 1000), (5, 3000)]
    replaced = resaved(raised, [Budget(Unit.USD, 20, "month"), Budget(Unit.TOKENS, 5, "week"), Budget(Unit.TOKENS, 9, "day")], 4000)
    assert [(one.name, one.since_ms) for one in replaced] == [("usd/month", 1000), ("tokens/week", 3000), ("tokens/day", 4000)]
    assert resaved((), resaved(replaced, [], 5000), 6000) == ()


def test_levels_are_reached_at_their_very_share() -> None:
    assert [level(spent, 200) for spent in (0, 99, 100, 159, 160, 199, 200, 900)] == [0, 0, 50, 50, 80, 80, 100, 100]


def test_weights_go_down_from_four_fifths_on() -> None:
    assert [round(factor_of_cap(share), 6) for share in (0.0, 0.79, 0.8, 0.9, 1.0, 2.0)] == [1.0, 1.0, 1.0, 0.5, 0.0, 0.0]
    assert [factor_of_account(share) for share in (0.0, 0.79, 0.8, 1.5)] == [1.0, 1.0, 0.0, 0.0]


@pytest.mark.parametrize("strategy", ["balanced", "cost", "latency", "throughput", "health"])
def test_whose_account_has_nothing_left_comes_last_whatever_is_asked_for(strategy: str) -> None:
    assert key(strategy, endpoint("e"), 1.0, 5.0, 5.0, lambda: 0.5, 0.0) == math.inf
    assert key(strategy, endpoint("e"), 1.0, 5.0, 5.0, lambda: 0.5, 0.1) < math.inf or strategy == "cost"


def test_a_spent_budget_says_which_and_that_another_try_is_in_vain() -> None:
    error = BudgetExceeded("the budget is used up", told={"budget": "usd/day"})
    assert (error.status, error.code, error.kind, error.told) == (402, "budget_exceeded", "insufficient_quota", {"budget": "usd/day"})
