"""What everybody together knows of one endpoint, as a fold over news: score, breaker, how fast it is.

The success rate is a moving average over signals: each moves it by its weight towards 1 (well), 0 (failed) or a half (overloaded).

    score = success rate², never below the floor; and no more than the step that it has come back to

An endpoint whose breaker opened, or whose score is at the floor, comes back by steps: 5 %, 25 %, 100 % of its share, each after
`step_successes` in a row and `step_sec`. Without news the score drifts to neutral, half of the way in each half-life.

Times are seconds on one clock. n4n/runtime/health/lua/tell.lua does the same on Redis' clock.
"""

from __future__ import annotations

import math
from typing import Protocol

import msgspec

from n4n.core.breaker import CLOSED_STATE, Breaker, BreakerEvent, BreakerState, phase
from n4n.core.breaker import fold as fold_breaker
from n4n.core.catalog import BreakerPolicy
from n4n.core.health.news import EVENTS, MOST_FAILURES, News
from n4n.core.health.policy import HealthPolicy
from n4n.core.health.spread import MS, PER_S, SMOOTHING, Spread

STEPS = (0.05, 0.25, 1.0)
MOST_LOSSES = 8.0  # of a run: an outage makes little usual
WELL = 0.05  # up to this usual part of failures an endpoint is well
USUAL_WEIGHT = 0.05  # of one signal in the usual part of failures
WHOLE = 0.999  # from here on it is 1
_VALUES = {BreakerEvent.SUCCESS: 1.0, BreakerEvent.HALF_FAILURE: 0.5, BreakerEvent.FAILURE: 0.0}


class Policies(msgspec.Struct, frozen=True):
    """What rules one endpoint: its model's."""

    health: HealthPolicy = HealthPolicy()
    breaker: BreakerPolicy = BreakerPolicy()


class Standing(msgspec.Struct, frozen=True):
    """`score` and `ceiling` (the step it has come back to) are as of `at`; `share` tells them as of now.

    `wins`: successes in a row since the last step, which was at `since`. `good_at`: the last success of live traffic. `usual`: what part
    of calls fails usually, over some 20 of them: to the breaker that is no news.
    """

    score: float = 1.0
    ceiling: float = 1.0
    at: float = 0.0
    wins: int = 0
    since: float = 0.0
    good_at: float = 0.0
    breaker: BreakerState = CLOSED_STATE
    latency_ms: float | None = None
    ttft: Spread = Spread(MS)
    speed: Spread = Spread(PER_S)
    usual: float = 0.0
    losses: float = 0.0


class Scored(Protocol):
    """What a score is told from."""

    @property
    def score(self) -> float: ...

    @property
    def ceiling(self) -> float: ...

    @property
    def at(self) -> float: ...


def share(standing: Scored, now: float, policy: HealthPolicy) -> float:
    """The score as of now, in [floor, 1]: what is left of the configured weight."""
    score, ceiling = drifted(standing, now, policy)
    return max(policy.floor, min(score, ceiling))


def drifted(standing: Scored, now: float, policy: HealthPolicy) -> tuple[float, float]:
    """Score and ceiling after the time without news."""
    part = 2.0 ** (-max(0.0, now - standing.at) / policy.half_life_sec)
    score = policy.neutral + (standing.score - policy.neutral) * part
    ceiling = standing.ceiling
    if ceiling < policy.neutral:
        ceiling = policy.neutral + (ceiling - policy.neutral) * part
    return _whole(score), _whole(ceiling)


def _whole(score: float) -> float:
    return 1.0 if score >= WHOLE else score


def fold(standing: Standing, news: News, now: float, policies: Policies, jitter: float) -> Standing:
    """After news that came until now. `jitter` in [0, 1) is used where the breaker opens."""
    climb = _Climb(standing, now, policies, jitter)
    for letter, count in news.course:
        climb.happened(letter, count)
    score, ceiling, at = (_whole(climb.rate**2), climb.ceiling, now) if climb.scored else (standing.score, standing.ceiling, standing.at)
    latency = standing.latency_ms
    if news.latency_count:
        came = news.latency_ms / news.latency_count
        latency = came if latency is None else came + (latency - came) * (1.0 - SMOOTHING) ** news.latency_count
    return Standing(
        score,
        ceiling,
        at,
        climb.wins,
        climb.since,
        climb.good_at,
        climb.breaker,
        latency,
        standing.ttft.with_sample(news.ttft, now),
        standing.speed.with_sample(news.speed, now),
        climb.usual if climb.scored else standing.usual,
        climb.losses,
    )


class _Climb:
    """A standing while news is folded into it."""

    __slots__ = (
        "breaker",
        "ceiling",
        "good_at",
        "jitter",
        "least",
        "losses",
        "now",
        "policies",
        "rate",
        "scored",
        "since",
        "usual",
        "wins",
    )

    def __init__(self, standing: Standing, now: float, policies: Policies, jitter: float) -> None:
        score, self.ceiling = drifted(standing, now, policies.health)
        self.rate, self.least = math.sqrt(max(score, policies.health.floor)), math.sqrt(policies.health.floor)
        self.wins, self.since, self.good_at, self.breaker = standing.wins, standing.since, standing.good_at, standing.breaker
        self.now, self.policies, self.jitter, self.scored = now, policies, jitter, False
        self.losses = standing.losses
        self.usual = standing.usual * 2.0 ** (-max(0.0, now - standing.at) / policies.health.half_life_sec)

    def happened(self, letter: str, count: int) -> None:
        """A run of equal events."""
        event, before, health = EVENTS[letter.lower()], phase(self.breaker, self.now), self.policies.health
        weight = health.live_weight if letter.islower() else health.probe_weight
        value = _VALUES.get(event)
        if value is None:
            self._told(event, 1)
            return
        self.scored = True
        if event is BreakerEvent.SUCCESS:
            self._told(event, min(count, len(self.breaker.recent) + 1))
            self.rate = 1.0 + (self.rate - 1.0) * (1.0 - weight) ** count
        else:
            for _ in range(min(count, MOST_FAILURES)):
                self._told(event, 1)
                self._failed(1.0 - value)
                self.rate = max(self.least, value + (self.rate - value) * (1.0 - weight))
        after = phase(self.breaker, self.now)
        if after is not before or self.rate <= self.least:  # it opened, or closed again, or is at the floor
            self.ceiling, self.since, self.wins = STEPS[0], self.now, 0
        if event is BreakerEvent.SUCCESS:
            kept = 1.0 - USUAL_WEIGHT
            self.usual, self.losses = (1.0 - (1.0 - self.usual) * kept**self.losses) * kept**count, 0.0
            self._won(count, after)
            if letter.islower():
                self.good_at = self.now
        else:
            self.wins = 0

    def _told(self, event: BreakerEvent, times: int) -> None:
        """The breaker hears of it; at the floor nothing is too usual for it."""
        usual = 0.0 if self.rate <= self.least else self.usual
        for _ in range(times):
            self.breaker = fold_breaker(self.breaker, event, self.now, self.policies.breaker, self.jitter, usual)

    def _failed(self, loss: float) -> None:
        """Of one that was well, a run of failures counts whole until it has ended; else each makes the next more usual."""
        if self.usual <= WELL:
            self.losses = min(MOST_LOSSES, self.losses + loss)
        else:
            self.usual += USUAL_WEIGHT * (loss - self.usual)

    def _won(self, count: int, phase_now: Breaker) -> None:
        self.wins += count
        health = self.policies.health
        due = self.wins >= health.step_successes and self.now - self.since >= health.step_sec
        if self.ceiling < 1.0 and due and phase_now is Breaker.CLOSED:
            self.ceiling = next(step for step in STEPS if step > self.ceiling + 1e-6)
            self.wins, self.since = 0, self.now
