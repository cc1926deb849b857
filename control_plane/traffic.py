"""Traffic by the minute, added up from the ledger: what alerts look at.

A minute is added up anew as long as rows of it may still come, which costs a range scan of some minutes; the windows of alerts are sums
of minutes. Latencies of a minute are kept as counts by size, 22 % apart, so that any window's percentiles can be read from them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, cast

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from n4n.core.alerts.facts import Traffic
from n4n.core.probes.rows import TENANT  # that probes are charged to: nobody's traffic

ANEW: Final = timedelta(minutes=10)  # rows of a router that was cut off come later still; the hour has them
NEWEST: Final = timedelta(minutes=1)  # most rows have come by then: the others may wait for a minute
KEPT: Final = timedelta(days=8)
_SIZES, _TOP = 70, 14.0  # counts by size: e^0 to e^14 milliseconds, which is 20 minutes
LEAST: Final = 20  # attempts for a percentile

Reading = Callable[[], AbstractAsyncContextManager[AsyncConnection]]

_MINUTES = """
    WITH made AS (
        SELECT date_trunc('minute', started_at, 'UTC') AS minute, provider, model, endpoint, attempt_no, state, cost_usd,
            greatest(latency_ms, 1) AS latency, greatest(ttft_ms, 1) AS ttft, prompt_tokens, completion_tokens,
            counted_prompt_tokens, counted_completion_tokens, NOT estimated AND counted_by <> 'ratio' AS exact
        FROM usage_ledger WHERE started_at >= :since AND tenant <> :probes
    ), sums AS (
        SELECT minute, provider, model, endpoint, count(*) AS attempts, count(*) FILTER (WHERE attempt_no = 1) AS first_attempts,
            count(*) FILTER (WHERE state IN ('failed', 'partial')) AS failed,
            count(*) FILTER (WHERE cost_usd IS NULL AND state = 'ok') AS unpriced,
            coalesce(sum(prompt_tokens) FILTER (WHERE exact AND counted_prompt_tokens IS NOT NULL), 0) AS reported_input,
            coalesce(sum(counted_prompt_tokens) FILTER (WHERE exact), 0) AS counted_input,
            coalesce(sum(completion_tokens) FILTER (WHERE exact AND counted_completion_tokens IS NOT NULL), 0) AS reported_output,
            coalesce(sum(counted_completion_tokens) FILTER (WHERE exact), 0) AS counted_output
        FROM made GROUP BY 1, 2, 3, 4
    ), sized AS (
        SELECT minute, provider, model, endpoint, 'latency' AS what, width_bucket(ln(latency), 0, :top, :sizes) AS size, count(*) AS n
        FROM made WHERE state = 'ok' AND latency IS NOT NULL GROUP BY 1, 2, 3, 4, 6
        UNION ALL
        SELECT minute, provider, model, endpoint, 'ttft', width_bucket(ln(ttft), 0, :top, :sizes), count(*)
        FROM made WHERE ttft IS NOT NULL GROUP BY 1, 2, 3, 4, 6
    ), spread AS (
        SELECT minute, provider, model, endpoint,
            coalesce(jsonb_object_agg(size, n) FILTER (WHERE what = 'latency'), '{}') AS latency,
            coalesce(jsonb_object_agg(size, n) FILTER (WHERE what = 'ttft'), '{}') AS ttft
        FROM sized GROUP BY 1, 2, 3, 4
    )
    INSERT INTO traffic_by_minute (minute, provider, model, endpoint, attempts, first_attempts, failed, unpriced, latency, ttft,
        reported_input, counted_input, reported_output, counted_output)
    SELECT minute, provider, model, endpoint, attempts, first_attempts, failed, unpriced, coalesce(latency, '{}'), coalesce(ttft, '{}'),
        reported_input, counted_input, reported_output, counted_output
    FROM sums LEFT JOIN spread USING (minute, provider, model, endpoint)
    ON CONFLICT (minute, provider, model, endpoint) DO UPDATE SET attempts = excluded.attempts, first_attempts = excluded.first_attempts,
        failed = excluded.failed, unpriced = excluded.unpriced, latency = excluded.latency, ttft = excluded.ttft,
        reported_input = excluded.reported_input, counted_input = excluded.counted_input, reported_output = excluded.reported_output,
        counted_output = excluded.counted_output
"""
_WINDOW = """
    SELECT provider, model, CAST(sum(attempts) AS bigint), CAST(sum(first_attempts) AS bigint), CAST(sum(unpriced) AS bigint)
    FROM traffic_by_minute WHERE minute >= :since AND minute < :until GROUP BY 1, 2
"""
_SPREAD = """
    SELECT provider, model, what, CAST(size AS int), CAST(sum(CAST(n AS bigint)) AS bigint) FROM (
        SELECT provider, model, 'latency' AS what, key AS size, value AS n FROM traffic_by_minute, jsonb_each_text(latency)
        WHERE minute >= :since AND minute < :until
        UNION ALL
        SELECT provider, model, 'ttft', key, value FROM traffic_by_minute, jsonb_each_text(ttft) WHERE minute >= :since AND minute < :until
    ) AS sizes GROUP BY 1, 2, 3, 4
"""
_COMPARED = """
    SELECT endpoint, CAST(sum(reported_input) AS bigint), CAST(sum(counted_input) AS bigint), CAST(sum(reported_output) AS bigint),
        CAST(sum(counted_output) AS bigint)
    FROM traffic_by_minute WHERE minute >= :since AND minute < :until AND (counted_input > 0 OR counted_output > 0) GROUP BY 1
"""
_ATTEMPTS = """
    SELECT attempt_id, attempt_no, started_at, tenant, key_id, endpoint, provider, account, model, state,
        coalesce(error_class, '') AS error_class, status, prompt_tokens, completion_tokens, cost_usd, latency_ms, ttft_ms, estimated
    FROM usage_ledger WHERE started_at >= :since AND started_at < :until AND request_id = :request_id
    ORDER BY attempt_no, started_at LIMIT 1000
"""


async def add_up_minutes(reading: Reading, now: datetime, back: timedelta = ANEW) -> None:
    """The newest minutes anew, and what is too old goes. DatabaseAway."""
    async with reading() as connection:
        since = _minute(now) - back
        await connection.execute(text(_MINUTES), {"since": since, "probes": TENANT, "top": _TOP, "sizes": _SIZES})
        await connection.execute(text("DELETE FROM traffic_by_minute WHERE minute < :before"), {"before": now - KEPT})


@dataclass(frozen=True, slots=True)
class Sums:
    """Of some minutes. `counts`: attempts, first ones, unpriced ones. `spread`: counts by size. `compared`: tokens reported, counted."""

    counts: Mapping[tuple[str, str], tuple[int, int, int]]  # by provider and model
    spread: Mapping[tuple[str, str, str], Mapping[int, int]]  # and by what: latency, ttft
    compared: Mapping[tuple[str, str], tuple[int, int]]  # by endpoint and direction

    def traffic(self) -> tuple[Traffic, ...]:
        """With percentiles."""
        return tuple(
            Traffic(*key, *counts, *(percentile_s(self.spread.get((*key, what), {}), 0.95) for what in ("latency", "ttft")))
            for key, counts in self.counts.items()
        )


async def sums(reading: Reading, since: datetime, until: datetime) -> Sums:
    """The minutes that began in [since, until). DatabaseAway."""
    span = {"since": since, "until": until}
    async with reading() as connection:
        counts = {(provider, model): (*numbers,) for provider, model, *numbers in await connection.execute(text(_WINDOW), span)}
        spread: dict[tuple[str, str, str], dict[int, int]] = {}
        for provider, model, what, size, count in await connection.execute(text(_SPREAD), span):
            spread.setdefault((provider, model, what), {})[size] = count
        found = (await connection.execute(text(_COMPARED), span)).all()
    both = {
        (endpoint, direction): (int(reported), int(counted))
        for endpoint, *tokens in found
        for direction, (reported, counted) in (("input", tokens[:2]), ("output", tokens[2:]))
        if counted
    }
    return Sums(cast(Mapping[tuple[str, str], tuple[int, int, int]], counts), spread, both)


def added(parts: Iterable[Sums]) -> Sums:
    """All of them together."""
    counts: dict[tuple[str, str], tuple[int, int, int]] = {}
    spread: dict[tuple[str, str, str], Counter[int]] = {}
    compared: dict[tuple[str, str], tuple[int, int]] = {}
    for part in parts:
        for key, (attempts, first, unpriced) in part.counts.items():
            before = counts.get(key, (0, 0, 0))
            counts[key] = (before[0] + attempts, before[1] + first, before[2] + unpriced)
        for name, sizes in part.spread.items():
            spread.setdefault(name, Counter()).update(sizes)
        for endpoint, (reported, counted) in part.compared.items():
            known = compared.get(endpoint, (0, 0))
            compared[endpoint] = (known[0] + reported, known[1] + counted)
    return Sums(counts, spread, compared)


async def window(reading: Reading, since: datetime, until: datetime) -> tuple[Traffic, ...]:
    """The minutes that began in [since, until), by (provider, model). DatabaseAway."""
    return (await sums(reading, since, until)).traffic()


async def oldest(reading: Reading) -> datetime | None:
    """The first minute that is known. DatabaseAway."""
    async with reading() as connection:
        return cast(datetime | None, (await connection.execute(text("SELECT min(minute) FROM traffic_by_minute"))).scalar_one())


async def attempts(reading: Reading, request_id: str, since: datetime, until: datetime) -> Sequence[Row[tuple[object, ...]]]:
    """The rows of one request that began in this span, in order; its columns are those of AttemptInfo. DatabaseAway."""
    async with reading() as connection:
        values = {"request_id": request_id, "since": since, "until": until}
        return list(await connection.execute(text(_ATTEMPTS), values))


def percentile_s(counts: Mapping[int, int], share: float) -> float | None:
    """Where so many of the values lie below, in seconds, to within 22 %, mostly far less; None where there are fewer than 20."""
    total = sum(counts.values())
    if total < LEAST:
        return None
    left = share * total
    for size in sorted(counts):
        if left <= counts[size]:
            break
        left -= counts[size]
    return math.exp((size - 1 + left / counts[size]) * _TOP / _SIZES) / 1000


def _minute(at: datetime) -> datetime:
    return at.replace(second=0, microsecond=0)
