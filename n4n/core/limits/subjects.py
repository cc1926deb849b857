"""Who has a limit, and the buckets that it is made of: a caller's key, or an account at a provider.

A bucket drains at its rate and holds one minute of it, unless `burst` says otherwise for requests. What is kept of a bucket is what was
used, not what is left: so a limit that is edited applies at once and resets nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import cast

import msgspec

REQUESTS, TOKENS = "requests", "tokens"
MINUTE_MS = 60_000.0


class Priority(StrEnum):
    """How a request competes for what is short, first to last."""

    INTERACTIVE = "interactive"
    BACKGROUND = "background"
    BEST_EFFORT = "best_effort"


RESERVES: Mapping[Priority, float] = {Priority.INTERACTIVE: 0.0, Priority.BACKGROUND: 0.2, Priority.BEST_EFFORT: 0.5}


class Rate(msgspec.Struct, frozen=True):
    """A bucket of `capacity`, which drains by `per_ms` each millisecond."""

    name: str
    capacity: float
    per_ms: float


class Subject(msgspec.Struct, frozen=True):
    """One that has limits. `keys` of Redis: the levels of the buckets, leases, leases of streams; they share a hash tag. None: no limit."""

    name: str
    keys: tuple[str, str, str]
    rates: tuple[Rate, ...]
    concurrency: int | None = None
    streams: int | None = None

    def rate(self, name: str) -> Rate | None:
        """The bucket of that name; None: not limited."""
        return next((rate for rate in self.rates if rate.name == name), None)


class Draw(msgspec.Struct, frozen=True):
    """What one attempt takes: a request, so many tokens, a place among those running, and among streams if it is one."""

    tokens: float = 0.0
    stream: bool = False
    priority: Priority = Priority.INTERACTIVE

    def amount(self, rate: Rate) -> float:
        """From that bucket. Tokens are an estimate: a margin alone never makes a request larger than the bucket."""
        return min(self.tokens, rate.capacity) if rate.name == TOKENS else 1.0

    def room(self, rate: Rate, reserves: Mapping[Priority, float] = RESERVES) -> float:
        """How full the bucket may be afterwards. Lower priorities leave a reserve, but what needs more gets in once all is drained."""
        return max(rate.capacity * (1.0 - reserves[self.priority]), self.amount(rate))


def caller_subject(tenant: str, public_id: str, limits: Mapping[str, int]) -> Subject | None:
    """An API key; None: it has no limits."""
    return _subject(public_id, f"n4n:{{t:{_plain(tenant)}}}:{public_id}", limits) if limits else None


def account_subject(account: str, upstream_model: str, limits: Mapping[str, object]) -> Subject | None:
    """An account, or its share for one model or deployment where providers count so (`scope: per_model`, the default); None: no limits."""
    numbers = {name: cast(int, value) for name, value in limits.items() if name != "scope"}
    if not numbers:
        return None
    tag = f"n4n:{{a:{account}}}"
    return _subject(account, tag if limits.get("scope") == "shared" else f"{tag}:{_plain(upstream_model)}", numbers)


def too_large(subject: Subject, tokens: float) -> Rate | None:
    """The bucket that could not hold so many tokens even if it were empty; None: it fits."""
    rate = subject.rate(TOKENS)
    return rate if rate is not None and tokens > rate.capacity else None


def _subject(name: str, prefix: str, limits: Mapping[str, int]) -> Subject:
    rates = []
    if "rpm" in limits:
        rates.append(Rate(REQUESTS, float(limits.get("burst", limits["rpm"])), limits["rpm"] / MINUTE_MS))
    if "tpm" in limits:
        rates.append(Rate(TOKENS, float(limits["tpm"]), limits["tpm"] / MINUTE_MS))
    keys = (f"{prefix}:b", f"{prefix}:l", f"{prefix}:s")
    return Subject(name, keys, tuple(rates), limits.get("concurrency"), limits.get("streams"))


def _plain(name: str) -> str:
    """Without what would end a hash tag; different names stay different."""
    return name.replace("%", "%25").replace("{", "%7B").replace("}", "%7D")
