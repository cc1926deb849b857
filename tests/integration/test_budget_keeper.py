"""Budgets by the ledger: how they stand, that Redis is told after it lost everything, and that every level is told once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
import pytest_asyncio
import redis

from control_plane.budget_alerts import Alert, note_levels
from control_plane.budget_keeper import BudgetKeeper
from control_plane.ledger import Ledger
from control_plane.publisher import Publisher
from control_plane.repository import Repository
from control_plane.schema import migrate
from control_plane.spending import Held, Standing, standings
from n4n.core.budgets import DAY_MS, HOUR_MS, Budget, Unit, pico_of
from n4n.runtime.control_client import ControlClient
from n4n.v1 import access_pb2, types_pb2
from tests.control_plane.client import ADMIN, Calls, a_plane
from tests.integration.test_usage_ledger import rows
from tests.support.catalogs import SMALL
from tests.support.store import open_store

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
NOON_MS = round(NOON.timestamp() * 1000)


def usd(amount: str, window: str, since: datetime = NOON - timedelta(days=90), *, soft: bool = False) -> Budget:
    return Budget(Unit.USD, pico_of(amount), window, soft, round(since.timestamp() * 1000))


@pytest_asyncio.fixture
async def ledger(postgres_url: str) -> AsyncIterator[Ledger]:
    migrate(postgres_url)
    made = Ledger(postgres_url, lambda: NOON)
    yield made
    await made.close()


async def spent(ledger: Ledger, *held: Held, now_ms: int = NOON_MS) -> list[int]:
    return [one.spent for one in await standings(ledger.reading, held, now_ms)]


async def test_what_is_spent_is_the_sum_of_the_rows_since_the_window_began(ledger: Ledger) -> None:
    for number, (days, hours) in enumerate(((0, 1), (0, -3), (1, 0), (6, 0), (29, 0), (40, 0))):
        at = NOON - timedelta(days=days, hours=-hours)
        await ledger.take(
            rows(1 + 10 * number, 2, at, tenant="acme", key_id=f"k{number % 2}", provider=f"p{number % 2}", cost_usd=f"{number + 1}")
        )
    cents = [pico_of(str(n + 1)) * 2 for n in range(6)]  # today at 13 and at 9, yesterday, 24.11., 1.11., in October

    day, week, month = (Held("acme", "", "", usd("1", window)) for window in ("day", "week", "month"))
    assert await spent(ledger, day, week, month) == [sum(cents[:2]), sum(cents[:2]), sum(cents[:5])]
    assert await spent(ledger, Held("acme", "k0", "", usd("1", "month")), Held("acme", "", "p1", usd("1", "month"))) == [
        cents[0] + cents[2] + cents[4], cents[1] + cents[3],
    ]  # fmt: skip
    at_ten, last_week = usd("1", "day", NOON - timedelta(hours=2)), usd("1", "month", NOON - timedelta(days=6))
    assert await spent(ledger, Held("acme", "", "", at_ten), Held("acme", "", "", last_week)) == [cents[0], sum(cents[:4])]
    rolling = [Held("acme", "", "", usd("1", window)) for window in ("24h", "7d", "30d")]
    assert await spent(ledger, *rolling) == [sum(cents[:3]), sum(cents[:4]), sum(cents[:5])]
    fresh = Held("acme", "", "", usd("1", "30d", NOON - timedelta(days=1, hours=1)))
    (standing,) = await standings(ledger.reading, [fresh], NOON_MS)
    assert (standing.spent, dict(standing.slots)) == (
        sum(cents[:3]), {NOON_MS // DAY_MS: sum(cents[:2]), NOON_MS // DAY_MS - 1: cents[2]},
    )  # fmt: skip
    (hourly,) = await standings(ledger.reading, rolling[:1], NOON_MS)
    assert dict(hourly.slots) == {NOON_MS // HOUR_MS + hour: amount for hour, amount in ((1, cents[0]), (-3, cents[1]), (-24, cents[2]))}
    assert hourly.resets_at_ms == NOON_MS + HOUR_MS
    tokens = Held("acme", "", "", Budget(Unit.TOKENS, 10, "day"))
    assert await spent(ledger, tokens) == [4 * (12 + 3)]
    assert await spent(ledger, Held("beta", "", "", usd("1", "month"))) == [0]


async def test_what_nobody_saw_the_end_of_does_not_count_and_what_has_no_price_is_told(ledger: Ledger) -> None:
    await ledger.take(rows(1, 2, tenant="acme", cost_usd="1") + rows(3, 2, tenant="acme", state="unknown", cost_usd="5"))
    await ledger.take(rows(5, 3, tenant="acme", cost_usd=None))
    early = Held("acme", "", "", usd("1", "day", NOON - timedelta(hours=1)))
    found = await standings(
        ledger.reading, [Held("acme", "", "", usd("1", "month")), early, Held("acme", "", "", usd("1", "24h"))], NOON_MS
    )
    assert [(one.spent, one.unpriced, one.level) for one in found] == [(pico_of("2"), 3, 100)] * 3
    await ledger.take(rows(3, 2, tenant="acme", cost_usd="3"))
    assert await spent(ledger, Held("acme", "", "", usd("1", "month")), early) == [pico_of("8")] * 2


async def test_each_level_of_a_window_is_told_once_whoever_looks(ledger: Ledger) -> None:
    def at(amount: str, budget: Budget, begins: datetime = NOON) -> Standing:
        return Standing(Held("acme", "k1", "", budget), pico_of(amount), round(begins.timestamp() * 1000), NOON_MS + HOUR_MS)

    async def told(*found: Standing) -> list[int]:
        several = await asyncio.gather(*(note_levels(ledger.reading, found, NOON) for _ in range(3)))
        return sorted(alert.level for alerts in several for alert in alerts)

    day = usd("10", "day")
    assert await told(at("4.9", day)) == []
    assert await told(at("5", day), at("1", usd("10", "month"))) == [50]
    assert await told(at("7", day)) == []
    assert await told(at("11", day)) == [100]
    assert await told(at("11", day)) == [] == await told(at("5", day))
    assert await told(at("8", day, NOON + timedelta(days=1))) == [80]
    assert await told(at("12", usd("20", "day"))) == [50], "a raised budget is another one to hear of"
    rolling = usd("10", "24h")
    assert [await told(at(amount, rolling)) for amount in ("9", "9", "6", "9", "1", "9")] == [[80], [], [], [80], [], [80]]
    line = str(Alert(at("11", day), 100))
    assert "key k1 of tenant acme has reached 100 % of its hard budget: 11 USD of 10 USD per day" in line


@asynccontextmanager
async def keeping(postgres_url: str, redis_url: str, now: Callable[[], datetime], told: list[Alert]) -> AsyncIterator[BudgetKeeper]:
    """A keeper of its own; it looks when it is told to."""
    repository, ledger = Repository(postgres_url), Ledger(postgres_url, now)
    publisher = Publisher(repository)
    await publisher.catch_up()
    async with open_store(redis_url, deadline_s=2.0) as store:
        yield BudgetKeeper(repository, publisher, ledger.reading, store, tell=told.append, now=now)
    await repository.close()
    await ledger.close()


async def given(plane: Calls, *budgets: types_pb2.Budget, tenant: str = "acme") -> str:
    settings = access_pb2.KeySettings(budgets=budgets)
    made = await plane.access.CreateKey(access_pb2.CreateKeyRequest(tenant=tenant, settings=settings, author="ann"), metadata=plane.token)
    return str(made.key.public_id)


async def purse(client: redis.Redis, public_id: str, holds: Callable[[dict[str, str]], bool]) -> dict[str, str]:
    """The key's counters, once they are so."""
    async with asyncio.timeout(10):
        while True:
            found = {k.decode(): v.decode() for k, v in client.hgetall(f"n4n:{{t:acme}}:{public_id}:m").items()}
            if holds(found):
                return found
            await asyncio.sleep(0.02)


async def test_redis_is_told_what_is_spent_when_it_was_emptied_and_when_a_budget_is_new(postgres_url: str, redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        async with a_plane(postgres_url, redis_url=redis_url) as plane:
            began = time.monotonic()
            public_id = await given(plane, types_pb2.Budget(usd="9", window="month"), types_pb2.Budget(tokens=1000, window="24h"))
            known = await purse(client, public_id, lambda found: found.get("usd/month:k") == "2")
            assert time.monotonic() - began < 8 and known["usd/month:s"] == "0"
            assert any(name.startswith("tokens/24h@") and value == "2" for name, value in known.items())
            ledger = Ledger(postgres_url, lambda: datetime.now(UTC))
            await asyncio.sleep(0.002)
            await ledger.take(rows(1, 4, datetime.now(UTC) + timedelta(seconds=1), tenant="acme", key_id=public_id, cost_usd="0.5"))
            client.flushdb()
            emptied = time.monotonic()
            known = await purse(client, public_id, lambda found: found.get("usd/month:s") == "2000000000000")
            print(f"seeded {time.monotonic() - emptied:.2f} s after Redis was emptied")
            assert [value for name, value in known.items() if "#" in name] == [str(4 * 15)]
            await ledger.close()
            async with ControlClient([f"127.0.0.1:{plane.port}"], ADMIN) as cli:
                month, day = await cli.budgets(public_id=public_id)
            assert (month.spent, month.budget.amount, month.level, day.spent) == ("2", "9", 0, "60")


async def test_what_redis_has_less_of_than_the_ledger_is_raised_and_nothing_is_counted_twice(postgres_url: str, redis_url: str) -> None:
    told: list[Alert] = []
    with redis.Redis.from_url(redis_url) as client:
        async with a_plane(postgres_url) as plane, keeping(postgres_url, redis_url, lambda: datetime.now(UTC), told) as keeper:
            public_id = await given(plane, types_pb2.Budget(usd="4", window="day"))
            await keeper._publisher.catch_up()
            ledger = Ledger(postgres_url, lambda: datetime.now(UTC))
            await asyncio.sleep(0.002)
            await keeper.look()
            name = f"n4n:{{t:acme}}:{public_id}:m"
            client.hset(name, "usd/day:s", "700000000000")
            await ledger.take(rows(1, 2, datetime.now(UTC) + timedelta(seconds=1), tenant="acme", key_id=public_id, cost_usd="1"))
            await keeper.stand()
            assert client.hget(name, "usd/day:s") == b"700000000000", "not before it has had the time to be booked"
            client.hset(name, "usd/day:s", "1000000000000")
            for _ in range(3):
                await keeper.stand()
            assert client.hget(name, "usd/day:s") == b"2000000000000"
            assert [alert.level for alert in told] == [50] and keeper.alerts == 1
            assert keeper.reached == {("acme", f"{public_id} usd/day", 50): 1}
            await ledger.close()


async def test_caps_and_daily_tokens_are_told_to_a_redis_that_knows_nothing_of_them(postgres_url: str, redis_url: str) -> None:
    told: list[Alert] = []
    with redis.Redis.from_url(redis_url) as client:
        async with a_plane(postgres_url) as plane, keeping(postgres_url, redis_url, lambda: datetime.now(UTC), told) as keeper:
            document = {**SMALL, "accounts": {name: {**one, "daily_token_budget": 1000} for name, one in SMALL["accounts"].items()}}
            await plane.apply(document)
            rules = access_pb2.TenantSettings(provider_caps={"acme-ai": types_pb2.Budget(usd="4", window="month")})
            request = access_pb2.UpdateTenantRequest(name="acme", settings=rules, fields=["provider_caps"])
            await plane.access.UpdateTenant(request, metadata=plane.token)
            await keeper._publisher.catch_up()
            ledger, account = Ledger(postgres_url, lambda: datetime.now(UTC)), next(iter(SMALL["accounts"]))
            later = datetime.now(UTC) + timedelta(seconds=1)
            await ledger.take(rows(1, 2, later, tenant="acme", provider="acme-ai", account=account, cost_usd="1.9"))
            await keeper.look()
            await keeper.stand()
            kept = {k: v for name in client.scan_iter("n4n:{caps}:*") for k, v in client.hgetall(name).items()}
            assert sorted(kept.values()) == sorted([b"3800000000000", str(2 * 15).encode()])
            assert [alert.level for alert in told] == [80] and "its cap at provider acme-ai" in str(told[0])
            await ledger.close()


async def test_two_control_planes_tell_each_level_once(postgres_url: str, redis_url: str, caplog: pytest.LogCaptureFixture) -> None:
    async with a_plane(postgres_url, redis_url=redis_url) as plane, a_plane(postgres_url, redis_url=redis_url):
        public_id = await given(plane, types_pb2.Budget(usd="1", window="day", soft=True))
        ledger = Ledger(postgres_url, lambda: datetime.now(UTC))
        await ledger.take(rows(1, 1, datetime.now(UTC) + timedelta(seconds=1), tenant="acme", key_id=public_id, cost_usd="0.85"))
        async with asyncio.timeout(15):
            while "has reached 80 %" not in caplog.text:  # noqa: ASYNC110  # other tasks log
                await asyncio.sleep(0.05)
        await asyncio.sleep(0.2)
        assert caplog.text.count("has reached") == 1
        await ledger.close()


def test_amounts_of_the_ledger_are_exact() -> None:
    assert pico_of(Decimal("0.184918125")) == 184_918_125_000
