"""What an error of Google's means: google.rpc.Status, whole, in a list of one, or inside a stream.

https://ai.google.dev/gemini-api/docs/troubleshooting, https://cloud.google.com/apis/design/errors. A 429 may be about a minute, a
day, money, or capacity that all share; the quota's name tells, and the text says "billing" also where it is about a minute.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from n4n.core import json_bytes
from n4n.core.dialects.classify import Told, failure_inside, failure_of
from n4n.core.dialects.wording import ABOUT_THE_REQUEST, OWN_WORDS, cleaned
from n4n.core.errors import Failure, FailureClass
from n4n.core.quota_headers import explicit_hint_s

_C = FailureClass
_DAY_S = 86_400.0
_BY_WORD: dict[str, FailureClass] = {
    "FAILED_PRECONDITION": _C.AUTH,  # the region, or no billing account
    "UNAUTHENTICATED": _C.AUTH, "PERMISSION_DENIED": _C.AUTH, "NOT_FOUND": _C.MODEL_NOT_FOUND, "CANCELLED": _C.SERVER_ERROR,
    "INTERNAL": _C.SERVER_ERROR, "UNKNOWN": _C.SERVER_ERROR, "DATA_LOSS": _C.SERVER_ERROR, "ABORTED": _C.SERVER_ERROR,
    "UNIMPLEMENTED": _C.MODEL_NOT_FOUND, "UNAVAILABLE": _C.OVERLOADED, "DEADLINE_EXCEEDED": _C.TIMEOUT,
    "QUOTA_EXCEEDED": _C.QUOTA_EXHAUSTED,
}  # fmt: skip
_ABOUT_INPUT = frozenset(("INVALID_ARGUMENT", "OUT_OF_RANGE"))
_SHORT_OF = "RESOURCE_EXHAUSTED"
_LIMITS = frozenset((_SHORT_OF, "RATE_LIMIT_EXCEEDED", "TOO_MANY_REQUESTS"))
_WAITABLE = frozenset((_C.RATE_LIMITED, _C.QUOTA_EXHAUSTED, _C.OVERLOADED))
_BAD_KEY = ("api key not valid", "api key expired", "api_key_invalid", "api key was reported as leaked")
_TOO_LONG = ("exceeds the maximum number of tokens", "payload size", "input token count", "request size exceeds")
_MONEY = ("spend cap", "spending cap", "spend limit", "spending limit", "prepay", "prepaid", "credits", "credit balance")
_ZERO = re.compile(r"\blimit:\s*0\b")


@dataclass(frozen=True, slots=True)
class Status:
    """A google.rpc.Status; `word` is its canonical code in capitals, `quotas` the violated quotas as (name, value)."""

    code: int | None
    message: str
    word: str
    reasons: frozenset[str]
    quotas: tuple[tuple[str, str], ...]


def read_status(body: object) -> Status | None:
    """The error in a parsed body; None: there is none."""
    if isinstance(body, list) and body:
        body = body[0]
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict):
        return None
    code, word = error.get("code"), error.get("status")
    if isinstance(code, str) and not isinstance(word, str):  # the newer interface writes words into `code`
        code, word = None, code
    details = error.get("details")
    found = [detail for detail in details if isinstance(detail, dict)] if isinstance(details, list) else []
    return Status(
        code if type(code) is int else None,
        _text(error.get("message")),
        _text(word).upper()[:100],
        frozenset(_text(detail.get("reason")).upper() for detail in found),
        tuple(_quotas(found)),
    )


def _quotas(details: list[dict[str, object]]) -> list[tuple[str, str]]:
    listed = [violation for detail in details if isinstance(violations := detail.get("violations"), list) for violation in violations]
    rows = [cast(Mapping[str, object], row) for row in listed if isinstance(row, dict)]
    return [(_text(row.get("quotaId")) or _text(row.get("quotaMetric")), str(row.get("quotaValue", ""))[:20]) for row in rows]


def failure_from(status: int, headers: Mapping[str, str], body: bytes, now: float) -> Failure:
    """The failure that an answer with an error status is."""
    try:
        said = read_status(json_bytes.parse(body))
    except json_bytes.NotJson:
        said = None
    if said is None:
        return failure_of(status, headers, body, now)
    hint = explicit_hint_s(headers, body, now)
    return _failure(said, status, hint)


def failure_within(said: Status, raw: bytes) -> Failure:
    """The failure that an error inside a 200 is; `raw`: the bytes it was read from."""
    return _failure(said, 200, explicit_hint_s({}, raw, 0.0))


def _failure(said: Status, http: int, hint: float | None) -> Failure:
    status = said.code if said.code is not None and 400 <= said.code <= 599 else http
    found = _class(said, status, said.message[:2000].lower(), hint)
    message = (cleaned(said.message) if found in ABOUT_THE_REQUEST else "") or OWN_WORDS[found]
    code = said.word or (None if said.code is None else str(said.code))
    return Failure(found, message, http, code, hint if found in _WAITABLE else None)


def _class(said: Status, status: int, text: str, hint: float | None) -> FailureClass:
    if "API_KEY_INVALID" in said.reasons or any(sign in text for sign in _BAD_KEY):
        return _C.AUTH
    if said.word in _LIMITS or (status == 429 and said.word not in _BY_WORD):
        return _limited(said, status, text, hint)
    if said.word in _ABOUT_INPUT:
        told = Told(said.message, kind="invalid_request_error")
        return _C.CONTEXT_LENGTH if any(sign in text for sign in _TOO_LONG) else failure_inside(told).failure_class
    return _BY_WORD.get(said.word) or failure_inside(Told(said.message, str(status) if status >= 400 else None)).failure_class


def _limited(said: Status, status: int, text: str, hint: float | None) -> FailureClass:
    """No quota named and nothing said of when to come back: capacity that all customers of Vertex share."""
    long_term = any("perday" in name.lower() or value == "0" for name, value in said.quotas)
    if status == 402 or long_term or _ZERO.search(text) or (hint is not None and hint >= _DAY_S):
        return _C.QUOTA_EXHAUSTED
    if not said.quotas and any(sign in text for sign in _MONEY):
        return _C.QUOTA_EXHAUSTED
    return _C.RATE_LIMITED if said.quotas or hint is not None or said.word != _SHORT_OF else _C.OVERLOADED


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
