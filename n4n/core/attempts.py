"""The attempt machine: after each outcome, what to do next, until the request has its answer or an honest error.

READY ──next_step─▶ SENT     Send: the next candidate is given out; the caller dials it, once
READY ──next_step─▶ READY    Wait: nothing may be sent before an instant; ask again after it
READY ──next_step─▶ OVER     GiveUp: cap, deadline, retry budget or candidates are used up
SENT ──succeeded──▶ OVER     the client has its answer
SENT ──failed─────▶ READY    the class decides: another candidate, the same again later, or the end
SENT ──postponed──▶ READY    it began to cool since the plan was made: as if it had not been given out, and not before it is back
SENT ──withdrawn──▶ READY    it was not sent after all (its trial was taken, its quota gone): as if it had never been given out
SENT ──through────▶ SENT     another account of its pool has quota, and is dialled instead
 any ──abandoned──▶ OVER     the client is gone: nothing more is sent

An event that does not fit raises IllegalEvent and changes nothing. Times are seconds on one monotonic clock.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from n4n.core.candidates import MAX_WAIT_S, Candidate, Cooldown, Plan
from n4n.core.errors import Abandoned, AttemptsExhausted, BodyTooLarge, FailedAttempt, Failure, FailureClass, GatewayError, NoEndpointNow
from n4n.core.plan import cooling_error
from n4n.core.verdicts import Reaction, class_of, hint_s, most_telling, outcome_of, reaction

__all__ = ["Attempts", "GiveUp", "IllegalEvent", "Reaction", "RetryBudget", "Send", "Stage", "Stop", "Wait", "reaction"]

_ENDS = frozenset((FailureClass.BAD_REQUEST, FailureClass.CONTENT_POLICY))
_MOVES_ON = frozenset((FailureClass.AUTH, FailureClass.MODEL_NOT_FOUND, FailureClass.QUOTA_EXHAUSTED, FailureClass.CONTEXT_LENGTH))
_REPEATS = frozenset((FailureClass.RATE_LIMITED, FailureClass.OVERLOADED, FailureClass.SERVER_ERROR))
_OF_THE_ACCOUNT = frozenset((FailureClass.AUTH, FailureClass.QUOTA_EXHAUSTED, FailureClass.RATE_LIMITED))
_SAYS_ITS_MESSAGE = frozenset((FailureClass.BAD_REQUEST, FailureClass.CONTEXT_LENGTH))
_LEAST_RETRY_AFTER_S = 1.0


class IllegalEvent(RuntimeError):
    """The caller told the machine something that cannot have happened now."""


class RetryBudget:
    """How much of a model's traffic on this router may be repetition: full at `most`, +0.2 per request, -1 per retry or fallback."""

    __slots__ = ("_fifths", "_most")

    def __init__(self, most: int = 10) -> None:
        self._most = self._fifths = most * 5  # whole fifths, because 0.2 is no float

    @property
    def tokens(self) -> float:
        """Repetitions that are left."""
        return self._fifths / 5

    def deposit(self) -> None:
        """A request began."""
        self._fifths = min(self._most, self._fifths + 1)

    def take(self) -> bool:
        """Takes one repetition; False, and nothing taken, when there is none."""
        if self._fifths < 5:
            return False
        self._fifths -= 5
        return True


class Stage(StrEnum):
    """Whose turn it is."""

    READY = "ready"
    SENT = "sent"
    OVER = "over"


class Send(msgspec.Struct, frozen=True):
    """Dial this candidate now, exactly once; nothing of it may last past `deadline`."""

    candidate: Candidate
    deadline: float


@dataclass(frozen=True, slots=True)
class Wait:
    """Ask again after so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The request ends with this error."""

    error: GatewayError


@dataclass(frozen=True, slots=True)
class Stop(GiveUp):
    """The client is gone: nobody is there to read the error."""


_ANSWERED = GiveUp(GatewayError("the request has its answer"))


@dataclass(slots=True)
class _Tried:
    """A candidate that failed, the last time, and when it may be asked again at the earliest (None: not yet drawn)."""

    candidate: Candidate
    failure: Failure
    at: float
    times: int
    due: float | None = None


class Attempts:
    """One request's way through its plan, from `started` until `deadline` at the latest."""

    def __init__(self, plan: Plan, *, started: float, deadline: float, budget: RetryBudget, max_wait_s: float = MAX_WAIT_S) -> None:
        self._plan, self._started, self._deadline, self._budget, self._max_wait_s = plan, started, deadline, budget, max_wait_s
        self._untried = list(plan.candidates)
        self._tried: dict[str, _Tried] = {}
        self._too_small: list[int | None] = []  # context windows that could not hold the request
        self._current: Candidate | None = None
        self._sent_at = started
        self._paid = True  # the first attempt is no repetition
        self._stop: GiveUp | None = None
        self._route: list[str] = []
        self._cooling: list[Cooldown] = [] if plan.wait_s is None else list(plan.cooling)  # why nothing could be sent, if it comes to that
        self.stage = Stage.READY
        self.failed_attempts: tuple[FailedAttempt, ...] = ()
        budget.deposit()

    @property
    def sends(self) -> int:
        """Attempts made, the one under way included."""
        return len(self._route)

    @property
    def fallback_attempts(self) -> int:
        """Changes of endpoint so far."""
        if len(self._route) < 2:
            return 0
        return sum(one != other for one, other in zip(self._route, self._route[1:], strict=False))

    @property
    def has_others(self) -> bool:
        """Whether somebody else has not been asked yet."""
        return bool(self._untried)

    def __repr__(self) -> str:
        failed = ", ".join(f"{one.endpoint}:{one.failure.failure_class}" for one in self.failed_attempts)
        return f"<Attempts {self.stage} sends={self.sends} failed=[{failed}]>"

    # What is told.

    def failed(self, failure: Failure, now: float) -> None:
        """The attempt under way failed before the client saw anything of it."""
        candidate = self._returned()
        name = candidate.endpoint.id
        self.failed_attempts += (FailedAttempt(name, failure, (now - self._sent_at) * 1000),)
        if failure.failure_class is FailureClass.CONTEXT_LENGTH:
            self._too_small.append(candidate.endpoint.context_window)
        times = self._tried[name].times + 1 if name in self._tried else 1
        self._tried[name] = _Tried(candidate, failure, now, times)
        self._paid = False
        self.stage = Stage.READY

    def succeeded(self, now: float) -> None:
        """The client has its answer."""
        self._returned()
        self._stop = _ANSWERED
        self.stage = Stage.OVER

    def withdrawn(self) -> None:
        """The candidate given out was not dialled and cannot be; it counts as no attempt."""
        candidate = self._returned()
        self._route.pop()
        self._tried.pop(candidate.endpoint.id, None)
        self.stage = Stage.READY

    def postponed(self, cooldown: Cooldown, now: float) -> None:
        """The candidate given out is cooling by now and was not dialled: not before it is back, and never if that takes too long."""
        candidate = self._returned()
        self._route.pop()
        self._cooling.append(cooldown)
        late, tried = cooldown.until - now > self._max_wait_s, self._tried.get(candidate.endpoint.id)
        if tried is not None:
            tried.candidate, tried.due = candidate, math.inf if late else cooldown.until
        elif not late:
            self._untried.insert(0, replace(candidate, ready_at=cooldown.until))
        self.stage = Stage.READY

    def through(self, candidate: Candidate) -> None:
        """The candidate given out is dialled through another account of its pool."""
        if self._current is None or self._current.endpoint is not candidate.endpoint:
            raise IllegalEvent(f"{candidate.endpoint.id} was not given out: {self!r}")
        self._current = candidate

    def abandoned(self) -> None:
        """The client is gone. May be told at any time, and again."""
        self._current, self._stop, self.stage = None, Stop(Abandoned()), Stage.OVER

    def _returned(self) -> Candidate:
        if self._current is None:
            raise IllegalEvent(f"no attempt is under way: {self!r}")
        candidate, self._current = self._current, None
        return candidate

    # What to do.

    def next_step(self, now: float, draw: float) -> Send | Wait | GiveUp:
        """What to do now. `draw` in [0, 1) spreads a backoff. Once it gave up it always answers the same."""
        if self._current is not None:
            raise IllegalEvent(f"an attempt is under way: {self!r}")
        if self._stop is not None:
            return self._stop
        found = self._next(now, draw)
        if found is None:
            return self._give_up(now)
        candidate, due = found
        if not self._paid:
            if not self._budget.take():
                return self._give_up(now)
            self._paid = True
        if due > now:
            seconds = due - now
            return Wait(seconds if now + seconds >= due else seconds + math.ulp(due))  # a rounded sum must not wake too early
        return self._send(candidate, now)

    def _send(self, candidate: Candidate, now: float) -> Send:
        if self._untried and self._untried[0] is candidate:  # nearly always
            del self._untried[0]
        else:
            self._untried = [one for one in self._untried if one.endpoint.id != candidate.endpoint.id]
        self._current, self._sent_at, self.stage = candidate, now, Stage.SENT
        self._route.append(candidate.endpoint.id)
        return Send(candidate, self._deadline)

    def _next(self, now: float, draw: float) -> tuple[Candidate, float] | None:
        """The candidate to send to and from when; None: no further attempt is allowed or possible."""
        if now >= self._deadline or self.sends >= self._plan.max_attempts or self._forbidden():
            return None
        if not self._route and self._untried and self._untried[0].ready_at <= now:  # the first attempt of nearly every request
            return self._untried[0], now
        ready = next((one for one in self._open() if one.ready_at <= now), None)
        if ready is not None:
            return ready, now
        return self._soonest((one, one.ready_at) for one in self._open()) or self._soonest(self._again(now, draw))

    def _soonest(self, options: Iterable[tuple[Candidate, float]]) -> tuple[Candidate, float] | None:
        in_time = [(candidate, due) for candidate, due in options if due < self._deadline]
        return min(in_time, key=lambda option: option[1], default=None)

    def _forbidden(self) -> bool:
        """Whether the policy of the last failure's class ends the request."""
        if not self.failed_attempts:
            return False
        failure_class = class_of(self.failed_attempts[-1].failure)
        retry = self._plan.model.retry
        of_class = sum(class_of(one.failure) is failure_class for one in self.failed_attempts)
        gated = failure_class not in _MOVES_ON and failure_class not in retry.retry_on
        return failure_class in _ENDS or gated or of_class > retry.rule(failure_class).max_retries

    def _open(self) -> Iterator[Candidate]:
        """Candidates not tried yet that may be, in the plan's order."""
        if self._route and not self._plan.fallback:
            return
        yield from filter(self._large_enough, self._untried)

    def _large_enough(self, candidate: Candidate) -> bool:
        """Whether its context window is larger than every one that proved too small; unknown sizes are not known to be."""
        window = candidate.endpoint.context_window
        return all(window is not None and too_small is not None and window > too_small for too_small in self._too_small)

    def _again(self, now: float, draw: float) -> Iterator[tuple[Candidate, float]]:
        """Endpoints tried before that may be asked once more: through another account at once, through the same one later."""
        for tried in filter(lambda tried: self._large_enough(tried.candidate), self._tried.values()):
            failure_class = class_of(tried.failure)
            spare = tried.candidate.spare_accounts
            if failure_class in _OF_THE_ACCOUNT and spare:
                yield replace(tried.candidate, account=spare[0], spare_accounts=spare[1:], trial=False), now
            elif _may_repeat(tried.failure):
                due = self._due(tried, now, draw)
                if due - now <= self._max_wait_s or (hint_s(tried.failure) is None):
                    yield replace(tried.candidate, trial=False), due

    def _due(self, tried: _Tried, now: float, draw: float) -> float:
        """When the same endpoint may be asked again: full jitter under an exponential ceiling, or the provider's hint if longer."""
        if tried.due is None:
            rule = self._plan.model.retry.rule(class_of(tried.failure))
            backoff_s = rule.backoff_ms / 1000 * 2 ** (tried.times - 1) * draw
            tried.due = max(now + backoff_s, tried.at + (hint_s(tried.failure) or 0.0))
        return tried.due

    # The end.

    def _give_up(self, now: float) -> GiveUp:
        self._stop, self.stage = GiveUp(self._error(now)), Stage.OVER
        return self._stop

    def _error(self, now: float) -> GatewayError:
        if not self.failed_attempts:
            return self._nothing_sent(now)
        telling = self._telling()
        outcome = outcome_of(telling)
        last = next((one.failure for one in reversed(self.failed_attempts) if class_of(one.failure) is telling), None)
        message, param, too_large = self._summary(outcome.phrase), None, False
        if last is not None and telling in _SAYS_ITS_MESSAGE:
            message, param = last.message, last.param
            too_large = telling is FailureClass.BAD_REQUEST and last.status == BodyTooLarge.status
        return AttemptsExhausted(
            message,
            status=BodyTooLarge.status if too_large else outcome.status,
            code=BodyTooLarge.code if too_large else outcome.code,
            kind=outcome.kind,
            attempts=self.failed_attempts,
            candidates=self._plan.considered,
            retry_after_s=self._retry_after_s(now) if outcome.status in (429, 503) else None,
            param=param,
        )

    def _telling(self) -> FailureClass:
        """The most telling class; 'no such model' only where no endpoint that is merely cooling has it either."""
        classes = {class_of(one.failure) for one in self.failed_attempts}
        if most_telling(classes) is FailureClass.MODEL_NOT_FOUND:
            classes |= {one.failure_class or FailureClass.RATE_LIMITED for one in self._plan.cooling}
        return most_telling(classes)

    def _summary(self, phrase: str) -> str:
        endpoints, attempts = len({one.endpoint for one in self.failed_attempts}), len(self.failed_attempts)
        tried = f"{endpoints} endpoint{'s' * (endpoints > 1)} tried in {attempts} attempt{'s' * (attempts > 1)}"
        return f"no endpoint of {self._plan.target.name[:200]!r} answered: {tried}; {phrase}"

    def _retry_after_s(self, now: float) -> float:
        """Seconds until the first endpoint is back that is out, at least one."""
        cools = ((tried.at, reaction(tried.failure).cool_s) for tried in self._tried.values())
        out = (*self._plan.cooling, *self._cooling)
        backs = [at + cool_s for at, cool_s in cools if cool_s is not None] + [one.until for one in out]
        return max(_LEAST_RETRY_AFTER_S, min(backs, default=now) - now)

    def _nothing_sent(self, now: float) -> GatewayError:
        plan, name = self._plan, self._plan.target.name[:200]
        if self._cooling:
            return cooling_error(self._cooling, now, name=name, candidates=plan.considered)
        if now < self._deadline:
            message = f"every candidate for {name!r} was taken out while the request waited for it"
            return NoEndpointNow(message, candidates=plan.considered, eliminated={}, retry_after_s=_LEAST_RETRY_AFTER_S)
        outcome = outcome_of(FailureClass.TIMEOUT)
        return AttemptsExhausted(
            "the request's deadline passed before an endpoint could be tried",
            status=outcome.status, code=outcome.code, kind=outcome.kind, attempts=(), candidates=plan.considered,
        )  # fmt: skip


def _may_repeat(failure: Failure) -> bool:
    """Whether the same endpoint may be asked again with the same account."""
    if not failure.repeatable:
        return False
    if class_of(failure) is FailureClass.TIMEOUT:
        return not failure.may_have_run  # what ran may be billed, and would be again
    return class_of(failure) in _REPEATS
