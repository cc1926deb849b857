"""The one tree of errors, by what happened. A docstring is the default message; `status` and `code` are what a client sees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


class FailureClass(StrEnum):
    """Why one attempt failed; docs/errors.md tells the reaction to each."""

    RATE_LIMITED = "rate_limited"
    QUOTA_EXHAUSTED = "quota_exhausted"
    OVERLOADED = "overloaded"
    TIMEOUT = "timeout"
    SERVER_ERROR = "server_error"
    AUTH = "auth"
    MODEL_NOT_FOUND = "model_not_found"
    CONTEXT_LENGTH = "context_length"
    CONTENT_POLICY = "content_policy"
    BAD_REQUEST = "bad_request"


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed attempt. `message` is safe to show: no URL, no key, no provider's own text unless it is about the request."""

    failure_class: FailureClass
    message: str
    status: int | None = None  # the upstream's HTTP status, None: no answer came
    code: str | None = None  # the upstream's own error code
    retry_after_s: float | None = None  # the provider's hint
    param: str | None = None  # the request field at fault, where the provider names one
    repeatable: bool = True  # False: the provider said itself that another try of this request cannot help there
    may_have_run: bool = True  # False: the request surely never reached a model there (refused connection, connect timeout)


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """A failure beside where and how long; what `error.n4n.attempts` and the log line show."""

    endpoint: str
    failure: Failure
    ms: float


class GatewayError(Exception):
    """Something went wrong."""

    status = 500
    code = "internal_error"
    kind = "server_error"  # OpenAI's error.type

    def __init__(self, message: str | None = None, *, param: str | None = None, retry_after_s: float | None = None) -> None:
        self.message = message or (type(self).__doc__ or "").strip().splitlines()[0]
        self.param = param
        self.retry_after_s = retry_after_s
        super().__init__(self.message)


class RequestError(GatewayError):
    """The request cannot be served as it is."""

    status = 400
    code = "invalid_request"
    kind = "invalid_request_error"


class MalformedRequest(RequestError):
    """The request is not valid."""


class Untellable(RequestError):
    """A part of the request cannot be told to an endpoint; another one may take it."""

    code = "no_eligible_endpoint"


class BodyTooLarge(RequestError):
    """The request body is larger than this gateway accepts."""

    status = 413
    code = "request_too_large"


class HeadersTooLarge(RequestError):
    """The request's headers are larger or more than this gateway accepts."""

    status = 431
    code = "headers_too_large"


class TargetTooLong(RequestError):
    """The request's URL is longer than this gateway accepts; send directives as headers."""

    status = 414
    code = "url_too_long"


class RequestTooSlow(RequestError):
    """The request did not arrive in time."""

    status = 408
    code = "request_timeout"


class UnsupportedEncoding(RequestError):
    """The request body's content-encoding is not spoken here; send it as gzip, deflate or uncompressed."""

    status = 415
    code = "unsupported_content_encoding"


class UnmetExpectation(RequestError):
    """The expect header asks for something other than 100-continue; leave it out."""

    status = 417
    code = "expectation_failed"


class NoSuchRoute(RequestError):
    """There is no such path here."""

    status = 404
    code = "not_found"


class InvalidDirective(RequestError):
    """A routing directive is unknown or malformed."""

    code = "invalid_directive"


class Unauthenticated(RequestError):
    """The API key is missing, unknown, expired or revoked; send a valid key as Authorization: Bearer sk-n4n-…"""

    status = 401
    code = "invalid_api_key"
    kind = "authentication_error"


class ModelNotAllowed(RequestError):
    """This API key may not use this model."""

    status = 403
    code = "model_not_allowed"
    kind = "permission_error"


class ModelNotFound(RequestError):
    """There is no such model."""

    status = 404
    code = "model_not_found"


class NoEligibleEndpoint(RequestError):
    """No endpoint satisfies the request's directives."""

    code = "no_eligible_endpoint"

    def __init__(self, message: str, *, candidates: int, eliminated: Mapping[str, int]) -> None:
        super().__init__(message)
        self.candidates = candidates
        self.eliminated = dict(eliminated)


class InputTooLong(NoEligibleEndpoint):
    """The input is longer than the context window of every endpoint that could serve."""

    code = "context_length_exceeded"


class CallerLimited(RequestError):
    """A rate limit of this API key is used up."""

    status = 429
    code = "rate_limited"
    kind = "rate_limit_error"


class IdempotencyMismatch(RequestError):
    """This idempotency-key was used for another request within 24 hours: send a new key, or the same body to the same path."""

    status = 422
    code = "idempotency_mismatch"


class StillExecuting(GatewayError):
    """The request that came first with this idempotency-key has not ended in this one's time; ask again with the same key."""

    status = 504
    code = "timeout"


class BudgetExceeded(RequestError):
    """A budget is spent. `told`: which, of whom, what is spent and reserved of it, and when it resets."""

    status = 402
    code = "budget_exceeded"
    kind = "insufficient_quota"

    def __init__(self, message: str, *, told: Mapping[str, object]) -> None:
        super().__init__(message)
        self.told = dict(told)


class KeyRevoked(RequestError):
    """This API key was revoked while its request was running."""

    status = 401
    code = "key_revoked"
    kind = "authentication_error"


class LimitTooSmall(RequestError):
    """The request needs more tokens than its limit ever holds: shorten it, or have the limit raised."""

    code = "request_exceeds_limit"


class AttemptsExhausted(GatewayError):
    """Every attempt failed; status and code are those of the most telling one."""

    def __init__(
        self,
        message: str,
        *,
        status: int,
        code: str,
        kind: str,
        attempts: Sequence[FailedAttempt],
        candidates: int,
        retry_after_s: float | None = None,
        param: str | None = None,
        eliminated: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(message, param=param, retry_after_s=retry_after_s)
        self.status, self.code, self.kind = status, code, kind
        self.attempts = tuple(attempts)
        self.candidates = candidates
        self.eliminated = dict(eliminated or {})


class AllCooling(AttemptsExhausted):
    """Nobody was asked: every endpoint that could serve is out until an instant; status as if the attempt had been made."""


class StreamInterrupted(GatewayError):
    """The stream broke after output had been sent."""

    status = 502
    code = "stream_interrupted"

    def __init__(self, failed: FailedAttempt) -> None:
        super().__init__(failed.failure.message)
        self.failed = failed


class Unavailable(GatewayError):
    """The gateway cannot serve now; try again shortly."""

    status = 503
    code = "unavailable"


class NoSnapshot(Unavailable):
    """This router has no catalog yet; try again shortly."""

    code = "no_catalog"


class Abandoned(GatewayError):
    """The client closed the connection before its answer."""

    status = 499  # never sent: nobody is there to read it
    code = "client_closed"


class NoEndpointNow(Unavailable):
    """No endpoint of the model can be used on this router, whatever the request says (credential, dialect, disabled, draining, none)."""

    code = "no_eligible_endpoint"

    def __init__(self, message: str, *, candidates: int, eliminated: Mapping[str, int], retry_after_s: float = 30.0) -> None:
        super().__init__(message, retry_after_s=retry_after_s)
        self.candidates = candidates
        self.eliminated = dict(eliminated)


class TooManyConnections(Unavailable):
    """This router has as many client connections as it accepts; try again, or raise N4N_MAX_CONNECTIONS."""

    code = "too_many_connections"


class Draining(Unavailable):
    """This router is shutting down; try again."""

    code = "draining"


class StoreUnavailable(Unavailable):
    """Redis cannot be used now; limits and health go on with what this router knows."""

    code = "store_unavailable"


class StoreRefused(StoreUnavailable):
    """Redis answered with an error; `reply_code` is its first word (WRONGTYPE, NOPERM, ERR…), never its text, which may hold keys."""

    def __init__(self, reply_code: str, what: str) -> None:
        super().__init__(f"Redis refused {what} with {reply_code}")
        self.reply_code = reply_code


class StartFailed(Exception):
    """A program cannot start; the message is one line that names the cause and the remedy."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a document: the path of the field and what to write instead."""

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


class CatalogRefused(Exception):
    """A catalog document is not valid; `problems` holds every fault found, in document order."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(map(str, self.problems)))
