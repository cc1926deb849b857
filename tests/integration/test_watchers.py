"""From what routers say and the ledger holds to whoever is woken: on a real PostgreSQL, through real HTTP receivers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import aiohttp
import pytest

from control_plane import traffic, usual, vitals
from control_plane.ledger import Ledger
from control_plane.schema import migrate
from control_plane.vitals import Said
from control_plane.watchers import Watchers
from control_plane.webhooks import webhooks_of
from n4n.core.alerts.facts import NodeFacts
from n4n.core.alerts.rules import BY_NAME
from n4n.core.catalog import Snapshot
from n4n.core.errors import StartFailed
from n4n.core.ledger import Row
from n4n.core.probes.rows import TENANT
from tests.support.alert_world import a_sink

NOON = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


@dataclass
class Around:
    """Everything else that watchers ask for."""

    catalog: Snapshot | None = None
    those: Sequence[NodeFacts] = ()
    spent: Sequence[tuple[str, str, int]] = ()
    low: Sequence[str] = ()

    def snapshot(self) -> Awaitable[Snapshot | None]:
        async def told() -> Snapshot | None:
            return self.catalog

        return told()

    async def nodes(self) -> Sequence[NodeFacts]:
        return self.those

    async def budgets(self) -> Sequence[tuple[str, str, int]]:
        return self.spent

    async def low_balances(self) -> Sequence[str]:
        return self.low


@dataclass
class Clock:
    now: datetime = NOON

    def __call__(self) -> datetime:
        return self.now


@asynccontextmanager
async def a_ledger(url: str, clock: Clock) -> AsyncIterator[Ledger]:
    migrate(url)
    ledger = Ledger(url, clock)
    try:
        yield ledger
    finally:
        await ledger.close()


def a_row(
    at: datetime, number: int = 0, *, tenant: str = "acme", cost: str | None = "0.5", latency_ms: float = 800.0, **more: object
) -> Row:
    """A row of the ledger that ended well."""
    facts: dict[str, object] = {
        "attempt_id": f"att_{round(at.timestamp() * 1e6):016x}{number:08x}", "started_us": round(at.timestamp() * 1e6),
        "request_id": f"req_{number}", "attempt_no": 1, "tenant": tenant, "key_id": "k",
        "endpoint": "e", "provider": "p", "account": "a", "model": "m", "tier": "",
        "catalog_version": 1, "stream": False, "priority": "interactive", "state": "ok", "error_class": None, "status": 200,
        "prompt_tokens": 10, "cached_tokens": 0, "cache_write_tokens": 0, "completion_tokens": 20, "reasoning_tokens": 0,
        "counted_prompt_tokens": None, "counted_completion_tokens": None, "counted_by": None, "estimated": False, "cost_usd": cost,
        "latency_ms": latency_ms, "ttft_ms": None,
    }  # fmt: skip
    return Row(**(facts | more))  # type: ignore[arg-type]


def rows(count: int, at: datetime, **facts: object) -> list[Row]:
    return [a_row(at=at + timedelta(milliseconds=number), number=number, **facts) for number in range(count)]


async def test_an_alert_is_told_to_every_receiver_in_its_own_words_and_ended(postgres_url: str) -> None:
    clock, around = Clock(), Around()
    async with (
        a_ledger(postgres_url, clock) as ledger,
        a_sink() as slack,
        a_sink() as duty,
        a_sink() as plain,
        aiohttp.ClientSession() as http,
    ):
        hooks = webhooks_of(f"slack={slack.url}, pagerduty=R0UT1NG@{duty.url},json={plain.url}")
        watchers = Watchers(ledger.reading, around, hooks, clock)
        around.those = [NodeFacts("r1", refuses=True)]
        assert [one.rule.name for one in await watchers.look()] == ["N4nCatalogRefused"]
        assert await watchers.teller.tell_all(http)
        assert not await watchers.teller.tell_all(http)
        assert await watchers.look() == []  # it still is: nobody is told again
        around.those = [NodeFacts("r1")]
        clock.now += timedelta(minutes=2)
        [over] = await watchers.look()
        assert over.resolved
        assert await watchers.teller.tell_all(http)
    assert [one["text"] for one in slack.got] == [
        "[page] N4nCatalogRefused: node r1 refused a catalog version (since 2026-11-30T12:00:00Z)",
        "[resolved] N4nCatalogRefused: node r1 refused a catalog version (since 2026-11-30T12:00:00Z)",
    ]
    first, last = duty.got
    assert (first["routing_key"], first["event_action"], last["event_action"]) == ("R0UT1NG", "trigger", "resolve")
    assert first["dedup_key"] == last["dedup_key"] == "N4nCatalogRefused/node=r1"
    assert first["payload"]["severity"] == "critical"  # type: ignore[index]
    assert [(one["status"], one["labels"]) for one in plain.got] == [("firing", {"node": "r1"}), ("resolved", {"node": "r1"})]


async def test_what_a_receiver_does_not_take_is_told_again_and_to_no_other_twice(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    around = Around(those=[NodeFacts("r1", refuses=True)])
    async with a_ledger(postgres_url, clock) as ledger, a_sink() as well, a_sink() as ill, aiohttp.ClientSession() as http:
        watchers = Watchers(ledger.reading, around, webhooks_of(f"json={well.url},slack={ill.url}?token=hush"), clock)
        ill.status = 500
        await watchers.look()
        assert await watchers.teller.tell_all(http)
        assert not await watchers.teller.tell_all(http)  # not at once
        other = Watchers(ledger.reading, around, webhooks_of(f"json={well.url},slack={ill.url}?token=hush"), clock)
        clock.now += timedelta(seconds=3)
        assert await other.look() == []  # another control plane goes on where this one stopped
        ill.status = 200
        assert await other.teller.tell_all(http)
        assert (len(well.got), len(ill.got)) == (1, 2)
    assert "hush" not in caplog.text
    assert ill.url not in caplog.text


async def test_a_receiver_that_is_never_there_is_given_up_after_a_day(postgres_url: str) -> None:
    clock = Clock()
    around = Around(low=["or"])
    async with a_ledger(postgres_url, clock) as ledger, aiohttp.ClientSession() as http:
        watchers = Watchers(ledger.reading, around, webhooks_of("json=http://127.0.0.1:1/none"), clock)
        await watchers.look()
        for _ in range(5):
            assert await watchers.teller.tell_all(http)
            clock.now += timedelta(hours=5)
        assert await watchers.teller.tell_all(http)  # after 25 hours, for the last time
        clock.now += timedelta(hours=5)
        assert not await watchers.teller.tell_all(http)


async def test_routers_say_how_they_are_and_their_counters_become_minutes(postgres_url: str) -> None:
    clock = Clock()
    async with a_ledger(postgres_url, clock) as ledger:
        for said in (
            Said("r1", "run-1", ended=100, failed=1, waiting={"interactive": 1}),
            Said("r1", "run-1", ended=300, failed=31, fell_back=5, changes=6, waiting={"interactive": 4}),
            Said("r1", "run-2", ended=1),  # it was started again: its counters are new
            Said("r1", "run-2", ended=6),
            Said("r2", "run-9", ended=1000, store_up=False, candidates={"small": 1}),
        ):
            await vitals.take(ledger.reading(), said, clock.now)
        [(found, inversions)] = await vitals.requests(ledger.reading, [(NOON, NOON + timedelta(minutes=1))])
        one, two = await vitals.newest(ledger.reading, NOON + timedelta(seconds=30))
        later = await vitals.newest(ledger.reading, NOON + timedelta(minutes=5))
    assert (found.ended, found.failed, found.fell_back, found.changes, inversions) == (205, 30, 5, 6, 0)
    assert (one.run, two.store_up) == ("run-2", False)
    assert later == []


async def test_two_processes_of_one_name_are_counted_each_by_itself(postgres_url: str) -> None:
    clock = Clock()
    async with a_ledger(postgres_url, clock) as ledger:
        for number in range(5):  # one drains while the other serves already
            await vitals.take(ledger.reading(), Said("r1-1", "old", ended=100_000 + number, failed=9_000), clock.now)
            await vitals.take(ledger.reading(), Said("r1-1", "new", ended=10 * number), clock.now)
        [(found, _)] = await vitals.requests(ledger.reading, [(NOON, NOON + timedelta(minutes=1))])
    assert (found.ended, found.failed) == (44, 0)


async def test_what_was_counted_while_nobody_listened_is_spread_over_that_time(postgres_url: str) -> None:
    clock = Clock()
    async with a_ledger(postgres_url, clock) as ledger:
        await vitals.take(ledger.reading(), Said("r1", "run", ended=1000), clock.now)
        clock.now += timedelta(minutes=120)
        await vitals.take(ledger.reading(), Said("r1", "run", ended=4600, failed=120), clock.now)
        now = clock.now + timedelta(minutes=1)
        [(lately, _), (all_of_it, _)] = await vitals.requests(ledger.reading, [(now - timedelta(minutes=6), now), (NOON, now)])
    assert (lately.ended, lately.failed) == (180, 6)
    assert (all_of_it.ended, all_of_it.failed) == (3600, 120)


async def test_the_ledger_becomes_minutes_with_percentiles(postgres_url: str) -> None:
    clock = Clock(NOON + timedelta(minutes=5))
    async with a_ledger(postgres_url, clock) as ledger:
        made = [
            a_row(at=NOON + timedelta(seconds=number), number=number, latency_ms=100.0 * (number + 1), ttft_ms=50.0, stream=True, cost=None)
            for number in range(100)
        ]
        await ledger.take(made)
        await ledger.take(rows(7, NOON, tenant=TENANT))
        await traffic.add_up_minutes(ledger.reading, clock.now)
        await traffic.add_up_minutes(ledger.reading, clock.now)  # once more changes nothing
        [one] = await traffic.window(ledger.reading, NOON, clock.now)
    assert (one.attempts, one.unpriced) == (100, 100)
    assert one.p95_latency_s == pytest.approx(9.5, rel=0.12)
    assert one.p95_ttft_s == pytest.approx(0.05, rel=0.12)


async def test_what_is_usual_is_the_same_in_pieces_and_takes_no_look_long(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(NOON - timedelta(days=6))
    async with a_ledger(postgres_url, clock) as ledger:
        for number in range(20):
            await ledger.take(rows(30, clock.now, latency_ms=500.0 + 50 * number))
            await traffic.add_up_minutes(ledger.reading, clock.now)
            clock.now += timedelta(hours=7)
        clock.now = NOON
        monkeypatch.setattr(usual, "MOST_S", 0.0)  # so one look asks for one piece
        week, looks = usual.Week(), 0
        while not (found := await week.at(ledger.reading, clock.now)).traffic:
            looks += 1
            assert looks < 40
        [whole] = await traffic.window(ledger.reading, NOON - timedelta(days=7), NOON)
        assert found.traffic == {("p", "m"): whole}
        assert (await week.at(ledger.reading, clock.now + timedelta(minutes=59))) is found
    assert looks > 5


async def test_unpriced_traffic_and_a_slower_provider_are_seen(postgres_url: str) -> None:
    clock = Clock(NOON - timedelta(hours=2))
    async with a_ledger(postgres_url, clock) as ledger:
        await ledger.take(rows(200, clock.now, latency_ms=800.0))
        clock.now += timedelta(minutes=1)
        watchers = Watchers(ledger.reading, Around(), (), clock)
        assert await watchers.look() == []
        for minutes in (0, 6, 12, 18):  # as long as it takes
            clock.now = NOON + timedelta(minutes=minutes)
            await ledger.take(rows(120, clock.now - timedelta(seconds=30), latency_ms=3000.0, cost=None))
            found = await watchers.look()
        assert [one.rule.name for one in found] == ["N4nLatencyWorse"]
        standing = {one.violation.rule for one in await _standing(ledger)}
    assert standing == {"N4nLatencyWorse", "N4nUnpricedTraffic"}


async def _standing(ledger: Ledger) -> Sequence[object]:
    from control_plane.watchers import standing

    return await standing(ledger.reading)


async def test_one_control_plane_looks_at_a_time(postgres_url: str) -> None:
    clock, around = Clock(), Around(low=["or"])
    async with a_ledger(postgres_url, clock) as ledger, a_ledger(postgres_url, clock) as second, a_sink() as sink:
        hooks = webhooks_of(f"json={sink.url}")
        both = [Watchers(one.reading, around, hooks, clock, look_s=0.05) for one in (ledger, second)]
        tasks = [asyncio.create_task(one.keep()) for one in both]
        async with asyncio.timeout(10):
            while not sink.got:  # noqa: ASYNC110  # the tasks fill it
                await asyncio.sleep(0.02)
        await asyncio.sleep(0.5)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert len(sink.got) == 1


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("teams=https://example.org/x", "part 1 must begin with slack=, pagerduty= or json=; a comma within a URL is %2C"),
        ("slack=https://example.org/x,json=ftp://example.org", "part 2 must be json=https"),
        ("slack=nonsense", "part 1 must be slack=https"),
        ("pagerduty=", "part 1 must be pagerduty=ROUTING_KEY"),
    ],
)
def test_a_setting_that_names_no_receiver_stops_the_start(setting: str, said: str) -> None:
    with pytest.raises(StartFailed, match=said) as refused:
        webhooks_of(setting)
    assert "example" not in str(refused.value)


def test_every_rule_has_words_for_its_subject() -> None:
    assert all(rule.summary.format(value="1", **dict.fromkeys(rule.by, "x")) for rule in BY_NAME.values())


async def test_the_attempts_of_one_request_are_found_by_its_id(postgres_url: str) -> None:
    clock = Clock()
    async with a_ledger(postgres_url, clock) as ledger:
        made = [a_row(NOON, 7), a_row(NOON + timedelta(seconds=1), 8, request_id="req_7", attempt_no=2, cost=None), a_row(NOON, 9)]
        await ledger.take(made)
        found = await traffic.attempts(ledger.reading, "req_7", NOON - timedelta(minutes=1), NOON + timedelta(minutes=1))
        nothing = await traffic.attempts(ledger.reading, "req_7", NOON - timedelta(hours=2), NOON - timedelta(hours=1))
    assert [(row.attempt_no, row.cost_usd is None) for row in found] == [(1, False), (2, True)]
    assert nothing == []
