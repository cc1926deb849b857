"""The ledger on a real Postgres: rows in once, partitions, roll-ups, reports, and who may report."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import grpc
import psycopg
import pytest
import pytest_asyncio

from control_plane.ledger import Ledger
from control_plane.schema import migrate
from control_plane.usage_reports import GROUPS, Question, Reports
from n4n.core.ledger import Row, read_rows
from n4n.runtime.control_client import ControlClient
from n4n.v1 import usage_pb2
from tests.control_plane.client import NODE, a_plane
from tests.core.test_ledger import settled
from tests.support.stores import libpq_url

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def us(at: datetime) -> int:
    """Unix µs."""
    return round(at.timestamp()) * 1_000_000


def rows(first: int, count: int, at: datetime = NOW, **changes: object) -> list[Row]:
    """So many rows, one a microsecond."""
    read, refused = read_rows(b"".join(settled(n, started_us=us(at) + n, **changes) for n in range(first, first + count)))
    assert not refused
    return read


@pytest_asyncio.fixture
async def ledger(postgres_url: str) -> AsyncIterator[Ledger]:
    migrate(postgres_url)
    made = Ledger(postgres_url, lambda: NOW, keep_days=30)
    yield made
    await made.close()


@pytest_asyncio.fixture
async def reports(postgres_url: str) -> AsyncIterator[Reports]:
    made = Reports(postgres_url)
    yield made
    await made.close()


async def sums(reports: Reports, *names: str) -> list[int]:
    """Of all there is."""
    (total,) = await reports.report(("tenant",), Question(NOW - timedelta(days=1)))
    return [total.sums[name] for name in names]


def answers(url: str, query: str) -> list[tuple[object, ...]]:
    with psycopg.connect(libpq_url(url)) as connection:
        return connection.execute(query.encode()).fetchall()


async def test_a_batch_that_comes_again_from_two_sides_at_once_is_there_once(ledger: Ledger, postgres_url: str):
    other = Ledger(postgres_url, lambda: NOW)
    batch = rows(1, 500)

    await asyncio.gather(ledger.take(batch), other.take(batch[100:] + rows(501, 100)), ledger.take(batch[::-1]))
    await ledger.take(batch + batch)
    await other.close()

    assert answers(postgres_url, "SELECT count(*), count(DISTINCT attempt_id), sum(cost_usd) FROM usage_ledger") == [
        (600, 600, Decimal("0.036"))
    ]
    assert answers(postgres_url, "SELECT sum(attempts), sum(cost_usd), sum(prompt_tokens) FROM usage_by_day") == [
        (600, Decimal("0.036"), 7200)
    ]
    assert answers(postgres_url, "SELECT sum(attempts), sum(cost_usd), sum(prompt_tokens) FROM usage_by_hour") == [
        (600, Decimal("0.036"), 7200)
    ]


async def test_a_late_real_row_replaces_an_unknown_one_and_never_the_other_way(ledger: Ledger, reports: Reports, postgres_url: str):
    unknown = rows(1, 3, state="unknown", prompt_tokens=99, cost_usd="5")

    await ledger.take(unknown)
    await ledger.take(rows(1, 2) + unknown)
    await ledger.take(unknown)

    assert answers(postgres_url, "SELECT state, count(*) FROM usage_ledger GROUP BY 1 ORDER BY 1") == [("ok", 2), ("unknown", 1)]
    (total,) = await reports.report(("tenant",), Question(NOW - timedelta(days=1)))
    assert (total.sums["attempts"], total.sums["unknown"], total.sums["prompt_tokens"]) == (3, 1, 2 * 12 + 99)
    assert total.cost_usd == Decimal("5.00012")


async def test_a_revised_row_takes_the_place_of_the_first_whichever_comes_first(ledger: Ledger, reports: Reports, postgres_url: str):
    exact = {"revision": 1, "counted_by": "o200k", "counted_completion_tokens": 5, "counted_prompt_tokens": 12}
    first, later = rows(1, 6), rows(1, 5, **exact)

    await ledger.take(first[:2] + later[1:2])  # together
    await ledger.take(first[2:])
    await ledger.take(later[:1] + later[2:4])  # later
    await ledger.take(later[4:] + first)  # and again
    await ledger.take(later + rows(1, 6, state="unknown"))

    query = "SELECT revision, counted_by, count(*), sum(counted_completion_tokens) FROM usage_ledger GROUP BY 1, 2 ORDER BY 1"
    assert answers(postgres_url, query) == [(0, "ratio", 1, 3), (1, "o200k", 5, 25)]
    names = ("attempts", "prompt_tokens", "counted_completion_tokens", "compared_completion_tokens", "counted_prompt_tokens")
    assert await sums(reports, *names, "compared_prompt_tokens") == [6, 72, 25, 15, 60, 60]


async def test_what_is_not_counted_exactly_is_compared_with_nothing(ledger: Ledger, reports: Reports):
    exact = {"revision": 1, "counted_by": "o200k", "counted_prompt_tokens": None, "counted_completion_tokens": 2}
    await ledger.take(rows(1, 3) + rows(4, 2, **exact) + rows(6, 1, **exact, estimated=True, doubt="zero"))

    assert await sums(reports, "counted_completion_tokens", "compared_completion_tokens", "compared_prompt_tokens") == [4, 6, 0]


async def test_tags_tiers_and_sounds_are_there_for_sql(ledger: Ledger, postgres_url: str):
    await ledger.take(rows(1, 1, tags={"team": "search"}, service_tier="flex", audio_input_tokens=7) + rows(2, 1))

    query = "SELECT tags->>'team', tags, service_tier, audio_input_tokens, doubt FROM usage_ledger ORDER BY attempt_id"
    assert answers(postgres_url, query) == [("search", {"team": "search"}, "flex", 7, None), (None, {}, "", 0, None)]


async def test_rows_of_every_day_find_their_partition_and_those_too_old_are_told(ledger: Ledger, postgres_url: str):
    late, future, ancient = NOW - timedelta(days=29), NOW + timedelta(days=40), NOW - timedelta(days=31)

    assert await ledger.take(rows(1, 2, late) + rows(3, 2, future) + rows(5, 3, ancient)) == 3

    assert answers(postgres_url, "SELECT count(*) FROM usage_ledger") == [(4,)]
    assert {row[0] for row in answers(postgres_url, "SELECT day FROM usage_by_day")} == {late.date(), future.date()}


async def test_partitions_stand_ready_and_old_ones_go_while_their_sums_stay(ledger: Ledger, reports: Reports, postgres_url: str):
    await ledger.take(rows(1, 2, NOW - timedelta(days=30)))
    later = Ledger(postgres_url, lambda: NOW + timedelta(days=2), keep_days=30)
    keeping = asyncio.create_task(later.keep())
    names = "SELECT relname FROM pg_class WHERE relname ~ '^usage_ledger_2' AND relkind = 'r' ORDER BY 1"
    async with asyncio.timeout(10):
        while (found := [row[0] for row in answers(postgres_url, names)]) != [f"usage_ledger_202612{n:02}" for n in range(1, 6)]:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    keeping.cancel()
    await later.close()

    assert "usage_ledger_20261031" not in found
    assert (await reports.report(("day",), Question(NOW - timedelta(days=60))))[0].groups == ("2026-10-31",)


async def test_a_report_is_exact_where_it_begins_or_ends_within_a_day(ledger: Ledger, reports: Reports):
    for day in range(4):
        for hour in (0, 6, 18):
            at = NOW.replace(hour=hour) - timedelta(days=day)
            await ledger.take(rows(1 + 100 * day + hour, 2, at, tenant=f"t{hour}", endpoint="e" if day else "f"))

    async def counted(by: str, since: datetime, until: datetime | None = None) -> dict[str, int]:
        return {one.groups[0]: one.sums["attempts"] for one in await reports.report((by,), Question(since, until))}

    two_days_ago = NOW.replace(hour=5) - timedelta(days=2)
    assert await counted("tenant", two_days_ago) == {"t0": 4, "t6": 6, "t18": 6}
    assert await counted("day", two_days_ago) == {"2026-11-28": 4, "2026-11-29": 6, "2026-11-30": 6}
    assert await counted("endpoint", two_days_ago) == {"e": 10, "f": 6}
    assert await counted("tenant", two_days_ago, NOW.replace(hour=7)) == {"t0": 4, "t6": 6, "t18": 4}
    assert await counted("day", NOW.replace(hour=5), NOW.replace(hour=7)) == {"2026-11-30": 2}
    assert await counted("model", NOW + timedelta(days=3)) == {}
    for by in GROUPS:
        assert sum((await counted(by, NOW - timedelta(days=9))).values()) == 24


async def test_what_has_no_price_is_unknown_and_not_free(ledger: Ledger, reports: Reports):
    await ledger.take(rows(1, 2, cost_usd=None, tenant="free") + rows(3, 1, cost_usd=None, tenant="half") + rows(4, 1, tenant="half"))

    told = {
        one.groups[0]: (one.cost_usd, one.sums["unpriced"]) for one in await reports.report(("tenant",), Question(NOW - timedelta(days=1)))
    }

    assert told == {"free": (None, 2), "half": (Decimal("0.00006"), 1)}


async def test_a_thousand_rows_go_in_far_faster_than_they_come(ledger: Ledger):
    batches = [rows(1 + 1000 * n, 1000) for n in range(10)]
    await ledger.take(batches[0])

    began = time.monotonic()
    for batch in batches[1:]:
        await ledger.take(batch)
    rate = 9000 / (time.monotonic() - began)

    assert rate > 2000, f"{rate:.0f} rows a second"


async def test_the_node_token_may_report_and_not_ask(postgres_url: str):
    async with a_plane(postgres_url) as plane:
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{plane.port}")
        report = channel.unary_unary("/n4n.v1.Usage/Report", usage_pb2.UsageReport.SerializeToString, usage_pb2.UsageReceipt.FromString)
        query = channel.unary_unary("/n4n.v1.Usage/Query", usage_pb2.UsageQuery.SerializeToString, usage_pb2.UsageReply.FromString)
        node = (("authorization", f"Bearer {NODE}"),)

        receipt = await report(usage_pb2.UsageReport(offset=77, lines=settled(1) + b"torn\n"), metadata=node)
        assert (receipt.offset, receipt.unreadable) == (77, 1)
        for call, message, token, code in (
            (query, usage_pb2.UsageQuery(by="day"), node, grpc.StatusCode.PERMISSION_DENIED),
            (report, usage_pb2.UsageReport(), (), grpc.StatusCode.UNAUTHENTICATED),
            (query, usage_pb2.UsageQuery(by="colour"), plane.token, grpc.StatusCode.INVALID_ARGUMENT),
            (query, usage_pb2.UsageQuery(by="day", since_ms=-1), plane.token, grpc.StatusCode.INVALID_ARGUMENT),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call(message, metadata=token)
            assert refused.value.code() is code
        async with ControlClient([f"127.0.0.1:{plane.port}"], "the-admin-token") as client:
            (row,) = await client.usage("key", 0)
        assert (row.group, row.attempts, row.cost_usd) == ("k1", 1, "0.00006")
        await channel.close()
