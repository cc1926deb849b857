"""Days and weeks of ordinary traffic, large and small: nobody is told anything. What is looked at is drawn by a seed, minute by minute."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from itertools import accumulate

import pytest

from n4n.core.alerts.conditions import violations
from n4n.core.alerts.facts import Compared, Facts, ModelFacts, NodeFacts, Quota, Requests, Traffic
from n4n.core.alerts.watch import Board, watch

DAY_MIN, WEEK_MIN = 1440, 7 * 1440
ERRORS, FALLS, FIRST = 0.0003, 0.015, 0.55  # shares: of requests that fail, that fall back, that the first provider gets
P95_S, SIGMA = 1.8, 0.5  # of latencies, which are lognormal
PEAK = 1.25  # latencies at noon of a working day, times those at night


def load(minute: int) -> float:
    """Of the most: little at night and on Sunday, a steep morning, most on Monday. The week begins on Monday."""
    day, hour = minute // DAY_MIN % 7, minute % DAY_MIN / 60
    working = (1.0, 0.9, 0.9, 0.9, 0.8, 0.25, 0.15)[day]
    return max(0.04, working / (1 + math.exp(-(hour - 8.5) * 2)) / (1 + math.exp((hour - 18.5) * 1.5)))


def poisson(chance: random.Random, mean: float) -> int:
    """How many of many rare things happen."""
    if mean > 30:
        return max(0, round(chance.gauss(mean, math.sqrt(mean))))
    left, count = math.exp(-mean), 0
    product = chance.random()
    while product > left:
        count += 1
        product *= chance.random()
    return count


@dataclass
class Ordinary:
    """Traffic of two weeks, of which the second is looked at. Sums up to each minute, so that a window is a difference."""

    chance: random.Random
    per_min: float
    ended: list[int] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)
    fell_back: list[int] = field(default_factory=list)
    first: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        counts = [poisson(self.chance, self.per_min * load(minute)) for minute in range(2 * WEEK_MIN)]
        self.ended = list(accumulate(counts, initial=0))
        for sums, share in ((self.failed, ERRORS), (self.fell_back, FALLS)):
            sums += accumulate((min(count, poisson(self.chance, count * share)) for count in counts), initial=0)
        spread = math.sqrt(FIRST * (1 - FIRST))
        firsts = (min(count, max(0, round(self.chance.gauss(FIRST * count, spread * math.sqrt(count))))) for count in counts)
        self.first = list(accumulate(firsts, initial=0))

    def requests(self, until: int, minutes: int) -> Requests:
        """Of a window."""
        since = max(0, until - minutes)
        ended, failed, fell_back = (sums[until] - sums[since] for sums in (self.ended, self.failed, self.fell_back))
        return Requests(ended, failed, fell_back, fell_back)

    def traffic(self, until: int, minutes: int) -> tuple[Traffic, ...]:
        """Of a window, by provider."""
        since = until - minutes
        first = self.first[until] - self.first[since]
        return tuple(
            Traffic(provider, "m", count, count, 0, self.p95(until, count), self.p95(until, count))
            for provider, count in (("p1", first), ("p2", self.ended[until] - self.ended[since] - first))
        )

    def p95(self, minute: int, count: int) -> float | None:
        """As so many answers make it: chance widens what few of them tell."""
        if count < 20:
            return None
        usual = P95_S * (1 + (PEAK - 1) * load(minute))
        return usual * math.exp(self.chance.gauss(0, 2.1 * SIGMA / math.sqrt(count)))

    def facts(self, minute: int) -> Facts:
        """At this minute of the second week."""
        now, chance = WEEK_MIN + minute, self.chance
        week = Traffic("", "m", 10_000, 10_000, 0, P95_S * 1.15, P95_S * 1.15)
        counted = round(self.per_min * load(minute) * 60 * 30 / 50) * 50
        return Facts(
            requests_5=self.requests(now, 5),
            requests_10=self.requests(now, 10),
            requests_30=self.requests(now, 30),
            requests_60=self.requests(now, 60),
            requests_360=self.requests(now, 360),
            requests_hour_before=self.requests(now - 10, 60),
            traffic_15=self.traffic(now, 15),
            traffic_60=self.traffic(now, 60),
            traffic_week_ago=self.traffic(now - WEEK_MIN, 60) if now - WEEK_MIN >= 60 else (),
            baseline={("p1", "m"): week, ("p2", "m"): week},
            compared_60=(Compared("e", "output", round(counted * chance.uniform(1.0, 1.02)), counted, 1.0),),
            quotas=(Quota("p1", "a1", "tokens", 0.96 if minute % 30 < 4 else 0.75 * load(minute)),),
            nodes=(
                NodeFacts("r1", lag_s=45.0 if minute % 720 == 0 else 0.3, store_up=minute % 500 != 7, usage_waiting_bytes=2_000_000),
                NodeFacts("r2", interactive_waiting=chance.choice((0, 0, 1, 3)), interactive_waiting_before=1.0),
            ),
            models=(ModelFacts("m", 1 if minute % 240 == 120 else 2, 2, {"p1": FIRST, "p2": 1 - FIRST}),),
        )


def told(traffic: Ordinary, minutes: range) -> list[str]:
    """What is told in this time."""
    board: Board = {}
    found = []
    for minute in minutes:
        board, notices = watch(board, violations(traffic.facts(minute)), minute * 60.0)
        found += [f"{minute // DAY_MIN}d{minute % DAY_MIN // 60}h {one.violation.key} {one.violation.value:.3g}" for one in notices]
    return found


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("per_min", [2.0, 20.0, 500.0])
def test_a_monday_wakes_nobody(seed: int, per_min: float) -> None:
    assert told(Ordinary(random.Random(seed), per_min), range(DAY_MIN)) == []


@pytest.mark.parametrize("per_min", [3.0, 50.0, 1000.0])
def test_a_week_with_its_nights_and_its_sunday_wakes_nobody(per_min: float) -> None:
    assert told(Ordinary(random.Random(7), per_min), range(0, WEEK_MIN, 2)) == []
