"""What routers say of themselves every few seconds: the newest word of each, and their requests by the minute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from typing import Final, cast

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from control_plane.traffic import KEPT, Reading
from n4n.core.alerts.facts import Requests

SILENT: Final = timedelta(seconds=60)  # a node that said nothing for so long is not counted
COUNTERS: Final = ("ended", "failed", "fell_back", "changes", "inversions")
_RUNS: Final = 4  # processes of one name: one that serves, and those before it on their way out
_LATE: Final = timedelta(hours=6)  # the longest time over which what was counted since the last word is spread; no alert looks further
_LINE_MINUTES: Final = 11  # of which the length of the line is known


class Said(msgspec.Struct, frozen=True):
    """A node's word. Counters are since the start of its process, `run`. The last three are kept here, from words before."""

    node: str
    run: str
    store_up: bool = True
    usage_waiting_bytes: int = 0
    waiting: dict[str, int] = {}  # msgspec copies it
    ended: int = 0
    failed: int = 0
    fell_back: int = 0
    changes: int = 0
    inversions: int = 0
    quotas: list[tuple[str, str, str, float]] = []  # provider, account, limit type, used
    accounts_out: list[tuple[str, str, str]] = []  # provider, account, reason
    candidates: dict[str, int] = {}
    at: float = 0.0  # Unix seconds
    runs: dict[str, list[int]] = {}  # the counters of its last processes
    line: list[tuple[int, int, int]] = []  # of a minute: its number, how many interactive requests waited at all words, how many words

    def waited(self, since_min: int, until_min: int) -> float:
        """How many interactive requests waited on average in these minutes, the last one not counted."""
        words = sum(count for minute, _, count in self.line if since_min <= minute < until_min)
        return sum(waiting for minute, waiting, _ in self.line if since_min <= minute < until_min) / words if words else 0.0


_ADD = """
    INSERT INTO requests_by_minute AS kept (minute, ended, failed, fell_back, changes, inversions)
    VALUES (:minute, :ended, :failed, :fell_back, :changes, :inversions)
    ON CONFLICT (minute) DO UPDATE SET ended = kept.ended + excluded.ended, failed = kept.failed + excluded.failed,
        fell_back = kept.fell_back + excluded.fell_back, changes = kept.changes + excluded.changes,
        inversions = kept.inversions + excluded.inversions
"""
_KEEP = """
    INSERT INTO vitals (node, at, said) VALUES (:node, :at, CAST(:said AS jsonb))
    ON CONFLICT (node) DO UPDATE SET at = excluded.at, said = excluded.said
"""
_SUMS = """
    SELECT coalesce(sum(ended), 0), coalesce(sum(failed), 0), coalesce(sum(fell_back), 0), coalesce(sum(changes), 0),
        coalesce(sum(inversions), 0)
    FROM unnest(CAST(:since AS timestamptz[]), CAST(:until AS timestamptz[])) WITH ORDINALITY AS asked (since, until, number)
    LEFT JOIN requests_by_minute ON minute >= since AND minute < until GROUP BY number ORDER BY number
"""


async def take(connecting: AbstractAsyncContextManager[AsyncConnection], said: Said, now: datetime) -> None:
    """A node's word becomes the newest; what was counted since the one before is added to the minutes since then. DatabaseAway.

    A process's first word is where counting begins: it comes when the process starts, or nobody knows when what it tells of was.
    """
    async with connecting as connection:
        row = (
            await connection.execute(text("SELECT at, said FROM vitals WHERE node = :node FOR UPDATE"), {"node": said.node})
        ).one_or_none()
        before = _of(row[1]) if row is not None else None
        counted = [int(getattr(said, name)) for name in COUNTERS]
        known = before.runs if before is not None else {}
        if row is not None and said.run in known:
            grown = [max(0, after - then) for after, then in zip(counted, known[said.run], strict=True)]
            for added in spread(grown, row[0], now) if any(grown) else ():
                await connection.execute(text(_ADD), added)
        newest = {said.run: counted, **{run: counts for run, counts in known.items() if run != said.run}}
        runs = dict(list(newest.items())[:_RUNS])
        line = _lengthened(before.line if before is not None else [], said.waiting.get("interactive", 0), now)
        kept = msgspec.structs.replace(said, at=now.timestamp(), runs=runs, line=line)
        await connection.execute(text(_KEEP), {"node": said.node, "at": now, "said": msgspec.json.encode(kept).decode()})


def spread(grown: Sequence[int], since: datetime, now: datetime) -> list[dict[str, object]]:
    """What was counted between two words, evenly over the minutes since the first one's, which is among them if it is the last's."""
    last = now.replace(second=0, microsecond=0)
    first = max(since.astimezone(UTC).replace(second=0, microsecond=0), last - _LATE)
    minutes = max(1, round((last - first).total_seconds() / 60))
    return [
        {
            "minute": last - timedelta(minutes=minutes - 1 - at),
            **{name: count * (at + 1) // minutes - count * at // minutes for name, count in zip(COUNTERS, grown, strict=True)},
        }
        for at in range(minutes)
    ]


def _lengthened(line: Sequence[tuple[int, int, int]], waiting: int, now: datetime) -> list[tuple[int, int, int]]:
    minute = int(now.timestamp()) // 60
    sums = {at: (total, words) for at, total, words in line if minute - _LINE_MINUTES <= at <= minute}
    total, words = sums.get(minute, (0, 0))
    sums[minute] = (total + waiting, words + 1)
    return [(at, *both) for at, both in sorted(sums.items())]


async def newest(reading: Reading, now: datetime) -> list[Said]:
    """What every node that is not silent said last. DatabaseAway."""
    async with reading() as connection:
        rows = (await connection.execute(text("SELECT said FROM vitals WHERE at > :since ORDER BY node"), {"since": now - SILENT})).all()
        await connection.execute(text("DELETE FROM vitals WHERE at < :before"), {"before": now - timedelta(days=1)})
        await connection.execute(text("DELETE FROM requests_by_minute WHERE minute < :before"), {"before": now - KEPT})
    return [said for (stored,) in rows if (said := _of(stored)) is not None]


async def requests(reading: Reading, spans: Sequence[tuple[datetime, datetime]]) -> list[tuple[Requests, int]]:
    """Requests that ended in the minutes of each span, and inversions among them. DatabaseAway."""
    asked = {"since": [since for since, _ in spans], "until": [until for _, until in spans]}
    async with reading() as connection:
        found = [tuple(map(int, sums)) for sums in await connection.execute(text(_SUMS), asked)]
    return [(Requests(*sums), inversions) for *sums, inversions in found]


def _of(stored: object) -> Said | None:
    """None: a control plane of another version wrote it, and its node will be heard of again."""
    try:
        return msgspec.convert(cast(Mapping[str, object], stored), Said)
    except msgspec.ValidationError:
        return None
