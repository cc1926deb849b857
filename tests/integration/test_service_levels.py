"""From rows of the ledger to what `n4n sla` says: hours are added up once, whole, in their place; a creep is flagged and a peak is not."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest
from sqlalchemy import text

from control_plane.ledger import Ledger
from control_plane.repository import Repository
from control_plane.schema import migrate
from control_plane.service_levels import CAUGHT_UP, KEPT, HourRow, ServiceLevels, hours
from control_plane.versions import apply_document, read_document
from n4n.core.ledger import Row
from n4n.core.probes.rows import TENANT
from n4n.core.sla import DRIFTS, WEEK_H
from n4n.v1 import usage_pb2
from tests.integration.test_watchers import NOON, Clock, a_row
from tests.support.fleet import NODE_TOKEN, Fleet, eventually, running_fleet

HOUR = timedelta(hours=1)
OF_REHEARSALS = "SELECT state, count(*)" + Path("docs/metering.md").read_text().partition("SELECT state, count(*)")[2]
AGO = datetime.min.replace(tzinfo=UTC)
PLACED = {"model": "m", "account": "a", "region": "eu"}
ONE: dict[str, Any] = {
    "providers": {"p": {"dialect": "openai", "base_url": "https://api.example.org/v1"}},
    "accounts": {"a": {"provider": "p", "credential": "env:CANARY"}},
    "models": {"m": {}},
    "endpoints": {"e": PLACED},
}


@asynccontextmanager
async def a_ledger(url: str, clock: Clock) -> AsyncIterator[tuple[Ledger, ServiceLevels]]:
    migrate(url)
    ledger, levels = Ledger(url, clock), ServiceLevels(url, clock)
    try:
        yield ledger, levels
    finally:
        await ledger.close()
        await levels.close()


async def applies(url: str, document: dict[str, Any], expect: int) -> None:
    repository = Repository(url)
    try:
        parsed, problems = read_document(json.dumps(document))
        assert not problems
        await repository.commit_catalog(
            lambda head: apply_document(head, parsed, author="ann", message="", allow_shrink=True), expect=expect, action="apply"
        )
    finally:
        await repository.close()


async def stored(ledger: Ledger) -> list[HourRow]:
    return list(await hours(ledger.reading, AGO, ""))


def some_rows(count: int, at: datetime, **facts: object) -> list[Row]:
    return [a_row(at + timedelta(seconds=number), number, **facts) for number in range(count)]  # type: ignore[arg-type]


async def test_an_hour_has_exact_percentiles_and_no_probes(postgres_url: str) -> None:
    clock = Clock(NOON + timedelta(minutes=5))
    async with a_ledger(postgres_url, clock) as (ledger, levels):
        made = [
            a_row(NOON + timedelta(seconds=number), number, latency_ms=100.0 * (number + 1), ttft_ms=50.0, stream=True)
            for number in range(100)
        ]
        await ledger.take([*made, *some_rows(7, NOON + timedelta(minutes=4), tenant=TENANT)])
        assert await levels.add_up() == [NOON]  # as far as it goes
        [running] = await stored(ledger)
        await ledger.take(some_rows(5, NOON + timedelta(minutes=30), state="failed", latency_ms=9e9, error_class="timeout"))
        clock.now = NOON + HOUR + timedelta(seconds=30)
        assert await levels.add_up() == [NOON]  # rows of it may still be on their way into a transaction
        clock.now = NOON + HOUR + timedelta(minutes=1)
        assert await levels.add_up() == [NOON]
        clock.now = NOON + HOUR + timedelta(minutes=3)
        assert await levels.add_up() == []  # it is as it stays
        [hour] = await stored(ledger)
    assert (running.attempts, running.failed) == (100, 0)
    assert (hour.hour, hour.provider, hour.model, hour.region, hour.attempts, hour.failed) == (NOON, "p", "m", "", 105, 5)
    assert (hour.latency_p50_ms, hour.latency_p95_ms, hour.latency_p99_ms) == pytest.approx((5050.0, 9505.0, 9901.0))
    assert (hour.ttft_p50_ms, hour.ttft_p95_ms, hour.ttft_p99_ms) == pytest.approx((50.0, 50.0, 50.0))
    assert hour.tokens_per_s == pytest.approx(100 * 20 / (sum(100.0 * (number + 1) - 50.0 for number in range(100)) / 1000))


async def test_speed_is_that_of_streams_and_whole_answers_tell_none(postgres_url: str) -> None:
    clock = Clock(NOON + timedelta(minutes=5))
    whole = some_rows(3, NOON, latency_ms=42.0, ttft_ms=42.4)  # until the client had it, which is later than until it came
    async with a_ledger(postgres_url, clock) as (ledger, levels):
        await ledger.take([*whole, a_row(NOON, 7, model="at-once", latency_ms=42.0, ttft_ms=42.4, stream=True)])
        await levels.add_up()
        alone = await stored(ledger)
        await ledger.take([a_row(NOON, 8, latency_ms=1050.0, ttft_ms=50.0, stream=True)])
        await levels.add_up()
        [_, beside] = await stored(ledger)
    assert [one.tokens_per_s for one in alone] == [None, None]
    assert (beside.attempts, beside.tokens_per_s) == (4, pytest.approx(20.0))


async def test_rows_that_come_days_late_change_their_own_hours_and_no_others(postgres_url: str) -> None:
    clock = Clock(NOON)
    async with a_ledger(postgres_url, clock) as (ledger, levels):
        for hour in range(30):
            await ledger.take(some_rows(2, NOON + hour * HOUR))
        clock.now = NOON + timedelta(hours=31, minutes=2)
        assert len(await levels.add_up()) == 30
        before = await stored(ledger)
        late = [*some_rows(4, NOON + timedelta(hours=3, minutes=30), latency_ms=2000.0), *some_rows(1, NOON - timedelta(days=3))]
        await ledger.take(late)  # of a router that had no control plane
        assert await levels.add_up() == [NOON - timedelta(days=3), NOON + 3 * HOUR]
        after = await stored(ledger)
        await ledger.take(late)  # again, as its word of thanks was lost
        assert await levels.add_up() == []
        assert await stored(ledger) == after
    changed = [(old.hour, old.attempts, new.attempts) for old, new in zip(before, after[1:], strict=True) if old != new]
    assert changed == [(NOON + 3 * HOUR, 2, 6)]
    assert (after[0].hour, after[0].attempts) == (NOON - timedelta(days=3), 1)


async def test_an_unknown_attempt_that_turns_out_well_is_counted_once(postgres_url: str) -> None:
    clock = Clock(NOON + 2 * HOUR)
    async with a_ledger(postgres_url, clock) as (ledger, levels):
        await ledger.take([a_row(NOON, 1, state="unknown", latency_ms=None)])  # type: ignore[arg-type]
        await levels.add_up()
        [unknown] = await stored(ledger)
        await ledger.take([a_row(NOON, 1)])
        await levels.add_up()
        [known] = await stored(ledger)
    assert (unknown.attempts, unknown.latency_p50_ms, known.attempts, known.latency_p50_ms) == (1, None, 1, 800.0)


async def test_adding_up_again_after_the_endpoint_has_moved_or_gone_changes_nothing(postgres_url: str) -> None:
    clock = Clock(NOON)
    async with a_ledger(postgres_url, clock) as (ledger, levels):
        await applies(postgres_url, ONE, 0)
        await ledger.take(some_rows(3, NOON))
        moved = {**ONE, "endpoints": {"e": {**PLACED, "region": "us"}}}
        await applies(postgres_url, moved, 1)
        await ledger.take(some_rows(2, NOON + timedelta(minutes=9), catalog_version=2))
        clock.now = NOON + 2 * HOUR
        await levels.add_up()
        first = await stored(ledger)
        await applies(postgres_url, {**ONE, "endpoints": {}}, 2)
        again = ServiceLevels(postgres_url, clock)  # of another control plane, which knows nothing yet
        assert await again.add_up() == [NOON]
        await again.close()
        assert await stored(ledger) == first
    assert [(one.region, one.attempts) for one in first] == [("eu", 3), ("us", 2)]


async def test_what_nobody_added_up_is_caught_up_with_and_what_is_too_old_goes(postgres_url: str) -> None:
    clock = Clock(NOON + timedelta(minutes=1))
    async with a_ledger(postgres_url, clock) as (ledger, levels):
        await ledger.take(some_rows(1, NOON - timedelta(hours=1)))
        await levels.add_up()
        for hour in range(3):
            clock.now = NOON + hour * HOUR + timedelta(minutes=30)
            await ledger.take(some_rows(1, NOON + hour * HOUR))
        clock.now = NOON + timedelta(hours=50)  # all control planes were of an older n4n meanwhile, say
        assert await levels.add_up() == [NOON, NOON + HOUR, NOON + 2 * HOUR]
        clock.now = NOON + KEPT + timedelta(hours=1)
        await levels.add_up()
        assert [one.hour for one in await stored(ledger)] == [NOON + HOUR, NOON + 2 * HOUR]


async def test_the_past_of_a_database_that_has_no_hours_yet_is_added_up(postgres_url: str) -> None:
    clock = Clock(NOON - CAUGHT_UP + HOUR)
    async with a_ledger(postgres_url, clock) as (ledger, levels):
        await ledger.take(some_rows(1, clock.now))
        clock.now = NOON
        assert await levels.add_up() == [NOON - CAUGHT_UP + HOUR]


def report(fleet: Fleet, rows: Sequence[Row]) -> None:
    """As a router does."""
    lines = b"".join(b"S" + msgspec.json.encode(row) + b"\n" for row in rows)
    with grpc.insecure_channel(fleet.admin_url) as channel:
        call = channel.unary_unary("/n4n.v1.Usage/Report", usage_pb2.UsageReport.SerializeToString, usage_pb2.UsageReceipt.FromString)
        call(usage_pb2.UsageReport(offset=1, lines=lines), metadata=(("authorization", f"Bearer {NODE_TOKEN}"),), timeout=20)


def usual(at: datetime, draw: random.Random) -> float:
    """Milliseconds: busier by day than by night, and never quite the same."""
    return (900.0 if 8 <= at.hour < 18 else 700.0) * draw.uniform(0.9, 1.1)


def four_weeks(begin: datetime) -> Sequence[Row]:
    """Two attempts an hour of three models: one creeps from 800 ms to 3 s, one has its worst Monday at the end, one is as ever."""
    draw, made = random.Random(7), list[Row]()
    for hour in range(4 * WEEK_H):
        at = begin + hour * HOUR
        ratio = 1 + (3000 / 800 - 1) * hour / (4 * WEEK_H)
        peak = 4.0 if hour >= 3 * WEEK_H and at.weekday() == 0 else 1.0
        for number, (model, times) in enumerate((("creeps", ratio), ("peaks", peak), ("as-ever", 1.0))):
            for which in range(2):
                more = {"model": model, "latency_ms": usual(at, draw) * times, "ttft_ms": usual(at, draw) * times / 4, "stream": True}
                made.append(a_row(at + timedelta(minutes=3), 2 * number + which, **more))  # type: ignore[arg-type]
    return made


async def test_a_creep_from_800_ms_to_3_s_over_weeks_is_flagged_and_a_mondays_peak_is_not(tmp_path: Path, postgres_url: str) -> None:
    now = datetime.now(UTC)
    begin = now.replace(minute=0, second=0, microsecond=0) - timedelta(weeks=4)
    clock, made = Clock(begin), four_weeks(begin)
    day = 24 * 6
    async with a_ledger(postgres_url, clock) as (ledger, levels):
        for first in range(0, len(made) - day, day):  # a day of the ledger, then a look, as it goes
            clock.now = begin + (first // 6) * HOUR + timedelta(days=1, minutes=1)
            await ledger.take(made[first : first + day])
            await levels.add_up()
        with running_fleet(tmp_path, postgres_url) as fleet:
            fleet.control_plane()
            await asyncio.to_thread(eventually, lambda: fleet.n4n("catalog", "history", check=False).returncode == 0, "the control plane")
            await asyncio.to_thread(report, fleet, made[-day:])  # the last day late, over the wire
            clock.now = now + timedelta(minutes=2)
            done: set[datetime] = set()
            while len(done) < 24:  # the control plane may be at it
                done |= set(await levels.add_up())
            rows: Any = fleet.told("sla", "--days", "29")
            table = fleet.n4n("sla", "--chart", "--png", str(tmp_path / "drift.png")).stdout
            refused = fleet.n4n("sla", "--png", str(tmp_path / "none" / "drift.png"), check=False)
    told = {row["model"]: row for row in rows}
    assert {model: row["drifts"] for model, row in told.items()} == {"creeps": True, "peaks": False, "as-ever": False}
    creep = told["creeps"]
    assert 2.2 < creep["latency_drift"] < 3.1  # see tests/core/test_sla.py
    assert 2.2 < creep["ttft_drift"] < 3.1
    assert creep["latency_p95_ms"] > DRIFTS * creep["baseline_latency_p95_ms"]
    assert all(abs(told[model]["latency_drift"] - 1) < 0.1 for model in ("peaks", "as-ever"))
    assert [len(row["hours"]) for row in rows] == [4 * WEEK_H] * 3
    assert "creeps" in table and "█" in table
    assert (tmp_path / "drift.png").read_bytes().startswith(b"\x89PNG")
    assert (refused.returncode, len(refused.stderr.splitlines())) == (1, 1)


async def test_a_rehearsal_is_no_ones_service_level(postgres_url: str) -> None:
    clock = Clock(NOON + timedelta(minutes=5))
    async with a_ledger(postgres_url, clock) as (ledger, levels):
        await applies(postgres_url, ONE, expect=0)
        injecting = {**ONE, "endpoints": {"e": {**PLACED, "fault": {"abort_percent": 50}}}}
        await applies(postgres_url, injecting, expect=1)
        await applies(postgres_url, ONE, expect=2)
        for version, count in ((1, 3), (2, 100), (3, 4)):
            failed = {"state": "failed", "error_class": "overloaded"} if version == 2 else {}
            await ledger.take([a_row(NOON, 1000 * version + one, catalog_version=version, endpoint="e", **failed) for one in range(count)])
        await levels.add_up()
        [hour] = await stored(ledger)
        async with ledger.reading() as connection:
            found = (await connection.execute(text(OF_REHEARSALS.partition(";")[0]))).all()
    assert (hour.attempts, hour.failed, hour.region) == (7, 0, "eu")
    assert list(map(tuple, found)) == [("failed", 100)], "as the page on metering finds them"
