"""What Anthropic's errors mean (https://platform.claude.com/docs/en/api/errors), as an answer's status or inside a 200.

The classes are those of all providers; here the body is read: `{"type": "error", "error": {"type", "message", "details"}}`.
In front of Claude on a cloud stands the cloud, which answers in its own shapes; those are read as everybody's.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from n4n.core.dialects import classify
from n4n.core.dialects.classify import Told
from n4n.core.errors import Failure
from n4n.core.quota_headers import explicit_hint_s

_MONEY = ("spend limit", "spending limit", "usage limit", "credit balance", "billing")


def failure_of(status: int, headers: Mapping[str, str], body: bytes, now: float) -> Failure:
    """The failure that an answer with an error status is."""
    hinted = explicit_hint_s(headers, body, now) is not None
    return classify.failure_of(status, headers, body, now, read=partial(read_error, hinted=hinted))


def failure_inside(said: object) -> Failure:
    """The failure that an error inside a 200 is: a whole body, or an event of a stream."""
    return classify.failure_inside(read_error(said) or Told())


def read_error(said: object, *, hinted: bool = True) -> Told | None:
    """The error in a parsed body; None: there is none that anybody could read. `hinted`: the answer says when to come back."""
    error = said.get("error") if isinstance(said, Mapping) and said.get("type") == "error" else None
    if not isinstance(error, Mapping):
        return classify.read_error(said)
    details = error.get("details")
    detail = details.get("error_code") if isinstance(details, Mapping) else None
    kind, message = _text(error.get("type")), _text(error.get("message"))
    code = _text(detail) or kind
    about_money = "billing" in code or any(sign in message.lower() for sign in _MONEY)
    if kind == "rate_limit_error" and about_money and not hinted:
        kind = "billing_error"  # a limit of money is answered with 429 too, and no waiting helps
    return Told(message, code or None, kind or None)


def _text(value: object) -> str:
    return value[:2000] if isinstance(value, str) else ""
