"""The control client's calls to the Access service: keys, tenants, and how budgets stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from google.protobuf import json_format

from n4n.runtime.usage_calls import Caller
from n4n.v1 import access_pb2, types_pb2


@dataclass(frozen=True, slots=True)
class BudgetInfo:
    """`amount` of USD as decimal text, or of tokens (`unit`: usd, tokens) per `window`."""

    unit: str
    amount: str
    window: str
    soft: bool


@dataclass(frozen=True, slots=True)
class Standing:
    """How one budget stands; of a tenant where `public_id` is empty, of its cap at a provider where there is one. Times are Unix ms."""

    tenant: str
    public_id: str
    provider: str
    budget: BudgetInfo
    spent: str
    begins_at_ms: int
    resets_at_ms: int
    level: int
    unpriced: int


@dataclass(frozen=True, slots=True)
class TenantInfo:
    """A tenant and its rules; `provider_caps` by provider."""

    name: str
    budgets: tuple[BudgetInfo, ...]
    provider_caps: Mapping[str, BudgetInfo]
    created_at_ms: int
    author: str
    access_version: int
    keys: int
    limits: Mapping[str, int] = field(default_factory=dict)
    priority: str | None = None
    capture_content: bool = False


@dataclass(frozen=True, slots=True)
class KeyInfo:
    """A key and its rules, without its secret; times are Unix ms."""

    public_id: str
    tenant: str
    state: str  # active, revoked, expired
    created_at_ms: int
    revoked_at_ms: int | None
    author: str
    access_version: int
    limits: Mapping[str, int] = field(default_factory=dict)
    budgets: tuple[BudgetInfo, ...] = ()
    directives: tuple[str, ...] = ()
    require_directives: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    expires_at_ms: int | None = None
    priority: str | None = None
    require_pricing: bool = False
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key whose secret is shown this once."""

    key: KeyInfo
    secret: str = field(repr=False)


class AccessCalls:
    """Part of the control client. Rules go by the names of KeyInfo's fields: limits, budgets, directives, …"""

    async def create_key(self: Caller, tenant: str, rules: Mapping[str, object], *, author: str) -> NewKey:
        """Makes a key, and its tenant where there is none yet."""
        request = access_pb2.CreateKeyRequest(tenant=tenant, settings=_settings(rules), author=author)
        return _new_key(await self.ask("Access/CreateKey", request, access_pb2.CreateKeyReply))

    async def list_keys(self: Caller, tenant: str = "", *, include_revoked: bool = False) -> tuple[KeyInfo, ...]:
        """Keys of one tenant, or of all."""
        request = access_pb2.ListKeysRequest(tenant=tenant, include_revoked=include_revoked)
        return tuple(map(_key, (await self.ask("Access/ListKeys", request, access_pb2.ListKeysReply)).keys))

    async def show_key(self: Caller, public_id: str) -> KeyInfo:
        """One key."""
        return _key(await self.ask("Access/ShowKey", access_pb2.ShowKeyRequest(public_id=public_id), access_pb2.KeyInfo))

    async def update_key(self: Caller, public_id: str, rules: Mapping[str, object], fields: Sequence[str], *, author: str) -> KeyInfo:
        """Sets the rules named in `fields`; one that `rules` lacks is cleared."""
        request = access_pb2.UpdateKeyRequest(public_id=public_id, settings=_settings(rules), fields=fields, author=author)
        return _key(await self.ask("Access/UpdateKey", request, access_pb2.KeyInfo))

    async def rotate_key(self: Caller, public_id: str, *, author: str, grace_ms: int = 0) -> NewKey:
        """A new secret; the old one stays valid for `grace_ms`."""
        request = access_pb2.RotateKeyRequest(public_id=public_id, author=author, grace_ms=grace_ms)
        return _new_key(await self.ask("Access/RotateKey", request, access_pb2.CreateKeyReply))

    async def revoke_key(self: Caller, public_id: str, *, author: str) -> KeyInfo:
        """Ends a key for good."""
        return _key(await self.ask("Access/RevokeKey", access_pb2.RevokeKeyRequest(public_id=public_id, author=author), access_pb2.KeyInfo))

    async def list_tenants(self: Caller) -> tuple[TenantInfo, ...]:
        """Every tenant."""
        return tuple(
            map(_tenant, (await self.ask("Access/ListTenants", access_pb2.ListTenantsRequest(), access_pb2.ListTenantsReply)).tenants)
        )

    async def show_tenant(self: Caller, name: str) -> TenantInfo:
        """One tenant."""
        return _tenant(await self.ask("Access/ShowTenant", access_pb2.ShowTenantRequest(name=name), access_pb2.TenantInfo))

    async def update_tenant(self: Caller, name: str, rules: Mapping[str, object], fields: Sequence[str], *, author: str) -> TenantInfo:
        """Sets the rules named in `fields`, by the names of TenantInfo's; one that `rules` lacks is cleared. A new one is made."""
        settings = json_format.ParseDict(dict(rules), access_pb2.TenantSettings())
        request = access_pb2.UpdateTenantRequest(name=name, settings=settings, fields=fields, author=author)
        return _tenant(await self.ask("Access/UpdateTenant", request, access_pb2.TenantInfo))

    async def budgets(self: Caller, tenant: str = "", public_id: str = "") -> tuple[Standing, ...]:
        """How budgets stand: of one tenant, of one key and its tenant, or of all."""
        request = access_pb2.ListBudgetsRequest(tenant=tenant, public_id=public_id)
        return tuple(map(_standing, (await self.ask("Access/ListBudgets", request, access_pb2.ListBudgetsReply)).budgets))


def _settings(rules: Mapping[str, object]) -> access_pb2.KeySettings:
    return json_format.ParseDict(dict(rules), access_pb2.KeySettings())


def limits_of(told: types_pb2.Limits) -> dict[str, int]:
    """The limits that were given, by name."""
    return {described.name: value for described, value in told.ListFields() if described.name != "scope"}


def _key(told: access_pb2.KeyInfo) -> KeyInfo:
    rules = told.settings
    return KeyInfo(
        public_id=told.public_id,
        tenant=told.tenant,
        state=told.state,
        created_at_ms=told.created_at_ms,
        revoked_at_ms=told.revoked_at_ms if told.HasField("revoked_at_ms") else None,
        author=told.author,
        access_version=told.access_version,
        limits=limits_of(rules.limits),
        budgets=tuple(map(_budget, rules.budgets)),
        directives=tuple(rules.directives),
        require_directives=tuple(rules.require_directives),
        models=tuple(rules.models),
        expires_at_ms=rules.expires_at_ms if rules.HasField("expires_at_ms") else None,
        priority=rules.priority if rules.HasField("priority") else None,
        require_pricing=rules.require_pricing,
        tags=dict(sorted(rules.tags.items())),
    )


def _budget(told: types_pb2.Budget) -> BudgetInfo:
    unit, amount = ("tokens", str(told.tokens)) if told.HasField("tokens") else ("usd", told.usd)
    return BudgetInfo(unit, amount, told.window, told.soft)


def _standing(told: access_pb2.BudgetStanding) -> Standing:
    return Standing(
        tenant=told.tenant,
        public_id=told.public_id,
        provider=told.provider,
        budget=_budget(told.budget),
        spent=told.spent,
        begins_at_ms=told.begins_at_ms,
        resets_at_ms=told.resets_at_ms,
        level=told.level,
        unpriced=told.unpriced,
    )


def _tenant(told: access_pb2.TenantInfo) -> TenantInfo:
    return TenantInfo(
        name=told.name,
        budgets=tuple(map(_budget, told.settings.budgets)),
        provider_caps={provider: _budget(one) for provider, one in told.settings.provider_caps.items()},
        created_at_ms=told.created_at_ms,
        author=told.author,
        access_version=told.access_version,
        keys=told.keys,
        limits=limits_of(told.settings.limits),
        priority=told.settings.priority if told.settings.HasField("priority") else None,
        capture_content=told.settings.capture_content,
    )


def _new_key(told: access_pb2.CreateKeyReply) -> NewKey:
    return NewKey(_key(told.key), told.secret)
