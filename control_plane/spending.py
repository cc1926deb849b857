"""What was spent of budgets, by the ledger: whole days from the roll-ups, a part of a day, or of a rolling window, from its rows.

Attempts whose end nobody saw (`unknown`) are estimates, and count once a real row has come. A part of a day is known as long as its rows
are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from n4n.core.budgets import DAY_MS, Budget, Unit, level, pico_of

Reading = Callable[[], AbstractAsyncContextManager[AsyncConnection]]


@dataclass(frozen=True, slots=True)
class Held:
    """A budget and who holds it: a key, a tenant (no `public_id`), or a tenant at one `provider`, whose budget is a cap."""

    tenant: str
    public_id: str
    provider: str
    budget: Budget

    @property
    def subject(self) -> tuple[str, str]:
        """Whose counters in Redis it belongs to."""
        return self.tenant, self.public_id


@dataclass(frozen=True, slots=True)
class Standing:
    """How one stands. `spent` in the budget's own unit; `slots` of a rolling window by number; `resets_at_ms` 0: nothing is to be freed."""

    held: Held
    spent: int
    begins_at_ms: int
    resets_at_ms: int
    unpriced: int = 0
    slots: Mapping[int, int] = field(default_factory=dict)

    @property
    def level(self) -> int:
        """The highest of the levels that is reached; 0: none."""
        return level(self.spent, self.held.budget.amount)


async def standings(reading: Reading, held: Sequence[Held], now_ms: int) -> list[Standing]:
    """How all of these stand, in their order. DatabaseAway."""
    calendar = [one for one in held if one.budget.slots is None]
    rolling = [one for one in held if one.budget.slots is not None]
    found: dict[Held, Standing] = {}
    async with reading() as connection:
        for kind in _KINDS:
            found.update({one.held: one for one in await _calendar(connection, kind, [h for h in calendar if _kind(h) == kind], now_ms)})
            found.update({one.held: one for one in await _rolling(connection, kind, [h for h in rolling if _kind(h) == kind], now_ms)})
    return [found[one] for one in held]


# How rows are found: of a key, of a tenant, of a tenant at a provider.
_KINDS: Final[Mapping[str, str]] = {
    "key": "r.tenant = a.tenant AND r.key_id = a.key_id",
    "tenant": "r.tenant = a.tenant",
    "cap": "r.tenant = a.tenant AND r.provider = a.provider",
}
_ASKED: Final = """
    WITH asked AS (
        SELECT * FROM unnest(CAST(:n AS int[]), CAST(:tenant AS text[]), CAST(:key_id AS text[]), CAST(:provider AS text[]),
            CAST(:begins AS timestamptz[]), CAST(:midnight AS timestamptz[]), CAST(:slot_ms AS bigint[]))
        AS asked (n, tenant, key_id, provider, begins, midnight, slot_ms)
    )"""
_TOKENS: Final = "r.prompt_tokens + r.completion_tokens"
_UNPRICED: Final = "CASE WHEN r.cost_usd IS NULL THEN 1 ELSE 0 END"


def _since(on: str) -> str:
    """Sums from an instant on: the part of its day from the rows, the days after it from the roll-up, less what is unknown in it."""
    return f"""{_ASKED}
    SELECT n, sum(cost) AS cost, sum(tokens) AS tokens, sum(unpriced) AS unpriced FROM (
        SELECT a.n, r.cost_usd AS cost, {_TOKENS} AS tokens, r.unpriced FROM asked a JOIN usage_by_day r
            ON {on} AND r.day >= CAST(a.midnight AT TIME ZONE 'UTC' AS date) WHERE r.day >= CAST(:first_day AS date)
        UNION ALL
        SELECT a.n, -coalesce(r.cost_usd, 0), -({_TOKENS}), -({_UNPRICED}) FROM asked a JOIN usage_ledger r
            ON {on} AND r.started_at >= a.midnight WHERE r.state = 'unknown' AND r.started_at >= :least
        UNION ALL
        SELECT a.n, coalesce(r.cost_usd, 0), {_TOKENS}, {_UNPRICED} FROM asked a JOIN usage_ledger r
            ON {on} AND r.started_at >= a.begins AND r.started_at < a.midnight
            WHERE a.begins < a.midnight AND r.state <> 'unknown' AND r.started_at >= :least AND r.started_at < :most
    ) AS parts GROUP BY n"""  # noqa: S608  # names of columns, which are ours


def _by_slot(on: str) -> str:
    """Sums by slot of rolling windows: by the day from the roll-up, by less from the rows."""
    slot = "CAST(floor(extract(epoch FROM r.started_at) * 1000 / a.slot_ms) AS bigint)"
    return f"""{_ASKED}
    SELECT n, slot, sum(cost) AS cost, sum(tokens) AS tokens, sum(unpriced) AS unpriced FROM (
        SELECT a.n, CAST(extract(epoch FROM r.day) * 1000 / a.slot_ms AS bigint) AS slot, r.cost_usd AS cost, {_TOKENS} AS tokens,
            r.unpriced FROM asked a JOIN usage_by_day r ON {on} AND r.day >= CAST(a.midnight AT TIME ZONE 'UTC' AS date)
            WHERE a.slot_ms = {DAY_MS} AND r.day >= CAST(:first_day AS date)
        UNION ALL
        SELECT a.n, {slot}, -coalesce(r.cost_usd, 0), -({_TOKENS}), -({_UNPRICED})
            FROM asked a JOIN usage_ledger r ON {on} AND r.started_at >= a.midnight
            WHERE a.slot_ms = {DAY_MS} AND r.state = 'unknown' AND r.started_at >= :least
        UNION ALL
        SELECT a.n, {slot}, coalesce(r.cost_usd, 0), {_TOKENS}, {_UNPRICED}
            FROM asked a JOIN usage_ledger r
            ON {on} AND r.started_at >= a.begins AND (a.slot_ms < {DAY_MS} OR r.started_at < a.midnight)
            WHERE r.state <> 'unknown' AND r.started_at >= :least AND (r.started_at < :most OR a.slot_ms < {DAY_MS})
    ) AS parts GROUP BY n, slot"""  # noqa: S608  # as above


_SINCE: Final = {kind: _since(on) for kind, on in _KINDS.items()}
_BY_SLOT: Final = {kind: _by_slot(on) for kind, on in _KINDS.items()}


def _kind(held: Held) -> str:
    return "cap" if held.provider else "key" if held.public_id else "tenant"


async def _calendar(connection: AsyncConnection, kind: str, held: Sequence[Held], now_ms: int) -> Iterable[Standing]:
    if not held:
        return ()
    found = {row.n: row for row in await connection.execute(text(_SINCE[kind]), _values(held, now_ms))}
    return [_standing(one, found.get(n), now_ms) for n, one in enumerate(held)]


def _standing(held: Held, row: object, now_ms: int) -> Standing:
    span = held.budget.span(now_ms)
    return Standing(held, _amount(held.budget, row), span.begins, span.ends, 0 if row is None else int(row.unpriced))  # type: ignore[attr-defined]


async def _rolling(connection: AsyncConnection, kind: str, held: Sequence[Held], now_ms: int) -> Iterable[Standing]:
    if not held:
        return ()
    slots: list[dict[int, int]] = [{} for _ in held]
    unpriced = [0] * len(held)
    for row in await connection.execute(text(_BY_SLOT[kind]), _values(held, now_ms)):
        slots[row.n][int(row.slot)] = _amount(held[row.n].budget, row)
        unpriced[row.n] += int(row.unpriced)
    return [_rolled(one, slots[n], unpriced[n], now_ms) for n, one in enumerate(held)]


def _rolled(held: Held, slots: Mapping[int, int], unpriced: int, now_ms: int) -> Standing:
    rolls = held.budget.slots
    assert rolls is not None
    filled = [slot for slot, spent in slots.items() if spent > 0]
    resets = (min(filled) + rolls.count + 1) * rolls.slot_ms if filled else 0
    return Standing(held, sum(slots.values()), held.budget.begins(now_ms), resets, unpriced, slots)


def _amount(budget: Budget, row: object) -> int:
    if row is None:
        return 0
    return pico_of(Decimal(row.cost)) if budget.unit is Unit.USD else int(row.tokens)  # type: ignore[attr-defined]


def _values(held: Sequence[Held], now_ms: int) -> dict[str, object]:
    begins = [one.budget.begins(now_ms) for one in held]
    midnights = [-(-at // DAY_MS) * DAY_MS for at in begins]
    return {
        "n": list(range(len(held))),
        "tenant": [one.tenant for one in held],
        "key_id": [one.public_id for one in held],
        "provider": [one.provider for one in held],
        "begins": [_at(ms) for ms in begins],
        "midnight": [_at(ms) for ms in midnights],
        "slot_ms": [0 if one.budget.slots is None else one.budget.slots.slot_ms for one in held],
        "first_day": _at(min(midnights)).date(),
        "least": _at(min(begins)),
        "most": _at(max(midnights)),
    }


def _at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
