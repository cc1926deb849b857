"""All SQL of the control plane. Every method is one transaction; DatabaseAway when Postgres cannot be reached."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final, cast

import psycopg
from sqlalchemy import ColumnElement, Select, and_, func, insert, or_, select, text, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolExhausted
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from control_plane import audit
from control_plane.access import AccessState, KeyRecord, settings_as_told
from control_plane.refusals import NotFound, VersionConflict
from control_plane.rows import catalog_row, change_of, held_by_key, held_by_tenant, info_of, key_of, key_row, tenant_of, tenant_row
from control_plane.schema import DatabaseAway, engine_url, one_line
from control_plane.spending import Held
from control_plane.stored import StoredCatalog
from control_plane.tables import access_versions, catalog_versions, heads, keys, nodes, tenants
from control_plane.tenants import TenantRecord, TenantSettings, tenant_settings_as_told
from control_plane.versions import NOTHING, Content, Draft, Version, VersionInfo, conflict_line, document_from
from n4n.core.faults import injected
from n4n.runtime.spans import current_work, part

CHANNEL: Final = "n4n_heads"
_FORGET_AFTER = timedelta(days=30)
_LISTED_FOR = timedelta(hours=24)
_NO_BUDGETS: list[object] = []
_INFO = (
    catalog_versions.c.version,
    catalog_versions.c.author,
    catalog_versions.c.committed_at,
    catalog_versions.c.message,
    catalog_versions.c.checksum,
    catalog_versions.c.endpoints,
    func.jsonb_array_length(catalog_versions.c.changes).label("changed"),
)


@dataclass(frozen=True, slots=True)
class Head:
    """Where a collection stands. Two heads of one number but another time are of different histories."""

    version: int
    committed_at: datetime


@dataclass(frozen=True, slots=True)
class NodeRow:
    """One node as it was last seen, by whichever control plane saw it. None in the last two: nothing new to tell."""

    node: str
    role: str
    build: str
    connected_to: str | None
    applied_version: int
    access_version: int
    last_seen: datetime
    last_ack: datetime | None = None
    last_nack: str | None = None


class Repository:
    """Reads and commits. Every commit of a collection locks that collection's head row first."""

    def __init__(self, database_url: str, *, timeout_s: float = 10.0) -> None:
        url = engine_url(database_url)
        self._conninfo = url.set(drivername="postgresql").render_as_string(hide_password=False)
        self._engine: AsyncEngine = create_async_engine(
            url, pool_size=4, max_overflow=4, pool_timeout=5, pool_pre_ping=True, hide_parameters=True
        )
        self._timeout_s = timeout_s

    async def close(self) -> None:
        """Closes every connection."""
        await self._engine.dispose()

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[AsyncConnection]:
        try:
            async with asyncio.timeout(self._timeout_s), self._engine.begin() as connection:
                yield connection
        except (OperationalError, InterfaceError) as error:
            raise DatabaseAway(f"the database cannot be reached: {one_line(error)}") from error
        except (TimeoutError, PoolExhausted) as error:
            raise DatabaseAway(f"the database did not answer within {self._timeout_s:g} s") from error

    async def heads(self) -> Mapping[str, Head]:
        """The head of every collection: catalog, access."""
        async with self._transaction() as connection:
            rows = (await connection.execute(select(heads))).all()
        return {row.collection: Head(row.version, row.committed_at) for row in rows}

    async def doorbell(self) -> AsyncGenerator[None, None]:
        """Yields once when listening has begun and then whenever any control plane commits. Ends only by DatabaseAway."""
        try:
            async with await psycopg.AsyncConnection.connect(self._conninfo, autocommit=True) as connection:
                await connection.execute(f"LISTEN {CHANNEL}")
                yield
                async for _ in connection.notifies():
                    yield
        except psycopg.Error as error:
            raise DatabaseAway(f"the database cannot be reached: {' '.join(str(error).split())[:200]}") from error

    # -- catalog ---------------------------------------------------------------------------------------------------

    async def catalog(self, version: int | None = None) -> Version:
        """A version, the head unless told; NOTHING when there is none yet. NotFound for a number that never was."""
        async with self._transaction() as connection:
            return await _catalog(connection, version)

    async def stored_catalog(self, version: int | None = None) -> StoredCatalog | None:
        """A version as it is stored, the head unless told; None when there is none yet. NotFound for a number that never was."""
        columns = catalog_versions.c
        query = select(columns.version, columns.committed_at, columns.document, columns.endpoint_states, columns.traceparent)
        query = query.order_by(columns.version.desc()).limit(1) if version is None else query.where(columns.version == version)
        async with self._transaction() as connection:
            row = (await connection.execute(query)).one_or_none()
        if row is not None:
            return StoredCatalog(row.version, row.committed_at, row.document, row.endpoint_states, row.traceparent)
        if version is not None:
            raise NotFound(f"version: there is no catalog version {version}; n4n catalog history lists them")
        return None

    async def history(self, limit: int, before: int | None) -> list[VersionInfo]:
        """Newest first, only those below `before`."""
        query = select(*_INFO).order_by(catalog_versions.c.version.desc()).limit(limit)
        if before is not None:
            query = query.where(catalog_versions.c.version < before)
        async with self._transaction() as connection:
            return [info_of(row) for row in await connection.execute(query)]

    async def preview(self, decide: Callable[[Version], Draft | None], expect: int | None) -> tuple[Version, Draft | None]:
        """The head and what `decide` would make of it, refused as a commit would be; nothing is written."""
        async with self._transaction() as connection:
            head = await _catalog(connection, None)
            await _expect(connection, head.info.version, expect)
            return head, await asyncio.to_thread(decide, head)

    async def commit_catalog(
        self, decide: Callable[[Version], Draft | None], expect: int | None, action: str = "apply", endpoint: str = ""
    ) -> tuple[Version, bool]:
        """Commits what `decide` makes of the head, as the next version; (head, False) when it finds nothing to change.

        `action` and `endpoint`, where it is one endpoint's state that changes, are for the audit trail.

        Serialised by a lock on the head's row; the doorbell rings when the transaction commits.
        """
        work = current_work()
        async with self._transaction() as connection:
            with part("catalog write"):
                number = await _lock(connection, "catalog")
                await _expect(connection, number, expect)
                head = await _catalog(connection, number) if number else NOTHING
                draft = await asyncio.to_thread(decide, head)  # it compares and encodes whole catalogs
                if draft is None:
                    return head, False
                now = await _advance(connection, "catalog", number + 1)
                info = VersionInfo(number + 1, draft.author, now, draft.message, draft.checksum, draft.endpoints, len(draft.changes))
                row = await asyncio.to_thread(catalog_row, info, draft, None if work is None else work.header)
                await connection.execute(insert(catalog_versions).values(row))
                before, after = audit.changed_paths(draft.changes)
                if not endpoint and (found := injected(draft.content.document["endpoints"])):
                    after = {**after, "injected_faults": found[: audit.LONGEST_LIST]}
                kind, name = ("endpoint", endpoint) if endpoint else ("catalog", f"version {number + 1}")
                await audit.note(connection, audit.Entry(action, kind, name, draft.author, before, after), now)
            with part("catalog commit"):
                await connection.commit()
        return Version(info, draft.content, draft.changes), True

    # -- access ----------------------------------------------------------------------------------------------------

    async def access(self, since: Head | None = None) -> AccessState:
        """Every key that is not revoked and every tenant, and the version they are of; with `since`, only what is another than then.

        Those are the keys touched by later versions, and those whose expiry, or whose former secret's, lies between the two commits.
        All keys when `since` is not in this database's history.
        """
        async with self._transaction() as connection:
            await connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
            head = (await connection.execute(select(heads).where(heads.c.collection == "access"))).one()
            query, whose = select(keys).order_by(keys.c.public_id), select(tenants).order_by(tenants.c.name)
            known = since is not None and await _is_of_this_history(connection, since)
            if since is not None and known:
                query = query.where(_touched(since, head.committed_at))
                whose = whose.where(tenants.c.access_version > since.version)
            else:
                query = query.where(keys.c.revoked_at.is_(None))
                whose = whose.where(tenants.c.access_version > 0)
            rows, owners = (await connection.execute(query)).all(), (await connection.execute(whose)).all()
        records = await asyncio.to_thread(lambda: tuple(map(key_of, rows)))
        return AccessState(head.version, head.committed_at, records, changed_only=known, tenants=tuple(map(tenant_of, owners)))

    async def access_at(self, version: int) -> Head | None:
        """When an access version was committed; None: there never was one of this number."""
        query = select(access_versions.c.version, access_versions.c.committed_at).where(access_versions.c.version == version)
        async with self._transaction() as connection:
            row = (await connection.execute(query)).one_or_none()
        return None if row is None else Head(row.version, row.committed_at)

    async def list_keys(self, tenant: str, include_revoked: bool) -> list[KeyRecord]:
        """Keys in order of tenant and age; every tenant's when `tenant` is empty."""
        query = select(keys).order_by(keys.c.tenant, keys.c.created_at, keys.c.public_id)
        if tenant:
            query = query.where(keys.c.tenant == tenant)
        if not include_revoked:
            query = query.where(keys.c.revoked_at.is_(None))
        async with self._transaction() as connection:
            return [key_of(row) for row in await connection.execute(query)]

    async def key(self, public_id: str) -> KeyRecord:
        """One key; NotFound."""
        async with self._transaction() as connection:
            return await _one_key(connection, select(keys).where(keys.c.public_id == public_id), public_id)

    async def create_key(self, record: KeyRecord) -> KeyRecord:
        """Adds a key, and its tenant where that is new, as the next access version."""
        async with self._transaction() as connection:
            number = await _lock(connection, "access") + 1
            now = await _advance(connection, "access", number)
            tenant = {"name": record.tenant, "author": record.author, "created_at": now}
            await connection.execute(upsert(tenants).values(tenant).on_conflict_do_nothing())
            record = replace(record, created_at=now, access_version=number)
            await connection.execute(insert(keys).values(key_row(record)))
            await _note_access(connection, number, record.author, now, f"create {record.public_id} for {record.tenant}")
            entry = audit.Entry("create", "key", record.public_id, record.author, None, _rules(record))
            await audit.note(connection, entry, now)
            return record

    async def change_key(self, public_id: str, author: str, what: str, edit: Callable[[KeyRecord], KeyRecord | None]) -> KeyRecord:
        """Replaces a key by what `edit` makes of it, as the next access version; unchanged when `edit` answers None."""
        async with self._transaction() as connection:
            number = await _lock(connection, "access") + 1
            before = await _one_key(connection, select(keys).where(keys.c.public_id == public_id), public_id)
            after = edit(before)
            if after is None:
                return before
            after = replace(after, access_version=number)
            now = await _advance(connection, "access", number)
            await connection.execute(update(keys).where(keys.c.public_id == public_id).values(key_row(after)))
            await _note_access(connection, number, author, now, f"{what} {public_id}")
            await audit.note(connection, audit.Entry(what, "key", public_id, author, *audit.differing(_rules(before), _rules(after))), now)
            return after

    async def list_tenants(self) -> list[TenantRecord]:
        """By name."""
        async with self._transaction() as connection:
            return [tenant_of(row) for row in await connection.execute(_counted().order_by(tenants.c.name))]

    async def tenant(self, name: str) -> TenantRecord:
        """One tenant; NotFound."""
        async with self._transaction() as connection:
            row = (await connection.execute(_counted().where(tenants.c.name == name))).one_or_none()
        if row is None:
            raise NotFound(f"name: there is no tenant {name}; n4n tenant list shows them")
        return tenant_of(row)

    async def change_tenant(self, name: str, author: str, edit: Callable[[TenantRecord], TenantRecord | None]) -> TenantRecord:
        """Replaces a tenant, made where it is new, by what `edit` makes of it, as the next access version; None: it stays as it is."""
        async with self._transaction() as connection:
            number = await _lock(connection, "access") + 1
            row = (await connection.execute(_counted().where(tenants.c.name == name))).one_or_none()
            now = datetime.now(UTC)
            before = tenant_of(row) if row is not None else TenantRecord(name, TenantSettings(), author, now)
            after = edit(before)
            if after is None and row is not None:
                return before
            after = replace(after or before, access_version=number)
            await _advance(connection, "access", number)
            written = upsert(tenants).values(tenant_row(after))
            changed = {column: written.excluded[column] for column in tenant_row(after) if column not in ("name", "author", "created_at")}
            await connection.execute(written.on_conflict_do_update(index_elements=["name"], set_=changed))
            await _note_access(connection, number, author, now, f"update tenant {name}")
            was, told = audit.differing(*(tenant_settings_as_told(one.settings) for one in (before, after)))
            entry = audit.Entry("update" if row is not None else "create", "tenant", name, author, was if row is not None else None, told)
            await audit.note(connection, entry, now)
            return after

    async def budgeted(self, tenant: str = "", public_id: str = "") -> list[Held]:
        """Every budget and cap that holds: of all, of one tenant, or of one key and its tenant."""
        whose = select(keys.c.tenant, keys.c.public_id, keys.c.budgets).where(keys.c.revoked_at.is_(None), keys.c.budgets != _NO_BUDGETS)
        owners = select(tenants.c.name, tenants.c.budgets, tenants.c.provider_caps).where(tenants.c.access_version > 0)
        if tenant:
            whose, owners = whose.where(keys.c.tenant == tenant), owners.where(tenants.c.name == tenant)
        if public_id:
            whose = whose.where(keys.c.public_id == public_id)
            owners = owners.where(tenants.c.name == select(keys.c.tenant).where(keys.c.public_id == public_id).scalar_subquery())
        async with self._transaction() as connection:
            found = (await connection.execute(owners.order_by(tenants.c.name))).all()
            held = (await connection.execute(whose.order_by(keys.c.tenant, keys.c.public_id))).all()
        return [one for row in found for one in held_by_tenant(row)] + [one for row in held for one in held_by_key(row)]

    # -- audit -----------------------------------------------------------------------------------------------------

    async def audited(self, wanted: audit.Wanted) -> list[audit.Entry]:
        """Who changed what, newest first."""
        async with self._transaction() as connection:
            return [audit.entry_of(row) for row in await connection.execute(audit.query(wanted))]

    # -- nodes -----------------------------------------------------------------------------------------------------

    async def record_nodes(self, rows: Iterable[NodeRow]) -> None:
        """Writes nodes as last seen; a row that another control plane has since seen later stays."""
        values = [{name: getattr(row, name) for name in NodeRow.__slots__} for row in rows]
        if not values:
            return
        statement = upsert(nodes)
        changed: dict[str, ColumnElement[object]] = {name: statement.excluded[name] for name in NodeRow.__slots__ if name != "node"}
        for name in ("last_ack", "last_nack"):
            changed[name] = func.coalesce(statement.excluded[name], nodes.c[name])
        statement = statement.on_conflict_do_update(
            index_elements=["node"], set_=changed, where=nodes.c.last_seen <= statement.excluded.last_seen
        )
        async with self._transaction() as connection:
            await connection.execute(statement, values)

    async def known_nodes(self, now: datetime) -> list[NodeRow]:
        """Nodes seen in the last 24 hours, by name."""
        query = select(nodes).where(nodes.c.last_seen > now - _LISTED_FOR).order_by(nodes.c.node)
        async with self._transaction() as connection:
            return [NodeRow(**row._mapping) for row in await connection.execute(query)]

    async def forget_nodes(self, now: datetime) -> None:
        """Deletes nodes that nobody has seen for 30 days."""
        async with self._transaction() as connection:
            await connection.execute(nodes.delete().where(nodes.c.last_seen < now - _FORGET_AFTER))


def _counted() -> Select[*tuple[object, ...]]:
    held = select(func.count()).select_from(keys).where(keys.c.tenant == tenants.c.name, keys.c.revoked_at.is_(None)).scalar_subquery()
    return select(tenants, held.label("keys"))


async def _lock(connection: AsyncConnection, collection: str) -> int:
    query = select(heads.c.version).where(heads.c.collection == collection).with_for_update()
    return int((await connection.execute(query)).scalar_one())


async def _advance(connection: AsyncConnection, collection: str, version: int) -> datetime:
    """Moves a locked head and rings the doorbell, which Postgres delivers at commit. The time of the commit."""
    moved = update(heads).where(heads.c.collection == collection).values(version=version, committed_at=func.clock_timestamp())
    now = (await connection.execute(moved.returning(heads.c.committed_at))).scalar_one()
    await connection.execute(select(func.pg_notify(CHANNEL, collection)))
    return cast(datetime, now)


async def _expect(connection: AsyncConnection, head: int, expect: int | None) -> None:
    if expect is None or expect == head:
        return
    query = (
        select(*_INFO, catalog_versions.c.changes).where(catalog_versions.c.version > expect).order_by(catalog_versions.c.version.desc())
    )
    rows = (await connection.execute(query.limit(3))).all()
    since = [(info_of(row), [change[0] for change in row.changes[:3]]) for row in rows]
    raise VersionConflict(conflict_line(expect, head, since), head_version=head)


async def _catalog(connection: AsyncConnection, version: int | None) -> Version:
    document = (catalog_versions.c.document, catalog_versions.c.endpoint_states, catalog_versions.c.changes)
    query = select(*_INFO, *document).order_by(catalog_versions.c.version.desc()).limit(1)
    if version is not None:
        query = query.where(catalog_versions.c.version == version)
    row = (await connection.execute(query)).one_or_none()
    if row is not None:
        content = Content(document_from(row.document), row.endpoint_states)
        return Version(info_of(row), content, tuple(change_of(change) for change in row.changes))
    if version is not None:
        raise NotFound(f"version: there is no catalog version {version}; n4n catalog history lists them")
    return NOTHING


async def _is_of_this_history(connection: AsyncConnection, since: Head) -> bool:
    """A restored database may have come to the same number another way; the times tell."""
    query = select(access_versions.c.committed_at).where(access_versions.c.version == since.version)
    return (await connection.execute(query)).scalar_one_or_none() == since.committed_at


def _touched(since: Head, until: datetime) -> ColumnElement[bool]:
    def between(at: ColumnElement[datetime]) -> ColumnElement[bool]:
        return and_(at > since.committed_at, at <= until)

    return or_(keys.c.access_version > since.version, between(keys.c.expires_at), between(keys.c.previous_expires_at))


async def _note_access(connection: AsyncConnection, version: int, author: str, now: datetime, change: str) -> None:
    row = {"version": version, "author": author, "committed_at": now, "change": change}
    await connection.execute(insert(access_versions).values(row))


def _rules(record: KeyRecord) -> dict[str, object]:
    """What the audit trail tells of a key: its rules, and whether it has a former secret, never one of its digests."""
    told = {"tenant": record.tenant, "state": "active" if record.revoked_at is None else "revoked", **settings_as_told(record.settings)}
    if record.previous_expires_at is not None:
        told["former_secret_until"] = record.previous_expires_at.isoformat()
    return told


async def _one_key(connection: AsyncConnection, query: Select[*tuple[object, ...]], public_id: str) -> KeyRecord:
    row = (await connection.execute(query)).one_or_none()
    if row is None:
        raise NotFound(f"public_id: there is no key {public_id}; n4n key list shows them")
    return key_of(row)
