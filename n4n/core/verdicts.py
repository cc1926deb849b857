"""What a class of failure means to the client, and to the endpoint or account it speaks of. Reasons: docs/errors.md."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from n4n.core.breaker import COUNTS
from n4n.core.errors import Failure, FailureClass

DAY_S = 86_400.0
AUTH_S, RETIRED_S, QUOTA_S, RATE_S, OVERLOAD_S, LONGEST_OVERLOAD_S = 300.0, 300.0, 900.0, 1.0, 5.0, 300.0
TELLING = (
    FailureClass.BAD_REQUEST, FailureClass.CONTEXT_LENGTH, FailureClass.CONTENT_POLICY, FailureClass.RATE_LIMITED,
    FailureClass.OVERLOADED, FailureClass.TIMEOUT, FailureClass.SERVER_ERROR, FailureClass.MODEL_NOT_FOUND,
    FailureClass.QUOTA_EXHAUSTED, FailureClass.AUTH,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a client sees a class: HTTP status, `error.code`, OpenAI's `error.type`, and words for the message."""

    status: int
    code: str
    kind: str
    phrase: str


_REQUEST, _SERVER = "invalid_request_error", "server_error"
_OUTCOMES: Mapping[FailureClass, Outcome] = MappingProxyType({
    FailureClass.RATE_LIMITED: Outcome(429, "rate_limited", "rate_limit_error", "rate limited by the provider"),
    FailureClass.QUOTA_EXHAUSTED: Outcome(503, "quota_exhausted", _SERVER, "out of quota at the provider"),
    FailureClass.OVERLOADED: Outcome(503, "overloaded", _SERVER, "the provider is overloaded"),
    FailureClass.TIMEOUT: Outcome(504, "timeout", _SERVER, "the provider did not answer in time"),
    FailureClass.SERVER_ERROR: Outcome(502, "server_error", _SERVER, "the provider failed"),
    FailureClass.AUTH: Outcome(502, "upstream_denied", _SERVER, "the provider denied access to this gateway"),
    FailureClass.MODEL_NOT_FOUND: Outcome(404, "model_not_found", _REQUEST, "the provider no longer has the model"),
    FailureClass.CONTEXT_LENGTH: Outcome(400, "context_length_exceeded", _REQUEST, "the input is too long for the model"),
    FailureClass.CONTENT_POLICY: Outcome(400, "content_filter", _REQUEST, "the provider's content policy refused the request"),
    FailureClass.BAD_REQUEST: Outcome(400, "invalid_request", _REQUEST, "the provider found the request invalid"),
})  # fmt: skip


def outcome_of(failure_class: FailureClass) -> Outcome:
    """How the client sees this class when nothing is left to try."""
    return _OUTCOMES[failure_class]


def most_telling(classes: Collection[FailureClass]) -> FailureClass:
    """The class that tells a client most about what to do; `classes` is not empty."""
    return min(classes, key=TELLING.index)


@dataclass(frozen=True, slots=True)
class Reaction:
    """What one failure is charged with. `cool_s`: seconds out, of the endpoint, or of the whole account where `cool_account`.

    `soft`: our own caution, which yields when nobody else is left; what a provider ordered, or what money or a key must mend, binds.
    """

    cool_s: float | None
    cool_account: bool
    breaker_weight: float
    soft: bool = False


def reaction(failure: Failure) -> Reaction:
    """What to charge, and to whom. A rate limit without a hint cools for one second; growing on repetition is the caller's."""
    hint, failure_class = hint_s(failure), class_of(failure)
    weight = COUNTS[failure_class]
    match failure_class:
        case FailureClass.RATE_LIMITED:
            return Reaction(RATE_S if hint is None else hint, False, weight)
        case FailureClass.QUOTA_EXHAUSTED:
            return Reaction(QUOTA_S if hint is None else hint, True, weight)
        case FailureClass.AUTH:
            return Reaction(AUTH_S, True, weight)
        case FailureClass.MODEL_NOT_FOUND:
            return Reaction(RETIRED_S, False, weight)
        case FailureClass.OVERLOADED:
            if hint is None:
                return Reaction(OVERLOAD_S, False, weight, soft=True)
            return Reaction(min(hint, LONGEST_OVERLOAD_S), False, weight)
        case _:
            return Reaction(None, False, weight)


def hint_s(failure: Failure) -> float | None:
    """The provider's hint in seconds, at most a day; None where it gave none or nonsense."""
    hint = failure.retry_after_s
    return min(hint, DAY_S) if hint is not None and math.isfinite(hint) and hint >= 0 else None


def class_of(failure: Failure) -> FailureClass:
    """The class to act on: a rate limit that lasts a day is a quota that is used up."""
    hint = hint_s(failure)
    if failure.failure_class is FailureClass.RATE_LIMITED and hint is not None and hint >= DAY_S:
        return FailureClass.QUOTA_EXHAUSTED
    return failure.failure_class
