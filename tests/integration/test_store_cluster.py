"""The store on a cluster whose slots move and whose nodes die, and behind Sentinels."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import redis

from n4n.core.breaker import Breaker
from n4n.core.errors import StoreUnavailable
from n4n.runtime.stores import Script, Store, command
from n4n.runtime.stores.discovery import NO_MAP, NO_MASTER
from n4n.runtime.stores.slots import slot_of
from n4n.runtime.stores.store import NOT_A_CLUSTER
from tests.support.loops import on_both_loops, on_uvloop
from tests.support.machine import wait_until
from tests.support.store import READY_S, Changes, open_store, starting_store
from tests.support.store_proxy import store_proxy
from tests.support.valkey import ValkeyServer, running_valkey
from tests.support.valkey_cluster import ValkeyCluster, running_cluster

ADD = Script("add", "return redis.call('INCRBY', KEYS[1], ARGV[1])")
BOTH = Script("both", "return {redis.call('INCR', KEYS[1]), redis.call('INCR', KEYS[2])}")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyCluster]:
    """Three masters that stay well; tests move slots to and fro."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


class Counting:
    """Calls that go on all the time, on keys of one slot; `done` counts each key's, `failed` says why some were not."""

    def __init__(self, store: Store, tag: str) -> None:
        self._store, self._keys = store, [f"{{{tag}}}{n}" for n in range(20)]
        self.done = dict.fromkeys(self._keys, 0)
        self.failed: list[str] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Counting:
        await self._store.pipeline([command(b"DEL", key) for key in self._keys])
        self._tasks = [asyncio.create_task(self._count(key)) for key in self._keys]
        await self.more()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def more(self) -> None:
        """Until every key was counted on some more."""
        goal = {key: count + 5 for key, count in self.done.items()}
        async with asyncio.timeout(READY_S):
            while any(self.done[key] < count for key, count in goal.items()):  # noqa: ASYNC110  # the counting goes on all the time
                await asyncio.sleep(0.005)

    async def _count(self, key: str) -> None:
        while True:
            try:
                count = await self._store.run(ADD, [key], [1])
            except StoreUnavailable as error:
                self.failed.append(str(error))
            else:
                self.done[key] += 1
                if count != self.done[key]:  # its own answer, and every call ran exactly once
                    self.failed.append(f"{key}: {count} after {self.done[key]} calls")
            await asyncio.sleep(0.001)


async def moved(cluster: ValkeyCluster, slot: int, target: ValkeyServer, counting: Counting) -> None:
    """A slot's move, step by step, while calls run."""
    source = cluster.master_of(slot)
    cluster.begin_move(slot, source, target)
    await counting.more()
    assert cluster.move_keys(slot, source, target) > 0
    await counting.more()
    cluster.end_move(slot, target)
    await counting.more()


@on_both_loops
async def test_calls_follow_a_slot_that_moves_without_a_failure(cluster: ValkeyCluster) -> None:
    slot = slot_of("{moving}")
    async with open_store(cluster.url) as store, Counting(store, "moving") as counting:
        home = cluster.master_of(slot)
        for target in (*(node for node in cluster.nodes[:3] if node is not home), home):
            await moved(cluster, slot, target, counting)
        assert counting.failed == []
        assert store.state is Breaker.CLOSED


@on_both_loops
async def test_calls_follow_a_slot_to_a_node_that_is_new(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as growing:
        async with open_store(growing.url) as store, Counting(store, "moving") as counting:
            await moved(growing, slot_of("{moving}"), growing.add_node(), counting)
            assert counting.failed == []
            assert store.state is Breaker.CLOSED


@on_both_loops
async def test_keys_that_are_apart_while_their_slot_moves_are_told_as_unavailable(cluster: ValkeyCluster) -> None:
    slot, keys = slot_of("{apart}"), ["{apart}1", "{apart}2"]
    source = cluster.master_of(slot)
    target = next(node for node in cluster.nodes[:3] if node is not source)
    async with open_store(cluster.url) as store:
        await store.run(BOTH, keys)
        cluster.begin_move(slot, source, target)
        with source.client() as client:
            client.execute_command("MIGRATE", "127.0.0.1", target.port, keys[0], 0, 5000)
        with pytest.raises(StoreUnavailable, match="TRYAGAIN"):
            await store.run(BOTH, keys)
        assert store.state is Breaker.CLOSED
        cluster.move_keys(slot, source, target)
        assert isinstance(await store.run(BOTH, keys), list)
        cluster.end_move(slot, target)
        assert isinstance(await store.run(BOTH, keys), list)


@on_both_loops
async def test_the_callers_script_and_the_accounts_run_on_two_nodes_together(cluster: ValkeyCluster) -> None:
    tenant = next(key for key in (f"{{tenant{n}}}rpm" for n in range(99)) if slot_of(key) < 5000)
    account = next(key for key in (f"{{account{n}}}rpm" for n in range(99)) if slot_of(key) > 11_000)
    async with open_store(cluster.url) as store:
        assert cluster.master_of(slot_of(tenant)) is not cluster.master_of(slot_of(account))
        first = await store.pipeline([ADD.call([tenant], [1]), ADD.call([account], [1])])
        assert await store.pipeline([ADD.call([tenant], [1]), ADD.call([account], [1])]) == [n + 1 for n in first]  # type: ignore[operator]


@on_uvloop
async def test_a_dead_node_takes_its_own_keys_along_and_no_others(tmp_path: Path) -> None:
    options = {"cluster_require_full_coverage": "no"}
    with running_cluster(tmp_path, **options) as dying:
        changes = Changes()
        async with open_store(dying.url, changes, deadline_s=0.05) as store:
            keys = {dying.master_of(slot_of(f"k{n}")).port: f"k{n}" for n in range(50)}
            victim = dying.nodes[2]
            victim.kill()
            await changes.until(lambda: changes[-1][0] is Breaker.OPEN)

            with pytest.raises(StoreUnavailable):
                await store.run(ADD, [keys[victim.port]], [1])
            outcomes = await store.pipeline([ADD.call([keys[node.port]], [1]) for node in dying.nodes])
            assert [type(outcome) is int for outcome in outcomes] == [True, True, False]
            assert await store.command(command(b"PING")) == b"PONG"

            victim.start()
            assert await store.ready(5)
            await asyncio.to_thread(dying.await_well)
            assert await store.run(ADD, [keys[victim.port]], [1]) == 1


@on_uvloop
async def test_a_replica_that_takes_over_is_found(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as failing:
        replica = failing.add_node()
        victim = failing.nodes[2]
        failing.ask(replica, "CLUSTER", "REPLICATE", failing.id_of(victim))
        with replica.client() as client:
            wait_until(lambda: client.info("replication").get("master_link_status") == "up")
        key = next(f"k{n}" for n in range(50) if failing.master_of(slot_of(f"k{n}")) is victim)
        changes = Changes()
        async with open_store(failing.url, changes, deadline_s=0.2) as store:
            assert await store.run(ADD, [key], [1]) == 1
            await asyncio.to_thread(wait_until, lambda: _has(replica, key))
            failing.ask(replica, "CLUSTER", "FAILOVER", "TAKEOVER")
            victim.kill()
            await changes.until(lambda: changes[-1][0] is Breaker.OPEN)
            assert await store.ready(READY_S), changes
            assert await store.run(ADD, [key], [1]) == 2


def _has(replica: ValkeyServer, key: str) -> bool:
    with replica.client() as client:
        if client.info("cluster")["cluster_enabled"]:
            client.execute_command("READONLY")
        return client.get(key) is not None


@on_uvloop
async def test_a_user_who_may_not_see_the_map_is_told_what_to_allow(tmp_path: Path) -> None:
    with running_valkey(tmp_path, user=["n4n", "on", ">pw", "~*", "+@all", "-cluster"]) as guarded:
        changes = Changes()
        async with starting_store(f"redis://n4n:pw@127.0.0.1:{guarded.port}", changes):
            await changes.until_reason(NO_MAP)


@on_uvloop
async def test_a_server_that_sends_calls_on_without_being_a_cluster_is_not_followed(tmp_path: Path) -> None:
    with running_valkey(tmp_path) as server:
        async with store_proxy(server.port) as proxy, open_store(proxy.url) as store:
            proxy.garbage = b"-MOVED 1 10.0.0.1:7000\r\n"
            with pytest.raises(StoreUnavailable, match=NOT_A_CLUSTER):
                await store.run(ADD, ["k"], [1])


# Sentinels.


@on_both_loops
async def test_the_master_is_where_the_sentinels_say(tmp_path: Path) -> None:
    with running_valkey(tmp_path) as old, running_valkey(tmp_path, replicaof=["127.0.0.1", str(old.port)]) as new:
        watched = {"sentinel": ["monitor", "main", "127.0.0.1", str(old.port), "1"]}
        with running_valkey(tmp_path, as_sentinel=True, **watched) as sentinel:
            changes = Changes()
            async with open_store(f"redis+sentinel://127.0.0.1:1,127.0.0.1:{sentinel.port}/main", changes, deadline_s=0.2) as store:
                assert await store.run(ADD, ["n"], [1]) == 1
                await asyncio.to_thread(wait_until, lambda: _has(new, "n"))
                await asyncio.to_thread(wait_until, lambda: _failover(sentinel))
                await asyncio.to_thread(wait_until, lambda: _master(sentinel) == new.port)
                old.kill()
                await changes.until(lambda: changes[-1][0] is Breaker.OPEN)
                assert await store.ready(READY_S), changes
                assert await store.run(ADD, ["n"], [1]) == 2
        changes = Changes()
        async with starting_store(f"redis+sentinel://127.0.0.1:{new.port}/nobody", changes):
            await changes.until(lambda: any(state is Breaker.OPEN for state, _ in changes))


@on_uvloop
async def test_a_master_that_no_sentinel_knows_is_told(tmp_path: Path) -> None:
    with running_valkey(tmp_path, as_sentinel=True) as sentinel:
        changes = Changes()
        async with starting_store(f"redis+sentinel://:secret@127.0.0.1:{sentinel.port}/nobody", changes):
            await changes.until_reason(NO_MASTER)


def _failover(sentinel: ValkeyServer) -> bool:
    """False: it does not know the replica well enough yet."""
    with sentinel.client() as client, suppress(redis.ResponseError):
        return bool(client.execute_command("SENTINEL", "FAILOVER", "main"))
    return False


def _master(sentinel: ValkeyServer) -> int:
    with sentinel.client() as client:
        return int(client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main")[1])
