"""What routers have under way, in a real Redis: written and removed, written anew after an outage, closed where the router is gone."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
import pytest_asyncio

from control_plane.ledger import Ledger
from control_plane.reaper import Reaper
from control_plane.schema import migrate
from n4n.core.ledger import Row, attempt_of, read_rows
from n4n.runtime import open_attempts
from n4n.runtime.open_attempts import INDEX, LeftBehind, OpenAttempts
from n4n.runtime.stores import Store, command
from tests.core.test_ledger import dispatched, settled
from tests.integration.test_usage_ledger import answers
from tests.support.store import open_store
from tests.support.valkey import ValkeyServer, running_valkey

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ValkeyServer]:
    """A Redis of this test alone."""
    with running_valkey(tmp_path) as running:
        yield running


@pytest_asyncio.fixture
async def store(server: ValkeyServer) -> AsyncIterator[Store]:
    async with open_store(server.url) as opened:
        yield opened


@pytest_asyncio.fixture
async def ledger(postgres_url: str) -> AsyncIterator[Ledger]:
    migrate(postgres_url)
    made = Ledger(postgres_url, lambda: NOW)
    yield made
    await made.close()


class Clock:
    """Seconds, set by the test."""

    at = 0.0

    def __call__(self) -> float:
        return self.at


class Router:
    """One run, and what it has under way."""

    def __init__(self, store: Store, run: str = "r") -> None:
        self.lines: dict[bytes, bytes] = {}
        beats = itertools.count(1.0)
        self.known = OpenAttempts(store, run, f"node-{run}", unsettled=lambda: list(self.lines.values()), wall=lambda: next(beats))

    def dispatch(self, *numbers: int) -> None:
        for number in numbers:
            line = dispatched(number)
            self.lines[attempt_of(line)] = line
            self.known.dispatched(attempt_of(line).decode(), line)

    def settle(self, *numbers: int) -> None:
        for number in numbers:
            del self.lines[attempt_of(dispatched(number))]


async def held(store: Store, run: str = "r") -> list[int]:
    """The attempts that Redis knows of, by number."""
    return sorted({int(attempt[4:], 16) async for part in LeftBehind(store).dispatches(run) for attempt in part})


async def until_held(store: Store, *numbers: int) -> None:
    async with asyncio.timeout(5):
        while await held(store) != list(numbers):  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def test_a_dispatch_is_known_within_moments_and_until_its_row_is_safe(store: Store):
    router = Router(store)

    router.dispatch(1, 2, 3)
    await until_held(store, 1, 2, 3)
    router.settle(1, 2)
    await router.known.beat()
    await until_held(store, 1, 2, 3)  # a row on a disk that may be lost is not safe
    router.known.shipped(settled(1) + settled(2))
    await router.known.beat()

    await until_held(store, 3)
    assert await LeftBehind(store).node("r") == "node-r"


async def test_where_redis_holds_too_many_what_is_settled_goes_at_once(store: Store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(open_attempts, "MOST_KEPT", 3)
    router = Router(store)

    router.dispatch(1, 2, 3)
    await until_held(store, 1, 2, 3)
    await router.known.beat()
    assert router.known.crowded
    router.known.settled(attempt_of(dispatched(1)).decode())
    await router.known.beat()

    await until_held(store, 2, 3)
    await router.known.beat()
    assert not router.known.crowded


async def test_a_redis_that_was_restarted_empty_learns_all_that_is_under_way(store: Store, server: ValkeyServer):
    router = Router(store)
    router.dispatch(*range(1, 1200))
    await router.known.beat()
    await until_held(store, *range(1, 1200))
    with server.client() as client:
        client.flushall()

    router.dispatch(1200)
    router.settle(1)
    await router.known.beat()

    await until_held(store, *range(2, 1201))


async def test_what_was_dispatched_and_shipped_while_redis_was_away_is_told_when_it_is_back(tmp_path: Path):
    with running_valkey(tmp_path) as server:
        async with open_store(server.url, deadline_s=0.05) as store:
            router = Router(store)
            router.dispatch(1, 2)
            await router.known.beat()
            await until_held(store, 1, 2)
            server.kill()

            router.dispatch(3)
            router.settle(1)
            await asyncio.sleep(0.01)
            router.known.shipped(settled(1))
            await router.known.beat()
            assert "0 to write, 1 to remove" in repr(router.known)
            server.start()
            assert await store.ready(10)
            await router.known.beat()
            await until_held(store, 2, 3)


async def test_too_many_removals_to_remember_are_one(store: Store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(open_attempts, "MOST_GONE", 2)
    router = Router(store)
    router.dispatch(1, 2, 3, 4)
    await until_held(store, 1, 2, 3, 4)
    router.settle(1, 2, 3)
    router.known.shipped(settled(1) + settled(2) + settled(3))

    monkeypatch.setattr(router.known, "_behind", True)  # as after an outage, in which so many were gathered
    await router.known.beat()

    await until_held(store, 4)


async def test_a_run_that_ends_well_leaves_nothing_and_one_with_rows_to_ship_stays_known(store: Store, server: ValkeyServer):
    for run, all_shipped in (("r", True), ("s", False)):
        router = Router(store, run)
        router.dispatch(1)
        await router.known.beat()
        router.known.close(all_shipped=all_shipped)

    assert await held(store) == [] and await held(store, "s") == [1]
    with server.client() as client:
        assert client.zrange(INDEX, 0, -1) == ["s"]
        assert client.ttl("n4n:{open:s}") > 86_400 and client.ttl(INDEX) > 86_400
    Router(store, "t").known.forget("s")
    async with asyncio.timeout(5):
        while await LeftBehind(store).words():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def test_what_somebody_else_wrote_into_redis_is_no_run_and_ends_no_reaper(store: Store, ledger: Ledger):
    await store.command(command(b"ZADD", INDEX, "5", b"\xffrun", "7", "odd"))
    await store.command(command(b"HSET", open_attempts._key("odd"), "node", b"\xff", "a", b"\xff", "b", b"D{", "c", b"D\xff"))
    clock = itertools.count(0.0, 100.0).__next__
    reaper = Reaper(LeftBehind(store), ledger, after_s=90, clock=clock)

    assert await LeftBehind(store).words() == {"odd": 7.0}
    await reaper.look()
    await reaper.look()

    assert reaper.closed == 0
    assert await LeftBehind(store).words() == {}


async def test_a_router_that_is_gone_has_its_attempts_closed_once_and_one_that_lives_has_not(
    store: Store, ledger: Ledger, postgres_url: str
):
    lost, alive, clock = Router(store, "lost"), Router(store, "alive"), Clock()
    reapers = [Reaper(LeftBehind(store), ledger, after_s=90, clock=clock) for _ in range(2)]
    lost.dispatch(*range(1, 1301))
    alive.dispatch(5000)
    await ledger.take(_rows(settled(7)))  # shipped a moment before the end
    await lost.known.beat()
    for second in (0, 45, 89, 90, 95):
        clock.at = second
        await alive.known.beat()
        await asyncio.gather(*(reaper.look() for reaper in reapers))
        told = answers(postgres_url, "SELECT state, count(*), sum(cost_usd) FROM usage_ledger GROUP BY 1 ORDER BY 1")
        assert len(told) == (1 if second < 90 else 2)

    assert told == [("ok", 1, Decimal("0.00006")), ("unknown", 1299, 1299 * Decimal("0.0002"))]
    assert sum(reaper.closed for reaper in reapers) >= 1300
    assert await LeftBehind(store).words() == {"alive": 5.0}
    assert await held(store, "lost") == [] and await held(store, "alive") == [5000]


async def test_a_router_that_only_stood_still_goes_on_and_its_rows_replace_what_was_closed(store: Store, ledger: Ledger, postgres_url: str):
    router, clock = Router(store), Clock()
    reaper = Reaper(LeftBehind(store), ledger, after_s=90, clock=clock)
    router.dispatch(1, 2)
    await router.known.beat()
    await reaper.look()
    clock.at = 90
    await reaper.look()
    assert await held(store) == []

    await router.known.beat()
    await until_held(store, 1, 2)
    await ledger.take(_rows(settled(1)))

    assert answers(postgres_url, "SELECT state, cost_usd FROM usage_ledger ORDER BY 1") == [
        ("ok", Decimal("0.00006")),
        ("unknown", Decimal("0.0002")),
    ]
    assert answers(postgres_url, "SELECT sum(attempts), sum(unknown), sum(cost_usd) FROM usage_by_day") == [(2, 1, Decimal("0.00026"))]


async def test_while_redis_is_away_nobody_is_thought_gone(ledger: Ledger, tmp_path: Path):
    clock = Clock()
    with running_valkey(tmp_path) as server:
        async with open_store(server.url, deadline_s=0.05) as store:
            router = Router(store)
            reaper = Reaper(LeftBehind(store), ledger, after_s=90, clock=clock)
            router.dispatch(1)
            await router.known.beat()
            await reaper.look()
            server.kill()
            clock.at = 80
            await reaper.look()
            server.start()
            assert await store.ready(10)
            await router.known.beat()
            for second in (120, 209):
                clock.at = second
                await reaper.look()
            assert reaper.closed == 0 and await held(store) == [1]
            clock.at = 210
            await reaper.look()
            assert reaper.closed == 1


def _rows(lines: bytes) -> list[Row]:
    return read_rows(lines)[0]
