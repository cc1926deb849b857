"""What was used: added up by names, or row by row as one CSV file; of the ledger as it is, or at the costs of a rating."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from typing import Final

from sqlalchemy import text

from control_plane.ledger import COLUMNS, DAY, SUMS
from control_plane.usage_database import UsageDatabase, driver_of

GROUPS: Final[Mapping[str, str]] = {
    "tenant": "tenant", "key": "key_id", "model": "model", "provider": "provider", "endpoint": "endpoint", "day": "day",
}  # fmt: skip
EXPORTS: Final = ("rows", "day")
PART_BYTES: Final = 64 << 10
_EXPORT_S: Final = 3600.0
_SPELT: Final[Mapping[str, str]] = {  # in a file; a label is the client's own text, and a spreadsheet would take some for a formula
    "started_at": "to_char(started_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')",
    "request_id": "CASE WHEN request_id ~ '^[-=+@]' THEN '''' || request_id ELSE request_id END",
}


@dataclass(frozen=True, slots=True)
class Total:
    """One group of a report, a name for each that was asked for. `cost_usd` None: nothing in it had a price."""

    groups: tuple[str, ...]
    sums: Mapping[str, int]
    cost_usd: Decimal | None


@dataclass(frozen=True, slots=True)
class Question:
    """Of which attempts: those that began in [since, until); only those of these names; at the costs of a rating (`label`)."""

    since: datetime
    until: datetime | None = None
    label: str = ""
    only: tuple[tuple[str, str], ...] = ()


class Reports:
    """Connections of its own, so that no report keeps rows out of the ledger. DatabaseAway as there."""

    def __init__(self, database_url: str, *, timeout_s: float = 60.0) -> None:
        self._database = UsageDatabase(database_url, connections=2, timeout_s=timeout_s)

    async def close(self) -> None:
        """Closes every connection."""
        await self._database.close()

    async def report(self, by: Sequence[str], question: Question) -> list[Total]:
        """Sums by one or several of GROUPS: days in order, else the dearest group first.

        Whole days come from the roll-up, a day that begins or ends within from its rows, which are there as long as they are kept.
        """
        since, until = question.since, question.until
        first = _next_midnight(since)
        last = datetime.combine(until.astimezone(UTC).date(), time(), UTC) if until is not None else None
        spans = [(since, first if until is None else min(first, until))]
        if until is not None and last is not None and last >= first:
            spans.append((last, until))
        values: dict[str, object] = {"first": first.date(), "last": last and last.date(), "label": question.label}
        values |= {f"only_{name}": value for name, value in question.only}
        parts = [_of_whole_days(by, question)]
        for number, (begin, end) in enumerate(spans):
            if begin < end:
                parts.append(_of_rows(by, question, number))
                values |= {f"begin{number}": begin, f"end{number}": end}
        async with self._database.transaction() as connection:
            found = await connection.execute(text(_added_up(by, parts)), values)
            return [_total(row, len(by)) for row in found.all()]

    async def export(self, by: str, question: Question) -> AsyncIterator[bytes]:
        """A CSV file in parts: every attempt in the order of its beginning (`rows`), or the sums of whole days by every name (`day`).

        Money to the last digit, empty: unpriced. Memory is bounded: what nobody takes is not read.
        """
        values = {"since": question.since, "until": question.until, "label": question.label}
        gathered, size = [], 0
        async with self._database.transaction(_EXPORT_S) as connection:
            driver = await driver_of(connection)
            async with driver.cursor() as cursor, cursor.copy(_EXPORT[by, bool(question.label)].encode(), values) as copy:
                async for piece in copy:
                    gathered.append(bytes(piece))
                    size += len(piece)
                    if size >= PART_BYTES:
                        yield b"".join(gathered)
                        gathered, size = [], 0
        yield b"".join(gathered)


_ADDED: Final = ", ".join(f"{told} AS {name}" for name, told in SUMS.items())
_RERATED: Final = ", ".join("rerated.cost_usd" if name == "cost_usd" else f"ledger.{name}" for name in COLUMNS)
OF_RATING: Final = (  # the ledger, at a rating's costs
    f"SELECT {_RERATED} FROM usage_ledger AS ledger JOIN usage_rerated AS rerated"  # noqa: S608  # names of columns, which are ours
    " ON rerated.started_at = ledger.started_at AND rerated.attempt_id = ledger.attempt_id"
)


def _of_whole_days(by: Sequence[str], question: Question) -> str:
    names = ", ".join(GROUPS[name] for name in by)
    table, labelled = ("usage_rerated_by_day", " AND label = :label") if question.label else ("usage_by_day", "")
    return (
        f"SELECT {names}, {', '.join(SUMS)} FROM {table} WHERE day >= :first"  # noqa: S608  # as above
        f" AND (CAST(:last AS date) IS NULL OR day < :last){labelled}{_alone(question)}"
    )


def _of_rows(by: Sequence[str], question: Question, number: int) -> str:
    names = ", ".join(DAY if name == "day" else GROUPS[name] for name in by)
    span = f"started_at >= :begin{number} AND started_at < :end{number}"
    inner = f"SELECT {', '.join(COLUMNS)} FROM usage_ledger WHERE {span}"  # noqa: S608  # as above
    if question.label:
        ours, theirs = (span.replace("started_at", f"{table}.started_at") for table in ("ledger", "rerated"))
        inner = f"{OF_RATING} WHERE rerated.label = :label AND {ours} AND {theirs}"
    return f"SELECT {names}, {_ADDED} FROM (SELECT *, 1 AS sign FROM ({inner}) AS found) AS rows WHERE true{_alone(question)}"  # noqa: S608


def _alone(question: Question) -> str:
    return "".join(f" AND {GROUPS[name]} = :only_{name}" for name, _ in question.only)


def _added_up(by: Sequence[str], parts: Sequence[str]) -> str:
    names = [f"g{number}" for number in range(len(by))]
    totals = ", ".join(f"CAST(sum({name}) AS {'numeric' if name == 'cost_usd' else 'bigint'}) AS {name}" for name in SUMS)
    order = ", ".join(["1"] if by[0] == "day" else []) + (", " if by[0] == "day" else "") + "cost_usd DESC, " + ", ".join(names)
    columns = ", ".join((*names, *SUMS))
    return (
        f"SELECT {', '.join(f'CAST({name} AS text)' for name in names)}, {totals}"  # noqa: S608  # as above
        f" FROM ({' UNION ALL '.join(parts)}) AS parts ({columns}) GROUP BY {', '.join(names)} HAVING sum(attempts) > 0 ORDER BY {order}"
    )


def _export(by: str, labelled: bool) -> str:
    if by == "day":
        table, where = ("usage_rerated_by_day", " AND label = %(label)s") if labelled else ("usage_by_day", "")
        chosen = f"SELECT day, tenant, key_id, model, provider, endpoint, {', '.join(SUMS)} FROM {table}"  # noqa: S608  # as above
        chosen += " WHERE day >= CAST(%(since)s AS timestamptz) AT TIME ZONE 'UTC'"
        chosen += " AND (CAST(%(until)s AS timestamptz) IS NULL OR day < CAST(%(until)s AS timestamptz) AT TIME ZONE 'UTC')"
        chosen += f"{where} ORDER BY day, tenant, key_id, model, provider, endpoint"
    else:
        columns = ", ".join(f"{_SPELT[name]} AS {name}" if name in _SPELT else name for name in COLUMNS)
        rows, where = ("usage_ledger", "") if not labelled else (f"({OF_RATING} WHERE rerated.label = %(label)s)", "")
        chosen = f"SELECT {columns} FROM {rows} AS chosen WHERE chosen.started_at >= %(since)s"  # noqa: S608  # as above
        chosen += f" AND (CAST(%(until)s AS timestamptz) IS NULL OR chosen.started_at < %(until)s){where}"
        chosen += " ORDER BY chosen.started_at, attempt_id"
    return f"COPY ({chosen}) TO STDOUT (FORMAT csv, HEADER)"


_EXPORT: Final = {(by, labelled): _export(by, labelled) for by in EXPORTS for labelled in (False, True)}


def _next_midnight(at: datetime) -> datetime:
    """The first midnight (UTC) at or after."""
    day = datetime.combine(at.astimezone(UTC).date(), time(), UTC)
    return day if day == at else day + timedelta(days=1)


def _total(row: Sequence[object], groups: int) -> Total:
    sums = dict(zip(SUMS, row[groups:], strict=True))
    cost = Decimal(str(sums.pop("cost_usd")))
    counts = {name: int(str(value)) for name, value in sums.items()}
    return Total(tuple(map(str, row[:groups])), counts, cost if counts["unpriced"] < counts["attempts"] else None)
