"""What one router may spend while Redis is away: its part of every limit, from the last level that Redis told.

All routers together then admit the limit and no more. Of a subject that Redis never told of, a router takes a fifth at once and the rest
as it drains: what was used before is not known, and 1.2 times the limit is the most that may be admitted.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from n4n.core.limits.levels import Levels
from n4n.core.limits.subjects import Rate, Subject

UNKNOWN_USED = 0.8  # of a bucket that nobody told of


def share_of(subject: Subject, routers: int) -> Subject:
    """The subject with its limits divided; a place among the running is the least that anybody has."""
    parts = max(1, routers)
    return replace(
        subject,
        rates=tuple(Rate(rate.name, rate.capacity / parts, rate.per_ms / parts) for rate in subject.rates),
        concurrency=None if subject.concurrency is None else max(1, subject.concurrency // parts),
        streams=None if subject.streams is None else max(1, subject.streams // parts),
    )


def used_at_start(share: Subject, told: Levels | None, age_ms: float, routers: int) -> dict[str, float]:
    """What counts as used of a share. `told`: the subject's levels as Redis told them last, `age_ms` ago; None: never."""
    if told is None:
        return {rate.name: rate.capacity * UNKNOWN_USED for rate in share.rates}
    parts = max(1, routers)
    return {rate.name: max(0.0, told.used.get(rate.name, 0.0) / parts - age_ms * rate.per_ms) for rate in share.rates}


def used_meanwhile(share: Subject, now_used: Mapping[str, float], start: Mapping[str, float], away_ms: float) -> dict[str, float]:
    """What Redis does not know of when it is back: the level here, less what is left there of what it knew when it went."""
    kept = {rate.name: max(0.0, start.get(rate.name, 0.0) - away_ms * rate.per_ms) for rate in share.rates}
    return {name: max(0.0, used - kept.get(name, 0.0)) for name, used in now_used.items()}
