"""What routers say of themselves every few seconds: the newest word of each, and their requests by the minute."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Final, cast

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from control_plane.traffic import KEPT, Reading
from n4n.core.alerts.facts import Requests

SILENT: Final = timedelta(seconds=60)  # a node that said nothing for so long is not counted
COUNTERS: Final = ("ended", "failed", "fell_back", "changes", "inversions")


class Said(msgspec.Struct, frozen=True):
    """A node's word. Counters are since the start of its process, `run`."""

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
    waiting_before: int = 0  # interactive ones, at the word before the one before


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
_SUM = """
    SELECT coalesce(sum(ended), 0), coalesce(sum(failed), 0), coalesce(sum(fell_back), 0), coalesce(sum(changes), 0),
        coalesce(sum(inversions), 0)
    FROM requests_by_minute WHERE minute >= :since AND minute < :until
"""


async def take(connecting: AbstractAsyncContextManager[AsyncConnection], said: Said, now: datetime) -> None:
    """A node's word becomes the newest; what was counted since the one before is added to this minute. DatabaseAway."""
    async with connecting as connection:
        query = text("SELECT said FROM vitals WHERE node = :node FOR UPDATE")
        row = (await connection.execute(query, {"node": said.node})).one_or_none()
        before = _of(row[0]) if row is not None else None
        same = before is not None and before.run == said.run
        grown = {name: max(0, getattr(said, name) - (getattr(before, name) if same else 0)) for name in COUNTERS}
        if any(grown.values()):
            await connection.execute(text(_ADD), {"minute": now.replace(second=0, microsecond=0), **grown})
        waited = before.waiting.get("interactive", 0) if before is not None else 0
        kept = msgspec.structs.replace(said, waiting_before=waited)
        await connection.execute(text(_KEEP), {"node": said.node, "at": now, "said": msgspec.json.encode(kept).decode()})


async def newest(reading: Reading, now: datetime) -> list[Said]:
    """What every node that is not silent said last. DatabaseAway."""
    async with reading() as connection:
        rows = (await connection.execute(text("SELECT said FROM vitals WHERE at > :since ORDER BY node"), {"since": now - SILENT})).all()
        await connection.execute(text("DELETE FROM vitals WHERE at < :before"), {"before": now - timedelta(days=1)})
        await connection.execute(text("DELETE FROM requests_by_minute WHERE minute < :before"), {"before": now - KEPT})
    return [_of(said) for (said,) in rows]


async def requests(reading: Reading, since: datetime, until: datetime) -> tuple[Requests, int]:
    """Requests that ended in these minutes, and inversions among them. DatabaseAway."""
    async with reading() as connection:
        *sums, inversions = map(int, (await connection.execute(text(_SUM), {"since": since, "until": until})).one())
    return Requests(*sums), inversions


def _of(stored: object) -> Said:
    return msgspec.convert(cast(Mapping[str, object], stored), Said)
