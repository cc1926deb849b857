"""The breaker as a fold: what trips it, what it lets through, how it comes back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from n4n.core.breaker import CLOSED_STATE, COUNTS, Breaker, BreakerEvent, BreakerState, allows, event_of, fold, phase
from n4n.core.catalog import BreakerPolicy
from n4n.core.errors import FailureClass

POLICY = BreakerPolicy(failure_threshold=3, window_sec=10.0, recovery_timeout_sec=20.0)
FAILURE, HALF, SUCCESS = BreakerEvent.FAILURE, BreakerEvent.HALF_FAILURE, BreakerEvent.SUCCESS
STARTED, ABANDONED = BreakerEvent.TRIAL_STARTED, BreakerEvent.TRIAL_ABANDONED


def after(*events: tuple[BreakerEvent, float], state: BreakerState = CLOSED_STATE, jitter: float = 0.0) -> BreakerState:
    """The state after events at times."""
    for event, now in events:
        state = fold(state, event, now, POLICY, jitter)
    return state


OPENED = after((FAILURE, 1.0), (FAILURE, 2.0), (FAILURE, 3.0))


def test_it_opens_when_enough_failures_stand_within_the_window() -> None:
    two = after((FAILURE, 1.0), (FAILURE, 2.0))

    three = after((FAILURE, 3.0), state=two)

    assert phase(two, 2.0) is Breaker.CLOSED and allows(two, 2.0)
    assert phase(three, 3.0) is Breaker.OPEN and not allows(three, 22.9)


def test_failures_older_than_the_window_do_not_count() -> None:
    state = after((FAILURE, 1.0), (FAILURE, 2.0), (FAILURE, 12.5))

    assert state == BreakerState(recent=((12.5, 1.0),))


def test_an_overloaded_answer_counts_half() -> None:
    five = after(*((HALF, float(at)) for at in range(5)))

    assert phase(five, 5.0) is Breaker.CLOSED
    assert phase(after((HALF, 5.0), state=five), 5.0) is Breaker.OPEN


def test_a_success_forgives_the_oldest_failure() -> None:
    state = after((FAILURE, 1.0), (FAILURE, 2.0), (SUCCESS, 2.5), (FAILURE, 3.0))

    assert phase(state, 3.0) is Breaker.CLOSED
    assert after((SUCCESS, 1.0)) is CLOSED_STATE


def test_where_only_failures_in_a_row_count_one_success_forgives_all() -> None:
    policy = BreakerPolicy(4, 60.0, 300.0, consecutive=True)
    state = CLOSED_STATE
    for event in (FAILURE, FAILURE, FAILURE, SUCCESS, FAILURE, FAILURE, FAILURE):
        state = fold(state, event, 1.0, policy, 0.0)

    assert len(state.recent) == 3 and fold(state, FAILURE, 2.0, policy, 0.0).until == 302.0


def test_failures_that_are_usual_are_no_news() -> None:
    def falls(usual: float) -> int:
        state, count = CLOSED_STATE, 0
        while phase(state, 1.0) is Breaker.CLOSED:
            state, count = fold(state, FAILURE, 1.0, BreakerPolicy(), 0.0, usual), count + 1
        return count

    assert [falls(usual) for usual in (0.0, 0.15, 0.2, 0.3, 0.5)] == [5, 5, 9, 20, 56]


def test_news_of_calls_begun_before_it_opened_change_nothing() -> None:
    for event in BreakerEvent:
        assert after((event, 10.0), state=OPENED) is OPENED


def test_after_its_time_one_trial_at_a_time_may_go() -> None:
    assert phase(OPENED, 23.0) is Breaker.HALF_OPEN and allows(OPENED, 23.0)

    trial = after((STARTED, 23.0), state=OPENED)

    assert phase(trial, 24.0) is Breaker.HALF_OPEN and not allows(trial, 24.0)
    assert after((STARTED, 24.0), state=trial) is trial


def test_a_trial_whose_end_is_never_told_does_not_block_for_ever() -> None:
    trial = after((STARTED, 23.0), state=OPENED)

    assert allows(trial, 43.0)
    assert after((STARTED, 43.0), state=trial).until == 63.0


def test_an_abandoned_trial_is_free_again_at_once() -> None:
    free = after((STARTED, 23.0), (ABANDONED, 24.0), state=OPENED)

    assert allows(free, 24.0) and phase(free, 24.0) is Breaker.HALF_OPEN


def test_a_trial_that_succeeds_closes_it() -> None:
    closed = after((STARTED, 23.0), (SUCCESS, 24.0), state=OPENED)

    assert phase(closed, 24.0) is Breaker.CLOSED and closed.recent == ()


@pytest.mark.parametrize("event", [FAILURE, HALF])
def test_a_trial_that_fails_opens_it_for_longer_up_to_eight_times(event: BreakerEvent) -> None:
    state, spans = OPENED, []
    for _ in range(5):
        now = state.until
        state = after((STARTED, now), (event, now), state=state)
        spans.append(state.until - now)

    assert spans == [40.0, 80.0, 160.0, 160.0, 160.0]


def test_one_that_trips_again_soon_after_closing_stays_open_longer() -> None:
    closed = after((STARTED, 23.0), (SUCCESS, 24.0), state=OPENED)

    soon = after((FAILURE, 30.0), (FAILURE, 30.0), (FAILURE, 30.0), state=closed)
    late = after((FAILURE, 184.0), (FAILURE, 184.0), (FAILURE, 184.0), state=closed)

    assert (soon.until, late.until) == (70.0, 204.0)


def test_chance_adds_up_to_a_fifth_to_the_open_time() -> None:
    assert after((FAILURE, 0.0), (FAILURE, 0.0), (FAILURE, 0.0), jitter=0.5).until == pytest.approx(22.0)


def test_trial_events_mean_nothing_to_a_closed_breaker() -> None:
    assert after((STARTED, 1.0), (ABANDONED, 2.0)) is CLOSED_STATE


def test_a_limit_or_a_fault_of_the_request_never_counts() -> None:
    counted = {failure_class for failure_class, weight in COUNTS.items() if weight}

    assert counted == {FailureClass.OVERLOADED, FailureClass.TIMEOUT, FailureClass.SERVER_ERROR}
    assert set(COUNTS) == set(FailureClass)


def test_the_event_of_a_failure_follows_from_its_class() -> None:
    assert event_of(FailureClass.TIMEOUT, trial=True) is FAILURE
    assert event_of(FailureClass.OVERLOADED) is HALF
    assert event_of(FailureClass.RATE_LIMITED) is None
    assert event_of(FailureClass.RATE_LIMITED, trial=True) is ABANDONED


@given(st.lists(st.tuples(st.sampled_from(BreakerEvent), st.floats(0, 40)), max_size=60), st.floats(0, 1, exclude_max=True))
def test_it_is_never_shut_for_longer_than_its_longest_open_time(steps: list[tuple[BreakerEvent, float]], jitter: float) -> None:
    state, now = CLOSED_STATE, 0.0
    for event, gap in steps:
        now += gap
        state = fold(state, event, now, POLICY, jitter)

        assert allows(state, now + 8 * 20.0 * 1.2)
        assert len(state.recent) < 2 * POLICY.failure_threshold
        assert allows(state, now) or phase(state, now) is not Breaker.CLOSED
