"""Faults of real routers under real traffic, all at once: each is told, nothing else is, and all are over when they are cured.

Routers are processes of their own; the control plane's clock is ahead of theirs when windows are to pass, and its rules wait a thousandth.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import psycopg
import pytest

from control_plane.service import discovery
from n4n.runtime.control_link import Identity
from n4n.runtime.segments import Segments
from n4n.runtime.usage_link import UsageLink
from n4n.runtime.vitals import Vitals
from n4n.runtime.vitals_link import VitalsLink
from n4n.v1 import access_pb2, discovery_pb2, types_pb2
from tests.control_plane.client import NODE
from tests.support.alert_world import AlertWorld, a_row, an_alert_world, wire_line
from tests.support.answers import completion, error, usage
from tests.support.fleet import Fleet, Role, running_fleet
from tests.support.stores import libpq_url
from tests.support.upstream import HostedUpstream, running_upstream
from tests.support.valkey import running_valkey

HOLD = 0.001
WITHIN_S = 40.0
PRICE = {"price": {"input_per_1m": 2.5, "output_per_1m": 10}}
Document = dict[str, dict[str, dict[str, object]]]


def document(well: HostedUpstream, busy: HostedUpstream, denied: HostedUpstream) -> Document:
    """A short account, a model whose cheaper endpoint is busy, one with a denied account, one without a price."""
    upstreams = {"well": well, "other": well, "busy": busy, "denied": denied}
    return {
        "providers": {name: {"dialect": "openai", "base_url": one.base_url, "allow_private": True} for name, one in upstreams.items()},
        "accounts": {
            "short": {"provider": "well", "credential": "env:CANARY", "limits": {"rpm": 60, "burst": 20}},
            **{name: {"provider": name, "credential": "env:CANARY"} for name in upstreams},
        },
        "models": {
            "plain": {},
            "limited": {},
            "unpriced": {},
            "falls": {
                "strategy": "cost",
                "circuit_breaker": {"failure_threshold": 500, "recovery_timeout_sec": 1},
                "retry": {"backoff_ms": 1},
            },
            "shared": {"retry": {"backoff_ms": 1}},
        },
        "endpoints": {
            "plain-well": {"model": "plain", "account": "well", **PRICE},
            "limited-short": {"model": "limited", "account": "short", **PRICE},
            "unpriced-well": {"model": "unpriced", "account": "well"},
            "falls-busy": {"model": "falls", "account": "busy", "price": {"input_per_1m": 0.1, "output_per_1m": 0.1}},
            "falls-well": {"model": "falls", "account": "well", **PRICE},
            "falls-other": {"model": "falls", "account": "other", **PRICE},
            "shared-denied": {"model": "shared", "account": "denied", **PRICE},
            "shared-well": {"model": "shared", "account": "other", **PRICE},
        },
        "tiers": {},
    }


def cured(told: Document) -> Document:
    """What whoever is woken does: raises the limit, takes another account, gives a price."""
    accounts = {name: dict(account) for name, account in told["accounts"].items() if name != "denied"}
    accounts["short"]["limits"] = {"rpm": 6000, "burst": 6000}
    accounts["renewed"] = {"provider": "denied", "credential": "env:CANARY"}
    endpoints = {name: dict(endpoint) for name, endpoint in told["endpoints"].items()}
    endpoints["shared-denied"]["account"] = "renewed"
    endpoints["unpriced-well"] |= PRICE
    return {**told, "accounts": accounts, "endpoints": endpoints}


@dataclass
class Routers:
    """Two of them, with a Redis."""

    roles: list[Role]
    http: aiohttp.ClientSession

    async def asks(self, key: str, count: int, **fields: object) -> list[int]:
        """So many requests at once, by turns; their statuses."""
        return list(await asyncio.gather(*(self._ask(self.roles[number % len(self.roles)], key, fields) for number in range(count))))

    async def _ask(self, role: Role, key: str, fields: Mapping[str, object]) -> int:
        body = {"messages": [{"role": "user", "content": "How are you?"}], **fields}
        headers = {"authorization": f"Bearer {key}"}
        url = f"http://127.0.0.1:{role.environ['N4N_PORT']}/v1/chat/completions"
        async with self.http.post(url, json=body, headers=headers) as answer:
            await answer.read()
            return answer.status

    async def ready(self, role: Role) -> bool:
        """Whether it serves."""
        try:
            async with self.http.get(f"http://127.0.0.1:{role.environ['N4N_PORT']}/ready") as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False


@asynccontextmanager
async def two_routers(fleet: Fleet, world: AlertWorld, redis_url: str) -> AsyncIterator[Routers]:
    settings = {
        "admin_url": f"127.0.0.1:{world.plane.port}", "N4N_NODE_TOKEN": NODE, "N4N_REDIS_URL": redis_url, "N4N_VITALS_SEC": "1",
        "CANARY": "sk-canary", "N4N_COUNT_ONE_IN": "0",
    }  # fmt: skip
    roles = [fleet.data_plane(name, **settings) for name in ("r1", "r2")]
    async with aiohttp.ClientSession() as http:
        routers = Routers(roles, http)
        async with asyncio.timeout(WITHIN_S):
            for role in roles:
                while not await routers.ready(role):  # noqa: ASYNC110  # it is another process
                    await asyncio.sleep(0.05)
        yield routers


async def key_of(world: AlertWorld, tenant: str, *budgets: types_pb2.Budget) -> str:
    settings = access_pb2.KeySettings(budgets=budgets)
    made = await world.plane.access.CreateKey(
        access_pb2.CreateKeyRequest(tenant=tenant, settings=settings, author="ann"), metadata=world.plane.token
    )
    return str(made.secret)


def names(world: AlertWorld, status: str) -> set[str]:
    return {alert for alert, how, _ in world.told if how == status}


async def until(world: AlertWorld, found: Callable[[], bool], what: str) -> None:
    """Looks until it is so."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + WITHIN_S
    while not found():
        assert loop.time() < deadline, f"waited for {what}; told so far: {world.told}; known: {world.watchers.known}"
        await world.look()
        await asyncio.sleep(0.1)


def nodes_told(world: AlertWorld, since: int, name: str) -> set[str]:
    """Of which this was told since then."""
    return {labels["node"] for alert, status, labels in world.told[since:] if (alert, status) == (name, "firing")}


def all_over(world: AlertWorld) -> bool:
    told = [(alert, sorted(labels.items())) for alert, status, labels in world.told if status == "firing"]
    over = [(alert, sorted(labels.items())) for alert, status, labels in world.told if status == "resolved"]
    return bool(told) and sorted(told) == sorted(over)


@pytest.fixture
def fleet(tmp_path: Path, postgres_url: str) -> Iterator[Fleet]:
    with running_fleet(tmp_path, postgres_url) as running:
        yield running


async def test_faults_of_real_routers_are_told_and_so_is_their_end(
    fleet: Fleet, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_upstream() as well, running_upstream() as busy, running_upstream() as denied, running_valkey(tmp_path) as valkey:
        well.script(then=lambda call: completion("pong", usage=usage(100, 50)))
        busy.script(then=lambda call: error(500))
        denied.script(then=lambda call: error(401, code="invalid_api_key"))
        told = document(well, busy, denied)
        async with an_alert_world(postgres_url, monkeypatch, told, redis_url=valkey.url, hold=HOLD) as world:
            key = await key_of(world, "acme")
            saving = await key_of(world, "saver", types_pb2.Budget(usd="0.004", window="day", soft=True))
            async with two_routers(fleet, world, valkey.url) as routers:
                await until(world, lambda: world.watchers.known is not None and len(world.watchers.known.nodes) == 2, "both nodes")
                assert set(await routers.asks(key, 20, model="plain")) == {200}
                await asyncio.sleep(1.2)
                await world.look()
                await world.look()
                assert world.told == []

                assert set(await routers.asks(key, 18, model="falls")) == {200}
                for _ in range(17):  # a few at a time, until both know that the account is out
                    assert set(await routers.asks(key, 6, model="shared")) == {200}
                assert set(await routers.asks(saving, 4, model="plain")) == {200}
                assert set(await routers.asks(key, 2, model="unpriced")) == {200}
                expected = {
                    "N4nFallbackDepthRising", "N4nManyFallbacks", "N4nNoRedundancy", "N4nAccountOut", "N4nBudget", "N4nUnpricedTraffic",
                    "N4nWeightCollapse",
                }  # fmt: skip
                await until(world, lambda: expected <= names(world, "firing"), f"{expected}")
                assert names(world, "firing") == expected

                waiting = asyncio.create_task(routers.asks(key, 60, model="limited"))  # 20 go at once, then one in a second
                expected |= {"N4nQuotaNearlyUsed", "N4nInteractiveQueueGrows"}
                await until(world, lambda: expected <= names(world, "firing"), f"{expected}")
                assert names(world, "firing") == expected
                labels = {alert: found for alert, _, found in world.told}
                assert labels["N4nAccountOut"] == {"provider": "denied", "account": "denied", "reason": "auth"}
                assert labels["N4nQuotaNearlyUsed"]["account"] == "short"
                assert labels["N4nNoRedundancy"] == {"model": "shared"}
                assert labels["N4nUnpricedTraffic"] == {"provider": "well", "model": "unpriced"}
                assert labels["N4nWeightCollapse"] == {"provider": "other", "model": "shared"}

                for upstream in (busy, denied):
                    upstream.script(then=lambda call: completion("pong", usage=usage(100, 50)))
                await world.plane.apply(cured(told))
                await waiting
                world.passes(86_400)  # the budget's window is over too
                await until(world, lambda: all_over(world), "the end of all of them")

                cured_at = before = len(world.told)
                valkey.kill()
                assert set(await routers.asks(key, 8, model="limited")) == {200}
                await until(world, lambda: nodes_told(world, before, "N4nStoreAway") == {"r1-1", "r2-1"}, "both routers without Redis")
                valkey.start()
                await until(world, lambda: all_over(world), "Redis again")

                before = len(world.told)
                tampered(monkeypatch)
                await world.plane.apply(told)
                await until(world, lambda: nodes_told(world, before, "N4nCatalogRefused") == {"r1-1", "r2-1"}, "both routers' refusals")
                monkeypatch.setattr(discovery.Stream, "write", _WRITE)
                await world.plane.apply(cured(told))
                await until(world, lambda: all_over(world), "a version that can be read")
                once_more = {"N4nStoreAway", "N4nCatalogRefused", "N4nQuotaNearlyUsed"}  # as last known, by a router that was late
                assert {alert for alert, _, _ in world.told[cured_at:]} <= once_more


_WRITE = discovery.Stream.write


def tampered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every update arrives with another sum than it says."""

    async def write(stream: discovery.Stream, encoded: bytes) -> None:
        message = discovery_pb2.WatchResponse.FromString(encoded)
        if message.HasField("update"):
            message.update.checksum = "0" * 64
        await _WRITE(stream, message.SerializeToString())

    monkeypatch.setattr(discovery.Stream, "write", write)


async def test_usage_that_postgres_does_not_take_is_a_backlog_until_it_does(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain: Document = {"providers": {}, "accounts": {}, "models": {}, "endpoints": {}, "tiers": {}}
    async with an_alert_world(postgres_url, monkeypatch, plain, hold=HOLD) as world:
        await world.rows([a_row(world.now)])  # the day's partition is there
        target, identity = f"127.0.0.1:{world.plane.port}", Identity("r1-1", "data-plane", "0.1.0", NODE)
        segments = Segments(tmp_path / "usage", "run", carried=list)
        texts = ("tenant", "key_id", "endpoint", "provider", "account", "model", "tier", "error_class")
        long: dict[str, object] = dict.fromkeys(texts, "x" * 3900)
        line = b"S" + wire_line(a_row(world.now, 1, **long))
        usage_link = UsageLink([target], identity, segments, known=None, clock=asyncio.get_running_loop().time, draw=lambda: 0.5)
        vitals = VitalsLink([target], identity, "run", lambda: Vitals(usage_waiting_bytes=segments.waiting_bytes), every_s=0.2)
        async with await psycopg.AsyncConnection.connect(libpq_url(postgres_url)) as lock:
            await lock.execute("LOCK TABLE usage_ledger IN EXCLUSIVE MODE")
            for _ in range((66 << 20) // len(line)):
                segments.append(line)
            tasks = [asyncio.create_task(usage_link.run()), asyncio.create_task(vitals.run())]
            await until(world, lambda: bool(world.told), "the backlog")
            assert [(alert, status, labels) for alert, status, labels in world.told] == [("N4nLedgerBacklog", "firing", {"node": "r1-1"})]
        await until(world, lambda: all_over(world), "the end of it")
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        segments.close()
