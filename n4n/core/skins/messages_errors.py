"""Errors of the Messages skin: Anthropic's envelope around the words that every skin uses.

https://platform.claude.com/docs/en/api/errors: `{"type": "error", "error": {"type", "message"}, "request_id"}`.
"""

from __future__ import annotations

from collections.abc import Mapping

from n4n.core.errors import MalformedRequest


class NoThreads(MalformedRequest):
    """thread cannot be used: no conversation is kept here; leave it out and send the whole conversation in messages."""

    code = "thread_unsupported_request"  # the word at which Anthropic's SDKs go on without a thread, by themselves


_BY_CODE = {
    "invalid_api_key": "authentication_error",
    "key_revoked": "authentication_error",
    "model_not_allowed": "permission_error",
    "model_not_found": "not_found_error",
    "not_found": "not_found_error",
    "request_too_large": "request_too_large",
    "rate_limited": "rate_limit_error",
    "budget_exceeded": "billing_error",
    "timeout": "timeout_error",
    "overloaded": "overloaded_error",
    "too_many_connections": "overloaded_error",
    "draining": "overloaded_error",
    "unavailable": "overloaded_error",
    "no_catalog": "overloaded_error",
    "store_unavailable": "overloaded_error",
}
_BY_CLASS = {"overloaded": "overloaded_error", "rate_limited": "rate_limit_error", "timeout": "timeout_error"}  # of the attempt that broke
_AT_FAULT = "invalid_request_error"


def error_type(error: Mapping[str, object]) -> str:
    """Anthropic's type for an error in OpenAI's shape: by its code, by how its stream broke, by whether the request is at fault."""
    found = _BY_CODE.get(str(error.get("code")))
    if found is not None:
        return found
    if error.get("code") == "stream_interrupted":
        return _BY_CLASS.get(_last_class(error), "api_error")
    return _AT_FAULT if error.get("type") == _AT_FAULT else "api_error"


def _last_class(error: Mapping[str, object]) -> str:
    told = error.get("n4n")
    attempts = told.get("attempts") if isinstance(told, Mapping) else None
    last = attempts[-1] if isinstance(attempts, list) and attempts else None
    return str(last.get("class")) if isinstance(last, Mapping) else ""


def envelope(body: Mapping[str, object]) -> dict[str, object]:
    """`{"error": {"message", "type", "param", "code", "n4n"}}` as Anthropic would say it; `param`, `code` and `n4n` stay in the error."""
    inner = body.get("error")
    error: dict[str, object] = dict(inner) if isinstance(inner, Mapping) else {}
    told = error.get("n4n")
    request_id = told.get("request_id") if isinstance(told, Mapping) else None
    if error.get("code") == NoThreads.code:
        error["details"] = {"error_code": NoThreads.code, "unsupported": ["thread"]}
    return {"type": "error", "error": {**error, "type": error_type(error)}, "request_id": request_id}
