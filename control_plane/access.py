"""Keys: made from the operating system's randomness, shown once, kept as a SHA-256 of the secret part.

No database here: a key is a frozen record, and every change is a function from one record to the next.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import cast

from control_plane.budget_rules import read_budgets, told_budget
from control_plane.refusals import AlreadyRevoked, InvalidRequest
from control_plane.tenants import TenantRecord, read_limits, read_priority
from n4n.core import schema
from n4n.core.access import KEY_PREFIX, Key, split_key
from n4n.core.budgets import Budget, resaved
from n4n.core.directives import HEADER, KEYS, parse
from n4n.core.discovery import ResourceId
from n4n.core.errors import InvalidDirective, Problem
from n4n.core.probes.rows import TENANT as PROBES
from n4n.core.schema import Field
from n4n.core.tags import BadTag, Tags, tags_of
from n4n.runtime.wire import encode_key, key_resource, tenant_resource

_PUBLIC_ID = re.compile(r"[a-z0-9]{12}\Z")
_TENANT = re.compile(r"[A-Za-z0-9._-]{1,100}\Z")
_LAST_MS = 253_402_300_799_000  # the year 9999
_MAX_GRACE_MS = 90 * 86_400_000


def _tags(value: object, path: str, problems: list[Problem]) -> Tags | None:
    found = schema.map_of(schema.text)(value, path, problems)
    try:
        return tags_of(cast(dict[str, str], found)) if found and not problems else ()
    except BadTag as error:
        problems.append(Problem(path, str(error)))
        return None


_FIELDS = {
    "limits": Field(read_limits),
    "priority": Field(read_priority),
    "budgets": Field(read_budgets),
    "directives": Field(schema.listed(schema.text)),
    "require_directives": Field(schema.listed(schema.text)),
    "models": Field(schema.listed(schema.text)),
    "expires_at_ms": Field(schema.whole(1, _LAST_MS, " of Unix milliseconds")),
    "require_pricing": Field(schema.flag),
    "tags": Field(_tags),
}


@dataclass(frozen=True, slots=True)
class KeySettings:
    """The rules of a key. Empty `models`: all."""

    limits: Mapping[str, int] = field(default_factory=dict)
    budgets: tuple[Budget, ...] = ()
    directives: tuple[str, ...] = ()
    require_directives: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    expires_at: datetime | None = None
    priority: str | None = None
    require_pricing: bool = False
    tags: Tags = ()


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """A key as it is stored. `access_version`: the version that last touched it."""

    public_id: str
    tenant: str
    secret_sha256: bytes
    settings: KeySettings
    author: str
    created_at: datetime
    revoked_at: datetime | None = None
    previous_sha256: bytes | None = None
    previous_expires_at: datetime | None = None
    access_version: int = 0

    def __repr__(self) -> str:
        """Without the digests."""
        return f"KeyRecord({self.public_id}, tenant={self.tenant}, access_version={self.access_version})"

    def state(self, now: datetime) -> str:
        """active, revoked or expired."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.settings.expires_at is not None and self.settings.expires_at <= now else "active"


@dataclass(frozen=True, slots=True)
class AccessState:
    """Keys and tenants at one access version: all that are not revoked, or, `changed_only`, those that are not as they were earlier."""

    version: int
    committed_at: datetime
    keys: tuple[KeyRecord, ...]
    changed_only: bool = False
    tenants: tuple[TenantRecord, ...] = ()

    def encoded(self) -> Iterator[tuple[ResourceId, bytes | None]]:
        """What routers get of each, None: nothing, as a key is not active at the commit; the same on every control plane."""
        at = self.committed_at
        for tenant in self.tenants:
            yield tenant_resource(tenant.name), tenant.encoded()
        for record in self.keys:
            yield key_resource(record.public_id), encode_key(_for_routers(record, at)) if record.state(at) == "active" else None


def _for_routers(record: KeyRecord, at: datetime) -> Key:
    rules, until = record.settings, record.previous_expires_at
    rotated = record.previous_sha256 is not None and until is not None and until > at
    return Key(
        public_id=record.public_id,
        tenant=record.tenant,
        secret_sha256=record.secret_sha256,
        expires_at=rules.expires_at.timestamp() if rules.expires_at else None,
        directives=rules.directives,
        require_directives=rules.require_directives,
        models=frozenset(rules.models),
        limits=rules.limits,
        budgets=rules.budgets,
        priority=rules.priority,
        require_pricing=rules.require_pricing,
        tags=rules.tags,
        previous_sha256=record.previous_sha256 if rotated else None,
        previous_expires_at=until.timestamp() if rotated and until else None,
    )


def read_settings(raw: Mapping[str, object], now: datetime) -> KeySettings:
    """The rules in `raw`, by the field names of KeySettings on the wire; InvalidRequest names every bad field at once."""
    problems: list[Problem] = []
    table = schema.read_table(raw, "", problems, _FIELDS)
    problems.extend(_cross_check(table, now))
    if problems:
        raise InvalidRequest("; ".join(map(str, problems))[:500], problems=problems)
    expires_ms = cast(int | None, table.get("expires_at_ms"))
    return KeySettings(
        limits=cast(dict[str, int], table.get("limits", {})),
        budgets=cast(tuple[Budget, ...], table.get("budgets", ())),
        directives=tuple(cast(list[str], table.get("directives", ()))),
        require_directives=tuple(cast(list[str], table.get("require_directives", ()))),
        models=tuple(cast(list[str], table.get("models", ()))),
        expires_at=None if expires_ms is None else datetime.fromtimestamp(expires_ms / 1000, UTC),
        priority=cast(str | None, table.get("priority")),
        require_pricing=table.get("require_pricing") is True,
        tags=cast(Tags, table.get("tags", ())),
    )


def _cross_check(table: Mapping[str, object], now: datetime) -> list[Problem]:
    problems = []
    expires = table.get("expires_at_ms")
    if isinstance(expires, int) and expires <= now.timestamp() * 1000:
        problems.append(Problem("expires_at_ms", "must be in the future; to end a key now, revoke it"))
    problems.extend(_directive_problems(cast(Sequence[str], table.get("directives", ()))))
    for index, name in enumerate(cast(Sequence[str], table.get("require_directives", ()))):
        if name not in KEYS:
            told = f"{name[:80]!r} is not a directive{schema.nearest(name[:80], KEYS)}; known: {', '.join(KEYS)}"
            problems.append(Problem(f"require_directives[{index}]", told))
    return problems


def _directive_problems(directives: Sequence[str]) -> Iterator[Problem]:
    """One by one, then together: each may be fine and contradict another."""
    faulty = False
    for index, directive in enumerate(directives):
        try:
            parse(directive)
        except InvalidDirective as error:
            faulty = True
            yield Problem(f"directives[{index}]", error.message.removeprefix(f"{HEADER}: "))
    if not faulty:
        try:
            parse(",".join(directives))
        except InvalidDirective as error:
            yield Problem("directives", error.message.removeprefix(f"{HEADER}: "))


def settings_as_told(settings: KeySettings) -> dict[str, object]:
    """The rules by their names on the wire, only those that are set; `read_settings` undoes it."""
    told: dict[str, object] = {
        "limits": dict(settings.limits),
        "budgets": [told_budget(one) for one in settings.budgets],
        "directives": list(settings.directives),
        "require_directives": list(settings.require_directives),
        "models": list(settings.models),
        "priority": settings.priority,
        "require_pricing": settings.require_pricing or None,
        "tags": dict(settings.tags),
        "expires_at_ms": None if settings.expires_at is None else round(settings.expires_at.timestamp() * 1000),
    }
    return {name: value for name, value in told.items() if value not in (None, {}, [])}


def public_id_of(told: str) -> str:
    """The public id in what an operator gave, which may be the whole key; it is not repeated unless it is a public id."""
    parts = split_key(told)
    public_id = parts[0] if parts else told.removeprefix(KEY_PREFIX)
    if not _PUBLIC_ID.match(public_id):
        raise InvalidRequest("public_id: must be the 12 letters and digits after sk-n4n-; n4n key list shows them")
    return public_id


def tenant_name(told: str) -> str:
    """A tenant's name, checked."""
    if not _TENANT.match(told):
        raise InvalidRequest(f"tenant: must be 1 to 100 letters, digits, dots, underscores or hyphens, not {told[:100]!r}")
    return told


def new_key(tenant: str, settings: KeySettings, author: str, now: datetime) -> tuple[KeyRecord, str]:
    """A fresh key and its text, `sk-n4n-<public id>-<secret>`, which exists nowhere else."""
    public_id = "".join(secrets.choice(string.ascii_lowercase + string.digits) for _ in range(12))
    secret, digest = _new_secret()
    settings = replace(settings, budgets=resaved((), settings.budgets, _ms(now)))
    if tenant == PROBES:
        raise InvalidRequest(f"tenant: {PROBES} is the one that probes are booked under; choose another name")
    return KeyRecord(public_id, tenant_name(tenant), digest, settings, author, now), f"{KEY_PREFIX}{public_id}-{secret}"


def _ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def _new_secret() -> tuple[str, bytes]:
    secret = secrets.token_urlsafe(32)
    return secret, hashlib.sha256(secret.encode()).digest()


def rotated(record: KeyRecord, grace_ms: int, now: datetime) -> tuple[KeyRecord, str]:
    """The key with a new secret, and its text; the old secret stays valid for `grace_ms` (0: not at all)."""
    _refuse_revoked(record)
    if not 0 <= grace_ms <= _MAX_GRACE_MS:
        raise InvalidRequest(f"grace_ms: must be from 0 to {_MAX_GRACE_MS} (90 days), not {grace_ms}")
    secret, digest = _new_secret()
    kept = record.secret_sha256 if grace_ms else None
    until = now + timedelta(milliseconds=grace_ms) if grace_ms else None
    after = replace(record, secret_sha256=digest, previous_sha256=kept, previous_expires_at=until)
    return after, f"{KEY_PREFIX}{record.public_id}-{secret}"


def updated(record: KeyRecord, given: Mapping[str, object], names: Sequence[str], now: datetime) -> KeyRecord | None:
    """The key with the named rules as given; a named rule that is not given is cleared. None: nothing changes."""
    _refuse_revoked(record)
    if not names:
        raise InvalidRequest(f"fields: name what to change: {', '.join(_FIELDS)}")
    for name in names:
        if name not in _FIELDS:
            raise InvalidRequest(
                f"fields: there is no setting {name[:50]!r}{schema.nearest(name[:50], _FIELDS)}; known: {', '.join(_FIELDS)}"
            )
    told = {name: value for name, value in settings_as_told(record.settings).items() if name not in names}
    told |= {name: value for name, value in given.items() if name in names}
    kept_expiry = None if "expires_at_ms" in names else told.pop("expires_at_ms", None)
    settings = read_settings(told, now)
    settings = replace(settings, budgets=resaved(record.settings.budgets, settings.budgets, _ms(now)))
    if kept_expiry:
        settings = replace(settings, expires_at=record.settings.expires_at)
    return None if settings == record.settings else replace(record, settings=settings)


def revoked(record: KeyRecord, now: datetime) -> KeyRecord | None:
    """The key, revoked for good; None: it was already."""
    return None if record.revoked_at is not None else replace(record, revoked_at=now)


def _refuse_revoked(record: KeyRecord) -> None:
    if record.revoked_at is not None:
        raise AlreadyRevoked(f"public_id: key {record.public_id} is revoked for good; make another with n4n key create")
