"""Service levels by the hour, added up from the ledger: what `n4n sla` and its dashboard look at.

The hour that runs is added up every two minutes, for the last time a minute after its end, and anew whenever rows of it come later (a
router that was cut off for a day, say): the ledger notes such hours in the transaction that brings the rows. An hour is always added up as
a whole, from all of its rows, so that doing it again changes nothing. Where an endpoint is, the catalog version tells with which its
attempt was planned. How fast output comes is told by streams alone: a whole answer has its first token when it has its last.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import text

from control_plane.schema import DatabaseAway
from control_plane.traffic import Reading
from control_plane.usage_database import UsageDatabase
from n4n.core.probes.rows import TENANT  # that probes are charged to: nobody's traffic

SETTLES: Final = timedelta(minutes=1)  # after its end; whatever began to be written before has ended by then
KEPT: Final = timedelta(days=400)
CAUGHT_UP: Final = timedelta(days=35)  # what a database that has no hours yet gets of its past
LOOK_S: Final = 120.0
_HOUR: Final = timedelta(hours=1)
_WITHIN_S: Final = 300.0  # a round; an hour may have millions of rows
_LOCK: Final = 0x6E346E08  # Postgres advisory lock "n4n adds up hours"

_NEWEST = "SELECT max(hour) FROM sla_by_hour"
_DUE = """
    SELECT hour FROM usage_by_hour WHERE hour >= :since UNION SELECT hour FROM sla_late_hours ORDER BY hour
"""
_ADD_UP = """
    WITH made AS (
        SELECT provider, model, endpoint, catalog_version, state, latency_ms, ttft_ms, completion_tokens, stream,
            stream AND state = 'ok' AND completion_tokens > 0 AND latency_ms > ttft_ms AS flows
        FROM usage_ledger WHERE started_at >= :hour AND started_at < :until AND tenant <> :probes
    ), places AS (
        SELECT version, placed.key AS endpoint, placed.value ->> 'region' AS region,
            placed.value -> 'fault' IS NOT NULL AS rehearsed
        FROM (SELECT DISTINCT catalog_version AS version FROM made) AS used JOIN catalog_versions USING (version),
            jsonb_each(CAST(document AS jsonb) -> 'endpoints') AS placed
    ), sums AS (
        SELECT provider, model, coalesce(region, '') AS region, count(*) AS attempts,
            count(*) FILTER (WHERE state IN ('failed', 'partial')) AS failed,
            percentile_cont(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY latency_ms) FILTER (WHERE state = 'ok') AS latency,
            percentile_cont(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY ttft_ms) FILTER (WHERE stream) AS ttft,
            sum(completion_tokens) FILTER (WHERE flows) / sum(latency_ms - ttft_ms) FILTER (WHERE flows) * 1000.0 AS speed
        FROM made LEFT JOIN places ON version = catalog_version AND places.endpoint = made.endpoint
        WHERE rehearsed IS NOT TRUE GROUP BY 1, 2, 3
    ), put AS (
        INSERT INTO sla_by_hour
        SELECT CAST(:hour AS timestamptz), provider, model, region, attempts, failed,
            latency[1], latency[2], latency[3], ttft[1], ttft[2], ttft[3], speed FROM sums
        ON CONFLICT (hour, provider, model, region) DO UPDATE SET attempts = excluded.attempts, failed = excluded.failed,
            latency_p50_ms = excluded.latency_p50_ms, latency_p95_ms = excluded.latency_p95_ms, latency_p99_ms = excluded.latency_p99_ms,
            ttft_p50_ms = excluded.ttft_p50_ms, ttft_p95_ms = excluded.ttft_p95_ms, ttft_p99_ms = excluded.ttft_p99_ms,
            tokens_per_s = excluded.tokens_per_s
        RETURNING provider, model, region
    )
    DELETE FROM sla_by_hour WHERE hour = :hour AND EXISTS (SELECT 1 FROM put)
        AND (provider, model, region) NOT IN (SELECT provider, model, region FROM put)
"""
_READ = """
    SELECT provider, model, region, hour, attempts, failed, latency_p50_ms, latency_p95_ms, latency_p99_ms, ttft_p50_ms, ttft_p95_ms,
        ttft_p99_ms, tokens_per_s
    FROM sla_by_hour WHERE hour >= :since AND (:model = '' OR model = :model) ORDER BY provider, model, region, hour
"""
_log = logging.getLogger("n4n.control_plane")


@dataclass(frozen=True, slots=True)
class HourRow:
    """One hour of one (provider, model, region), as it is stored. None: nothing to tell it by."""

    provider: str
    model: str
    region: str
    hour: datetime
    attempts: int
    failed: int
    latency_p50_ms: float | None
    latency_p95_ms: float | None
    latency_p99_ms: float | None
    ttft_p50_ms: float | None
    ttft_p95_ms: float | None
    ttft_p99_ms: float | None
    tokens_per_s: float | None


class ServiceLevels:
    """Adds up hours, on connections of its own. Several control planes may; one at a time does."""

    def __init__(self, database_url: str, now: Callable[[], datetime], *, look_s: float = LOOK_S) -> None:
        self._database = UsageDatabase(database_url, connections=1, timeout_s=_WITHIN_S)
        self._now, self._look_s = now, look_s
        self._until: datetime | None = None  # every hour before was added up, here or elsewhere

    async def close(self) -> None:
        """Closes every connection."""
        await self._database.close()

    async def keep(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self.add_up()
            except DatabaseAway as error:
                _log.warning("service levels: %s", error)
            await asyncio.sleep(self._look_s)

    async def add_up(self) -> list[datetime]:
        """The hour that runs, those that ended since the last time, and those that have got rows since; what is too old goes.

        DatabaseAway, also where it takes longer than five minutes; what was added up until then is.
        """
        now = self._now()
        async with self._database.transaction() as ours:
            if not (await ours.execute(text("SELECT pg_try_advisory_xact_lock(:key)"), {"key": _LOCK})).scalar_one():
                return []  # another control plane is at it
            settled = (now - SETTLES).replace(minute=0, second=0, microsecond=0)
            since = self._until or (await ours.execute(text(_NEWEST))).scalar_one() or settled - CAUGHT_UP
            due = list((await ours.execute(text(_DUE), {"since": since})).scalars())
            for hour in due:  # oldest first: whoever goes on begins at the newest that is there
                await self._add_up(hour)
            self._until = settled
            await ours.execute(text("DELETE FROM sla_by_hour WHERE hour < :before"), {"before": now - KEPT})
        return due

    async def _add_up(self, hour: datetime) -> None:
        """The note goes first: rows that are noted meanwhile are noted still."""
        async with self._database.transaction() as connection:
            await connection.execute(text("DELETE FROM sla_late_hours WHERE hour = :hour"), {"hour": hour})
            await connection.execute(text(_ADD_UP), {"hour": hour, "until": hour + _HOUR, "probes": TENANT})


async def hours(reading: Reading, since: datetime, model: str) -> Sequence[HourRow]:
    """Service levels since then, by (provider, model, region), hours in order. DatabaseAway."""
    async with reading() as connection:
        return [HourRow(*row) for row in await connection.execute(text(_READ), {"since": since, "model": model})]
