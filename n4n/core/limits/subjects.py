"""Who has a limit, and the buckets that it is made of: a caller's key, its tenant, or an account at a provider.

A bucket drains all the time and holds one minute or one day of its rate, unless `burst` says otherwise for requests. What is kept of it is
what was used, not what is left: so a limit that is edited applies at once and resets nothing. Budgets are kept apart (`purse`).

Subjects that are asked together, all or none, share a hash tag: a key and its tenant.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, StrEnum
from typing import cast

import msgspec

REQUESTS, TOKENS = "requests", "tokens"
MINUTE_MS, DAY_MS = 60_000.0, 86_400_000.0


class Priority(StrEnum):
    """How a request competes for what is short, first to last."""

    INTERACTIVE = "interactive"
    BACKGROUND = "background"
    BEST_EFFORT = "best_effort"


RESERVES: Mapping[Priority, float] = {Priority.INTERACTIVE: 0.0, Priority.BACKGROUND: 0.2, Priority.BEST_EFFORT: 0.5}


class Unit(IntEnum):
    """What a bucket counts."""

    REQUESTS = 0
    TOKENS = 1


class Rate(msgspec.Struct, frozen=True):
    """A bucket of `capacity`, which drains by `per_ms` each millisecond. `code`: one character, under which it is kept."""

    name: str
    code: str
    unit: Unit
    capacity: float
    per_ms: float

    @property
    def is_daily(self) -> bool:
        """Whether its limit is told by the day, not by the minute."""
        return self.name.endswith("_per_day")

    @property
    def limit(self) -> float:
        """What it lets through in its minute or day."""
        return self.per_ms * (DAY_MS if self.is_daily else MINUTE_MS)


class Subject(msgspec.Struct, frozen=True):
    """One that has limits. `keys` of Redis: the levels of the buckets, leases, leases of streams. None: no limit.

    `whose`: what it is, in words for an error. Of one subject no two buckets have the same name or code.
    """

    name: str
    keys: tuple[str, str, str]
    buckets: tuple[Rate, ...]
    concurrency: int | None = None
    streams: int | None = None
    whose: str = "API key"

    def bucket(self, name: str) -> Rate | None:
        """The bucket of that name; None: not limited."""
        return next((bucket for bucket in self.buckets if bucket.name == name), None)


class Draw(msgspec.Struct, frozen=True, gc=False):
    """What one attempt takes: a request, so many tokens and pico-USD, a place among those running, and among streams if it is one.

    `reserve`: the share of every rate that it leaves to those before it.
    """

    tokens: float = 0.0
    stream: bool = False
    reserve: float = 0.0
    spend: float = 0.0
    most_tokens: float = 0.0  # what budgets of tokens are asked for: as much as it may become, not as it usually is

    def of(self, unit: Unit) -> float:
        """How much, as it was estimated."""
        return self.tokens if unit is Unit.TOKENS else 1.0

    def amount(self, bucket: Rate) -> float:
        """From that bucket. Estimates have a margin, which alone never makes a request larger than a bucket."""
        return min(self.of(bucket.unit), bucket.capacity)

    def room(self, bucket: Rate, part: float = 1.0) -> float:
        """How full the bucket may be afterwards, where `part` of it is there. Lower priorities leave a reserve; what needs more waits for
        all to drain.
        """
        return max(bucket.capacity * part * (1.0 - self.reserve), self.amount(bucket))


class Took(msgspec.Struct, frozen=True, gc=False):
    """What a request took in the end, in the units of a draw."""

    requests: float = 0.0
    tokens: float = 0.0
    spend: float = 0.0

    def of(self, unit: Unit) -> float:
        """How much of it."""
        return self.tokens if unit is Unit.TOKENS else self.requests


NOTHING = Took()


# name of a bucket, its code, its unit, the limit's name, and the time that the limit is told by
_RATES = (
    (REQUESTS, "r", Unit.REQUESTS, "rpm", MINUTE_MS),
    (TOKENS, "t", Unit.TOKENS, "tpm", MINUTE_MS),
    ("requests_per_day", "R", Unit.REQUESTS, "rpd", DAY_MS),
    ("tokens_per_day", "T", Unit.TOKENS, "tpd", DAY_MS),
)


def key_subject(tenant: str, public_id: str, limits: Mapping[str, int]) -> Subject | None:
    """An API key; None: it has no limits."""
    return _subject(public_id, f"{_tag(tenant)}:{public_id}", limits) if limits else None


def tenant_subject(tenant: str, limits: Mapping[str, int]) -> Subject | None:
    """All keys of a tenant together; None: they have no limits."""
    return _subject(tenant, _tag(tenant), limits, whose="tenant") if limits else None


def plain_subject(tenant: str, public_id: str = "") -> Subject:
    """A key, or a tenant, whether it has limits or not."""
    if public_id:
        return _subject(public_id, f"{_tag(tenant)}:{public_id}", {})
    return _subject(tenant, _tag(tenant), {}, whose="tenant")


def account_subject(account: str, upstream_model: str, limits: Mapping[str, object]) -> Subject | None:
    """An account, or its share for one model or deployment where providers count so (`scope: per_model`, the default); None: no limits."""
    numbers = {name: cast(int, value) for name, value in limits.items() if name != "scope"}
    if not numbers:
        return None
    tag = f"n4n:{{a:{account}}}"
    return _subject(account, tag if limits.get("scope") == "shared" else f"{tag}:{_plain(upstream_model)}", numbers, whose="account")


def too_large(subject: Subject, tokens: float) -> Rate | None:
    """The bucket that could not hold so many tokens even if it were empty; None: it fits."""
    for bucket in subject.buckets:
        if bucket.unit is Unit.TOKENS and tokens > bucket.capacity:
            return bucket
    return None


def _subject(name: str, prefix: str, limits: Mapping[str, int], *, whose: str = "API key") -> Subject:
    rates: list[Rate] = []
    for bucket, code, unit, told_as, span_ms in _RATES:
        if told_as in limits:
            holds = limits.get("burst", limits["rpm"]) if told_as == "rpm" else limits[told_as]
            rates.append(Rate(bucket, code, unit, float(holds), limits[told_as] / span_ms))
    keys = (f"{prefix}:u", f"{prefix}:l", f"{prefix}:s")
    return Subject(name, keys, tuple(rates), limits.get("concurrency"), limits.get("streams"), whose)


def _tag(tenant: str) -> str:
    return f"n4n:{{t:{_plain(tenant)}}}"


def _plain(name: str) -> str:
    """Without what would end a hash tag; different names stay different."""
    return name.replace("%", "%25").replace("{", "%7B").replace("}", "%7D")
