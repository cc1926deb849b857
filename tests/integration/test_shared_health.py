"""What one router sees of an endpoint all know within a second, also across a cluster; without Redis each goes on alone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import pytest

from n4n.core.breaker import Breaker
from n4n.core.catalog import BreakerPolicy
from n4n.core.errors import FailureClass
from n4n.core.health.policy import HealthPolicy
from n4n.core.health.signals import Signal, Source
from n4n.core.health.standing import Policies
from n4n.runtime.health import SharedHealth
from n4n.runtime.health.scripts import CHANGES
from n4n.runtime.limits import Limits, Sight
from n4n.runtime.stores import Store
from n4n.runtime.stores.slots import slot_of
from tests.support.answers import error
from tests.support.router import catalog, running_router
from tests.support.store import Changes, open_store, starting_store
from tests.support.upstream import ScriptedUpstream
from tests.support.valkey import ValkeyServer, running_valkey
from tests.support.valkey_cluster import ValkeyCluster, running_cluster

POLICIES = Policies(HealthPolicy(half_life_sec=1000.0), BreakerPolicy(3, 20.0, 0.3))


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServer]:
    """One server of this test's own: it is stopped and killed."""
    with running_valkey(tmp_path_factory.mktemp("valkey")) as running:
        yield running


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyCluster]:
    """Three masters."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@asynccontextmanager
async def sharing(store: Store, names: set[str] | None = None) -> AsyncIterator[SharedHealth]:
    """One router's part of health; every name is in the catalog unless `names` says which."""
    known: Callable[[str], Policies | None] = lambda name: POLICIES if names is None or name in names else None  # noqa: E731
    health = SharedHealth(store, policies_of=known, clock=time.monotonic, draw=lambda: 0.5)
    keeping = asyncio.create_task(health.keep())
    try:
        yield health
    finally:
        keeping.cancel()
        await asyncio.wait([keeping])


def bad(endpoint: str, failure: FailureClass = FailureClass.SERVER_ERROR) -> Signal:
    """A call failed."""
    return Signal(endpoint, Source.LIVE, failure)


def good(endpoint: str, **measured: float) -> Signal:
    """A call went well."""
    return Signal(endpoint, Source.LIVE, None, **measured)  # type: ignore[arg-type]


async def until(holds: Callable[[], object], within_s: float = 5.0) -> None:
    """Waits until it holds."""
    async with asyncio.timeout(within_s):
        while not holds():  # noqa: ASYNC110  # another process changes it
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("kind", ["one server", "three nodes"])
async def test_a_signal_is_known_to_every_router_within_a_second(kind: str, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue("server" if kind == "one server" else "cluster").url
    lags: list[float] = []
    async with open_store(url) as one, open_store(url) as two, open_store(url) as three:
        async with sharing(one) as teller, sharing(two) as second, sharing(three) as third:
            for number in range(8):
                name, begun = f"{kind}-{number}", time.monotonic()
                teller.tell([bad(name)])
                for reader in (second, third):
                    await until(lambda name=name, reader=reader: reader.score(name) < 1.0)  # type: ignore[misc]
                    lags.append(time.monotonic() - begun)

    assert max(lags) < 1.0, sorted(lags)[-5:]


async def test_failures_of_several_routers_open_one_breaker_and_one_of_them_tries_it(server: ValkeyServer) -> None:
    async with open_store(server.url) as one, open_store(server.url) as two:
        async with sharing(one) as first, sharing(two) as second:
            for router in (first, second, first):
                router.tell([bad("a")])
            await until(lambda: all(router.seen.get("a") and router.seen["a"].breaker.kept is Breaker.OPEN for router in (first, second)))
            assert not await first.take_trial("a"), "it is open"

            await asyncio.sleep(0.4)
            given = await asyncio.gather(*(router.take_trial("a") for router in (first, second) * 10))
            assert sum(given) == 1

            first.tell([Signal("a", Source.LIVE, None, trial=True)])
            await until(lambda: second.seen["a"].breaker.kept is Breaker.CLOSED)
            assert second.score("a") == pytest.approx(0.05, rel=0.01)


async def test_measures_are_shared_and_what_is_not_in_the_catalog_is_left_alone(server: ValkeyServer) -> None:
    names = {"a"}
    async with open_store(server.url) as one, open_store(server.url) as two:
        async with sharing(one) as first, sharing(two, names) as second:
            first.tell([good("a", latency_s=0.3, ttft_s=0.2, tokens_per_s=50.0), good("b", latency_s=0.1)])
            await until(lambda: "a" in second.seen)
            seen = second.seen["a"]
            assert (seen.latency_ms, seen.ttft_ms, seen.tokens_per_s) == (300.0, 200.0, 50.0)
            assert seen.good_at is not None and time.monotonic() - seen.good_at < 5 and "b" not in second.seen

            names.add("b")
            second.keep_only(names)
            await until(lambda: "b" in second.seen)
            second.keep_only({"b"})
            assert set(second.seen) == {"b"}


@pytest.mark.parametrize("kind", ["one server", "three nodes"])
async def test_while_redis_is_away_a_router_goes_on_alone_and_learns_again_when_it_is_back(
    kind: str, request: pytest.FixtureRequest
) -> None:
    changes = Changes()
    stopped, url = _holder(kind, request)
    async with open_store(url) as other, open_store(url, changes, deadline_s=0.05) as store:
        async with sharing(other) as neighbour, sharing(store) as router:
            neighbour.tell([bad("a")])
            await until(lambda: router.score("a") < 1.0)
            stopped.freeze()
            try:
                await changes.until(lambda: store.state is not Breaker.CLOSED)
                router.tell([bad("a"), bad("b"), bad("b"), bad("b")])
                assert router.seen["b"].breaker.kept is Breaker.OPEN, "decided here and at once"
                assert router.score("a") == pytest.approx(0.95**4, rel=1e-2)
            finally:
                stopped.thaw()
            await changes.until(lambda: store.state is Breaker.CLOSED, 20)
            await until(lambda: other.state is Breaker.CLOSED, 20)
            neighbour.tell([bad("a"), bad("a"), bad("a")])
            await until(lambda: router.seen["a"].breaker.kept is Breaker.OPEN)


def _holder(kind: str, request: pytest.FixtureRequest) -> tuple[ValkeyServer, str]:
    """The server that health lives on, and where to find it."""
    if kind == "one server":
        server: ValkeyServer = request.getfixturevalue("server")
        return server, server.url
    cluster: ValkeyCluster = request.getfixturevalue("cluster")
    return cluster.master_of(slot_of(CHANGES)), cluster.url


async def test_a_redis_that_lost_everything_is_told_anew(server: ValkeyServer) -> None:
    changes = Changes()
    async with open_store(server.url, changes) as store, open_store(server.url) as other:
        async with sharing(store) as first, sharing(other) as second:
            for name in "abcdef":
                first.tell([bad(name)])
            await until(lambda: all(second.score(name) < 1.0 for name in "abcdef"))
            server.kill()
            await changes.until(lambda: store.state is not Breaker.CLOSED)
            server.start()
            await changes.until(lambda: store.state is Breaker.CLOSED)
            assert second.score("a") < 1.0, "what was known is not forgotten"

            await until(lambda: first.is_shared and second.is_shared)
            first.tell([bad("z")])
            await until(lambda: second.score("z") < 1.0)


async def test_a_store_that_never_came_is_no_store() -> None:
    async with starting_store("redis://127.0.0.1:1") as store, sharing(store) as router:
        router.tell([bad("a"), bad("a"), bad("a")])
        assert router.seen["a"].breaker.kept is Breaker.OPEN
        router.announce({"account x auth": 5.0})
        router.tell([good("b")])
        router.trial_abandoned("a")
        assert router.seen["a"].breaker.kept is Breaker.OPEN and not await router.take_trial("a")


async def test_a_prober_tells_all_routers_of_a_cooldown(server: ValkeyServer) -> None:
    heard: list[Sight] = []
    async with open_store(server.url) as one, open_store(server.url) as two:
        limits = Limits(two, router="r", clock=time.monotonic, others=heard.append)
        async with sharing(one) as prober:
            prober.announce({"account acme-main auth": 300.0})
            async with asyncio.timeout(5):
                while not heard:
                    await limits.look()
                    await asyncio.sleep(0.01)

    assert heard[0].name == "account acme-main auth" and 295 < heard[0].seconds <= 300


async def test_a_model_with_one_endpoint_is_served_while_its_trial_runs(server: ValkeyServer) -> None:
    model = {"circuit_breaker": {"failure_threshold": 2, "recovery_timeout_sec": 0.2}, "retry": {"max_retries": 0}}
    async with ScriptedUpstream() as upstream, open_store(server.url) as store:
        async with running_router(catalog(upstream.base_url, model=model), store=store) as router:
            upstream.script(error(500), error(500))
            for _ in range(2):
                async with router.chat() as failed:  # type: ignore[attr-defined]
                    assert failed.status == 502
            views = router.router.health.views
            await until(lambda: "e1" in views and views["e1"].breaker.kept is Breaker.OPEN)
            await asyncio.sleep(0.3)

            async def status() -> int:
                async with router.chat() as answer:  # type: ignore[attr-defined]
                    return int(answer.status)

            assert await asyncio.gather(*(status() for _ in range(20))) == [200] * 20
            await until(lambda: views["e1"].breaker.kept is Breaker.CLOSED)
