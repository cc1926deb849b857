"""What one router may spend while Redis is away: its part of every limit, from the last level that Redis told.

All routers together then admit the limit and no more. Of a subject that Redis never told of, a router takes a fifth at once and the rest
as it drains: what was used before is not known, and 1.2 times the limit is the most that may be admitted.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from n4n.core.limits.subjects import Subject

UNKNOWN_USED = 0.8  # of a bucket that nobody told of


def share_of(subject: Subject, routers: int) -> Subject:
    """The subject with its limits divided; a place among the running is the least that anybody has."""
    parts = max(1, routers)
    return replace(
        subject,
        buckets=tuple([replace(bucket, capacity=bucket.capacity / parts, per_ms=bucket.per_ms / parts) for bucket in subject.buckets]),
        concurrency=None if subject.concurrency is None else max(1, subject.concurrency // parts),
        streams=None if subject.streams is None else max(1, subject.streams // parts),
    )


def used_at_start(share: Subject, told: Sequence[float] | None, age_ms: float, routers: int) -> tuple[float, ...]:
    """What counts as used of a share. `told`: of each bucket what Redis said last, `age_ms` ago; None: never."""
    if told is None:
        return tuple([bucket.capacity * UNKNOWN_USED for bucket in share.buckets])
    parts = max(1, routers)
    return tuple([max(0.0, used / parts - age_ms * bucket.per_ms) for bucket, used in zip(share.buckets, told, strict=True)])


def used_meanwhile(share: Subject, now_used: Sequence[float], start: Sequence[float], away_ms: float) -> tuple[float, ...]:
    """What Redis does not know of when it is back: the level here, less what is left there of what it knew when it went."""
    levels = zip(share.buckets, now_used, start, strict=True)
    return tuple([max(0.0, used - max(0.0, then - away_ms * bucket.per_ms)) for bucket, used, then in levels])
