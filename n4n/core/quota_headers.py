"""What providers say about their limits: when to come back, and how much is left, in one shape."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from n4n.core import json_bytes

MAX_HINT_S = 31 * 86_400.0  # quotas return by the month; more is a mistake
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_DURATION = re.compile(r"(?:\d+(?:\.\d*)?(?:h|ms|m|s|us|µs|ns))+\Z")
_PART = re.compile(r"(\d+(?:\.\d*)?)(h|ms|m|s|us|µs|ns)")
_NUMBER = re.compile(r"\d+(?:\.\d*)?\Z")
_RETRY_DELAY = b"retryDelay"
_EPOCH = 1_000_000_000.0  # a bare number above is a point in time, above a thousand times that in milliseconds

# (family, place of the member) of every header name known: OpenAI's and its likes', Azure's, Together's, Mistral's, Anthropic's.
_FAMILIES = {
    "requests": ("x-ratelimit-{}-requests", "x-ratelimit-{}", "x-ratelimit-{}-req-minute", "anthropic-ratelimit-requests-{}"),
    "tokens": ("x-ratelimit-{}-tokens", "x-tokenlimit-{}", "x-ratelimit-{}-tokens-minute", "anthropic-ratelimit-tokens-{}"),
    "input_tokens": ("anthropic-ratelimit-input-tokens-{}", "x-ratelimit-{}-tokens-prompt"),
    "output_tokens": ("anthropic-ratelimit-output-tokens-{}", "x-ratelimit-{}-tokens-generated"),
}
_SPELLED = tuple(
    (family, tuple(tuple(spelling.format(member) for member in ("limit", "remaining", "reset")) for spelling in spellings))
    for family, spellings in _FAMILIES.items()
)
_ALL = frozenset(name for _, spellings in _SPELLED for named in spellings for name in named)


@dataclass(frozen=True, slots=True)
class Quota:
    """One of a provider's buckets; `reset_s` is seconds until it is full again. None: not said."""

    limit: int | None = None
    remaining: int | None = None
    reset_s: float | None = None


def read_quotas(headers: Mapping[str, str], now: float) -> dict[str, Quota]:
    """The buckets an answer speaks of: requests, tokens, input_tokens, output_tokens. Header names in lower case; `now` in Unix seconds."""
    found: dict[str, Quota] = {}
    if _ALL.isdisjoint(headers):
        return found
    for family, spellings in _SPELLED:
        for named_limit, named_remaining, named_reset in spellings:
            limit = _whole(headers.get(named_limit))
            remaining = _whole(headers.get(named_remaining))
            reset = _span(headers.get(named_reset), now)
            if not (limit is None and remaining is None and reset is None):
                found[family] = Quota(limit, remaining, reset)
                break
    return found


def explicit_hint_s(headers: Mapping[str, str], body: bytes, now: float) -> float | None:
    """The seconds a provider asks to wait: `retry-after-ms`, `retry-after` (seconds or a date), else RetryInfo in the body."""
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return min(milliseconds / 1000, MAX_HINT_S)
    for hint in (_retry_after(headers.get("retry-after"), now), _retry_delay(body)):
        if hint is not None:
            return min(hint, MAX_HINT_S)
    return None


def retry_after_s(headers: Mapping[str, str], body: bytes, now: float) -> float | None:
    """The explicit hint, else the longest reset of a bucket with nothing left (RFC 9110 §10.2.3 and each provider's rate limit page)."""
    hint = explicit_hint_s(headers, body, now)
    if hint is not None:
        return hint
    resets = [quota.reset_s for quota in read_quotas(headers, now).values() if quota.remaining == 0 and quota.reset_s is not None]
    return max(resets, default=None)


def _number(text: str | None) -> float | None:
    return float(text) if text is not None and len(text) < 32 and _NUMBER.match(text := text.strip()) else None


def _whole(text: str | None) -> int | None:
    number = _number(text)
    return None if number is None else int(number)


def _retry_after(text: str | None, now: float) -> float | None:
    seconds = _number(text)
    if seconds is not None or text is None:
        return seconds
    if _DURATION.match(text.strip()):
        return _duration(text)
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    return max(0.0, _unix(moment) - now)


def _retry_delay(body: bytes) -> float | None:
    if _RETRY_DELAY not in body:
        return None
    found = re.search(rb'"retryDelay"\s*:\s*"([0-9.hmsun]{1,32})"', body)
    if found is None:
        return None
    try:
        json_bytes.parse(body)
    except json_bytes.NotJson:
        return None
    text = found[1].decode()
    return _duration(text) if _DURATION.match(text) else None


def _span(text: str | None, now: float) -> float | None:
    """A reset as seconds from now: a Go duration, bare seconds, a point in time in Unix seconds or milliseconds, or RFC 3339."""
    if text is None or len(text) > 64:
        return None
    text = text.strip()
    if _DURATION.match(text):
        return min(_duration(text), MAX_HINT_S)
    number = _number(text)
    if number is None:
        try:
            number = _unix(datetime.fromisoformat(text))
        except ValueError:
            return None
    if number > _EPOCH:
        number = max(0.0, number / (1000 if number > _EPOCH * 1000 else 1) - now)
    return min(number, MAX_HINT_S)


def _duration(text: str) -> float:
    return sum(float(amount) * _UNITS[unit] for amount, unit in _PART.findall(text))


def _unix(moment: datetime) -> float:
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
