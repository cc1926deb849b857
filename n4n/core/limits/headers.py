"""A caller's limits as `x-ratelimit-*` header lines, a provider's as corrections of our buckets."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from n4n.core.limits.subjects import REQUESTS, TOKENS, Rate, Subject
from n4n.core.quota_headers import Quota

_TOLD = (REQUESTS, TOKENS)  # OpenAI tells these two, by the minute


class LimitFields:
    """Header lines of one subject, as OpenAI spells them: `reset` is a duration until the bucket is empty of use again.

    Every request pays for this: what stands is put together once.
    """

    __slots__ = ("_lines", "_rates")

    def __init__(self, subject: Subject) -> None:
        told = [(at, one) for at, one in enumerate(subject.buckets) if one.name in _TOLD]
        self._rates = tuple([(at, rate.capacity, rate.per_ms) for at, rate in told])
        self._lines = b"".join([_lines(rate) for _, rate in told])

    def __call__(self, used: Sequence[float]) -> bytes:
        """`used` by bucket."""
        told: list[float | bytes] = []
        for at, capacity, per_ms in self._rates:
            level = used[at]
            told.append(capacity - level if level < capacity else 0)
            told.append(duration(level / per_ms))
        return self._lines % tuple(told)


def _lines(rate: Rate) -> bytes:
    name = rate.name.encode()
    limit = b"x-ratelimit-limit-%b: %d\r\n" % (name, rate.per_ms * 60_000 + 0.5)
    return b"%bx-ratelimit-remaining-%b: %%d\r\nx-ratelimit-reset-%b: %%b\r\n" % (limit, name, name)


def duration(ms: float) -> bytes:
    """Milliseconds as Go and OpenAI write a duration: `12ms`, `7.56s`, `6m0s`."""
    whole = math.ceil(ms)
    if whole < 1_000:
        return b"%dms" % whole
    minutes, rest = divmod(whole, 60_000)
    seconds = b"%.3f" % (rest / 1_000)
    seconds = seconds.rstrip(b"0").rstrip(b".") if seconds.endswith(b"0") else seconds
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
