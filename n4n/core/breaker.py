"""The circuit breaker of one endpoint, as a fold over what its calls told.

CLOSED ────failure────▶ CLOSED     fewer than `failure_threshold` still stand within `window_sec`
CLOSED ────failure────▶ OPEN       the threshold is reached: no traffic until `until`
CLOSED ────success────▶ CLOSED     forgives the oldest failure that stands, so that it takes more failures than successes to trip;
                                   all of them where only failures in a row count (`consecutive`)
OPEN ──────any news───▶ OPEN       late answers of calls begun earlier prove nothing
OPEN ──────`until`────▶ HALF_OPEN  by time alone: the trial is free, one call may go
HALF_OPEN ─started────▶ HALF_OPEN  the trial is taken, and free again after one recovery time should its end never be told
HALF_OPEN ─abandoned──▶ HALF_OPEN  the trial ended without a verdict: free again at once
HALF_OPEN ─success────▶ CLOSED
HALF_OPEN ─failure────▶ OPEN       for twice as long as before, up to eight times, and up to a fifth more by chance

Times are seconds on one monotonic clock. An event that does not fit changes nothing: news of concurrent calls come in any order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType

from n4n.core.catalog import BreakerPolicy
from n4n.core.errors import FailureClass

USUAL = 0.15  # up to this usual part of failures each of them counts whole
LONGEST = 8  # times the recovery time
JITTER = 0.2  # of the open time, added so that routers do not try again in step


class Breaker(StrEnum):
    """What an endpoint's breaker lets through."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class BreakerEvent(StrEnum):
    """What the fold can be told."""

    FAILURE = "failure"
    HALF_FAILURE = "half_failure"
    SUCCESS = "success"
    TRIAL_STARTED = "trial_started"
    TRIAL_ABANDONED = "trial_abandoned"


COUNTS: Mapping[FailureClass, float] = MappingProxyType(
    dict.fromkeys(FailureClass, 0.0) | {FailureClass.OVERLOADED: 0.5, FailureClass.TIMEOUT: 1.0, FailureClass.SERVER_ERROR: 1.0}
)
_WEIGHTS = {BreakerEvent.FAILURE: 1.0, BreakerEvent.HALF_FAILURE: 0.5}


@dataclass(frozen=True, slots=True)
class BreakerState:
    """`kept` is CLOSED, OPEN (half-open once `until` has passed) or HALF_OPEN (the trial is taken, at the latest until `until`).

    `recent` holds (time, weight) of the failures that stand, oldest first.
    `opened_count` is how often it opened in a row; while CLOSED, `until` is when it closed last.
    """

    kept: Breaker = Breaker.CLOSED
    recent: tuple[tuple[float, float], ...] = ()
    opened_count: int = 0
    until: float = 0.0


CLOSED_STATE = BreakerState()


def event_of(failure_class: FailureClass, *, trial: bool = False) -> BreakerEvent | None:
    """How a failed call counts; None: not at all. A trial that failed for another's fault gave no verdict."""
    weight = COUNTS[failure_class]
    if weight:
        return BreakerEvent.FAILURE if weight == 1.0 else BreakerEvent.HALF_FAILURE
    return BreakerEvent.TRIAL_ABANDONED if trial else None


def tolerance(usual: float) -> float:
    """How much a failure counts where this part of calls fails usually. Who fails three in ten has a third of its share, and keeps it: a
    breaker is for what suddenly or nearly always fails. At 0.3 it takes 20 more failures than successes instead of 5.
    """
    return 1.0 if usual <= USUAL else (USUAL / usual) ** 2


def phase(state: BreakerState, now: float) -> Breaker:
    """What the breaker is at an instant; HALF_OPEN also while its trial is taken."""
    return Breaker.HALF_OPEN if state.kept is Breaker.OPEN and now >= state.until else state.kept


def allows(state: BreakerState, now: float) -> bool:
    """Whether a call may go now: closed, or half-open with its trial free."""
    return state.kept is Breaker.CLOSED or now >= state.until


def fold(state: BreakerState, event: BreakerEvent, now: float, policy: BreakerPolicy, jitter: float, usual: float = 0.0) -> BreakerState:
    """The state after one event. `jitter` in [0, 1) is used where the breaker opens; `usual`: what part of its calls fails usually."""
    match phase(state, now):
        case Breaker.CLOSED:
            return _closed(state, event, now, policy, jitter, usual)
        case Breaker.HALF_OPEN:
            return _half_open(state, event, now, policy, jitter)
        case _:
            return state


def _closed(state: BreakerState, event: BreakerEvent, now: float, policy: BreakerPolicy, jitter: float, usual: float) -> BreakerState:
    if event is BreakerEvent.SUCCESS:
        left = () if policy.consecutive else state.recent[1:]
        return replace(state, recent=left) if state.recent else state
    if event not in _WEIGHTS:
        return state
    standing = tuple(failure for failure in state.recent if failure[0] > now - policy.window_sec)
    recent = (*standing, (now, _WEIGHTS[event] * tolerance(usual)))
    if sum(weight for _, weight in recent) < policy.failure_threshold:
        return replace(state, recent=recent)
    calm = now >= state.until + LONGEST * policy.recovery_timeout_sec
    return _opened(0 if calm else state.opened_count, now, policy, jitter)


def _half_open(state: BreakerState, event: BreakerEvent, now: float, policy: BreakerPolicy, jitter: float) -> BreakerState:
    match event:
        case BreakerEvent.TRIAL_STARTED if now >= state.until:
            return replace(state, kept=Breaker.HALF_OPEN, until=now + policy.recovery_timeout_sec)
        case BreakerEvent.TRIAL_ABANDONED:
            return replace(state, kept=Breaker.OPEN, until=min(now, state.until))
        case BreakerEvent.SUCCESS:
            return BreakerState(opened_count=state.opened_count, until=now)
        case BreakerEvent.FAILURE | BreakerEvent.HALF_FAILURE:
            return _opened(state.opened_count, now, policy, jitter)
        case _:
            return state


def _opened(before: int, now: float, policy: BreakerPolicy, jitter: float) -> BreakerState:
    times = min(2 ** min(before, 16), LONGEST)
    return BreakerState(Breaker.OPEN, (), before + 1, now + policy.recovery_timeout_sec * times * (1 + JITTER * jitter))
