"""Caps of tenants at providers and daily tokens of accounts: traffic moves, and nobody is refused."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

import redis

from data_plane.caps import Caps
from n4n.core.access import AccessSnapshot, Tenant
from n4n.core.budgets import Budget, Unit, pico_of
from n4n.runtime.limits.tallies import Tallies, of_account, tallied
from n4n.runtime.stores import Store
from tests.support.answers import completion, usage
from tests.support.router import RunningRouter, catalog, running_router
from tests.support.store import open_store
from tests.support.upstream import ScriptedUpstream

BALANCED = {"strategy": "balanced", "retry": {"max_retries": 1}}


@asynccontextmanager
async def capped(store: Store, document: Mapping[str, object], cap: Budget | None = None) -> AsyncIterator[tuple[RunningRouter, Caps]]:
    """A router that adds up, of whose tenant providers pe1 has this cap."""
    caps = {} if cap is None else {"pe1": cap}
    async with running_router(document, key={"provider_caps": caps}, store=store) as house:
        tenants = {"acme": Tenant("acme", provider_caps=caps)}
        house.state.access = replace(house.state.access, tenants=tenants) if caps else house.state.access
        adding = house.router.caps = Caps(store, time.time, house.router.weigh)
        adding.know(*house.router.in_force())
        yield house, adding


async def served(house: RunningRouter, caps: Caps, count: int) -> Counter[str]:
    """Which endpoints answered so many requests; what they spent is known afterwards."""
    found: Counter[str] = Counter()
    for _ in range(count):
        async with house.chat() as answer:  # type: ignore[attr-defined]
            assert answer.status == 200
            found[answer.headers["x-n4n-endpoint"]] += 1
    await caps.exchange()
    return found


async def weights(house: RunningRouter) -> dict[str, float]:
    async with house.http.post(f"{house.base_url}/route:explain", json={"model": "m"}, headers=house.headers()) as answer:
        return {row["endpoint"]: row["weight"] for row in (await answer.json())["candidates"]}


async def test_an_account_that_has_spent_four_fifths_of_its_day_gets_no_more_while_others_can(redis_url: str) -> None:
    async with ScriptedUpstream() as upstream, open_store(redis_url, deadline_s=1.0) as store:
        upstream.script(then=completion(usage=usage(60, 40)))
        made = catalog(upstream.base_url, upstream.base_url, model=BALANCED)
        made["accounts"]["ae1"]["daily_token_budget"] = 1000  # type: ignore[index]
        made["endpoints"]["e1"]["weight"] = 1000  # type: ignore[index]
        async with capped(store, made) as (house, caps), capped(store, made) as (other, other_caps):
            first = await served(house, caps, 4) + await served(other, other_caps, 4)
            assert first["e1"] >= 7
            while first["e1"] < 8:
                first += await served(house, caps, 1)
            for adding in (caps, other_caps):
                await adding.exchange()
            assert await weights(house) == await weights(other) == {"e1": 0.0, "e2": 1.0}
            assert await served(house, caps, 5) + await served(other, other_caps, 5) == {"e2": 10}
            house.use({**made, "endpoints": {"e1": made["endpoints"]["e1"]}}, 2)  # type: ignore[index, dict-item]
            assert await served(house, caps, 3) == {"e1": 3}, "it is not cut off"


async def test_a_tenant_that_nears_its_cap_at_a_provider_is_moved_elsewhere_and_never_refused(redis_url: str) -> None:
    cap = Budget(Unit.USD, pico_of("0.5"), "month", False, round(time.time() * 1000))
    async with ScriptedUpstream() as upstream, open_store(redis_url, deadline_s=1.0) as store:
        upstream.script(then=completion(usage=usage(4000, 4000)))  # 0.05 USD at e1
        for strategy in ("balanced", "cost"):
            made = catalog(upstream.base_url, upstream.base_url, model={**BALANCED, "strategy": strategy})
            made["endpoints"]["e1"]["weight"] = 1e6  # type: ignore[index]
            with redis.Redis.from_url(redis_url) as client:
                client.flushdb()
            async with capped(store, made, cap) as (house, caps):
                assert (await served(house, caps, 8))["e1"] == 8
                assert (await weights(house))["e1"] == 1e6
                assert (await served(house, caps, 1))["e1"] == 1
                assert 0.4e6 < (await weights(house))["e1"] < 0.6e6, "0.45 of 0.5 USD"
                assert (await served(house, caps, 1))["e1"] == 1
                assert (await weights(house))["e1"] == 0.0
                assert await served(house, caps, 5) == {"e2": 5}
                beside = replace(next(iter(house.state.access.keys.values())), tenant="beta", provider_caps={})
                house.state.access = AccessSnapshot(3, "a3", {beside.public_id: beside}, house.state.access.tenants)
                assert (await served(house, caps, 3))["e1"] == 3, "other tenants have no such cap"


async def test_a_redis_that_lost_everything_learns_it_again_and_nothing_is_lost_while_it_is_away(redis_url: str) -> None:
    now_ms, tallies, others = round(time.time() * 1000), Tallies(), Tallies()
    counter = of_account("a", now_ms)
    async with open_store(redis_url, deadline_s=1.0) as store:

        async def exchange(mine: Tallies) -> float:
            ((ends_ms, counters),) = mine.asks([counter]).items()
            command, brought = mine.command(ends_ms, counters)
            mine.heard(brought, tallied(await store.command(command)))
            return mine.total(counter)

        tallies.add(counter, 100.0)
        others.add(counter, 20.0)
        assert [await exchange(one) for one in (tallies, others, tallies)] == [100.0, 120.0, 120.0]
        with redis.Redis.from_url(redis_url) as client:
            client.flushdb()
        assert [await exchange(one) for one in (others, tallies)] == [120.0, 120.0]
        tallies.add(counter, 5.0)
        _, brought = tallies.command(counter.ends_ms, [counter])
        tallies.lost(brought)
        assert tallies.total(counter) == 125.0 == await exchange(tallies)
        assert list(tallies.asks([])) == [] and tallies.total(counter) == 0.0
