"""Levels that budgets reach: each is told once in a window of its budget, whichever control plane sees it.

Whoever wants to hear of them is handed an `Alert`; today that is the log, and a metric counts them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import cast

from sqlalchemy import and_, delete, select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from control_plane.spending import Reading, Standing
from control_plane.tables import budget_alerts
from n4n.core.budgets import told_amount

_KEPT = timedelta(days=100)  # longer than any window
_KEY = ("tenant", "public_id", "provider", "budget", "begins_at")
_COLUMNS = budget_alerts.c
_NAME = tuple(_COLUMNS[name] for name in _KEY)
_CHUNK = 1000  # a statement takes 65,535 values
_Name = tuple[str, str, str, str, datetime]
_log = logging.getLogger("n4n.control_plane")


@dataclass(frozen=True, slots=True)
class Alert:
    """A budget, or a cap, has reached a level: 50, 80 or 100 per cent."""

    standing: Standing
    level: int

    def __str__(self) -> str:
        """One line."""
        held, standing = self.standing.held, self.standing
        budget = held.budget
        whose = f"key {held.public_id} of tenant {held.tenant}" if held.public_id else f"tenant {held.tenant}"
        what = f"its cap at provider {held.provider}" if held.provider else f"its {'soft' if budget.soft else 'hard'} budget"
        spent, limit = told_amount(budget.unit, standing.spent), told_amount(budget.unit, budget.amount)
        resets = datetime.fromtimestamp(standing.resets_at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return f"{whose} has reached {self.level} % of {what}: {spent} of {limit} per {budget.window}; it resets at {resets}"


def log_alert(alert: Alert) -> None:
    """As a line of the log."""
    _log.warning("budget: %s", alert)


async def note_levels(reading: Reading, found: Sequence[Standing], now: datetime) -> list[Alert]:
    """What is to be told now, each once. A rolling window that has fallen below a level may reach it again. DatabaseAway."""
    reached = [one for one in found if one.level]
    rolling = {_name(one): one.level for one in found if one.held.budget.slots is not None}
    if not reached and not rolling:
        return []
    new: set[tuple[object, ...]] = set()
    async with reading() as connection:
        if rolling:
            await _fall(connection, rolling)
        if reached:
            await connection.execute(delete(budget_alerts).where(_COLUMNS.told_at < now - _KEPT))
        for at in range(0, len(reached), _CHUNK):
            new |= await _rise(connection, reached[at : at + _CHUNK], now)
    return [Alert(one, one.level) for one in reached if _name(one) in new]


async def _fall(connection: AsyncConnection, levels: Mapping[_Name, int]) -> None:
    """Rolling windows that are below what was told of them."""
    query = select(*_NAME, _COLUMNS.level).where(_COLUMNS.budget.regexp_match("/[0-9]+[hd] "))
    for *told, before in (await connection.execute(query)).all():
        level = levels.get(cast(_Name, tuple(told)), before)
        whose = and_(*(column == value for column, value in zip(_NAME, told, strict=True)))
        if not level:
            await connection.execute(delete(budget_alerts).where(whose))
        elif level < before:
            await connection.execute(update(budget_alerts).where(whose).values(level=level))


async def _rise(connection: AsyncConnection, reached: Sequence[Standing], now: datetime) -> set[tuple[object, ...]]:
    """Those of which nobody has told this level yet: who writes it down tells."""
    rows = [{**dict(zip(_KEY, _name(one), strict=True)), "level": one.level, "told_at": now} for one in reached]
    told = upsert(budget_alerts).values(rows)
    told = told.on_conflict_do_update(
        index_elements=_KEY,
        set_={"level": told.excluded.level, "told_at": told.excluded.told_at},
        where=_COLUMNS.level < told.excluded.level,
    )
    return {tuple(row) for row in await connection.execute(told.returning(*_NAME))}


def _name(one: Standing) -> _Name:
    """Of one window of one budget of one amount: a budget that was raised is another one to be told of."""
    held, budget = one.held, one.held.budget
    begins = one.begins_at_ms if budget.slots is None else budget.since_ms
    return held.tenant, held.public_id, held.provider, f"{budget.name} {budget.amount}", datetime.fromtimestamp(begins / 1000, UTC)
