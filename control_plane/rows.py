"""Rows of the database as the values that the control plane thinks in, and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlalchemy import Row

from control_plane.access import KeyRecord, KeySettings
from control_plane.budget_rules import from_stored, read_budget, stored, told_budget
from control_plane.spending import Held
from control_plane.tenants import TenantRecord, TenantSettings
from control_plane.versions import Change, Draft, VersionInfo, document_text


def change_of(stored: Sequence[str]) -> Change:
    """One stored change."""
    path, before, after = stored
    return path, before, after


def info_of(row: Row[*tuple[object, ...]]) -> VersionInfo:
    """What history says of a version."""
    found = row._mapping
    return VersionInfo(
        version=found["version"],
        author=found["author"],
        committed_at=found["committed_at"],
        message=found["message"],
        checksum=found["checksum"],
        endpoints=found["endpoints"],
        changes=found["changed"],
    )


def catalog_row(info: VersionInfo, draft: Draft, traceparent: str | None = None) -> dict[str, object]:
    """A version about to be committed; `traceparent`: of the call that does it."""
    return {
        "version": info.version,
        "author": info.author,
        "committed_at": info.committed_at,
        "message": info.message,
        "checksum": info.checksum,
        "document": document_text(draft.content.document),
        "endpoint_states": dict(draft.content.states),
        "changes": [list(change) for change in draft.changes],
        "endpoints": info.endpoints,
        "traceparent": traceparent,
    }


def key_of(row: Row[*tuple[object, ...]]) -> KeyRecord:
    """A key."""
    found = row._mapping
    settings = KeySettings(
        limits=found["limits"],
        budgets=from_stored(found["budgets"]),
        directives=tuple(found["directives"]),
        require_directives=tuple(found["require_directives"]),
        models=tuple(found["models"]),
        expires_at=found["expires_at"],
        priority=found["priority"],
        require_pricing=found["require_pricing"],
        tags=tuple(sorted(found["tags"].items())),
    )
    return KeyRecord(
        public_id=found["public_id"],
        tenant=found["tenant"],
        secret_sha256=bytes(found["secret_sha256"]),
        settings=settings,
        author=found["author"],
        created_at=found["created_at"],
        revoked_at=found["revoked_at"],
        previous_sha256=None if found["previous_sha256"] is None else bytes(found["previous_sha256"]),
        previous_expires_at=found["previous_expires_at"],
        access_version=found["access_version"],
    )


def key_row(record: KeyRecord) -> dict[str, object]:
    """A key about to be written."""
    rules = record.settings
    return {
        "public_id": record.public_id,
        "tenant": record.tenant,
        "secret_sha256": record.secret_sha256,
        "previous_sha256": record.previous_sha256,
        "previous_expires_at": record.previous_expires_at,
        "limits": dict(rules.limits),
        "priority": rules.priority,
        "require_pricing": rules.require_pricing,
        "tags": dict(rules.tags),
        "budgets": stored(rules.budgets),
        "directives": list(rules.directives),
        "require_directives": list(rules.require_directives),
        "models": list(rules.models),
        "author": record.author,
        "created_at": record.created_at,
        "expires_at": rules.expires_at,
        "revoked_at": record.revoked_at,
        "access_version": record.access_version,
    }


def tenant_of(row: Row[*tuple[object, ...]]) -> TenantRecord:
    """A tenant; `keys` where they were counted."""
    found = row._mapping
    caps = {provider: one for provider, told in found["provider_caps"].items() if (one := read_budget(told, "", [])) is not None}
    rules = TenantSettings(from_stored(found["budgets"]), caps, found["limits"], found["priority"], found["capture_content"])
    return TenantRecord(found["name"], rules, found["author"], found["created_at"], found["access_version"], found.get("keys", 0))


def held_by_tenant(row: Row[*tuple[object, ...]]) -> Iterator[Held]:
    """A tenant's budgets, and its caps."""
    found = row._mapping
    for budget in from_stored(found["budgets"]):
        yield Held(found["name"], "", "", budget)
    for provider, told in sorted(found["provider_caps"].items()):
        if (cap := read_budget(told, "", [])) is not None:
            yield Held(found["name"], "", provider, cap)


def held_by_key(row: Row[*tuple[object, ...]]) -> Iterator[Held]:
    """A key's budgets."""
    found = row._mapping
    for budget in from_stored(found["budgets"]):
        yield Held(found["tenant"], found["public_id"], "", budget)


def tenant_row(record: TenantRecord) -> dict[str, object]:
    """A tenant about to be written."""
    rules = record.settings
    return {
        "name": record.name,
        "author": record.author,
        "created_at": record.created_at,
        "budgets": stored(rules.budgets),
        "provider_caps": {provider: told_budget(one) for provider, one in rules.provider_caps.items()},
        "limits": dict(rules.limits),
        "priority": rules.priority,
        "capture_content": rules.capture_content,
        "access_version": record.access_version,
    }
