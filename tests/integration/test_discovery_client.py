"""A router follows a control plane over real gRPC: good and bad pushes, silence, death and return, and a start from its own disk."""

# ruff: noqa: ASYNC110, ASYNC240  # a test may poll for what it cannot be told, and read a small file on the loop

from __future__ import annotations

import asyncio
import gc
import hashlib
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
import uvloop

from n4n.core.access import Key
from n4n.core.catalog import collection_checksum
from n4n.core.discovery import Held, LinkRules
from n4n.runtime import disk_snapshot, wire
from n4n.runtime.control_link import ControlLink, Identity, LinkState, told
from n4n.runtime.credentials import Credentials
from n4n.runtime.follower import Follower, Pace
from n4n.v1 import types_pb2
from tests.support.catalogs import FULL, SMALL, Raw, changed
from tests.support.control_plane import TOKEN, ScriptedControlPlane, heartbeat, resources_of, update

FAST = LinkRules(silence_s=3.0, connect_s=1.0, first_wait_s=0.01, longest_wait_s=0.05, tries_per_s=1000.0, burst=100.0)
PACE = Pace(save_after_s=0.01, save_again_s=0.05, credential_files_s=0.05)
ONE = resources_of(SMALL)
TWO = resources_of(changed(SMALL, "endpoints", "acme-small", "weight", to=2))
THREE = resources_of(FULL)
ENDPOINT = types_pb2.KIND_ENDPOINT


def renamed(resources: wire.Resources, name: str, body: bytes) -> wire.Resources:
    """A collection with one endpoint more."""
    return {**resources, (ENDPOINT, name): body}


async def until(holds: Callable[[], bool], within_s: float = 5.0) -> None:
    """Waits until something holds."""
    async with asyncio.timeout(within_s):
        while not holds():
            await asyncio.sleep(0.005)


@asynccontextmanager
async def router(
    *targets: str, path: Path, rules: LinkRules = FAST, token: str = TOKEN, name: str = "router-1"
) -> AsyncIterator[tuple[Follower, ControlLink]]:
    """A follower and its link, running."""
    follower = Follower(path, Credentials({"ACME_API_KEY": "canary-from-env"}), pace=PACE)
    follower.start_from_disk()
    identity = Identity(name, "data-plane", "0.1", token)
    clock = asyncio.get_running_loop().time
    link = ControlLink(targets, identity, follower, rules=rules, clock=clock, draw=lambda: 0.5)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(link.run()), group.create_task(follower.keep())]
        try:
            yield follower, link
        finally:
            for task in tasks:
                task.cancel()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data dir" / "catalog.snapshot"


@pytest.fixture
async def plane() -> AsyncIterator[ScriptedControlPlane]:
    async with ScriptedControlPlane() as running:
        yield running


async def serving(plane: ScriptedControlPlane, version: int = 1, resources: wire.Resources = ONE) -> None:
    """Lets the router take over a first version."""
    await plane.hello()
    plane.push(update(version, resources))
    assert (await plane.ack()).version == version


async def test_a_push_is_acknowledged_with_its_checksum_and_served(plane: ScriptedControlPlane, path: Path) -> None:
    async with router(plane.target, path=path) as (follower, link):
        hello = await plane.hello()
        plane.push(update(1, ONE))

        ack = await plane.ack()

        assert (hello.node, hello.role, hello.build, list(hello.held)) == ("router-1", "data-plane", "0.1", [])
        assert (ack.collection, ack.version, ack.checksum) == (wire.CATALOG, 1, collection_checksum(ONE))
        assert follower.state.catalog is not None and follower.state.catalog.version == 1
        assert (follower.version, follower.checksum, follower.nacks, link.state) == (1, collection_checksum(ONE), 0, LinkState.UP)


async def test_a_change_and_a_snapshot_in_parts_bring_the_router_on(plane: ScriptedControlPlane, path: Path) -> None:
    async with router(plane.target, path=path) as (follower, _):
        await serving(plane)
        before = follower.state

        plane.push(update(2, TWO, base=(1, ONE)))
        assert (await plane.ack()).version == 2
        plane.push(update(3, THREE, parts=4))
        assert (await plane.ack()).version == 3

        assert before.catalog is not None and before.catalog.version == 1  # a request that runs keeps what it began with
        assert follower.state.catalog is not None and set(follower.state.catalog.endpoints) == {"acme-large", "house-small"}


async def test_a_large_catalog_is_taken_over_aside_while_the_loop_keeps_turning(plane: ScriptedControlPlane, path: Path) -> None:
    endpoint = SMALL["endpoints"]["acme-small"]
    many: Raw = {**SMALL, "endpoints": {f"e{n}": endpoint for n in range(1500)}}
    resources = resources_of(many)
    async with router(plane.target, path=path) as (follower, _):
        await serving(plane)
        walked = gc.get_freeze_count()

        plane.push(update(2, resources, parts=5))
        assert (await plane.ack()).version == 2
        plane.push(update(3, {**resources, **TWO}, base=(2, resources)))
        assert (await plane.ack()).version == 3

        assert follower.state.catalog is not None and len(follower.state.catalog.endpoints) == 1501
        assert gc.get_freeze_count() > walked + 1500, "a large catalog is set aside from the cycle collector"
        assert gc.isenabled()


BAD = {
    "an unknown reference": (
        update(2, renamed(ONE, "odd", types_pb2.Endpoint(model="nope", account="acme-main").SerializeToString()), base=(1, ONE)),
        "endpoints.odd.model",
        "there is no model named nope",
    ),
    "several faults": (
        update(2, renamed(ONE, "odd", types_pb2.Endpoint(model="nope", account="no").SerializeToString())),
        "endpoints.odd.model",
        "there is no model named nope; endpoints.odd.account: there is no account named no",
    ),
    "a wrong checksum": (update(2, TWO, base=(1, ONE), checksum="f" * 64), "checksum", "the resources add up to"),
    "a resource that cannot be read": (update(2, renamed(ONE, "odd", b"\xff\xff")), "endpoints.odd", "is not a readable protobuf message"),
    "an address inside the house": (
        update(
            2, ONE | {(types_pb2.KIND_PROVIDER, "x"): types_pb2.Provider(dialect="openai", base_url="http://[::1]").SerializeToString()}
        ),
        "providers.x.base_url",
        "is a loopback, link-local or private address",
    ),
    "no version": (update(0, TWO), "version", "must be 1 or more"),
}


@pytest.mark.parametrize("kind", BAD)
async def test_a_bad_push_is_refused_by_its_field_and_the_last_good_stays_until_the_next_good_one(
    kind: str, plane: ScriptedControlPlane, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    messages, field, reason = BAD[kind]
    async with router(plane.target, path=path) as (follower, link):
        await serving(plane)
        served = follower.state

        plane.push(messages)
        nack = await plane.nack()

        assert (nack.collection, nack.field) == (wire.CATALOG, field)
        assert nack.version in (0, 2) and nack.reason.startswith(reason)
        assert follower.state is served
        assert (follower.nacks, link.state) == (1, LinkState.UP)
        assert gc.isenabled()
        assert field in follower.last_nack and follower.last_nack in caplog.text

        plane.push(update(3, TWO, base=(1, ONE)))
        assert (await plane.ack()).version == 3
        assert follower.version == 3


async def test_a_fault_of_ours_in_compiling_costs_a_nack_and_not_the_router(
    plane: ScriptedControlPlane, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with router(plane.target, path=path) as (follower, _):
        await serving(plane)

        def broken(*_: object, **__: object) -> None:
            raise KeyError("fault")

        with monkeypatch.context() as patched:
            patched.setattr(wire, "build_catalog", broken)
            plane.push(update(2, TWO))
            assert (await plane.nack()).reason == "cannot be compiled: KeyError"
        assert follower.version == 1

        plane.push(update(3, TWO))
        assert (await plane.ack()).version == 3


async def test_a_change_from_a_version_not_held_is_refused_and_asked_for_anew(plane: ScriptedControlPlane, path: Path) -> None:
    async with router(plane.target, path=path) as (follower, _):
        await serving(plane)

        plane.push(update(5, THREE, base=(4, TWO)))
        nack = await plane.nack()
        hello = await plane.hello()

        assert (nack.version, nack.field) == (5, "base_version")
        assert nack.reason == "is a change from version 4; version 1 is held"
        assert [(held.collection, held.version, held.checksum) for held in hello.held] == [(wire.CATALOG, 1, collection_checksum(ONE))]
        plane.push(update(5, THREE, base=(1, ONE)))
        assert (await plane.ack()).version == 5
        assert follower.version == 5


async def test_a_lost_part_leads_to_a_new_stream_and_never_to_a_mixture(plane: ScriptedControlPlane, path: Path) -> None:
    async with router(plane.target, path=path) as (follower, _):
        await serving(plane)
        first, _, *rest = update(2, THREE, parts=4)

        plane.push([first, *rest])
        assert (await plane.nack()).field == "part"
        await plane.hello()

        assert follower.version == 1
        plane.push(update(2, THREE, parts=4))
        assert (await plane.ack()).checksum == collection_checksum(THREE)


@pytest.mark.parametrize("garbage", [b"\xff\xff\xff", b"\x0a\xff"])
async def test_a_message_that_cannot_be_read_leads_to_a_new_stream(garbage: bytes, plane: ScriptedControlPlane, path: Path) -> None:
    async with router(plane.target, path=path):
        await serving(plane)

        plane.push([garbage])

        assert [held.version for held in (await plane.hello()).held] == [1]
        plane.push(update(2, TWO, base=(1, ONE)))
        assert (await plane.ack()).version == 2


async def test_words_of_a_newer_control_plane_are_passed_over(plane: ScriptedControlPlane, path: Path) -> None:
    async with router(plane.target, path=path) as (follower, _):
        await serving(plane)

        plane.push([b"", *update(9, ONE, collection=77), *heartbeat(9, "x", collection=77), *update(2, TWO, base=(1, ONE))])

        assert (await plane.ack()).version == 2
        assert follower.nacks == 0


async def test_a_head_that_is_told_but_not_sent_leads_to_a_new_stream(plane: ScriptedControlPlane, path: Path) -> None:
    async with router(plane.target, path=path):
        await serving(plane)

        plane.push(heartbeat(2, collection_checksum(TWO)) * 3)

        assert [held.version for held in (await plane.hello()).held] == [1]


async def test_what_is_held_already_is_acknowledged_again(plane: ScriptedControlPlane, path: Path) -> None:
    async with router(plane.target, path=path):
        await serving(plane)

        plane.push(update(1, ONE))

        assert (await plane.ack()).version == 1


async def test_silence_means_a_new_channel(plane: ScriptedControlPlane, path: Path) -> None:
    async with router(plane.target, path=path, rules=replace(FAST, silence_s=0.2)) as (follower, link):
        await serving(plane)

        await plane.hello()
        await plane.hello()

        assert follower.version == 1
        assert "nothing was heard for 0.2 s" in repr(link)


async def test_a_port_that_accepts_and_says_nothing_is_left(path: Path, plane: ScriptedControlPlane) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        target = f"127.0.0.1:{mute.getsockname()[1]}"
        async with router(target, plane.target, path=path, rules=replace(FAST, silence_s=0.4, connect_s=0.2)):
            await serving(plane)


async def test_a_control_plane_that_dies_and_returns_is_found_again_each_time(plane: ScriptedControlPlane, path: Path) -> None:
    async with router(plane.target, path=path) as (follower, link):
        await serving(plane)
        for version in range(2, 7):
            await plane.die()
            await until(lambda: link.state is not LinkState.UP)
            assert follower.state.catalog is not None
            await plane.start()

            assert [held.version for held in (await plane.hello()).held] == [version - 1]
            plane.push(update(version, TWO if version % 2 else THREE))
            assert (await plane.ack()).version == version


async def test_the_next_control_plane_is_tried_when_one_is_away(plane: ScriptedControlPlane, path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        away = f"127.0.0.1:{unused.getsockname()[1]}"
    async with router(away, plane.target, path=path) as (_, link):
        await serving(plane)

        assert link.target == plane.target and link.problem == ""


async def test_a_wrong_token_is_told_with_its_remedy_and_never_shown(
    plane: ScriptedControlPlane, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with router(plane.target, path=path, token="canary-token") as (_, link):
        await until(lambda: "N4N_NODE_TOKEN" in link.problem)
        await asyncio.sleep(0.1)

    assert caplog.text.count("refuses this node's token") == 1
    assert "canary-token" not in caplog.text + repr(link) + repr(Identity("a", "b", "c", "canary-token"))


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (grpc.StatusCode.PERMISSION_DENIED, "refuses this node's token; give both the same N4N_NODE_TOKEN"),
        (grpc.StatusCode.UNIMPLEMENTED, "no n4n control plane; check N4N_ADMIN_URL"),
        (grpc.StatusCode.INVALID_ARGUMENT, "the control plane ended the stream: INVALID_ARGUMENT hello.node: must be a name"),
    ],
)
def test_the_end_of_a_stream_is_told_in_one_line(code: grpc.StatusCode, says: str) -> None:
    error = grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details="hello.node:\nmust be a name")

    assert says in told(error)


async def test_without_a_control_plane_the_router_says_so_and_goes_on(path: Path) -> None:
    async with router(path=path) as (_, link):
        await until(lambda: link.problem != "")

        assert link.problem == "no control plane is named; set N4N_ADMIN_URL"


async def test_keys_are_pushed_beside_the_catalog_and_a_revoked_one_is_gone(plane: ScriptedControlPlane, path: Path) -> None:
    secret = "s" * 40
    key = Key("abcdef012345", "acme", hashlib.sha256(secret.encode()).digest(), limits={"rpm": 5}, models=frozenset({"small"}))
    keys = wire.access_resources({key.public_id: key})
    async with router(plane.target, path=path) as (follower, _):
        await serving(plane)

        plane.push(update(1, keys, collection=wire.ACCESS))
        assert (await plane.ack()).collection == wire.ACCESS
        assert follower.state.access is not None
        assert follower.state.access.authenticate(f"sk-n4n-{key.public_id}-{secret}", 0) == key
        assert follower.state.catalog is not None and follower.access_version == 1

        plane.push(update(2, {}, base=(1, keys), collection=wire.ACCESS))
        assert (await plane.ack()).version == 2
        assert follower.state.access.keys == {}


async def test_a_key_that_cannot_be_read_is_refused_by_its_name(plane: ScriptedControlPlane, path: Path) -> None:
    async with router(plane.target, path=path):
        await serving(plane)

        plane.push(update(1, {(types_pb2.KIND_KEY, "abc"): b"\xff"}, collection=wire.ACCESS))
        assert (await plane.nack()).field == "keys.abc"
        plane.push(update(2, {(types_pb2.KIND_KEY, "abc"): types_pb2.Key(secret_sha256=b"x").SerializeToString()}, collection=wire.ACCESS))
        assert (await plane.nack()).field == "keys.abc.secret_sha256"


async def test_the_age_counts_from_the_last_word_that_nothing_is_newer(plane: ScriptedControlPlane, path: Path) -> None:
    async with router(plane.target, path=path) as (follower, _):
        await serving(plane)
        follower._confirmed_at -= 1000
        assert follower.stale and follower.age_s >= 1000

        plane.push(heartbeat(2, "x"))
        plane.push(heartbeat(1, collection_checksum(ONE)))

        await until(lambda: follower.age_s < 5)
        assert not follower.stale


async def test_a_link_that_is_lost_for_long_is_reported_once(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with router("127.0.0.1:1", path=path) as (follower, _):
        follower._confirmed_at -= 1000
        await until(lambda: "no control plane has confirmed" in caplog.text)
        await asyncio.sleep(0.2)

    assert caplog.text.count("no control plane has confirmed") == 1


# The disk.


async def saved(plane: ScriptedControlPlane, path: Path) -> bytes:
    """What a router leaves behind that served version 7."""
    async with router(plane.target, path=path):
        await serving(plane, 7, THREE)
    return path.read_bytes()


async def test_a_router_starts_from_its_disk_while_the_control_plane_is_away_and_catches_up_on_its_return(
    plane: ScriptedControlPlane, path: Path
) -> None:
    await saved(plane, path)
    await plane.die()
    async with router(plane.target, path=path) as (follower, link):
        assert follower.state.catalog is not None and "acme-large" in follower.state.catalog.endpoints
        assert (follower.version, link.state) == (7, LinkState.DOWN)

        while not plane.hellos.empty():
            plane.hellos.get_nowait()
        await plane.start()
        hello = await plane.hello()

        assert [(held.version, held.checksum) for held in hello.held] == [(7, collection_checksum(THREE))]
        plane.push(update(8, ONE, base=(7, THREE)))
        assert (await plane.ack()).version == 8
    assert disk_snapshot.load(path).collections[0][0].version == 8


async def test_the_snapshot_is_written_soon_whole_and_for_its_owner_only(plane: ScriptedControlPlane, path: Path) -> None:
    async with router(plane.target, path=path):
        await serving(plane)
        await until(path.exists)

    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    assert path.read_bytes().startswith(b"n4n-snapshot 1 ")
    loaded = disk_snapshot.load(path)
    assert [(held.version, held.checksum, resources) for held, resources in loaded.collections] == [(1, collection_checksum(ONE), ONE)]


async def test_no_credential_is_in_the_snapshot(plane: ScriptedControlPlane, path: Path, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("canary-from-file\n")
    raw = changed(FULL, "accounts", "acme-second", "credential", to=f"file:{tmp_path}/key")
    async with router(plane.target, path=path) as (follower, _):
        await serving(plane, 1, resources_of(raw))
        assert follower._credentials.reveal("acme-second") == "canary-from-file"
        assert follower._credentials.reveal("acme-main") == "canary-from-env"
        shown = repr(follower) + repr(follower.state) + repr(follower._credentials) + repr(follower._credentials._resolution)

    content = path.read_bytes()
    assert b"env:ACME_API_KEY" in content
    assert b"canary" not in content and "canary" not in shown


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "cut short": lambda content: content[: len(content) // 2],
    "cut in its header": lambda content: content[:20],
    "a byte changed": lambda content: content[:-3] + bytes([content[-3] ^ 1]) + content[-2:],
    "a byte more": lambda content: content + b"x",
    "another file": lambda content: b"PNG\x89 1 2\n" + content,
    "a newer format": lambda content: content.replace(b" 1 ", b" 2 ", 1),
    "an absurd format": lambda content: content.replace(b" 1 ", b" " + b"9" * 5000 + b" ", 1),
    "no snapshot inside": lambda content: _sealed(b"\x00\x00\x00\x00\x00\x00\x00\x02\xff\xff"),
    "a length beyond its end": lambda content: _sealed((99).to_bytes(8, "big")),
    "a snapshot of nothing": lambda content: _sealed(bytes(8)),
}


def _sealed(body: bytes) -> bytes:
    return b"n4n-snapshot 1 " + hashlib.sha256(body).hexdigest().encode() + b"\n" + body


@pytest.mark.parametrize("damage", DAMAGE)
async def test_a_damaged_snapshot_is_one_warning_and_no_catalog(
    damage: str, plane: ScriptedControlPlane, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.parent.mkdir()
    disk_snapshot.save(path, [(Held(wire.CATALOG, 7, collection_checksum(THREE)), THREE)], 1)
    path.write_bytes(DAMAGE[damage](path.read_bytes()))

    async with router(plane.target, path=path) as (follower, _):
        assert follower.state.catalog is None and follower.version == 0
        assert [record.levelname for record in caplog.records if record.name == "n4n.runtime.disk_snapshot"] == ["WARNING"]
        await serving(plane)
    assert disk_snapshot.load(path).collections[0][0].version == 1


async def test_a_folder_in_the_snapshots_place_stops_nothing(
    plane: ScriptedControlPlane, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.mkdir(parents=True)
    async with router(plane.target, path=path) as (follower, _):
        await serving(plane)
        await until(lambda: "cannot save to" in caplog.text)
        await asyncio.sleep(0.2)
        assert follower.version == 1

    assert caplog.text.count("cannot save to") == 1
    assert "is not used: Is a directory" in caplog.text


def test_a_missing_snapshot_is_nothing_and_no_warning(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert disk_snapshot.load(path) == disk_snapshot.Saved()
    assert caplog.text == ""


def test_what_a_killed_router_left_half_written_is_taken_away_later(path: Path) -> None:
    path.parent.mkdir()
    old, new = path.with_name(f".{path.name}.old"), path.with_name(f".{path.name}.new")
    old.write_bytes(b"x")
    new.write_bytes(b"x")
    os.utime(old, (1, 1))

    disk_snapshot.load(path)

    assert (old.exists(), new.exists()) == (False, True)


def test_an_invalid_catalog_on_disk_is_a_warning(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bad = renamed(ONE, "odd", types_pb2.Endpoint(model="nope", account="acme-main").SerializeToString())
    disk_snapshot.save(path, [(Held(wire.CATALOG, 3, collection_checksum(bad)), bad), (Held(99, 3, "x"), {})], 1)
    follower = Follower(path, Credentials({}), pace=PACE)

    follower.start_from_disk()

    assert follower.state.catalog is None
    assert "version 3 on disk is not used: endpoints.odd.model: there is no model named nope" in caplog.text


def test_what_came_from_disk_is_as_old_as_its_saving(path: Path) -> None:
    disk_snapshot.save(path, [(Held(wire.CATALOG, 3, collection_checksum(ONE)), ONE)], 1_000_000)
    follower = Follower(path, Credentials({}), pace=PACE, clock=lambda: 50.0, wall=lambda: 1_120.0)

    follower.start_from_disk()

    assert follower.age_s == 120.0


def test_a_failed_write_leaves_the_old_snapshot_and_no_litter(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk_snapshot.save(path, [(Held(wire.CATALOG, 3, collection_checksum(ONE)), ONE)], 1)
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        disk_snapshot.save(path, [(Held(wire.CATALOG, 4, collection_checksum(TWO)), TWO)], 2)

    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


# Credentials.


async def test_a_credential_file_that_changes_is_read_again(plane: ScriptedControlPlane, path: Path, tmp_path: Path) -> None:
    file = tmp_path / "key"
    raw = changed(SMALL, "accounts", "acme-main", "credential", to=f"file:{file}")
    async with router(plane.target, path=path) as (follower, _):
        await serving(plane, 1, resources_of(raw))
        credentials = follower._credentials
        assert credentials.usable == frozenset()

        file.write_text(" first \n")
        await until(lambda: credentials.reveal("acme-main") == "first")
        file.write_text("second-key")
        await until(lambda: credentials.reveal("acme-main") == "second-key")
        file.unlink()
        await until(lambda: credentials.usable == frozenset())


# The whole, under uvloop.


def test_it_works_under_uvloop_and_ends_at_once_when_cancelled(path: Path) -> None:
    async def scenario() -> float:
        async with ScriptedControlPlane() as plane:
            async with router(plane.target, path=path) as (follower, link):
                await serving(plane)
                await plane.die()
                await until(lambda: link.state is not LinkState.UP)
                await plane.start()
                await plane.hello()
                plane.push(update(2, TWO, base=(1, ONE)))
                assert (await plane.ack()).version == 2
                assert follower.version == 2
                leaving = asyncio.get_running_loop().time()
            return asyncio.get_running_loop().time() - leaving

    run: Callable[[Awaitable[float]], float] = uvloop.run  # type: ignore[assignment]

    assert run(scenario()) < 1.0
