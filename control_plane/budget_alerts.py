"""Levels that budgets reach: each is told once in a window of its budget, whichever control plane sees it.

Whoever wants to hear of them is handed an `Alert`; today that is the log, and a metric counts them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import and_, delete, update
from sqlalchemy.dialects.postgresql import insert as upsert

from control_plane.spending import Reading, Standing
from control_plane.tables import budget_alerts
from n4n.core.budgets import told_amount

_KEPT = timedelta(days=100)  # longer than any window
_KEY = ("tenant", "public_id", "provider", "budget", "begins_at")
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
    rolling = [one for one in found if one.held.budget.slots is not None]
    if not reached and not rolling:
        return []
    columns = budget_alerts.c
    async with reading() as connection:
        for one in rolling:
            name = and_(*(columns[column] == value for column, value in zip(_KEY, _name(one), strict=True)))
            if one.level:
                await connection.execute(update(budget_alerts).where(name, columns.level > one.level).values(level=one.level))
            else:
                await connection.execute(delete(budget_alerts).where(name))
        if not reached:
            return []
        await connection.execute(delete(budget_alerts).where(columns.told_at < now - _KEPT))
        rows = [{**dict(zip(_KEY, _name(one), strict=True)), "level": one.level, "told_at": now} for one in reached]
        told = upsert(budget_alerts).values(rows)
        told = told.on_conflict_do_update(
            index_elements=_KEY,
            set_={"level": told.excluded.level, "told_at": told.excluded.told_at},
            where=columns.level < told.excluded.level,
        )
        new = {tuple(row) for row in await connection.execute(told.returning(*(columns[name] for name in _KEY)))}
    return [Alert(one, one.level) for one in reached if _name(one) in new]


def _name(one: Standing) -> tuple[str, str, str, str, datetime]:
    """Of one window of one budget of one amount: a budget that was raised is another one to be told of."""
    held, budget = one.held, one.held.budget
    begins = one.begins_at_ms if budget.slots is None else budget.since_ms
    return held.tenant, held.public_id, held.provider, f"{budget.name} {budget.amount}", datetime.fromtimestamp(begins / 1000, UTC)
