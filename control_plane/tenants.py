"""Tenants: what holds for all keys of one together. Frozen records, and every change a function from one to the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import cast

from control_plane.budget_rules import read_budgets, read_cap, told_budget
from control_plane.refusals import InvalidRequest
from n4n.core import schema
from n4n.core.access import Tenant
from n4n.core.budgets import Budget, resaved
from n4n.core.errors import Problem
from n4n.core.limits.subjects import Priority
from n4n.core.schema import Field
from n4n.runtime.wire import encode_tenant

_LIMITS = ("rpm", "tpm", "rpd", "tpd", "concurrency", "streams", "burst")
read_limits = schema.table({name: Field(schema.whole(1, 10**12)) for name in _LIMITS})
read_priority = schema.choice(*Priority)
_FIELDS = {
    "limits": Field(read_limits),
    "priority": Field(read_priority),
    "budgets": Field(read_budgets),
    "provider_caps": Field(schema.map_of(read_cap)),
    "capture_content": Field(schema.flag),
}


@dataclass(frozen=True, slots=True)
class TenantSettings:
    """The rules of a tenant. `provider_caps`: by provider."""

    budgets: tuple[Budget, ...] = ()
    provider_caps: Mapping[str, Budget] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    priority: str | None = None
    capture_content: bool = False  # traces of its requests bear what was said


@dataclass(frozen=True, slots=True)
class TenantRecord:
    """A tenant as it is stored. `keys`: how many are not revoked, where it was asked for."""

    name: str
    settings: TenantSettings
    author: str
    created_at: datetime
    access_version: int = 0
    keys: int = 0

    def encoded(self) -> bytes | None:
        """What routers get; None: nothing holds for it."""
        rules = self.settings
        if rules == TenantSettings():
            return None
        return encode_tenant(Tenant(self.name, rules.budgets, rules.provider_caps, rules.limits, rules.priority, rules.capture_content))


def read_tenant_settings(raw: Mapping[str, object]) -> TenantSettings:
    """The rules in `raw`, by the field names of TenantSettings on the wire; InvalidRequest names every bad field at once."""
    problems: list[Problem] = []
    table = schema.read_table(raw, "", problems, _FIELDS)
    if problems:
        raise InvalidRequest("; ".join(map(str, problems))[:500], problems=problems)
    return TenantSettings(
        budgets=cast(tuple[Budget, ...], table.get("budgets", ())),
        provider_caps=cast(Mapping[str, Budget], table.get("provider_caps", {})),
        limits=cast(Mapping[str, int], table.get("limits", {})),
        priority=cast(str | None, table.get("priority")),
        capture_content=table.get("capture_content") is True,
    )


def tenant_settings_as_told(settings: TenantSettings) -> dict[str, object]:
    """The rules by their names on the wire, only those that are set; `read_tenant_settings` undoes it."""
    told: dict[str, object] = {
        "limits": dict(settings.limits),
        "priority": settings.priority,
        "capture_content": settings.capture_content or None,
        "budgets": [told_budget(one) for one in settings.budgets],
        "provider_caps": {provider: told_budget(one) for provider, one in settings.provider_caps.items()},
    }
    return {name: value for name, value in told.items() if value not in (None, {}, [])}


def updated_tenant(record: TenantRecord, given: Mapping[str, object], names: Sequence[str], now: datetime) -> TenantRecord | None:
    """The tenant with the named rules as given; a named rule that is not given is cleared. None: nothing changes."""
    if not names:
        raise InvalidRequest(f"fields: name what to change: {', '.join(_FIELDS)}")
    for name in names:
        if name not in _FIELDS:
            near = schema.nearest(name[:50], _FIELDS)
            raise InvalidRequest(f"fields: there is no setting {name[:50]!r}{near}; known: {', '.join(_FIELDS)}")
    told = {name: value for name, value in tenant_settings_as_told(record.settings).items() if name not in names}
    settings = read_tenant_settings(told | {name: value for name, value in given.items() if name in names})
    before, now_ms = record.settings, round(now.timestamp() * 1000)
    caps = {
        provider: resaved([before.provider_caps[provider]] if provider in before.provider_caps else [], [cap], now_ms)[0]
        for provider, cap in settings.provider_caps.items()
    }
    settings = replace(settings, budgets=resaved(before.budgets, settings.budgets, now_ms), provider_caps=caps)
    return None if settings == before else replace(record, settings=settings)
