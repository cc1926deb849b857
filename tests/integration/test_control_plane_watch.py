"""Discovery.Watch on a real PostgreSQL over real gRPC: what a node is sent, and what its answers do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import grpc
import pytest

from n4n.runtime.wire import compile_catalog
from n4n.v1 import access_pb2, discovery_pb2, fleet_pb2
from tests.control_plane.client import ACCESS, CATALOG, NODE, Calls, Watcher, a_plane, a_watcher, calls, detail
from tests.support.catalogs import FULL, SMALL, Raw, changed


def weighing(weight: int) -> Raw:
    return changed(SMALL, "endpoints", "acme-small", "weight", to=weight)


def large(endpoints: int) -> Raw:
    """About 10 KiB per endpoint."""
    return changed(
        SMALL,
        "endpoints",
        to={f"e{n}": {"model": "small", "account": "acme-main", "body": {"pad": "x" * 10_000}} for n in range(endpoints)},
    )


def hello(**fields: Any) -> discovery_pb2.WatchRequest:
    return discovery_pb2.WatchRequest(hello=discovery_pb2.Hello(**{"node": "x", "role": "prober", **fields}))


async def node_is(plane: Calls, holds: Callable[[fleet_pb2.NodeInfo], bool], node: str = "router-1") -> fleet_pb2.NodeInfo:
    """The node as the fleet tells it, once it is so; the last telling in the failure."""
    told: fleet_pb2.NodeInfo | None = None
    for _ in range(100):
        reply = await plane.fleet.Nodes(fleet_pb2.NodesRequest(), metadata=plane.token)
        told = next((info for info in reply.nodes if info.node == node), None)
        if told is not None and holds(told):
            return told
        await asyncio.sleep(0.03)
    raise AssertionError(told)


async def test_a_node_that_holds_nothing_gets_the_whole_and_compiles_it(postgres_url: str) -> None:
    async with a_plane(postgres_url) as plane:
        await plane.apply(FULL)
        async with a_watcher(plane.port) as watcher:
            parts = await watcher.next_update()
            assert [(part.version, part.base_version, part.parts) for part in parts] == [(1, 0, 1)]
            snapshot = compile_catalog(await watcher.ack(parts), version=1, checksum=parts[0].checksum)
            assert set(snapshot.endpoints) == {"acme-large", "house-small"}
            told = await node_is(plane, lambda info: info.applied_version == 1)
            assert (told.role, told.build, told.connected, told.head_version, told.lag_ms, told.last_nack) == (
                "data-plane",
                "0.1.0",
                True,
                1,
                0,
                "",
            )
            assert told.last_ack_ms > 0


async def test_a_change_is_a_delta_of_what_changed_and_comes_at_once(postgres_url: str) -> None:
    async with a_plane(postgres_url, poll_s=60) as plane, a_watcher(plane.port) as watcher:
        await plane.apply(FULL)
        await watcher.ack(await watcher.next_update())
        started = time.monotonic()
        await plane.apply(changed(FULL, "models", "large", "substitutes", to=...))
        (delta,) = await watcher.next_update()
        assert time.monotonic() - started < 1
        assert (delta.version, delta.base_version) == (2, 1)
        assert [resource.name for resource in delta.upserts] == ["large"] and not delta.removed
        await watcher.ack([delta])
        await plane.apply(changed(FULL, "endpoints", "acme-large", to=...), shrink=True)
        (delta,) = await watcher.next_update()
        assert [gone.name for gone in delta.removed] == ["acme-large"]
        await watcher.ack([delta])


async def test_a_version_applied_at_one_control_plane_reaches_the_watchers_of_another(postgres_url: str) -> None:
    async with a_plane(postgres_url) as one, a_plane(postgres_url) as other, a_watcher(other.port) as watcher:
        await watcher.next()
        started = time.monotonic()
        await one.apply(SMALL)
        await watcher.ack(await watcher.next_update())
        assert time.monotonic() - started < 1.5
        await node_is(one, lambda info: info.applied_version == 1 and info.connected)


async def test_a_node_that_is_up_to_date_is_told_so_and_sent_nothing(postgres_url: str) -> None:
    async with a_plane(postgres_url, heartbeat_s=0.2) as plane:
        await plane.apply(SMALL)
        async with a_watcher(plane.port) as first:
            await first.ack(await first.next_update())
            held = first.held
        async with a_watcher(plane.port, held=held) as again:
            await again.quiet(0.7)
            assert len(again.heartbeats) >= 3
            heads = {head.collection: (head.version, head.checksum) for head in again.heartbeats[-1].heads}
            assert heads == {CATALOG: held[CATALOG][:2], ACCESS: (0, "")}
            assert abs(again.heartbeats[-1].sent_at_ms - time.time() * 1000) < 5000
            assert (await node_is(plane, lambda info: info.connected)).applied_version == 1


async def test_a_node_that_comes_back_gets_the_delta_and_a_stranger_the_whole(postgres_url: str) -> None:
    async with a_plane(postgres_url) as plane:
        await plane.apply(weighing(1))
        async with a_watcher(plane.port) as watcher:
            await watcher.ack(await watcher.next_update())
            held = watcher.held
        await plane.apply(weighing(2))
        await plane.apply(weighing(3))
        await node_is(plane, lambda info: info.head_version == 3)
        async with a_watcher(plane.port, held=held) as watcher:
            (delta,) = await watcher.next_update()
            assert (delta.version, delta.base_version, len(delta.upserts)) == (3, 1, 1)
            await watcher.ack([delta])
        async with a_watcher(plane.port, held={CATALOG: (1, "of another history", {})}) as stranger:
            (whole,) = await stranger.next_update()
            assert (whole.version, whole.base_version) == (3, 0)
    async with a_plane(postgres_url) as restarted, a_watcher(restarted.port, held={CATALOG: (99, "x", {})}) as ahead:
        (whole,) = await ahead.next_update()
        assert (whole.version, whole.base_version) == (3, 0), "Postgres is the truth, also where it is behind"


async def test_large_versions_come_in_parts_under_a_mebibyte_whole_or_delta(postgres_url: str) -> None:
    async with a_plane(postgres_url) as plane, a_watcher(plane.port) as watcher:
        await plane.apply(SMALL)
        await watcher.ack(await watcher.next_update())
        await plane.apply(large(250), shrink=True)
        delta = await watcher.next_update()
        assert len(delta) >= 3 and {part.base_version for part in delta} == {1}
        await watcher.ack(delta)
        async with a_watcher(plane.port, node="router-2") as fresh:
            whole = await fresh.next_update()
            assert len(whole) >= 3 and {part.base_version for part in whole} == {0}
            assert await fresh.ack(whole) == watcher.held[CATALOG][2]
        assert max(discovery_pb2.WatchResponse(update=part).ByteSize() for part in [*whole, *delta]) < 1024 * 1024


async def test_an_entry_too_large_for_a_message_is_refused_before_it_is_a_version(postgres_url: str) -> None:
    async with a_plane(postgres_url) as plane:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await plane.apply(changed(SMALL, "endpoints", "acme-small", "body", to={"pad": "x" * 300_000}))
        assert detail(refused.value).problems[0].field == "endpoints.acme-small"


async def test_a_refused_version_is_recorded_and_not_sent_again_and_the_next_is_a_delta_from_the_last_good(postgres_url: str) -> None:
    async with a_plane(postgres_url, heartbeat_s=0.2) as plane, a_watcher(plane.port) as watcher:
        await plane.apply(weighing(1))
        await watcher.ack(await watcher.next_update())
        await plane.apply(weighing(2))
        await watcher.nack(await watcher.next_update(), "endpoints.acme-small.weight", "must be\n\0odd")
        told = await node_is(plane, lambda info: info.last_nack != "")
        assert told.last_nack == "version 2: endpoints.acme-small.weight: must be odd"
        assert (told.applied_version, told.head_version) == (1, 2) and told.lag_ms > 0
        await watcher.quiet(0.5)
        await plane.apply(weighing(3))
        (delta,) = await watcher.next_update()
        assert (delta.version, delta.base_version) == (3, 1)
        await watcher.ack([delta])
        assert (await node_is(plane, lambda info: info.applied_version == 3)).last_nack == ""


async def test_a_delta_that_did_not_fit_is_followed_once_by_the_whole(postgres_url: str) -> None:
    async with a_plane(postgres_url) as plane, a_watcher(plane.port) as watcher:
        await plane.apply(weighing(1))
        await watcher.ack(await watcher.next_update())
        await plane.apply(weighing(2))
        await watcher.nack(await watcher.next_update(), "checksum", "does not add up")
        whole = await watcher.next_update()
        assert (whole[0].version, whole[0].base_version) == (2, 0)
        await watcher.nack(whole, "checksum", "still not")
        await watcher.quiet(0.3)


async def test_an_acknowledgement_of_another_checksum_counts_as_a_refusal(postgres_url: str) -> None:
    async with a_plane(postgres_url) as plane, a_watcher(plane.port) as watcher:
        await plane.apply(SMALL)
        await watcher.next_update()
        await watcher.say(ack=discovery_pb2.Ack(collection=CATALOG, version=1, checksum="0" * 64))
        told = await node_is(plane, lambda info: info.last_nack != "")
        assert told.applied_version == 0 and "another checksum" in told.last_nack
        await watcher.quiet(0.2)


async def test_a_slow_watcher_skips_to_the_head_and_makes_nobody_wait(postgres_url: str) -> None:
    async with a_plane(postgres_url) as plane, a_watcher(plane.port, node="slow") as slow, a_watcher(plane.port, node="quick") as quick:
        await plane.apply(weighing(1))
        first = await slow.next_update()
        await quick.ack(await quick.next_update())
        for weight in range(2, 8):
            await plane.apply(weighing(weight))
            await quick.ack(await quick.next_update(within_s=2))
        await slow.ack(first)
        (delta,) = await slow.next_update()
        assert (delta.version, delta.base_version) == (7, 1)


async def test_a_watcher_that_reads_nothing_makes_nobody_wait(postgres_url: str) -> None:
    async with a_plane(postgres_url) as plane, a_watcher(plane.port, node="stalled"), a_watcher(plane.port, node="quick") as quick:
        for size in (600, 601):
            await plane.apply(large(size), shrink=True)
            await quick.ack(await quick.next_update())
        assert quick.held[CATALOG][0] == 2


async def test_fifty_watchers_have_a_version_within_a_second(postgres_url: str) -> None:
    async with AsyncExitStack() as stack:
        plane = await stack.enter_async_context(a_plane(postgres_url))
        watchers = [await stack.enter_async_context(a_watcher(plane.port, node=f"router-{n}")) for n in range(50)]
        await plane.apply(FULL)
        await asyncio.gather(*(_take(watcher) for watcher in watchers))
        started = time.monotonic()
        await plane.apply(changed(FULL, "endpoints", "acme-large", "weight", to=2))
        await asyncio.gather(*(_take(watcher) for watcher in watchers))
        assert time.monotonic() - started < 1
        async with asyncio.timeout(10):  # nodes are noted in batches, beside the streams
            while True:
                reply = await plane.fleet.Nodes(fleet_pb2.NodesRequest(), metadata=plane.token)
                if len(reply.nodes) == 50 and all(info.connected for info in reply.nodes):
                    break


async def _take(watcher: Watcher) -> None:
    await watcher.ack(await watcher.next_update())


async def test_a_stream_that_ends_is_noted_and_a_new_one_of_the_same_node_takes_over(postgres_url: str) -> None:
    async with a_plane(postgres_url) as plane:
        await plane.apply(SMALL)
        async with a_watcher(plane.port) as old:
            await old.ack(await old.next_update())
            async with a_watcher(plane.port, held=old.held) as new:
                await new.next()
                old.call.cancel()
                await asyncio.sleep(0.2)
                assert (await node_is(plane, lambda info: True)).connected
        told = await node_is(plane, lambda info: not info.connected)
        assert told.applied_version == 1


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([discovery_pb2.WatchRequest(ack=discovery_pb2.Ack(collection=CATALOG, version=1))], "hello: must be the first"),
        ([discovery_pb2.WatchRequest()], "hello: must be the first"),
        ([], "hello: must be the first"),
        ([hello(node="")], "hello.node"),
        ([hello(role="boss")], "hello.role"),
        ([hello(), hello()], "comes once"),
        ([hello(held=[discovery_pb2.Held(version=2**64 - 1)])], "hello.held"),
        ([hello(), discovery_pb2.WatchRequest(ack=discovery_pb2.Ack())], "collection:"),
    ],
)  # fmt: skip
async def test_what_is_said_out_of_turn_ends_the_stream_with_a_reason(
    messages: list[discovery_pb2.WatchRequest], said: str, module_postgres_url: str
) -> None:
    async def saying() -> AsyncIterator[discovery_pb2.WatchRequest]:
        for message in messages:
            yield message

    async with a_plane(module_postgres_url) as plane, calls(plane.port, NODE) as node:
        for _ in range(20):  # also while the control plane is about to speak
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                async for _ in node.discovery.Watch(saying(), metadata=node.token):
                    pass
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert said in (refused.value.details() or "")


async def test_keys_reach_the_watcher_and_revoked_ones_leave_it_within_a_second(postgres_url: str) -> None:
    async with a_plane(postgres_url) as plane, a_watcher(plane.port) as watcher:
        await watcher.next()
        started = time.monotonic()
        made = await plane.access.CreateKey(access_pb2.CreateKeyRequest(tenant="acme"), metadata=plane.token)
        held = await watcher.ack(await watcher.next_update(ACCESS))
        assert [name for _, name in held] == [made.key.public_id]
        await plane.access.RevokeKey(access_pb2.RevokeKeyRequest(public_id=made.key.public_id), metadata=plane.token)
        (delta,) = await watcher.next_update(ACCESS)
        assert [gone.name for gone in delta.removed] == [made.key.public_id]
        assert await watcher.ack([delta]) == {}
        assert time.monotonic() - started < 2
        told = await node_is(plane, lambda info: info.access_version == 2)
        assert told.access_head_version == 2


async def test_the_end_of_a_control_plane_ends_its_streams_soon_and_says_why(postgres_url: str) -> None:
    async with AsyncExitStack() as stack:
        async with a_plane(postgres_url) as plane:
            watcher = await stack.enter_async_context(a_watcher(plane.port))
            await watcher.next()
            started = time.monotonic()
        assert time.monotonic() - started < 3
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await watcher.next()
        assert ended.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_how_far_a_node_is_behind_is_unknown_until_it_has_applied_a_version_of_this_history(postgres_url: str) -> None:
    old = {CATALOG: (1, "of another history", {}), ACCESS: (4, "of another history", {})}
    async with a_plane(postgres_url) as plane, a_watcher(plane.port, held=old) as watcher:
        told = await node_is(plane, lambda info: info.connected)
        assert told.head_version == 0 and not told.HasField("lag_ms")
        await plane.apply(SMALL)
        await plane.access.CreateKey(access_pb2.CreateKeyRequest(tenant="acme", author="ann"), metadata=plane.token)
        while old[CATALOG] == watcher.held[CATALOG] or old[ACCESS] == watcher.held[ACCESS]:
            message = await watcher.next()
            if message.HasField("update"):
                await watcher.ack([message.update])
        told = await node_is(plane, lambda info: info.access_version == 1)
        assert (told.applied_version, told.head_version) == (1, 1) and told.HasField("lag_ms") and told.lag_ms == 0
    async with a_plane(postgres_url) as plane, a_watcher(plane.port, node="stranger", held=old):
        told = await node_is(plane, lambda info: info.connected, node="stranger")
        assert told.applied_version == 0 and not told.HasField("lag_ms")
