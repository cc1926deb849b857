"""Every alert on its own fault, from where it is made to three receivers over real HTTP, and its end; and hours in which all is well.

A real control plane on a real PostgreSQL looks; nodes report over its gRPC; its clock is ahead of ours, so hours pass in seconds.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, time, timedelta
from urllib.parse import urlsplit

import psycopg
import pytest

from control_plane.schema import migrate
from n4n.core.alerts.rules import BY_NAME, RULES
from n4n.core.ledger import Row
from n4n.core.probes.findings import Finding, Kind
from n4n.runtime.probes import findings
from n4n.runtime.vitals import Vitals
from n4n.v1 import access_pb2, types_pb2
from tests.control_plane.client import Watcher, a_watcher
from tests.support.alert_world import ROUTING_KEY, AlertWorld, Node, a_row, an_alert_world
from tests.support.catalogs import Raw, changed
from tests.support.store import open_store
from tests.support.stores import libpq_url, new_database

PRICE = {"price": {"input_per_1m": 2.5, "output_per_1m": 10}}
DOCUMENT: Raw = {
    "providers": {name: {"dialect": "openai", "base_url": f"https://{name}.example/v1"} for name in ("p1", "p2")},
    "accounts": {f"a{number}": {"provider": f"p{number}", "credential": "env:CANARY"} for number in (1, 2)},
    "models": {"m": {}},
    "endpoints": {
        f"e{number}": {"model": "m", "account": f"a{number}", "upstream_model": "gpt-4o", "region": "eu", **PRICE} for number in (1, 2)
    },
    "tiers": {},
}
ROWS = 80  # of a step, where they matter
Step = Callable[[AlertWorld], Awaitable[None]]
Edit = Callable[[Row], Row]


async def nothing(world: AlertWorld) -> None:
    """Happens."""


def the_row(row: Row) -> Row:
    """As it is."""
    return row


@dataclass(frozen=True)
class Scenario:
    """One fault. `ill`: what nodes say of it at every step; `rows`: what it makes of traffic; `begin`, `cure`: what is done once."""

    ill: Callable[[Node], None] = field(default=lambda node: None)
    rows: Edit = the_row
    begin: Step = nothing
    cure: Step = nothing
    step_s: float = 15.0
    calm_steps: int = 2
    past: timedelta | None = None  # an hour of ordinary traffic so long ago
    also: frozenset[str] = frozenset()  # its fair consequences
    labels: dict[str, str] = field(default_factory=dict)
    from_now: bool = False  # the clock begins at ours: versions are committed by Postgres' own


def says(**vitals: object) -> Callable[[Node], None]:
    """Of every node."""

    def said(node: Node) -> None:
        node.vitals = replace(node.vitals, **vitals)  # type: ignore[arg-type]

    return said


def counts(**more: int) -> Callable[[Node], None]:
    """Beside 100 requests of a step, on every node."""
    return lambda node: node.counts(**more)


def mostly(row: Row, share: float) -> Row:
    """The first endpoint gets so much."""
    number = int(row.request_id.removeprefix("req_"))
    return routed(row, 1 if number % ROWS < share * ROWS else 2)


def routed(row: Row, number: int) -> Row:
    return edited(row, endpoint=f"e{number}", provider=f"p{number}", account=f"a{number}")


def edited(row: Row, **fields: object) -> Row:
    """With other values."""
    return Row(**{name: fields.get(name, getattr(row, name)) for name in Row.__struct_fields__})


async def ordinary(world: AlertWorld, scenario: Scenario, *, ill: bool) -> None:
    """One step: 100 requests at each of two nodes, and rows in the ledger."""
    world.passes(scenario.step_s)
    for node in world.nodes:
        node.counts(ended=100, fell_back=1, changes=1)
        if ill:
            scenario.ill(node)
    await world.words()
    began = world.now - timedelta(seconds=min(scenario.step_s, 300))
    rows = [
        routed(a_row(began + timedelta(milliseconds=150 * number), number), 1 + number % 2)
        for number in range(ROWS if scenario.rows is not the_row or scenario.past else 20)
    ]
    await world.rows(map(scenario.rows, rows) if ill else rows)
    await world.look()


async def low_balance(world: AlertWorld) -> None:
    now_ms = round(world.now.timestamp() * 1000)
    found = Finding(Kind.LOW_BALANCE, "account a1", "3.20 USD are left", "prober-1", now_ms, now_ms + 600_000)
    await world.state.store.command(findings.tell(found))


async def paid_in(world: AlertWorld) -> None:
    await world.state.store.command(findings.clear(["low_balance account a1"]))


async def given_a_budget(world: AlertWorld) -> None:
    budget = types_pb2.Budget(usd="0.2", window="day")
    settings = access_pb2.KeySettings(budgets=[budget])
    made = await world.plane.access.CreateKey(
        access_pb2.CreateKeyRequest(tenant="acme", settings=settings, author="ann"), metadata=world.plane.token
    )
    world.state.key = made.key.public_id


async def tomorrow(world: AlertWorld) -> None:
    world.passes(86_400)


async def refuses(world: AlertWorld) -> None:
    await world.plane.apply(changed(DOCUMENT, "endpoints", "e1", "weight", to=2))
    await world.state.watcher.nack(await world.state.watcher.next_update(), "endpoints.e1", "has a field that is not known here")


async def takes_the_next(world: AlertWorld) -> None:
    await world.plane.apply(changed(DOCUMENT, "endpoints", "e1", "weight", to=3))
    await world.state.watcher.ack(await world.state.watcher.next_update())


async def hangs(world: AlertWorld) -> None:
    await world.plane.apply(changed(DOCUMENT, "endpoints", "e1", "weight", to=2))
    world.state.parts = await world.state.watcher.next_update()


async def goes_on(world: AlertWorld) -> None:
    await world.state.watcher.ack(world.state.parts)


SCENARIOS: dict[str, Scenario] = {
    "N4nQuotaNearlyUsed": Scenario(
        says(quotas=(("p1", "a1", "tpm", 0.9),)), labels={"provider": "p1", "account": "a1", "limit_type": "tpm"}, step_s=60
    ),
    "N4nFallbackDepthRising": Scenario(counts(fell_back=7, changes=7), step_s=120, calm_steps=8),
    "N4nManyFallbacks": Scenario(counts(fell_back=20, changes=20), step_s=60, also=frozenset({"N4nFallbackDepthRising"})),
    "N4nInteractiveQueueGrows": Scenario(says(waiting={"interactive": 20})),
    "N4nModelAway": Scenario(says(candidates={"m": 0}), labels={"model": "m"}),
    "N4nNoRedundancy": Scenario(says(candidates={"m": 1}), labels={"model": "m"}),
    "N4nWeightCollapse": Scenario(rows=lambda row: mostly(row, 0.97), step_s=300, calm_steps=0, labels={"provider": "p1", "model": "m"}),
    "N4nSharesMoved": Scenario(rows=lambda row: mostly(row, 0.84), step_s=300, calm_steps=0, past=timedelta(days=7)),
    "N4nPriorityInversion": Scenario(counts(inversions=1), step_s=60),
    "N4nLatencyWorse": Scenario(
        rows=lambda row: edited(row, latency_ms=1600.0), step_s=240, past=timedelta(hours=3), labels={"provider": "p1", "model": "m"}
    ),
    "N4nTtftWorse": Scenario(
        rows=lambda row: edited(row, ttft_ms=700.0), step_s=240, past=timedelta(hours=3), labels={"provider": "p1", "model": "m"}
    ),
    "N4nErrorBudgetBurnsFast": Scenario(counts(failed=5), step_s=60, also=frozenset({"N4nErrorBudgetBurns"})),
    "N4nErrorBudgetBurns": Scenario(counts(failed=1), step_s=180),
    "N4nAccountOut": Scenario(says(accounts_out=(("p1", "a1", "auth"),)), labels={"provider": "p1", "account": "a1", "reason": "auth"}),
    "N4nBalanceLow": Scenario(begin=low_balance, cure=paid_in, labels={"account": "a1"}),
    "N4nBudget": Scenario(begin=given_a_budget, cure=tomorrow, labels={"tenant": "acme", "level": "50"}),
    "N4nCatalogRefused": Scenario(begin=refuses, cure=takes_the_next, labels={"node": "r1"}, from_now=True, calm_steps=1, step_s=60),
    "N4nCatalogLag": Scenario(begin=hangs, cure=goes_on, labels={"node": "r1"}, from_now=True, calm_steps=1, step_s=31),
    "N4nUnpricedTraffic": Scenario(rows=lambda row: edited(row, cost_usd=None), step_s=120, labels={"provider": "p1", "model": "m"}),
    "N4nCountsDisagree": Scenario(
        rows=lambda row: edited(row, prompt_tokens=108), step_s=300, labels={"endpoint": "e1", "direction": "input"}
    ),
    "N4nLedgerBacklog": Scenario(says(usage_waiting_bytes=1 << 30), labels={"node": "r1"}),
    "N4nStoreAway": Scenario(says(store_up=False), labels={"node": "r2"}),
}


def test_every_rule_has_a_scenario() -> None:
    assert set(SCENARIOS) == {rule.name for rule in RULES}


@pytest.fixture(scope="module")
def template(postgres_server: str) -> Iterator[str]:
    """A database that is migrated already."""
    with new_database(postgres_server) as url:
        migrate(url)
        yield url


@pytest.fixture
def migrated_url(postgres_server: str, template: str) -> Iterator[str]:
    """A copy of it."""
    with new_database(postgres_server, urlsplit(template).path.removeprefix("/")) as url:
        yield url


@pytest.mark.parametrize("name", SCENARIOS)
async def test_an_alert_is_told_when_its_fault_lasts_and_when_it_is_over(
    name: str, migrated_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario, noon = SCENARIOS[name], datetime.combine(datetime.now(UTC).date() + timedelta(days=1), time(12), UTC)
    by = timedelta() if scenario.from_now else noon - datetime.now(UTC) - (scenario.past or timedelta())
    async with an_alert_world(migrated_url, monkeypatch, DOCUMENT, redis_url=redis_url if name == "N4nBalanceLow" else "", by=by) as world:
        async with AsyncExitStack() as stack:
            if scenario.from_now:
                world.state.watcher = await connected(stack, world)
            if name == "N4nBalanceLow":
                world.state.store = await stack.enter_async_context(open_store(redis_url, deadline_s=2.0))
            await rehearse(world, scenario, name)
    firing = {alert for alert, status, _ in world.told if status == "firing"}
    assert {name} <= firing <= {name} | scenario.also
    assert sorted(key(one) for one in world.told if one[1] == "firing") == sorted(key(one) for one in world.told if one[1] == "resolved")
    assert any(scenario.labels.items() <= labels.items() for alert, _, labels in world.told if alert == name)
    in_all_forms(world)


def key(told: tuple[str, str, object]) -> str:
    return f"{told[0]} {told[2]}"


async def connected(stack: AsyncExitStack, world: AlertWorld) -> Watcher:
    """A node that has taken the catalog."""
    watcher = await stack.enter_async_context(a_watcher(world.plane.port, node="r1"))
    await watcher.ack(await watcher.next_update())
    await asyncio.sleep(0.3)  # until it is written down
    return watcher


async def rehearse(world: AlertWorld, scenario: Scenario, name: str) -> None:
    """Calm, the fault until it is told, the cure until all is over."""
    if scenario.past is not None:
        for _ in range(6):
            await ordinary(world, replace(scenario, step_s=595.0), ill=False)
        world.passes(scenario.past.total_seconds() - 3600)
        for node in world.nodes:
            node.restarts()
    for _ in range(scenario.calm_steps):
        await ordinary(world, scenario, ill=False)
    assert world.told == []
    await scenario.begin(world)
    for _ in range(60):
        await settled(scenario)
        await ordinary(world, keyed(scenario, world), ill=True)
        if any(alert == name and status == "firing" for alert, status, _ in world.told):
            break
    else:
        raise AssertionError(f"{name} was not told: {world.watchers.known}")
    assert BY_NAME[name].for_s <= (60 * scenario.step_s)
    await scenario.cure(world)
    for node in world.nodes:
        well = Vitals()
        node.vitals = replace(
            well, **{count: getattr(node.vitals, count) for count in ("ended", "failed", "fell_back", "changes", "inversions")}
        )
    for _ in range(30):
        await settled(scenario)
        await ordinary(world, replace(scenario, step_s=max(scenario.step_s, 1200.0)), ill=False)
        if all_over(world):
            return
    raise AssertionError(f"not over: {world.told}")


def all_over(world: AlertWorld) -> bool:
    how = [status for _, status, _ in world.told]
    return how.count("firing") == how.count("resolved")


def keyed(scenario: Scenario, world: AlertWorld) -> Scenario:
    """The rows of a step are those of the key that has the budget, where there is one: 0.08 USD."""
    public_id = getattr(world.state, "key", None)
    return scenario if public_id is None else replace(scenario, rows=lambda row: edited(row, key_id=public_id))


async def settled(scenario: Scenario) -> None:
    if scenario.from_now:
        await asyncio.sleep(0.3)  # streams and what is written of them are not of the virtual clock


def in_all_forms(world: AlertWorld) -> None:
    """Slack and PagerDuty heard the same as the plain receiver, each in its own form."""
    for plain, slack, duty in zip(world.plain.got, world.slack.got, world.duty.got, strict=True):
        over = plain["status"] == "resolved"
        assert str(slack["text"]).startswith(f"[{'resolved' if over else plain['severity']}] {plain['alert']}: ")
        assert (duty["routing_key"], duty["event_action"]) == (ROUTING_KEY, "resolve" if over else "trigger")
        assert duty["dedup_key"] == plain["key"]
        assert over or duty["payload"]["severity"] == {"page": "critical", "ticket": "warning"}[str(plain["severity"])]  # type: ignore[index]
        assert set(plain["labels"]) == set(BY_NAME[str(plain["alert"])].by)  # type: ignore[call-overload]


async def test_a_budget_is_told_at_every_level_and_all_of_them_are_over_with_its_window(
    migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    noon = datetime.combine(datetime.now(UTC).date() + timedelta(days=1), time(12), UTC)
    async with AsyncExitStack() as stack:
        another = await stack.enter_async_context(await psycopg.AsyncConnection.connect(libpq_url(migrated_url)))
        await another.execute("SELECT pg_advisory_lock(%s)", (0x6E346E05,))  # another control plane looks after budgets
        world = await stack.enter_async_context(an_alert_world(migrated_url, monkeypatch, DOCUMENT, by=noon - datetime.now(UTC)))
        await given_a_budget(world)
        for at, cost in enumerate(("0.11", "0.06", "0.05")):
            world.passes(60)
            await world.rows([a_row(world.now, at, key_id=world.state.key, cost_usd=cost)])
            await world.look()
        assert [(labels["level"], status) for _, status, labels in world.told] == [("50", "firing"), ("80", "firing"), ("100", "firing")]
        world.passes(86_400)
        await world.look()
        assert sorted(labels["level"] for _, status, labels in world.told if status == "resolved") == ["100", "50", "80"]


@dataclass
class Morning:
    """A Monday's, with what happens on one. `chance`: what happens when."""

    chance: random.Random
    world: AlertWorld
    streams: dict[str, AsyncExitStack] = field(default_factory=dict)
    watchers: dict[str, Watcher] = field(default_factory=dict)
    number: int = 0

    async def connect(self, node: str) -> None:
        """With what it held when it was there last."""
        held = self.watchers[node].held if node in self.watchers else None
        self.streams[node] = AsyncExitStack()
        self.watchers[node] = await self.streams[node].enter_async_context(a_watcher(self.world.plane.port, node=node, held=held))

    async def deploy(self, weight: float) -> None:
        """A new version of the catalog, which every node takes."""
        await self.world.plane.apply(changed(DOCUMENT, "endpoints", "e1", "weight", to=weight))
        for watcher in self.watchers.values():
            await watcher.ack(await watcher.next_update())
        await asyncio.sleep(0.3)

    async def minute(self, minute: int, length_s: float) -> None:
        """More requests each minute; one attempt in fifty fails, nearly always for nobody to notice. Short troubles come and go."""
        self.world.passes(length_s)
        rows: list[Row] = []
        for at, node in enumerate(self.world.nodes):
            count = round(15 * (1 + minute / 30) * self.chance.uniform(0.8, 1.2))
            failing = sum(self.chance.random() < 0.02 for _ in range(count))
            node.counts(ended=count, fell_back=failing, changes=failing, failed=int(self.chance.random() < 0.01))
            node.vitals = replace(
                node.vitals,
                quotas=(("p1", "a1", "tpm", 0.97 if minute % 6 == 4 else self.chance.uniform(0.3, 0.8)),),
                waiting={"interactive": self.chance.choice((0, 0, 0, 1, 3))},
                usage_waiting_bytes=self.chance.randrange(5_000_000),
                candidates={"m": 1} if minute % 14 == 6 else {},
                store_up=minute % 20 != 12,
            )
            rows += [row for number in range(count) for row in self.attempts(at, number < failing)]
        await self.world.words()
        await self.world.rows(rows)

    def attempts(self, node: int, fails: bool) -> list[Row]:
        """One request's."""
        self.number += 1
        at = self.world.now - timedelta(seconds=self.chance.uniform(0, 60))
        first = 1 + (self.chance.random() < 0.45)
        latency = 800 * self.chance.lognormvariate(0, 0.4)
        row = routed(a_row(at, self.number, latency_ms=latency, ttft_ms=latency / 3, prompt_tokens=100 + self.chance.randrange(3)), first)
        if not fails:
            return [row]
        status, error = self.chance.choice(((429, "rate_limited"), (503, "overloaded"), (500, "server_error")))
        failed = edited(row, state="failed", status=status, error_class=error, cost_usd="0", completion_tokens=0, ttft_ms=None)
        second = a_row(at + timedelta(milliseconds=200), self.number + 2048, request_id=row.request_id, attempt_no=2, latency_ms=latency)
        return [failed, routed(second, 3 - first)]


@pytest.mark.parametrize("seed", range(3))
async def test_an_hour_of_a_monday_morning_wakes_nobody(seed: int, migrated_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    async with an_alert_world(migrated_url, monkeypatch, DOCUMENT, by=timedelta(days=-1)) as world:
        morning = Morning(chance, world)
        for minute in range(0, 60, 10):  # yesterday's
            await morning.minute(minute, 595.0)
            await world.look()
        world.passes(86_400 - 3600)
        for node in world.nodes:
            node.restarts()
            await morning.connect(node.name)
            await morning.watchers[node.name].ack(await morning.watchers[node.name].next_update())
        for minute in range(0, 60, 2):
            if minute == 30:  # one is started anew, and a version comes while it is away
                world.nodes[0].restarts()
                await morning.streams["r1"].aclose()
                gone = morning.watchers.pop("r1")
            if minute in (10, 30, 50):
                await morning.deploy(1 + minute / 100)
            await morning.minute(minute, 120.0)
            await world.look()
            if minute == 30:
                morning.watchers["r1"] = gone
                await morning.connect("r1")
                await morning.watchers["r1"].ack(await morning.watchers["r1"].next_update())
        for stack in morning.streams.values():
            await stack.aclose()
    assert world.told == []
