"""Several control planes on one Postgres, and one that was restarted: no version is skipped, and a delta does wherever it can."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from control_plane.repository import Head, Repository
from control_plane.versions import apply_document
from n4n.core.document import canonical_json, parse_document
from n4n.v1 import access_pb2, discovery_pb2
from tests.control_plane.client import ACCESS, CATALOG, Calls, Resources, Watcher, a_plane, a_watcher
from tests.support.catalogs import FULL, SMALL, Raw, changed
from tests.support.stores import libpq_url

Held = dict[int, tuple[int, str, Resources]]


def weighing(weight: int) -> Raw:
    return changed(SMALL, "endpoints", "acme-small", "weight", to=weight)


async def follow(watcher: Watcher, until: int, collection: int = CATALOG) -> list[int]:
    """Takes over every version until one; which came."""
    seen: list[int] = []
    while not seen or seen[-1] < until:
        parts = await watcher.next_update(collection, within_s=20)
        await watcher.ack(parts)
        seen.append(parts[-1].version)
    return seen


# One Postgres, several control planes.


@asynccontextmanager
async def a_commit_in_the_air(url: str, version: int, raw: Raw) -> AsyncIterator[psycopg.AsyncConnection]:
    """A transaction that has locked the head, moved it and written the version, and is not committed. It rings no bell."""
    document = canonical_json(parse_document(raw)[0])
    async with await psycopg.AsyncConnection.connect(libpq_url(url)) as late:
        await late.execute("SELECT version FROM heads WHERE collection = 'catalog' FOR UPDATE")
        await late.execute("UPDATE heads SET version = %s, committed_at = clock_timestamp() WHERE collection = 'catalog'", (version,))
        await late.execute(
            "INSERT INTO catalog_versions "
            "(version, author, committed_at, message, checksum, document, endpoint_states, changes, endpoints) "
            "VALUES (%s, 'late', now(), '', '', %s, '{}', '[]', 1)",
            (version, document),
        )
        yield late


async def test_a_version_that_commits_late_is_neither_seen_early_nor_skipped_and_needs_no_bell(postgres_url: str) -> None:
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(a_plane(postgres_url, poll_s=0.1))
        other = await stack.enter_async_context(a_plane(postgres_url, poll_s=0.1))
        watchers = [await stack.enter_async_context(a_watcher(plane.port, node=f"router-{plane.port}")) for plane in (one, other)]
        await one.apply(weighing(1))
        for watcher in watchers:
            assert await follow(watcher, 1) == [1]

        async with a_commit_in_the_air(postgres_url, 2, weighing(2)) as late:
            applying = asyncio.create_task(other.apply(weighing(3)))
            for watcher in watchers:
                await watcher.quiet(0.4)  # several polls of both
            assert not applying.done(), "the next version waits for its turn"
            await late.commit()

        assert (await applying).version.version == 3
        for watcher in watchers:
            seen = await follow(watcher, 3)
            assert seen in ([2, 3], [3])
            (body,) = [body for (_, name), body in watcher.held[CATALOG][2].items() if name == "acme-small"]
            assert b"\x08@" in body, "weight 3 as a double"


async def test_two_control_planes_applying_at_once_show_every_watcher_a_rising_sequence_to_the_head(postgres_url: str) -> None:
    async with AsyncExitStack() as stack:
        planes = [await stack.enter_async_context(a_plane(postgres_url)) for _ in range(2)]
        watchers = [
            await stack.enter_async_context(a_watcher(plane.port, node=f"router-{plane.port}-{n}")) for plane in planes for n in range(2)
        ]
        following = [asyncio.create_task(follow(watcher, 100)) for watcher in watchers]

        async def apply(plane: Calls, weights: range) -> list[int]:
            return [(await plane.apply(weighing(weight))).version.version for weight in weights]

        made = await asyncio.gather(apply(planes[0], range(1000, 1050)), apply(planes[1], range(2000, 2050)))

        assert sorted(made[0] + made[1]) == list(range(1, 101)), "every version once, none twice"
        for seen in await asyncio.gather(*following):
            assert seen == sorted(set(seen)) and seen[-1] == 100
        assert len({watcher.held[CATALOG][1] for watcher in watchers}) == 1
        heads = [watcher.heartbeats[-1] for watcher in watchers]
        assert heads


async def test_keys_made_at_two_control_planes_at_once_are_the_same_everywhere(postgres_url: str) -> None:
    async with AsyncExitStack() as stack:
        planes = [await stack.enter_async_context(a_plane(postgres_url)) for _ in range(2)]
        watchers = [await stack.enter_async_context(a_watcher(plane.port, node=f"router-{plane.port}")) for plane in planes]
        following = [asyncio.create_task(follow(watcher, 40, ACCESS)) for watcher in watchers]

        async def make_and_revoke(plane: Calls) -> None:
            for _ in range(10):
                made = await plane.access.CreateKey(access_pb2.CreateKeyRequest(tenant="acme"), metadata=plane.token)
                await plane.access.RevokeKey(access_pb2.RevokeKeyRequest(public_id=made.key.public_id), metadata=plane.token)

        await asyncio.gather(*map(make_and_revoke, planes))

        for seen in await asyncio.gather(*following):
            assert seen == sorted(set(seen)) and seen[-1] == 40
        assert [watcher.held[ACCESS][2] for watcher in watchers] == [{}, {}]


# A control plane that was restarted.


async def hold(url: str, change: Callable[[Calls], Awaitable[object]], collection: int, version: int = 1) -> Held:
    """What a node holds that saw a version of some earlier control plane."""
    async with a_plane(url) as plane:
        await change(plane)
        async with a_watcher(plane.port) as watcher:
            await follow(watcher, version, collection)
            return {collection: watcher.held[collection]}


async def sent(plane: Calls, held: Held, collection: int = CATALOG) -> discovery_pb2.Update:
    """The one part that a node with this in hand gets; it must add up."""
    async with a_watcher(plane.port, held=held) as watcher:
        (part,) = await watcher.next_update(collection)
        await watcher.ack([part])
        return part


async def test_a_restarted_control_plane_sends_a_delta_from_any_version_and_looks_each_up_once(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = changed(FULL, "endpoints", "acme-large", "weight", to=1)
    first = await hold(postgres_url, lambda plane: plane.apply(full), CATALOG)
    async with a_plane(postgres_url) as plane:
        for weight in range(2, 80):  # more than a running control plane remembers
            await plane.apply(changed(FULL, "endpoints", "acme-large", "weight", to=weight))
    looked_up: list[int | None] = []
    stored = Repository.stored_catalog

    async def counting(self: Repository, version: int | None = None) -> object:
        looked_up.append(version)
        return await stored(self, version)

    monkeypatch.setattr(Repository, "stored_catalog", counting)
    async with a_plane(postgres_url) as plane:
        looked_up.clear()
        parts = await asyncio.gather(*(sent(plane, first) for _ in range(5)))
        assert [(part.base_version, part.version, [one.name for one in part.upserts]) for part in parts] == [(1, 79, ["acme-large"])] * 5
        assert looked_up == [1]
        await plane.apply(changed(FULL, "endpoints", "house-small", "weight", to=9))
        async with a_watcher(plane.port, node="another") as watcher:
            await follow(watcher, 80)
        part = await sent(plane, first)
        assert (part.base_version, part.version, sorted(one.name for one in part.upserts)) == (1, 80, ["acme-large", "house-small"])


@pytest.mark.parametrize("held", [(1, "0" * 64), (77, "0" * 64), (2**62, "")])
async def test_who_holds_what_postgres_never_had_gets_the_whole(held: tuple[int, str], postgres_url: str) -> None:
    await hold(postgres_url, lambda plane: plane.apply(weighing(1)), CATALOG)
    async with a_plane(postgres_url) as plane:
        assert (await sent(plane, {CATALOG: (*held, {})})).base_version == 0


async def test_a_version_that_this_n4n_cannot_read_is_a_base_for_nobody(postgres_url: str) -> None:
    held = await hold(postgres_url, lambda plane: plane.apply(weighing(1)), CATALOG)
    async with a_plane(postgres_url) as plane:
        await plane.apply(weighing(2))
    async with await psycopg.AsyncConnection.connect(libpq_url(postgres_url), autocommit=True) as connection:
        await connection.execute("UPDATE catalog_versions SET document = '{\"planets\": {}}' WHERE version = 1")
    async with a_plane(postgres_url) as plane:
        assert (await sent(plane, held)).base_version == 0


async def a_key(plane: Calls, **rules: object) -> str:
    settings = access_pb2.KeySettings(**rules)  # type: ignore[arg-type]
    made = await plane.access.CreateKey(access_pb2.CreateKeyRequest(tenant="acme", settings=settings), metadata=plane.token)
    return str(made.key.public_id)


async def test_a_restarted_control_plane_sends_only_the_keys_that_changed_since(postgres_url: str) -> None:
    async def three(plane: Calls) -> None:
        for _ in range(3):
            await a_key(plane)

    held = await hold(postgres_url, three, ACCESS, 3)
    (kept, revoked, _) = sorted(name for _, name in held[ACCESS][2])
    async with a_plane(postgres_url) as plane:
        await plane.access.RevokeKey(access_pb2.RevokeKeyRequest(public_id=revoked), metadata=plane.token)
        new = await a_key(plane)
    async with a_plane(postgres_url) as plane:
        part = await sent(plane, held, ACCESS)
        assert (part.base_version, part.version) == (3, 5)
        assert ([one.name for one in part.upserts], [one.name for one in part.removed]) == ([new], [revoked])
        assert kept not in {one.name for one in part.upserts}


async def test_a_node_whose_keys_are_of_another_history_refuses_the_delta_and_gets_the_whole(postgres_url: str) -> None:
    async with a_plane(postgres_url) as plane:
        await a_key(plane)
        await a_key(plane)
    async with a_plane(postgres_url) as plane, a_watcher(plane.port, held={ACCESS: (1, "f" * 64, {})}) as watcher:
        parts = await watcher.next_update(ACCESS)
        assert parts[0].base_version == 1
        await watcher.nack(parts, "checksum", "does not add up")
        whole = await watcher.next_update(ACCESS)
        assert (whole[0].base_version, len(await watcher.ack(whole))) == (0, 2)


# Keys that change by themselves.


async def test_a_key_that_expired_leaves_with_the_next_version_and_only_what_changed_is_read(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    access = Repository.access

    async def counting(self: Repository, since: Head | None = None) -> object:
        state = await access(self, since)
        read.append(len(state.keys))
        return state

    monkeypatch.setattr(Repository, "access", counting)
    async with a_plane(postgres_url) as plane, a_watcher(plane.port) as watcher:
        for _ in range(5):
            await a_key(plane)
        soon = await a_key(plane, expires_at_ms=round((datetime.now(UTC) + timedelta(seconds=0.5)).timestamp() * 1000))
        rotating = await a_key(plane)
        await plane.access.RotateKey(access_pb2.RotateKeyRequest(public_id=rotating, grace_ms=300), metadata=plane.token)
        await follow(watcher, 8, ACCESS)
        assert soon in {name for _, name in watcher.held[ACCESS][2]}
        await asyncio.sleep(0.7)
        read.clear()
        last = await a_key(plane)
        (delta,) = await watcher.next_update(ACCESS)
        assert ({one.name for one in delta.upserts}, [one.name for one in delta.removed]) == ({last, rotating}, [soon])
        assert len(await watcher.ack([delta])) == 7
        assert read == [3], "of eight keys"
    async with a_plane(postgres_url) as again, a_watcher(again.port, node="other") as fresh:
        await fresh.ack(await fresh.next_update(ACCESS))
        assert fresh.held[ACCESS] == watcher.held[ACCESS], "what was carried on is what is read anew"


async def test_a_database_that_came_to_the_same_number_another_way_is_read_whole(postgres_url: str) -> None:
    async with a_plane(postgres_url, poll_s=0.1) as plane, a_watcher(plane.port) as watcher:
        kept, lost = await a_key(plane), await a_key(plane)
        await follow(watcher, 2, ACCESS)
        async with await psycopg.AsyncConnection.connect(libpq_url(postgres_url)) as restored:
            await restored.execute("DELETE FROM keys WHERE public_id = %s", (lost,))
            await restored.execute("UPDATE access_versions SET committed_at = committed_at - interval '1 hour'")
            await restored.execute("UPDATE heads SET committed_at = committed_at - interval '1 hour' WHERE collection = 'access'")
        (parts,) = (await watcher.next_update(ACCESS),)
        assert {name for _, name in await watcher.ack(parts)} == {kept}


def test_the_spelling_decides_what_changed() -> None:
    """1 and 1.0 are equal to Python and not to a provider."""
    from control_plane.versions import NOTHING, Content, Version

    def with_body(value: object) -> Raw:
        return changed(SMALL, "endpoints", "acme-small", "body", to={"seed": value})

    head = Version(NOTHING.info, Content(parse_document(with_body(1))[0], {}), ())
    for value, changes in ((1.0, 1), (True, 1), (1, 0)):
        draft = apply_document(head, parse_document(with_body(value))[0], author="a", message="", allow_shrink=False)
        assert draft is not None and len(draft.changes) == changes, json.dumps(value)
