"""The one place where an error becomes a status, headers, a body or the last event of a stream."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

from data_plane.record import Record
from n4n.core.errors import AttemptsExhausted, BudgetExceeded, GatewayError, NoEligibleEndpoint, NoEndpointNow, RequestError

_TRY_AGAIN = frozenset((408, 429, 502, 503, 504))
_IN_VAIN = frozenset(("quota_exhausted", "upstream_denied", "no_eligible_endpoint"))  # until somebody mends it


def error_fields(error: GatewayError) -> bytes:
    """The header lines `retry-after`, on 429 and 503 only, and `x-should-retry: false` where another try cannot help."""
    fields = b""
    if error.status in (429, 503):
        fields += b"retry-after: %d\r\n" % max(1, math.ceil(error.retry_after_s or 1))
    if error.status not in _TRY_AGAIN or error.code in _IN_VAIN:
        fields += b"x-should-retry: false\r\n"
    return fields


def error_body(error: GatewayError, record: Record) -> dict[str, object]:
    """OpenAI's error shape, with what the router knows in `error.n4n`; a skin puts it into its own envelope."""
    return {"error": _error(error, record)}


def outcome(error: GatewayError) -> str:
    """The word that metrics and the log use for a request that ended in this error."""
    if error.status == 429:
        return "rate_limited"
    return "rejected" if isinstance(error, RequestError) else "error"


def _error(error: GatewayError, record: Record) -> dict[str, object]:
    told: dict[str, object] = {"request_id": record.request_id}
    if isinstance(error, BudgetExceeded):
        told["budget"] = error.told
    candidates, eliminated = plan_facts(error, record)
    if candidates is not None:
        told["candidates"] = candidates
    if eliminated:
        told["eliminated"] = eliminated
    attempts = [
        {"endpoint": one.endpoint.id, "class": one.outcome, "ms": round((one.ended - one.started) * 1000, 1)}
        for one in record.attempts
        if one.ended is not None and one.outcome != "ok"
    ]
    if attempts:
        told["attempts"] = attempts
    return {"message": error.message, "type": error.kind, "param": error.param, "code": error.code, "n4n": told}


def plan_facts(error: GatewayError, record: Record) -> tuple[int | None, Mapping[str, int]]:
    """How many endpoints there were and what eliminated each: the plan knows, or the error that there is none."""
    if record.plan is not None:
        return record.plan.considered, Counter(one.reason for one in record.plan.eliminated)
    if isinstance(error, NoEligibleEndpoint | NoEndpointNow | AttemptsExhausted):
        return error.candidates, error.eliminated
    return None, {}
