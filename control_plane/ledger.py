"""The usage ledger in Postgres: rows taken in once however often they come, partitions made ahead and dropped.

A batch is one transaction: COPY to a temporary table, out with the `unknown` rows that a real one replaces, in with what is new, and the
difference of both added to the roll-ups. So the roll-ups are the sums of the ledger at any moment, also after a repetition.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, date, datetime, time, timedelta
from operator import attrgetter
from typing import Final

import msgspec
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from control_plane.schema import DatabaseAway
from control_plane.tables import usage_ledger
from control_plane.usage_database import UsageDatabase, driver_of
from n4n.core.ledger import RATIO, UNKNOWN, Row
from n4n.runtime.spans import part

AHEAD: Final = 3  # days whose partitions stand ready
LOOK_S: Final = 3600.0
_LOCK: Final = 0x6E346E02  # Postgres advisory lock "n4n makes partitions"
_REAPING: Final = 0x6E346E03  # "n4n closes what lost routers left"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PARTITION: Final = re.compile(r"usage_ledger_(\d{8})\Z")
COLUMNS: Final = tuple(column.name for column in usage_ledger.columns)
_LIST: Final = ", ".join(COLUMNS)
_EXACTLY: Final = f"NOT estimated AND counted_by <> '{RATIO}'"  # both numbers are there: the provider's, and our exact count
_BOTH_OUT: Final = f"{_EXACTLY} AND counted_completion_tokens IS NOT NULL"
_BOTH_IN: Final = f"{_EXACTLY} AND counted_prompt_tokens IS NOT NULL"
SUMS: Final[Mapping[str, str]] = {  # of a roll-up, from rows of the ledger; `sign` is -1 for a row that goes
    "attempts": "sign",
    "requests": "CASE WHEN attempt_no = 1 THEN sign ELSE 0 END",
    "failed": "CASE WHEN state IN ('failed', 'partial', 'unknown') THEN sign ELSE 0 END",
    "unknown": "CASE WHEN state = 'unknown' THEN sign ELSE 0 END",
    "unpriced": "CASE WHEN cost_usd IS NULL THEN sign ELSE 0 END",
    "estimated": "CASE WHEN estimated THEN sign ELSE 0 END",
    "prompt_tokens": "sign * prompt_tokens",
    "cached_tokens": "sign * cached_tokens",
    "cache_write_tokens": "sign * cache_write_tokens",
    "completion_tokens": "sign * completion_tokens",
    "reasoning_tokens": "sign * reasoning_tokens",
    "counted_completion_tokens": f"CASE WHEN {_BOTH_OUT} THEN sign * counted_completion_tokens ELSE 0 END",
    "compared_completion_tokens": f"CASE WHEN {_BOTH_OUT} THEN sign * completion_tokens ELSE 0 END",
    "counted_prompt_tokens": f"CASE WHEN {_BOTH_IN} THEN sign * counted_prompt_tokens ELSE 0 END",
    "compared_prompt_tokens": f"CASE WHEN {_BOTH_IN} THEN sign * prompt_tokens ELSE 0 END",
    "cost_usd": "sign * coalesce(cost_usd, 0)",
}
DAY, _HOUR = "CAST(started_at AT TIME ZONE 'UTC' AS date)", "date_trunc('hour', started_at, 'UTC')"
_BY_DAY: Final = (("day", DAY), *((name, name) for name in ("tenant", "key_id", "model", "provider", "endpoint")))
_BY_HOUR: Final = (("hour", _HOUR), *((name, name) for name in ("endpoint", "provider", "model")))
_JSON: Final = msgspec.json.Encoder().encode
_log = logging.getLogger("n4n.control_plane")


class Ledger:
    """Everything on the usage tables. DatabaseAway when Postgres cannot be reached."""

    def __init__(self, database_url: str, now: Callable[[], datetime], *, keep_days: int = 0, timeout_s: float = 12.0) -> None:
        """`keep_days`: how long single rows are kept, 0: for ever. The roll-ups are kept."""
        self._database = UsageDatabase(database_url, connections=2, timeout_s=timeout_s)
        self._now, self._keep_days = now, keep_days
        self._days: set[date] = set()  # whose partitions are there

    async def close(self) -> None:
        """Closes every connection."""
        await self._database.close()

    def reading(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """A transaction of those who ask for more than a report."""
        return self._database.transaction()

    async def keep(self) -> None:
        """Until cancelled: tomorrow's partitions are there before tomorrow, those that are too old go."""
        while True:
            try:
                today = self._now().date()
                await self._make(today + timedelta(days=offset) for offset in range(-1, AHEAD + 1))
                await self._drop_old()
            except DatabaseAway as error:
                _log.warning("usage partitions: %s", error)
                await asyncio.sleep(5)
            else:
                await asyncio.sleep(LOOK_S)

    async def take(self, rows: Sequence[Row]) -> int:
        """Rows become part of the ledger, once: what is there already stays, except that a real row replaces an `unknown` one.

        All or none. Answers how many were too old to keep. Repeating it changes nothing.
        """
        oldest = self._oldest()
        kept = [row for row in rows if oldest is None or _started(row).date() >= oldest]
        if kept:
            with part("ledger take") as work:
                await self._make({_started(row).date() for row in kept})
                try:
                    async with self._database.transaction() as connection:
                        written, replaced = await self._take(connection, kept)
                except IntegrityError as error:  # whoever restored the database took partitions away that were made here
                    self._days.clear()
                    raise DatabaseAway("the database is not the one of a moment ago: partitions of the ledger are made anew") from error
                if work is not None:
                    work.told |= {"n4n.rows": len(rows), "n4n.rows_new": written - replaced, "n4n.rows_replaced": replaced}
                    work.told |= {"n4n.rows_doubled": len(kept) - written, "n4n.rows_too_old": len(rows) - len(kept)}
        return len(rows) - len(kept)

    @asynccontextmanager
    async def reaping(self) -> AsyncIterator[bool]:
        """Whether nobody else closes what lost routers left, while inside; at most for as long as a transaction may take."""
        async with self._database.transaction() as connection:
            yield bool((await connection.execute(text("SELECT pg_try_advisory_xact_lock(:key)"), {"key": _REAPING})).scalar_one())

    async def _take(self, connection: AsyncConnection, rows: Sequence[Row]) -> tuple[int, int]:
        """How many were written, and how many of them in place of another."""
        await connection.execute(text(_DURABLE))
        for table in ("incoming", "changed"):
            extra = ", sign smallint" if table == "changed" else ""
            await connection.execute(text(f"CREATE TEMP TABLE IF NOT EXISTS {table} (LIKE usage_ledger{extra}) ON COMMIT DELETE ROWS"))
        await _copy(connection, rows)
        replaced = 0
        if any(row.state != UNKNOWN for row in rows):
            instants = [_started(row) for row in rows]
            replaced += (await connection.execute(text(_REPLACE), {"least": min(instants), "most": max(instants)})).rowcount
        if revised := [row for row in rows if row.revision]:
            told = {
                "began": [_started(row) for row in revised],
                "attempts": [row.attempt_id for row in revised],
                "revisions": [row.revision for row in revised],
            }
            replaced += (await connection.execute(text(_REVISE), told)).rowcount
        written = (await connection.execute(text(_INSERT))).rowcount
        await connection.execute(text(_add_up("usage_by_day", _BY_DAY)))
        await connection.execute(text(_add_up("usage_by_hour", _BY_HOUR)))
        hour = self._now().replace(minute=0, second=0, microsecond=0)
        if any(_started(row) < hour for row in rows):  # of an hour that is over, and may have been added up
            await connection.execute(text(_NOTE_LATE), {"hour": hour})
        return written, replaced

    async def _make(self, days: Iterable[date]) -> None:
        missing = sorted(set(days) - self._days)
        if not missing:
            return
        async with self._database.transaction() as connection:
            await connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
            for day in missing:
                first, after = (f"{at.isoformat()} 00:00+00" for at in (day, day + timedelta(days=1)))
                made = f"CREATE TABLE IF NOT EXISTS usage_ledger_{day:%Y%m%d} PARTITION OF usage_ledger"
                await connection.exec_driver_sql(f"{made} FOR VALUES FROM ('{first}') TO ('{after}')")
        self._days.update(missing)

    def _oldest(self) -> date | None:
        return self._now().date() - timedelta(days=self._keep_days) if self._keep_days else None

    async def _drop_old(self) -> None:
        oldest = self._oldest()
        if oldest is None:
            return
        midnight = datetime.combine(oldest, time(), UTC)
        query = "SELECT relname FROM pg_inherits JOIN pg_class ON oid = inhrelid WHERE inhparent = CAST('usage_ledger' AS regclass)"
        async with self._database.transaction() as connection:
            await connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
            await connection.execute(text("DELETE FROM usage_rerated WHERE started_at < :oldest"), {"oldest": midnight})
            for (name,) in (await connection.execute(text(query))).all():
                found = _PARTITION.match(name)
                if found and (day := datetime.strptime(found[1], "%Y%m%d").replace(tzinfo=UTC).date()) < oldest:
                    await connection.exec_driver_sql(f"DROP TABLE {name}")
                    self._days.discard(day)
                    _log.info("usage rows of %s are older than %d days and dropped; their sums are kept", day, self._keep_days)


# Routers throw away what is acknowledged: a commit that Postgres could still forget, as some servers are told to, is none.
_DURABLE: Final = "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'"
_REPLACE: Final = f"""
    WITH gone AS (
        DELETE FROM usage_ledger AS kept USING incoming AS come
        WHERE kept.started_at = come.started_at AND kept.attempt_id = come.attempt_id AND kept.state = 'unknown' AND come.state <> 'unknown'
        AND kept.started_at BETWEEN :least AND :most
        RETURNING {", ".join(f"kept.{name}" for name in COLUMNS)}
    )
    INSERT INTO changed ({_LIST}, sign) SELECT {_LIST}, -1 FROM gone"""  # noqa: S608  # names of columns, which are ours
# By the keys themselves, few as they are: a join with what came would look at whole partitions.
_REVISE: Final = f"""
    WITH gone AS (
        DELETE FROM usage_ledger AS kept
        USING unnest(CAST(:began AS timestamptz[]), CAST(:attempts AS text[]), CAST(:revisions AS int[])) AS come (began, attempt, revision)
        WHERE kept.started_at = come.began AND kept.attempt_id = come.attempt AND kept.revision < come.revision
        RETURNING {", ".join(f"kept.{name}" for name in COLUMNS)}
    )
    INSERT INTO changed ({_LIST}, sign) SELECT {_LIST}, -1 FROM gone"""  # noqa: S608  # as above
_INSERT: Final = f"""
    WITH fresh AS (
        INSERT INTO usage_ledger ({_LIST})
        SELECT DISTINCT ON (started_at, attempt_id) {_LIST} FROM incoming ORDER BY started_at, attempt_id, state = 'unknown', revision DESC
        ON CONFLICT (started_at, attempt_id) DO NOTHING
        RETURNING {_LIST}
    )
    INSERT INTO changed ({_LIST}, sign) SELECT {_LIST}, 1 FROM fresh"""  # noqa: S608  # as above

_NOTE_LATE: Final = f"INSERT INTO sla_late_hours (hour) SELECT DISTINCT {_HOUR} FROM changed WHERE started_at < :hour"  # noqa: S608  # as above


def _add_up(table: str, groups: Sequence[tuple[str, str]]) -> str:
    """In the order of the key, so that two control planes never wait for each other in a circle."""
    names = ", ".join(name for name, _ in groups)
    numbers = ", ".join(str(number + 1) for number in range(len(groups)))
    sums = ", ".join(f"sum({told})" for told in SUMS.values())
    added = ", ".join(f"{name} = {table}.{name} + excluded.{name}" for name in SUMS)
    return (
        f"INSERT INTO {table} ({names}, {', '.join(SUMS)}) SELECT {', '.join(told for _, told in groups)}, {sums} FROM changed"  # noqa: S608  # as above
        f" GROUP BY {numbers} ORDER BY {numbers} ON CONFLICT ({names}) DO UPDATE SET {added}"
    )


async def _copy(connection: AsyncConnection, rows: Sequence[Row]) -> None:
    driver = await driver_of(connection)
    read = [_READ.get(name) or attrgetter(name) for name in COLUMNS]
    async with driver.cursor() as cursor, cursor.copy(f"COPY incoming ({_LIST}) FROM STDIN".encode()) as copy:
        for row in rows:
            await copy.write_row([value(row) for value in read])


def _started(row: Row) -> datetime:
    return _EPOCH + timedelta(microseconds=row.started_us)


def _tags(row: Row) -> str:
    return _JSON(row.tags).decode() if row.tags else "{}"


_READ: Final[Mapping[str, Callable[[Row], object]]] = {"started_at": _started, "tags": _tags}
