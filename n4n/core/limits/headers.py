"""A caller's limits as `x-ratelimit-*` header lines, a provider's as corrections of our buckets."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from n4n.core.limits.subjects import REQUESTS, TOKENS, Rate, Subject
from n4n.core.quota_headers import Quota

_TOLD = (REQUESTS, TOKENS)  # OpenAI tells these two, by the minute


def limit_fields(subject: Subject, used: Sequence[float]) -> bytes:
    """Header lines, as OpenAI spells them: `reset` is a duration until the bucket is empty of use again. `used` by bucket."""
    return b"".join(
        [
            _fields(bucket, level)
            for bucket, level in zip(subject.buckets, used, strict=False)
            if isinstance(bucket, Rate) and bucket.name in _TOLD
        ]
    )


def _fields(rate: Rate, used: float) -> bytes:
    name, left = rate.name.encode(), rate.capacity - used
    return b"x-ratelimit-limit-%b: %d\r\nx-ratelimit-remaining-%b: %d\r\nx-ratelimit-reset-%b: %b\r\n" % (
        name,
        rate.per_ms * 60_000 + 0.5,
        name,
        left if left > 0.0 else 0,
        name,
        duration(used / rate.per_ms),
    )


def duration(ms: float) -> bytes:
    """Milliseconds as Go and OpenAI write a duration: `12ms`, `7.56s`, `6m0s`."""
    whole = math.ceil(ms)
    if whole < 1_000:
        return b"%dms" % whole
    minutes, rest = divmod(whole, 60_000)
    seconds = (b"%d.%03d" % divmod(rest, 1_000)).rstrip(b"0").rstrip(b".") if rest % 1_000 else b"%d" % (rest // 1_000)
    return b"%dm%bs" % (minutes, seconds) if minutes else seconds + b"s"


def floors(subject: Subject, told: Mapping[str, Quota], expected: Sequence[float]) -> dict[str, float]:
    """What must count as used for each bucket of which the provider has less left than we thought: `expected` used, by bucket."""
    found: dict[str, float] = {}
    for bucket, used in zip(subject.buckets, expected, strict=False):
        remaining = _remaining(bucket.name, told)
        if remaining is not None and bucket.capacity - remaining > used + 1.0:
            found[bucket.name] = bucket.capacity - remaining
    return found


def _remaining(name: str, told: Mapping[str, Quota]) -> int | None:
    """What is left at the provider. Where it counts input and output apart, what is left of input is the nearest to our one bucket."""
    quota = told.get(name) or (told.get("input_tokens") if name == TOKENS else None)
    return None if quota is None else quota.remaining
