"""The score of an endpoint: what drops it, how it comes back, how it is forgotten; and what is known of its pace."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from n4n.core.breaker import Breaker, BreakerEvent, BreakerState
from n4n.core.breaker import fold as fold_breaker
from n4n.core.catalog import BreakerPolicy
from n4n.core.errors import FailureClass
from n4n.core.health.news import MOST_RUNS, News
from n4n.core.health.policy import HealthPolicy
from n4n.core.health.seen import Seen, seen_of, standing_of
from n4n.core.health.signals import Signal, Source
from n4n.core.health.spread import BUCKETS, MOST_VALUES, MS, PER_S, Sample, Spread, bucket_of
from n4n.core.health.standing import Policies, Standing, fold, share

CALM = Policies(HealthPolicy(half_life_sec=1e9), BreakerPolicy(failure_threshold=10_000))
HASTY = Policies(HealthPolicy(half_life_sec=1e9), BreakerPolicy(3, 20.0, 30.0))
NEWS = {"g": None, "b": FailureClass.SERVER_ERROR, "h": FailureClass.OVERLOADED, "t": FailureClass.TIMEOUT}


def told(letters: str, now: float = 0.0, before: Standing | None = None, policies: Policies = CALM) -> Standing:
    """The standing after signals, a letter each, in capitals from probes."""
    news = News()
    for letter in letters:
        source = Source.LIVE if letter.islower() else Source.PROBE
        news.add(Signal("e", source, NEWS[letter.lower()]))
    return fold(before or Standing(), news, now, policies, 0.0)


def score(standing: Standing, now: float = 0.0, policies: Policies = CALM) -> float:
    """As of now."""
    return share(standing, now, policies.health)


def test_one_failure_drops_it_and_a_probe_weighs_more_because_there_are_few() -> None:
    assert score(told("b")) == pytest.approx(0.95**2) and score(told("B")) == pytest.approx(0.7**2)
    assert score(told("h")) == pytest.approx(0.975**2), "an overload counts half"
    assert score(told("t")) == score(told("b"))


def test_it_is_the_square_of_the_success_rate() -> None:
    dice, standing, seen = random.Random(3), Standing(), []
    for _ in range(20_000):
        standing = told("b" if dice.random() < 0.3 else "g", before=standing)
        seen.append(score(standing))

    assert sum(seen) / len(seen) == pytest.approx(0.7**2, abs=0.02)


def test_a_limit_or_a_fault_of_the_request_tells_nothing() -> None:
    news = News()
    counted = {one for one in FailureClass if (news.add(Signal("e", Source.LIVE, one)), news.runs.clear())[0]}

    assert counted == {FailureClass.TIMEOUT, FailureClass.SERVER_ERROR, FailureClass.OVERLOADED}


def test_it_never_falls_below_its_floor() -> None:
    dead = told("b" * 500)

    assert score(dead) == pytest.approx(0.05) and score(told("g", before=dead)) == pytest.approx(0.05)


def test_who_was_at_the_floor_comes_back_by_steps() -> None:
    standing, steps = told("b" * 500), []
    for now in range(40):
        standing = told("ggg", float(now), standing)
        steps.append(round(score(standing, float(now)), 2))

    assert [steps[at] for at in (0, 9, 10, 19)] == [0.05, 0.05, 0.25, 0.25] and steps[20] > 0.9 and steps[39] > 0.99


def test_a_failure_on_the_way_back_begins_the_count_of_successes_anew() -> None:
    dead = told("b" * 500)

    failed = told("gb", 20.0, told("g", 1.0, dead))
    assert score(told("gg", 21.0, failed), 21.0) == pytest.approx(0.05)
    assert score(told("ggg", 21.0, failed), 21.0) > 0.05


def test_a_breaker_that_opened_starts_it_at_the_first_step_when_it_closes() -> None:
    opened = told("bbb", policies=HASTY)
    assert opened.breaker.kept is Breaker.OPEN and score(opened) == pytest.approx(0.05)

    closed = told("g", 31.0, opened, HASTY)
    assert closed.breaker.kept is Breaker.CLOSED and score(closed, 31.0) == pytest.approx(0.05)
    assert score(told("gg", 41.5, closed, HASTY), 41.5) == pytest.approx(0.25)


def test_a_trial_without_a_verdict_is_free_again_and_changes_no_score() -> None:
    opened = told("bbb", policies=HASTY)
    taken = Standing(
        opened.score, opened.ceiling, opened.at, breaker=fold_breaker(opened.breaker, BreakerEvent.TRIAL_STARTED, 31.0, HASTY.breaker, 0.0)
    )
    news = News()
    news.add(Signal("e", Source.LIVE, FailureClass.RATE_LIMITED, trial=True))

    free = fold(taken, news, 32.0, HASTY, 0.0)
    assert (free.breaker.kept, free.at, free.score) == (Breaker.OPEN, taken.at, taken.score)


def test_news_fold_the_breaker_as_single_events_do() -> None:
    standing = told("gbgbbg", policies=HASTY)

    assert standing.breaker == BreakerState(recent=((0.0, 1.0),))


def test_what_fails_usually_is_no_news_to_the_breaker_and_an_outage_makes_little_usual() -> None:
    patient = Policies(HealthPolicy(half_life_sec=1e9), BreakerPolicy(5, 20.0, 30.0))
    degraded = told("ggb" * 40, policies=patient)
    assert degraded.breaker.kept is Breaker.CLOSED and degraded.usual == pytest.approx(0.32, abs=0.03)

    assert told("bbbb", policies=patient).breaker.kept is Breaker.CLOSED and told("bbbbb", policies=patient).breaker.kept is Breaker.OPEN
    assert told("b" * 20, before=degraded, policies=patient).breaker.kept is Breaker.CLOSED
    assert told("b" * 30, before=degraded, policies=patient).breaker.kept is Breaker.OPEN
    again = told("g" * 20, 31.0, told("b" * 100, policies=patient), patient)
    assert again.usual < 0.15


@pytest.mark.parametrize("neutral", [1.0, 0.6])
@pytest.mark.parametrize("letters", ["b" * 10, "b" * 500, "g" * 500])
def test_without_news_it_drifts_to_neutral_by_its_half_life(letters: str, neutral: float) -> None:
    policies = Policies(HealthPolicy(half_life_sec=100.0, neutral=neutral), CALM.breaker)
    standing = told(letters, 0.0, Standing(neutral), policies)
    begun = score(standing, 0.0, policies)

    for lives in (0.5, 1, 2, 3):
        left = (score(standing, 100.0 * lives, policies) - neutral) / (begun - neutral) if begun != neutral else 0.5**lives
        assert left == pytest.approx(0.5**lives, rel=0.02)
    assert score(standing, 2000.0, policies) == pytest.approx(neutral, abs=1e-5)


def test_probe_and_live_successes_are_told_apart() -> None:
    assert told("G", 5.0).good_at == 0.0 and told("g", 5.0).good_at == 5.0


def test_runs_are_bounded() -> None:
    news = News()
    for number in range(1000):
        news.happened("gb"[number % 2])

    assert len(news.runs) == MOST_RUNS
    news.add(Signal("e", Source.LIVE))
    news.add(Signal("e", Source.LIVE, FailureClass.TIMEOUT))
    assert len(news.course) == MOST_RUNS


def test_what_is_told_is_in_the_order_in_which_it_happened() -> None:
    news = News()
    for letter in "ggbgGgB":
        news.add(Signal("e", Source.LIVE if letter.islower() else Source.PROBE, NEWS[letter.lower()]))
    news.add(Signal("e", Source.LIVE))

    assert news.course == [("g", 2), ("b", 1), ("g", 1), ("G", 1), ("g", 1), ("B", 1), ("g", 1)]


def test_a_sample_is_bounded() -> None:
    assert sum(spread_of([5.0] * 1000).masses.values()) == MOST_VALUES


@given(st.lists(st.tuples(st.text("gbhGBH", max_size=6), st.floats(0, 1000)), max_size=20), st.floats(0.01, 0.9))
def test_it_is_always_a_part_of_the_share(steps: list[tuple[str, float]], neutral: float) -> None:
    policies = Policies(HealthPolicy(half_life_sec=50.0, neutral=neutral), HASTY.breaker)
    standing, now = Standing(neutral), 0.0
    for letters, gap in steps:
        now += gap
        standing = told(letters, now, standing, policies)
        assert policies.health.floor <= score(standing, now + gap, policies) <= 1.0


# What calls take.


def spread_of(values: list[float], lowest: float = MS) -> Spread:
    """Values that came together."""
    sample = Sample(lowest)
    for value in values:
        sample.add(value)
    return Spread(lowest).with_sample(sample, 0.0)


@given(st.lists(st.floats(1, 60_000), min_size=1, max_size=MOST_VALUES), st.sampled_from([0.5, 0.95]))
def test_a_quantile_is_at_most_a_bucket_off(values: list[float], part: float) -> None:
    found = spread_of(values).quantile(part)
    true = sorted(values)[max(0, math.ceil(part * len(values)) - 1)]

    assert found is not None and true / 1.2 <= found <= true * 1.2


def test_old_values_fade_and_are_dropped_in_the_end() -> None:
    slow = spread_of([3000.0] * 100)
    quick = Sample(MS)
    quick.add(800.0)

    assert slow.with_sample(quick, 1.0).quantile(0.5) == pytest.approx(3000, rel=0.1)
    assert slow.with_sample(quick, 3000.0).quantile(0.5) == pytest.approx(800, rel=0.1)
    assert len(slow.with_sample(quick, 9000.0).masses) == 1
    assert slow.with_sample(Sample(MS), 9000.0) is slow


def test_a_mean_moves_by_a_fifth_with_each_value() -> None:
    one = Sample(PER_S)
    one.add(50.0)

    assert spread_of([100.0], PER_S).mean == 100.0
    assert spread_of([100.0], PER_S).with_sample(one, 0.0).mean == pytest.approx(90.0)


def test_what_is_out_of_bounds_belongs_to_the_outermost_buckets() -> None:
    assert (bucket_of(0.001, MS), bucket_of(1e12, MS)) == (0, BUCKETS - 1)
    assert Spread(MS).quantile(0.5) is None
    assert Spread(MS, masses={3: 1.0}).quantile(1.0 + 1e-12) == pytest.approx(2.0)


def test_news_take_what_was_measured_of_good_calls_only() -> None:
    news = News()
    news.add(Signal("e", Source.LIVE, None, latency_s=0.3, ttft_s=0.2, tokens_per_s=40.0))
    news.add(Signal("e", Source.LIVE, None, latency_s=0.1, ttft_s=0.0, tokens_per_s=0.0))
    news.add(Signal("e", Source.LIVE, FailureClass.TIMEOUT, latency_s=9.0))
    news.add(Signal("e", Source.PROBE))
    standing = fold(fold(Standing(), news, 0.0, CALM, 0.0), news, 0.0, CALM, 0.0)

    assert (news.latency_count, news.ttft.count, news.speed.count) == (2, 1, 1)
    seen = seen_of(standing)
    assert (seen.latency_ms, seen.ttft_ms, seen.tokens_per_s) == (pytest.approx(200.0), pytest.approx(200.0), pytest.approx(40.0))
    assert standing_of(seen).latency_ms == seen.latency_ms and standing_of(Seen()).good_at == 0.0
