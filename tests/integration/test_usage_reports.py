"""Reports by several names, the ledger as a file, and periods at other prices, on a real Postgres."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator
from datetime import timedelta
from decimal import Decimal

import pytest
import pytest_asyncio

from control_plane.ledger import COLUMNS, Ledger
from control_plane.rating import Rating, Ratings
from control_plane.refusals import LabelTaken
from control_plane.schema import migrate
from control_plane.usage_reports import PART_BYTES, Question, Reports
from n4n.core.price_files import read_prices
from tests.integration.test_usage_ledger import NOW, answers, rows

SINCE = NOW - timedelta(days=9)


@pytest_asyncio.fixture
async def ledger(postgres_url: str) -> AsyncIterator[Ledger]:
    migrate(postgres_url)
    made = Ledger(postgres_url, lambda: NOW, keep_days=30)
    yield made
    await made.close()


@pytest_asyncio.fixture
async def reports(ledger: Ledger, postgres_url: str) -> AsyncIterator[Reports]:
    made = Reports(postgres_url)
    yield made
    await made.close()


@pytest_asyncio.fixture
async def ratings(ledger: Ledger, postgres_url: str) -> AsyncIterator[Ratings]:
    made = Ratings(postgres_url)
    yield made
    await made.close()


async def several(ledger: Ledger) -> None:
    """Two tenants, two endpoints, three days."""
    for day in range(3):
        at = NOW - timedelta(days=day)
        await ledger.take(rows(1 + 100 * day, 10, at, tenant="acme", endpoint="e1", cost_usd="0.000123456789"))
        await ledger.take(rows(50 + 100 * day, 5, at, tenant="beta", endpoint="e2", cost_usd=None))


async def exported(reports: Reports, by: str, question: Question) -> list[dict[str, str]]:
    text = b"".join([part async for part in reports.export(by, question)]).decode()
    return list(csv.DictReader(io.StringIO(text)))


async def rated(ratings: Ratings, label: str, endpoints: dict[str, object], *, days: int = 9) -> Rating:
    prices, problems = read_prices(endpoints)
    assert not problems
    asked = Rating(label, NOW - timedelta(days=days), NOW + timedelta(hours=1), "test", NOW, "a file")
    return [told async for told in ratings.make(asked, prices)][-1]


async def test_a_report_goes_by_several_names_and_of_some_alone(ledger: Ledger, reports: Reports):
    await several(ledger)

    found = await reports.report(("day", "tenant"), Question(SINCE))
    alone = await reports.report(("endpoint",), Question(NOW - timedelta(hours=36), only=(("tenant", "acme"),)))

    assert [(one.groups, one.sums["attempts"]) for one in found] == [
        ((f"2026-11-{day}", tenant), count) for day in (28, 29, 30) for tenant, count in (("acme", 10), ("beta", 5))
    ]
    assert [(one.groups, one.sums["attempts"], one.cost_usd) for one in alone] == [(("e1",), 20, 20 * Decimal("0.000123456789"))]


async def test_the_rows_of_a_period_are_one_file_in_the_order_of_their_beginning(ledger: Ledger, reports: Reports):
    await several(ledger)
    await ledger.take(rows(1000, 1, request_id='a "quoted", name\nof two lines', tenant="é"))

    found = await exported(reports, "rows", Question(NOW - timedelta(days=1), NOW + timedelta(hours=1)))

    assert list(found[0]) == list(COLUMNS) and len(found) == 31
    assert [one["started_at"] for one in found] == sorted(one["started_at"] for one in found)
    assert found[0]["started_at"] == "2026-11-29T12:00:00.000101Z"
    assert {one["cost_usd"] for one in found} == {"0.000123456789", "", "0.00006"}
    assert (found[-1]["request_id"], found[-1]["tenant"]) == ('a "quoted", name\nof two lines', "é")


async def test_a_label_that_a_spreadsheet_would_reckon_with_stays_text(ledger: Ledger, reports: Reports):
    labels = ("=1+1", "-x", "@a", "+1", "a=b", "req-7")
    for number, label in enumerate(labels):
        await ledger.take(rows(1 + number, 1, request_id=label))

    found = await exported(reports, "rows", Question(SINCE))

    assert [one["request_id"] for one in found] == ["'=1+1", "'-x", "'@a", "'+1", "a=b", "req-7"]


async def test_a_file_of_days_has_the_sums_of_whole_days(ledger: Ledger, reports: Reports):
    await several(ledger)

    found = await exported(reports, "day", Question(NOW.replace(hour=0) - timedelta(days=1), NOW.replace(hour=0)))

    assert [(one["day"], one["tenant"], one["attempts"], one["cost_usd"]) for one in found] == [
        ("2026-11-29", "acme", "10", "0.001234567890"),
        ("2026-11-29", "beta", "5", "0"),
    ]
    assert len(await exported(reports, "day", Question(SINCE))) == 6


async def test_a_file_comes_in_parts_of_bounded_size(ledger: Ledger, reports: Reports):
    await ledger.take(rows(1, 2000))

    parts = [len(part) async for part in reports.export("rows", Question(SINCE))]

    assert len(parts) >= 5 and max(parts) < PART_BYTES + 1000


async def test_a_period_at_other_prices_stands_beside_the_ledger_and_changes_nothing_of_it(
    ledger: Ledger, reports: Reports, ratings: Ratings, postgres_url: str
):
    await several(ledger)
    before = await reports.report(("tenant",), Question(SINCE))

    rating = await rated(ratings, "corrected", {"e1": {"price": {"input_per_1m": 100, "output_per_1m": 1000}}})

    # Each: 12 in (2 of them cached) and 3 out, at 100 and 1,000 millionths.
    assert (rating.rows, rating.kept, rating.unpriced) == (45, 15, 15)
    assert (rating.before_usd, rating.cost_usd) == (30 * Decimal("0.000123456789"), 30 * Decimal("0.0042"))
    assert await reports.report(("tenant",), Question(SINCE)) == before
    at = Question(SINCE, label="corrected")
    acme, beta = await reports.report(("tenant",), at)
    assert (acme.groups, acme.cost_usd, acme.sums) == (("acme",), Decimal("0.126"), before[0].sums)
    assert (beta.groups, beta.cost_usd) == (("beta",), None)
    half = await reports.report(("day",), Question(NOW - timedelta(days=1, hours=1), NOW + timedelta(minutes=1), label="corrected"))
    assert [(one.groups, one.cost_usd) for one in half] == [(("2026-11-29",), Decimal("0.042")), (("2026-11-30",), Decimal("0.042"))]
    rows_then = await exported(reports, "rows", at)
    assert len(rows_then) == 45 and {one["cost_usd"] for one in rows_then} == {"0.0042", ""}
    assert len(await exported(reports, "day", at)) == 6
    assert await ratings.made() == [rating]


async def test_a_rating_is_of_its_period_alone_and_its_label_is_taken_once(ledger: Ledger, ratings: Ratings, postgres_url: str):
    await several(ledger)

    await rated(ratings, "yesterday", {"e2": {"price": {"input_per_1m": 1, "output_per_1m": 1}}, "e1": {"price": {}}}, days=1)
    with pytest.raises(LabelTaken):
        await rated(ratings, "yesterday", {"e2": {"price": {}}})

    (made,) = await ratings.made()
    assert (made.rows, made.kept, made.unpriced, made.cost_usd) == (30, 0, 20, 10 * Decimal("0.000015"))
    assert answers(postgres_url, "SELECT count(*), count(cost_usd) FROM usage_rerated") == [(30, 10)]


async def test_rows_that_are_too_old_go_from_ratings_too_and_their_sums_stay(
    ledger: Ledger, reports: Reports, ratings: Ratings, postgres_url: str
):
    await several(ledger)
    await rated(ratings, "all", {"e1": {"price": {"output_per_1m": 1, "input_per_1m": 1}}})
    later = Ledger(postgres_url, lambda: NOW + timedelta(days=29), keep_days=30)

    await later._drop_old()
    await later.close()

    assert answers(postgres_url, "SELECT count(*) FROM usage_rerated") == [(30,)]
    found = await reports.report(("tenant",), Question(NOW.replace(hour=0) - timedelta(days=9), label="all"))
    assert [one.sums["attempts"] for one in found] == [30, 15]
