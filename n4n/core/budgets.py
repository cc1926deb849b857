"""Budgets: how much may be spent in which window, when the window begins anew, and what is told at which share of it.

    day, week, month   of the calendar, in UTC; a week begins on Monday
    30d, 24h           rolling: what was spent lately, by slots of a window's 24th part or less; a slot counts until all of it is old enough

A window begins when its calendar says so, but never before `since_ms`, the instant at which its budget was first given: so what a key spent
before does not count, and saving the same budget again changes nothing. Amounts are whole: pico-USD, or tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum

from n4n.core.catalog import PICO

DAY_MS, HOUR_MS = 86_400_000, 3_600_000
CALENDAR = ("day", "week", "month")
LEAST_ROLLING_MS, MOST_ROLLING_MS = HOUR_MS, 92 * DAY_MS
MOST_USD = 9_000_000  # in pico-USD it fits into 63 bits
MOST_TOKENS = 10**15
LEVELS = (50, 80, 100)  # per cent at which somebody is told
LOWERED_AT = 0.8  # of a cap, from where a provider's or an account's weight goes down
_SLOTS_MS = (DAY_MS, 6 * HOUR_MS, HOUR_MS, 900_000, 300_000, 60_000)
_LEAST_SLOTS = 24
_ROLLING = re.compile(r"([1-9]\d{0,4})([hd])\Z", re.ASCII)
_FIRST_MONDAY_MS = 4 * DAY_MS  # of Unix time, which begins on a Thursday


class Unit(StrEnum):
    """What a budget counts."""

    USD = "usd"
    TOKENS = "tokens"


@dataclass(frozen=True, slots=True)
class Span:
    """A calendar window around an instant, and where the one before it began; Unix ms. `ends` belongs to the next one."""

    previous: int
    begins: int
    ends: int


@dataclass(frozen=True, slots=True)
class Slots:
    """A rolling window: so many slots of this length before the one that is filling now."""

    slot_ms: int
    count: int

    def first(self, now_ms: int) -> int:
        """When the oldest slot that still counts begins."""
        return (now_ms // self.slot_ms - self.count) * self.slot_ms


@dataclass(frozen=True, slots=True)
class Budget:
    """`amount`: pico-USD or tokens per `window` (day, week, month, or a span such as 30d or 24h). Soft: told of, never refused."""

    unit: Unit
    amount: int
    window: str
    soft: bool = False
    since_ms: int = 0

    @property
    def name(self) -> str:
        """Which one it is, among those of one key or tenant: usd/month."""
        return f"{self.unit}/{self.window}"

    @property
    def slots(self) -> Slots | None:
        """Of a rolling window; None: the calendar's."""
        return slots_of(self.window)

    def span(self, now_ms: int) -> Span:
        """Its calendar window at an instant, not before it was given."""
        found = calendar_span(self.window, now_ms)
        return Span(max(found.previous, self.since_ms), max(found.begins, self.since_ms), found.ends)

    def begins(self, now_ms: int) -> int:
        """From when on spending counts: Unix ms."""
        slots = self.slots
        return self.span(now_ms).begins if slots is None else max(self.since_ms, slots.first(now_ms))


def is_window(text: str) -> bool:
    """Whether a budget may have this window."""
    return text in CALENDAR or rolling_ms(text) is not None


def rolling_ms(window: str) -> int | None:
    """The length of a rolling window, an hour to 92 days; None: it is none."""
    match = _ROLLING.match(window)
    span = int(match[1]) * (DAY_MS if match[2] == "d" else HOUR_MS) if match else 0
    return span if LEAST_ROLLING_MS <= span <= MOST_ROLLING_MS else None


def slots_of(window: str) -> Slots | None:
    """How a rolling window is divided: by the longest slot of which it has 24, and then as many as cover it."""
    span = rolling_ms(window)
    if span is None:
        return None
    slot = next(slot for slot in _SLOTS_MS if span >= slot * _LEAST_SLOTS)
    return Slots(slot, -(-span // slot))


def calendar_span(window: str, now_ms: int) -> Span:
    """The day, week or month (UTC) that an instant is in."""
    if window == "month":
        at = datetime.fromtimestamp(now_ms // 1000, UTC)
        months = at.year * 12 + at.month - 1
        return Span(*(_month_begins(months + offset) for offset in (-1, 0, 1)))
    length, from_ms = (DAY_MS, 0) if window == "day" else (7 * DAY_MS, _FIRST_MONDAY_MS)
    begins = (now_ms - from_ms) // length * length + from_ms
    return Span(begins - length, begins, begins + length)


def _month_begins(months: int) -> int:
    return round(datetime(months // 12, months % 12 + 1, 1, tzinfo=UTC).timestamp()) * 1000


def pico_of(usd: str | Decimal) -> int:
    """An amount of USD with at most 12 decimals, in pico-USD."""
    return int(Decimal(usd) * PICO)


def usd_of(pico: int) -> str:
    """Pico-USD as a plain decimal, without trailing zeros."""
    sign, (whole, rest) = "-" if pico < 0 else "", divmod(abs(pico), PICO)
    return sign + (f"{whole}.{rest:012d}".rstrip("0") if rest else str(whole))


def told_amount(unit: Unit, amount: int) -> str:
    """An amount in words: `1.5 USD`, `2000 tokens`."""
    return f"{usd_of(amount)} USD" if unit is Unit.USD else f"{amount} tokens"


def resaved(before: Sequence[Budget], after: Iterable[Budget], now_ms: int) -> tuple[Budget, ...]:
    """Budgets as they are kept after an edit: one that was there goes on counting from when it was first given.

    One that takes the place of another of its unit goes on from there too, with all that was spent since; only one that is new begins now.
    """
    told = tuple(after)
    kept = {one.name: one.since_ms for one in before}
    names = {one.name for one in told}
    gone: dict[Unit, int] = {}
    for one in before:
        if one.name not in names:
            gone[one.unit] = min(one.since_ms, gone.get(one.unit, one.since_ms))
    return tuple(replace(one, since_ms=kept.get(one.name, gone.get(one.unit, now_ms))) for one in told)


def level(spent: int, amount: int) -> int:
    """The highest of the levels that is reached, in per cent; 0: none."""
    return max((one for one in LEVELS if spent * 100 >= one * amount), default=0)


def factor_of_cap(share: float) -> float:
    """What is left of a provider's weight for a tenant that spent this share of its cap there: all below 80 %, nothing at 100 %."""
    return 1.0 if share < LOWERED_AT else max(0.0, (1.0 - share) / (1.0 - LOWERED_AT))


def factor_of_account(share: float) -> float:
    """What is left of an account's weight when this share of its daily tokens is spent."""
    return 1.0 if share < LOWERED_AT else 0.0
