"""A caller's limits as `x-ratelimit-*` header lines, a provider's as corrections of our buckets."""

from __future__ import annotations

import math
from collections.abc import Mapping

from n4n.core.limits.levels import Levels
from n4n.core.limits.subjects import TOKENS, Rate, Subject
from n4n.core.quota_headers import Quota


def limit_fields(subject: Subject, levels: Levels) -> bytes:
    """Header lines, as OpenAI spells them: `reset` is a duration until the bucket is empty of use again."""
    return b"".join([_fields(rate, levels.used.get(rate.name, 0.0)) for rate in subject.rates])


def _fields(rate: Rate, used: float) -> bytes:
    name = rate.name.encode()
    return b"x-ratelimit-limit-%b: %d\r\nx-ratelimit-remaining-%b: %d\r\nx-ratelimit-reset-%b: %b\r\n" % (
        name,
        rate.per_ms * 60_000 + 0.5,
        name,
        max(0.0, rate.capacity - used),
        name,
        duration(used / rate.per_ms),
    )


def duration(ms: float) -> bytes:
    """Milliseconds as Go and OpenAI write a duration: `12ms`, `7.56s`, `6m0s`."""
    whole = math.ceil(ms)
    if whole < 1_000:
        return b"%dms" % whole
    minutes, rest = divmod(whole, 60_000)
    seconds = f"{rest / 1_000:.3f}".rstrip("0").rstrip(".").encode()
    return b"%dm%bs" % (minutes, seconds) if minutes else seconds + b"s"


def floors(subject: Subject, told: Mapping[str, Quota], expected: Levels) -> dict[str, float]:
    """What must count as used for each bucket of which the provider has less left than we thought."""
    found: dict[str, float] = {}
    for rate in subject.rates:
        remaining = _remaining(rate.name, told)
        if remaining is not None and rate.capacity - remaining > expected.used.get(rate.name, 0.0) + 1.0:
            found[rate.name] = rate.capacity - remaining
    return found


def _remaining(name: str, told: Mapping[str, Quota]) -> int | None:
    """What is left at the provider. Where it counts input and output apart, what is left of input is the nearest to our one bucket."""
    quota = told.get(name) or (told.get("input_tokens") if name == TOKENS else None)
    return None if quota is None else quota.remaining
