"""The audit trail: an entry for every change of catalog, endpoints, keys, tenants and ratings, written in the transaction of the change.

Postgres refuses to alter or delete an entry. Entries hold rules and documents, never a secret and never a digest of one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import Final, cast

from sqlalchemy import Row, Select, insert, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from control_plane.tables import audit
from control_plane.versions import Change

MOST: Final = 10_000  # entries in one answer
KINDS: Final = ("catalog", "endpoint", "key", "tenant", "rating", "budget")
_BUDGETS: Final = ("budgets", "provider_caps")  # what an entry of a key or a tenant holds if it is about a budget too
_HIDDEN: Final = '"…"'  # a header of a provider may hold a secret
_HEADERS: Final = re.compile(r"providers\.[A-Za-z0-9._-]+?\.headers(\.|\Z)")
_PROVIDER: Final = re.compile(r"providers\.[A-Za-z0-9._-]+\Z")
LONGEST_LIST: Final = 500  # changed paths that one entry holds; the version has them all
SOURCE: ContextVar[str] = ContextVar("SOURCE", default="")  # the address that the call under way came from

Facts = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Entry:
    """One change. `before` None: it was not there; `after` None: it is no more."""

    action: str
    kind: str
    name: str
    author: str
    before: Facts | None
    after: Facts | None
    id: int = 0
    at: datetime | None = None  # None: now
    source: str = ""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which entries. Empty text: all. `kind` budget: of keys and tenants whose budgets changed. `before_id` 0: from the newest."""

    since: datetime
    until: datetime | None = None
    author: str = ""
    kind: str = ""
    name: str = ""
    limit: int = 1000
    before_id: int = 0


async def note(connection: AsyncConnection, entry: Entry, at: datetime) -> None:
    """Writes an entry into the transaction of the change that it tells of."""
    row = {
        "at": at,
        "author": entry.author,
        "source": SOURCE.get()[:200],
        "action": entry.action,
        "kind": entry.kind,
        "name": entry.name,
        "before": entry.before,
        "after": entry.after,
    }
    await connection.execute(insert(audit).values(row))


def query(wanted: Wanted) -> Select[tuple[object, ...]]:
    """The entries wanted, newest first."""
    columns = audit.c
    found = select(audit).where(columns.at >= wanted.since).order_by(columns.id.desc()).limit(min(wanted.limit, MOST))
    if wanted.until is not None:
        found = found.where(columns.at < wanted.until)
    if wanted.before_id:
        found = found.where(columns.id < wanted.before_id)
    if wanted.kind == "budget":
        found = found.where(or_(*(side.has_key(name) for side in (columns.before, columns.after) for name in _BUDGETS)))
    kind = "" if wanted.kind == "budget" else wanted.kind
    for name, value in (("author", wanted.author), ("kind", kind), ("name", wanted.name)):
        if value:
            found = found.where(columns[name] == value)
    return cast(Select[tuple[object, ...]], found)


def entry_of(row: Row[tuple[object, ...]]) -> Entry:
    """An entry as it is stored."""
    return Entry(**row._mapping)


def differing(before: Facts, after: Facts) -> tuple[Facts, Facts]:
    """Only what differs, of both."""
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return {name: before[name] for name in names if name in before}, {name: after[name] for name in names if name in after}


def changed_paths(changes: Sequence[Change]) -> tuple[Facts, Facts]:
    """The paths of a catalog version that differ from the one before, as they were and as they are."""
    told = changes[:LONGEST_LIST]
    before: dict[str, object] = {path: _shown(path, was) for path, was, _ in told if was}
    after: dict[str, object] = {path: _shown(path, now) for path, _, now in told if now}
    if len(changes) > len(told):
        after["…"] = f"{len(changes) - len(told)} more; n4n catalog history has them"
    return before, after


def _shown(path: str, value: str) -> str:
    """A value as JSON text, without what stands in headers."""
    if _HEADERS.match(path):
        return _HIDDEN
    if not _PROVIDER.match(path):
        return value
    provider = json.loads(value)
    if not isinstance(provider, dict) or "headers" not in provider:
        return value
    return json.dumps({**provider, "headers": dict.fromkeys(provider["headers"], "…")}, ensure_ascii=False)
