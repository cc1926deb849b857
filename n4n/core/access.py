"""Tenants and keys as a router sees them: which key may call, as whom, under which rules."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from n4n.core.budgets import Budget
from n4n.core.errors import Unauthenticated
from n4n.core.tags import Tags

MOST_KNOWN = 4096
KEY_PREFIX = "sk-n4n-"
_KEY = re.compile(r"sk-n4n-([a-z0-9]{12})-([A-Za-z0-9_-]{32,64})\Z")


@dataclass(frozen=True, slots=True)
class Key:
    """One API key. `secret_sha256`: 32 bytes; times are Unix seconds."""

    public_id: str
    tenant: str
    secret_sha256: bytes
    expires_at: float | None = None
    directives: tuple[str, ...] = ()
    require_directives: tuple[str, ...] = ()
    models: frozenset[str] = frozenset()
    limits: Mapping[str, int] = field(default_factory=dict)
    previous_sha256: bytes | None = None
    previous_expires_at: float | None = None
    budgets: tuple[Budget, ...] = ()
    tenant_budgets: tuple[Budget, ...] = ()  # of all its keys together
    provider_caps: Mapping[str, Budget] = field(default_factory=dict)  # of all its keys, by provider: more is spent elsewhere, if it can be
    priority: str | None = None  # of requests that name none; the tenant's where the key has none
    tenant_limits: Mapping[str, int] = field(default_factory=dict)  # of all its keys together
    require_pricing: bool = False  # endpoints without a price are not used
    tags: Tags = ()  # of its requests' rows, under those that they send
    capture_content: bool = False  # the tenant wants traces of its requests to bear what was said


@dataclass(frozen=True, slots=True)
class Tenant:
    """What holds for all keys of a tenant together."""

    name: str
    budgets: tuple[Budget, ...] = ()
    provider_caps: Mapping[str, Budget] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    priority: str | None = None
    capture_content: bool = False

    def lent(self, key: Key) -> Key:
        """A key of this tenant, with what holds for all of them."""
        return replace(
            key,
            tenant_budgets=self.budgets,
            provider_caps=self.provider_caps,
            tenant_limits=self.limits,
            priority=key.priority or self.priority,
            capture_content=self.capture_content,
        )


@dataclass(frozen=True, slots=True)
class AccessSnapshot:
    """One version of all keys that are neither revoked nor of a disabled tenant, with what holds for those of their tenants."""

    version: int
    checksum: str
    keys: Mapping[str, Key]
    tenants: Mapping[str, Tenant] = field(default_factory=dict)  # that have rules
    _known: dict[str, Key] = field(default_factory=dict, compare=False, repr=False)  # by what was presented; keys that never end

    def recalled(self, presented: str) -> Key | None:
        """The key that was found behind exactly this before, where it never ends; None: `authenticate`."""
        return self._known.get(presented)

    def authenticate(self, presented: str | None, now: float) -> Key:
        """The key behind `sk-n4n-<public id>-<secret>`; one uniform Unauthenticated otherwise. `now`: Unix seconds."""
        known = self._known.get(presented or "")
        return known if known is not None else self._looked_up(presented, now)

    def _looked_up(self, presented: str | None, now: float) -> Key:
        parts = split_key(presented)
        key = self.keys.get(parts[0]) if parts else None
        digest = hashlib.sha256((parts[1] if parts else "").encode()).digest()
        current = hmac.compare_digest(digest, key.secret_sha256 if key else bytes(32))
        previous = hmac.compare_digest(digest, (key.previous_sha256 if key else None) or bytes(32))
        if key is None or (key.expires_at is not None and now >= key.expires_at):
            raise Unauthenticated
        if current and key.expires_at is None and presented is not None:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[presented] = key
        if current or (previous and key.previous_expires_at is not None and now < key.previous_expires_at):
            return key
        raise Unauthenticated


def split_key(presented: str | None) -> tuple[str, str] | None:
    """(public id, secret) of a well-formed key, None otherwise."""
    match = _KEY.match(presented) if presented else None
    return (match[1], match[2]) if match else None
