"""What a provider's error means: one class for every answer that is not a completion, for all that speak like OpenAI.

The order of evidence: a code inside the body, a type inside the body, the HTTP status, and last the text. Status alone
misleads: a 429 may be about money, a 403 about length, a 400 about an expired key. docs/errors.md has the table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import cast

from n4n.core import json_bytes
from n4n.core.dialects.wording import ABOUT_THE_REQUEST, OWN_WORDS, cleaned
from n4n.core.errors import Failure, FailureClass
from n4n.core.quota_headers import explicit_hint_s, retry_after_s

_C = FailureClass
_WAITABLE = frozenset((_C.RATE_LIMITED, _C.QUOTA_EXHAUSTED, _C.OVERLOADED))
_DAY_S, _HOUR_S = 86_400.0, 3600.0

_BY_CODE: dict[str, FailureClass] = {
    word: failure_class
    for failure_class, words in {
        _C.CONTEXT_LENGTH: "context_length_exceeded context_window_exceeded",
        _C.CONTENT_POLICY: "content_policy_violation content_filter cyber_policy bio_policy misalignment_policy_violation "
        "responsibleaipolicyviolation moderation_blocked",
        _C.QUOTA_EXHAUSTED: "insufficient_quota credit_balance_exhausted billing_hard_limit_reached billing_not_active "
        "enforced_spend_limit_reached contract_spend_limit_reached weight_exceeds_budget insufficient_balance",
        _C.AUTH: "invalid_api_key invalid_authentication account_deactivated account_suspended organization_on_hold permission_denied "
        "permissiondenied ip_not_authorized unsupported_country_region_territory expired_api_key unauthorized",
        _C.MODEL_NOT_FOUND: "model_not_found deploymentnotfound model_not_available model_decommissioned",
        _C.RATE_LIMITED: "rate_limit_exceeded slow_down ratelimitreached too_many_requests ramp_limit_exceeded rate_limited 1300",
        _C.OVERLOADED: "server_is_overloaded capacity_exceeded engine_overloaded provider_overloaded overloaded service_unavailable",
        _C.SERVER_ERROR: "server_error internal_error internal_server_error json_validate_failed tool_use_failed",
        _C.TIMEOUT: "timeout request_timeout",
        _C.BAD_REQUEST: "unsupported_parameter unsupported_value invalid_encrypted_content string_above_max_length invalid_value "
        "missing_required_parameter unknown_parameter invalid_type",
    }.items()
    for word in words.split()
}
_BY_TYPE: dict[str, FailureClass] = {
    word: failure_class
    for failure_class, words in {
        _C.QUOTA_EXHAUSTED: "insufficient_quota billing_error",
        _C.AUTH: "authentication_error permission_error",
        _C.RATE_LIMITED: "rate_limit_error rate_limited rate_limit_exceeded dynamic_request_limited dynamic_token_limited",
        _C.OVERLOADED: "overloaded_error service_unavailable_error service_unavailable",
        _C.TIMEOUT: "timeout_error",
        _C.MODEL_NOT_FOUND: "notfounderror not_found_error",
    }.items()
    for word in words.split()
}
_INVALID = frozenset(("invalid_request_error", "badrequesterror"))  # too wide to decide before status and text
_LONG_TERM = re.compile(r"_(?:spend|usage)_limit_|spending-limit")
_BY_STATUS: dict[int, FailureClass] = {
    401: _C.AUTH, 402: _C.QUOTA_EXHAUSTED, 403: _C.AUTH, 404: _C.MODEL_NOT_FOUND, 405: _C.MODEL_NOT_FOUND, 408: _C.TIMEOUT,
    409: _C.SERVER_ERROR, 412: _C.AUTH, 424: _C.SERVER_ERROR, 425: _C.SERVER_ERROR, 429: _C.RATE_LIMITED, 498: _C.OVERLOADED,
    499: _C.SERVER_ERROR, 503: _C.OVERLOADED, 504: _C.TIMEOUT, 524: _C.TIMEOUT, 529: _C.OVERLOADED,
}  # fmt: skip

# Text decides last, lower-cased, and only at statuses that hide several situations (None: an error inside a 200).
_SIGNS: tuple[tuple[FailureClass, frozenset[int | None], tuple[str, ...]], ...] = (
    (_C.CONTEXT_LENGTH, frozenset((None, 400, 403, 413, 422, 500)), (
        "context length", "context window", "context limit", "context size", "prompt is too long", "input is too long",
        "exceeds the maximum number of tokens", "current length is",
        "maximum input length is", "input token count", "max_tokens must be at least 1, got -",
        "input length and max_tokens exceed", "inputs tokens + max_new_tokens",
    )),
    (_C.CONTEXT_LENGTH, frozenset((413,)), ("tokens per minute", "request too large for model")),
    (_C.QUOTA_EXHAUSTED, frozenset((None, 400, 403, 413, 422, 429, 500)), (
        "used all available credits", "insufficient_quota", "out of credits", "no remaining credits", "insufficient balance",
        "credit balance", "spending limit", "spend limit",
    )),
    (_C.QUOTA_EXHAUSTED, frozenset((None, 400, 403, 413, 422, 500)), ("usage limit", "billing")),
    (_C.QUOTA_EXHAUSTED, frozenset((403,)), ("balance", "key limit", "budget")),
    (_C.CONTENT_POLICY, frozenset((None, 400, 403, 413, 422, 500)), (
        "content management policy", "safety system", "content filtering policy", "usage guidelines", "responsibleaipolicyviolation",
    )),
    (_C.AUTH, frozenset((None, 400)), ("incorrect api key", "invalid api key", "api key not valid", "api key expired", "expired api key")),
    (_C.OVERLOADED, frozenset((None, 400, 403, 413, 422, 429, 500)), (
        "overloaded", "at capacity", "capacity exceeded", "high demand", "no capacity", "engine is currently", "model busy",
        "model is busy",
    )),
    (_C.BAD_REQUEST, frozenset((503,)), ("grammar is too complex",)),
    (_C.MODEL_NOT_FOUND, frozenset((503,)), ("no allowed providers", "no endpoints found", "routing requirements", "no provider meets")),
)  # fmt: skip
_CODE = re.compile(r"[A-Za-z0-9_.:-]{1,100}\Z")
_ASKED = re.compile(r"limit\D{0,20}([\d,]{1,20})\D.{0,80}?(?:requested|asked)\D{0,20}([\d,]{1,20})", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Told:
    """What an error body says, whichever shape it has."""

    message: str = ""
    code: str | None = None
    kind: str | None = None
    param: str | None = None
    metadata: Mapping[str, object] = field(default_factory=dict)


def failure_of(
    status: int, headers: Mapping[str, str], body: bytes, now: float, read: Callable[[object], Told | None] | None = None
) -> Failure:
    """The failure that an answer with an error status is. `read`: how a dialect of another shape finds the error in a parsed body."""
    try:
        told = (read or read_error)(json_bytes.parse(body))
    except json_bytes.NotJson:
        told = _from_text(body)
    hint = explicit_hint_s(headers, body, now)
    failure_class = _class(told or Told(), status, hint if hint is not None else retry_after_s(headers, body, now))
    if hint is None and failure_class in _WAITABLE:
        hint = retry_after_s(headers, body, now)
    repeatable = headers.get("x-should-retry", "").strip().lower() != "false"
    return _failure(told or Told(), failure_class, status, hint, repeatable=repeatable)


def failure_inside(told: Told, status: int = 200) -> Failure:
    """The failure that an error inside a 200 is: a whole body, or an event of a stream."""
    return _failure(told, _class(told, None, None), status, None)


def garbled(what: str, failure_class: FailureClass = _C.SERVER_ERROR) -> Failure:
    """A 200 without a completion in it; `what` is ours: never a word of the provider's."""
    return Failure(failure_class, what, status=200)


def read_error(body: object) -> Told | None:
    """The error in a parsed body; None: there is none. Shapes: OpenAI's, flat (vLLM, Mistral, xAI), `detail`, `fault`, a list of one."""
    if isinstance(body, list) and len(body) == 1:
        body = body[0]
    if not isinstance(body, Mapping):
        return None
    error = body.get("error")
    if isinstance(error, Mapping):
        return _nested(error)
    if error:
        return Told(message=str(error), code=_word(body.get("code")), kind=_word(body.get("type")))
    if "choices" in body:
        return None
    if isinstance(body.get("fault"), Mapping):
        return Told(message=_text(body["fault"].get("faultstring")))
    if body.get("object") == "error" or "message" in body:
        code = next((found for name in ("code", "raw_status_code", "statusCode") if (found := _word(body.get(name)))), None)
        return Told(_text(body.get("message")), code, _word(body.get("type")), _word(body.get("param")))
    if body.get("detail"):
        return Told(message=_text(body["detail"]))
    return None


def _nested(error: Mapping[str, object]) -> Told:
    metadata = error.get("metadata")
    inner = error.get("innererror")
    code = _word(error.get("code"))
    if isinstance(inner, Mapping) and _word(inner.get("code")) is not None and (code or "").lower() not in _BY_CODE:
        code = _word(inner.get("code"))
    known = cast(Mapping[str, object], metadata) if isinstance(metadata, Mapping) else {}
    return Told(_text(error.get("message")), code, _word(error.get("type")), _word(error.get("param")), known)


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):  # pydantic's list of complaints
        return "; ".join(_text(entry.get("msg")) if isinstance(entry, Mapping) else _text(entry) for entry in value[:10])
    return ""


def _word(value: object) -> str | None:
    if isinstance(value, str) and value:
        return value[:200]
    return str(value) if type(value) is int else None


def _from_text(body: bytes) -> Told:
    text = body[:2000].decode(errors="replace").strip()
    return Told() if text.startswith("<") else Told(message=text)


def _class(told: Told, status: int | None, hint: float | None) -> FailureClass:
    code, kind, text = (told.code or "").lower(), (told.kind or "").lower(), told.message[:2000].lower().replace("`", "")
    if code.isdecimal() and len(code) == 3 and 400 <= int(code) <= 599:
        status, code = int(code), ""
    return (
        _by_words(code, kind, text, status, hint)
        or _by_metadata(told.metadata, status)
        or next((found for found, statuses, signs in _SIGNS if status in statuses and any(sign in text for sign in signs)), None)
        or _by_status(kind, text, status, hint)
    )


def _by_words(code: str, kind: str, text: str, status: int | None, hint: float | None) -> FailureClass | None:
    if _LONG_TERM.search(code):
        return _C.QUOTA_EXHAUSTED
    found = _BY_CODE.get(code) or (_C.CONTENT_POLICY if code.endswith("_policy") else None) or _BY_TYPE.get(kind)
    if found is _C.RATE_LIMITED:
        return _limited(kind, text, status, hint)
    return found


def _limited(kind: str, text: str, status: int | None, hint: float | None) -> FailureClass:
    """A rate limit that no waiting helps, or not today, is none."""
    numbers = _ASKED.search(text)
    if status == 413 or (numbers and _amount(numbers[2]) > _amount(numbers[1])):
        return _C.CONTEXT_LENGTH
    if hint is not None and (hint >= _DAY_S or (kind == "requests" and hint >= _HOUR_S)):
        return _C.QUOTA_EXHAUSTED
    return _C.RATE_LIMITED


def _amount(digits: str) -> int:
    return int(digits.replace(",", "") or 0)


def _by_metadata(metadata: Mapping[str, object], status: int | None) -> FailureClass | None:
    """OpenRouter says in `metadata` what its 402 and 403 are about."""
    if status == 402 and metadata.get("limit_source") == "openrouter_in_flight_budget":
        return _C.RATE_LIMITED
    if metadata.get("flagged_input"):
        return _C.CONTENT_POLICY
    if status == 403 and metadata.get("resets_at"):
        return _C.QUOTA_EXHAUSTED
    kind = metadata.get("error_type")
    return _C.OVERLOADED if kind == "provider_overloaded" else None


def _by_status(kind: str, text: str, status: int | None, hint: float | None) -> FailureClass:
    if status is None:
        return _C.BAD_REQUEST if kind in _INVALID else _C.SERVER_ERROR
    found = _BY_STATUS.get(status)
    if found is _C.RATE_LIMITED:
        return _limited(kind, text, status, hint)
    if found is not None:
        return found
    return _C.BAD_REQUEST if 400 <= status < 500 else _C.SERVER_ERROR


def _failure(told: Told, failure_class: FailureClass, status: int, hint: float | None, *, repeatable: bool = True) -> Failure:
    about_request = failure_class in ABOUT_THE_REQUEST
    message = (cleaned(told.message) if about_request else "") or OWN_WORDS[failure_class]
    param = cleaned(told.param)[:100] if about_request and told.param else None
    code = told.code if told.code is None or _CODE.match(told.code) else cleaned(told.code)[:100]
    return Failure(failure_class, message, status, code, hint, param, repeatable)
