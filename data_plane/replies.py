"""The one place where an error becomes a status, headers, a body or the last event of a stream."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from n4n.core.errors import (
    AttemptsExhausted,
    FailedAttempt,
    GatewayError,
    NoEligibleEndpoint,
    RequestError,
    StreamInterrupted,
)

_ENCODE = msgspec.json.Encoder().encode
_TRY_AGAIN = frozenset((408, 429, 502, 503, 504))
_IN_VAIN = frozenset(("quota_exhausted", "upstream_denied", "no_eligible_endpoint"))  # until somebody mends it


def error_headers(error: GatewayError) -> dict[str, str]:
    """`retry-after` on 429 and 503 only; `x-should-retry: false` where another try cannot help."""
    headers: dict[str, str] = {}
    if error.status in (429, 503):
        headers["retry-after"] = str(max(1, math.ceil(error.retry_after_s or 1)))
    if error.status not in _TRY_AGAIN or error.code in _IN_VAIN:
        headers["x-should-retry"] = "false"
    return headers


def error_body(error: GatewayError, request_id: str) -> bytes:
    """OpenAI's error shape, with what the router knows in `error.n4n`."""
    return _ENCODE({"error": _error(error, request_id)})


def error_event(error: GatewayError, request_id: str) -> bytes:
    """The last event of a stream that broke after output had been sent; no [DONE] follows it."""
    body = {"error": _error(error, request_id), "choices": [{"index": 0, "delta": {}, "finish_reason": "error"}]}
    return b"data: " + _ENCODE(body) + b"\n\n"


def outcome(error: GatewayError) -> str:
    """The word that metrics and the log use for a request that ended in this error."""
    if error.status == 429:
        return "rate_limited"
    return "rejected" if isinstance(error, RequestError) else "error"


def _error(error: GatewayError, request_id: str) -> dict[str, object]:
    told: dict[str, object] = {"request_id": request_id}
    candidates, eliminated = _plan_facts(error)
    if candidates is not None:
        told["candidates"] = candidates
    if eliminated:
        told["eliminated"] = eliminated
    attempts = _attempts(error)
    if attempts:
        told["attempts"] = attempts
    return {"message": error.message, "type": error.kind, "param": error.param, "code": error.code, "n4n": told}


def _plan_facts(error: GatewayError) -> tuple[int | None, Mapping[str, int] | None]:
    if isinstance(error, NoEligibleEndpoint):
        return error.candidates, error.eliminated
    candidates = getattr(error, "candidates", None)
    return (candidates if isinstance(candidates, int) else None), getattr(error, "eliminated", None)


def _attempts(error: GatewayError) -> list[dict[str, object]]:
    failed: Sequence[FailedAttempt] = ()
    if isinstance(error, AttemptsExhausted):
        failed = error.attempts
    elif isinstance(error, StreamInterrupted):
        failed = (error.failed,)
    return [{"endpoint": one.endpoint, "class": one.failure.failure_class.value, "ms": round(one.ms, 1)} for one in failed]
