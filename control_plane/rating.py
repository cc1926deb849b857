"""A period of the ledger at other prices: a labelled set of rows beside it, with roll-ups of its own. The ledger never changes.

A rating is one transaction: it is there whole or not at all, and of the ledger as it stood when it began. What comes later is not in it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Final

from sqlalchemy import text

from control_plane import audit
from control_plane.ledger import COLUMNS, DAY, SUMS
from control_plane.refusals import LabelTaken
from control_plane.usage_database import UsageDatabase, driver_of
from control_plane.usage_reports import OF_RATING
from n4n.core.catalog import PriceList
from n4n.core.chat import Usage
from n4n.core.pricing import cost_pico, usd

BATCH: Final = 2000  # rows at a time: some 10 ms in which the control plane does nothing else
_RATING_S: Final = 3600.0
_COUNTS: Final = tuple(name for name in Usage.__struct_fields__ if name in COLUMNS and name != "estimated")  # what costs depend on
_GROUPS: Final = "tenant, key_id, model, provider, endpoint"


@dataclass(frozen=True, slots=True)
class Rating:
    """`prices`: where they came from, in words. `kept`: of `rows`, those whose endpoint is not among the prices. Money is USD."""

    label: str
    since: datetime
    until: datetime
    author: str
    created_at: datetime
    prices: str
    rows: int = 0
    kept: int = 0
    unpriced: int = 0
    before_usd: Decimal = Decimal()
    cost_usd: Decimal = Decimal()


class Ratings:
    """Makes and lists them. DatabaseAway as the ledger."""

    def __init__(self, database_url: str, *, timeout_s: float = 12.0) -> None:
        self._database = UsageDatabase(database_url, connections=1, timeout_s=timeout_s)

    async def close(self) -> None:
        """Closes every connection."""
        await self._database.close()

    async def made(self) -> list[Rating]:
        """All of them, newest first."""
        async with self._database.transaction() as connection:
            return [Rating(*row) for row in (await connection.execute(text(_MADE))).all()]

    async def make(self, asked: Rating, prices: Mapping[str, PriceList | None]) -> AsyncIterator[Rating]:
        """How far it is, and at last the whole. LabelTaken: there is one of that name, which stays as it is."""
        rating = asked
        span = {"label": asked.label, "since": asked.since, "until": asked.until}
        async with self._database.transaction(_RATING_S) as connection:
            await connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
            if (await connection.execute(text(_CLAIM), _told(asked))).scalar_one_or_none() is None:
                raise LabelTaken(f"label: there is a rating called {asked.label} already; choose another")
            driver = await driver_of(connection)
            async with driver.cursor(name="rating") as reading, driver.cursor() as writing:
                await reading.execute(_READ.encode(), span)
                while rows := await reading.fetchmany(BATCH):
                    costs = [_cost(row, prices) for row in rows]
                    async with writing.copy(_WRITE) as copy:
                        for row, cost in zip(rows, costs, strict=True):
                            await copy.write_row((asked.label, row[0], row[1], cost))
                    rating = _further(rating, rows, costs, prices)
                    yield rating
            await connection.execute(text(_ADD_UP), span)
            await connection.execute(
                text("ANALYZE usage_rerated, usage_rerated_by_day")
            )  # reports take half as long as before autovacuum came
            await connection.execute(text(_DONE), _told(rating))
            told: dict[str, object] = {"since": rating.since.isoformat(), "until": rating.until.isoformat(), "prices": rating.prices}
            told |= {"rows": rating.rows, "cost_usd": f"{rating.cost_usd:f}"}
            await audit.note(connection, audit.Entry("rate", "rating", rating.label, rating.author, None, told), rating.created_at)
        yield rating


def _cost(row: Sequence[object], prices: Mapping[str, PriceList | None]) -> str | Decimal | None:
    """None: unpriced."""
    _, _, endpoint, before, *counts = row
    if endpoint not in prices:
        assert before is None or isinstance(before, Decimal)
        return before
    usage = Usage(**{name: count for name, count in zip(_COUNTS, counts, strict=True) if count is not None})  # type: ignore[arg-type]
    return usd(cost_pico(usage, prices[str(endpoint)]))


def _further(rating: Rating, rows: Sequence[Sequence[object]], costs: Sequence[object], prices: Mapping[str, PriceList | None]) -> Rating:
    return replace(
        rating,
        rows=rating.rows + len(rows),
        kept=rating.kept + sum(row[2] not in prices for row in rows),
        unpriced=rating.unpriced + costs.count(None),
        before_usd=rating.before_usd + sum((row[3] for row in rows if isinstance(row[3], Decimal)), Decimal()),
        cost_usd=rating.cost_usd + sum((Decimal(str(cost)) for cost in costs if cost is not None), Decimal()),
    )


def _told(rating: Rating) -> dict[str, object]:
    return {name: getattr(rating, name) for name in _FIELDS}


_FIELDS: Final = (
    "label", "since", "until", "author", "created_at", "prices", "rows", "kept", "unpriced", "before_usd", "cost_usd",
)  # fmt: skip
_STORED: Final = 'label, since, "until", author, created_at, prices, "rows", kept, unpriced, before_usd, cost_usd'
_MADE: Final = f"SELECT {_STORED} FROM usage_ratings ORDER BY created_at DESC, label"  # noqa: S608  # names of columns, which are ours
_CLAIM: Final = (
    f"INSERT INTO usage_ratings ({_STORED}) VALUES ({', '.join(f':{name}' for name in _FIELDS)})"  # noqa: S608  # as above
    " ON CONFLICT (label) DO NOTHING RETURNING label"
)
_DONE: Final = (
    'UPDATE usage_ratings SET "rows" = :rows, kept = :kept, unpriced = :unpriced, before_usd = :before_usd, cost_usd = :cost_usd'
    " WHERE label = :label"
)
_READ: Final = (
    f"SELECT started_at, attempt_id, endpoint, cost_usd, {', '.join(_COUNTS)} FROM usage_ledger"  # noqa: S608  # as above
    " WHERE started_at >= %(since)s AND started_at < %(until)s ORDER BY started_at, attempt_id"
)
_WRITE: Final = b"COPY usage_rerated (label, started_at, attempt_id, cost_usd) FROM STDIN"
_ADD_UP: Final = (
    f"INSERT INTO usage_rerated_by_day (label, day, {_GROUPS}, {', '.join(SUMS)})"  # noqa: S608  # as above
    f" SELECT :label, {DAY} AS day, {_GROUPS}, {', '.join(f'sum({told})' for told in SUMS.values())} FROM (SELECT *, 1 AS sign FROM"
    f" ({OF_RATING} WHERE rerated.label = :label AND ledger.started_at >= :since AND ledger.started_at < :until) AS rated) AS rows"
    f" GROUP BY {DAY}, {_GROUPS}"
)
