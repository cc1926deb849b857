"""Budgets as callers give them, as they are stored, and as they are told again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from n4n.core import schema
from n4n.core.budgets import MOST_TOKENS, MOST_USD, Budget, Unit, is_window, pico_of, usd_of
from n4n.core.errors import Problem
from n4n.core.schema import Field, Problems

MOST_BUDGETS = 8  # of one key or tenant: each costs a router a little with every request
_WINDOWS = "day, week or month, or a rolling window from 1h to 92d such as 24h or 30d"


def _window(value: object, path: str, problems: Problems) -> str | None:
    if isinstance(value, str) and is_window(value):
        return value
    problems.append(Problem(path, f"must be {_WINDOWS}, not {schema.shown(value)}"))
    return None


_FIELDS = {
    "usd": Field(schema.money),
    "tokens": Field(schema.whole(1, MOST_TOKENS)),
    "window": Field(_window, required=True),
    "soft": Field(schema.flag),
    "since_ms": Field(schema.whole(0, 2**53)),
}


def read_budget(value: object, path: str, problems: Problems) -> Budget | None:
    """One budget, by the names of its fields on the wire."""
    before = len(problems)
    told = schema.read_table(value, path, problems, _FIELDS)
    if len(problems) > before:
        return None
    usd, tokens = cast(str | None, told.get("usd")), cast(int | None, told.get("tokens"))
    if (usd is None) == (tokens is None):
        problems.append(Problem(path, "must give one of usd and tokens"))
    elif usd is not None and not 0 < pico_of(usd) <= pico_of(str(MOST_USD)):
        problems.append(Problem(f"{path}.usd", f"must be more than 0 and at most {MOST_USD} USD, not {usd}"))
    if len(problems) > before:
        return None
    unit, amount = (Unit.TOKENS, tokens or 0) if usd is None else (Unit.USD, pico_of(usd))
    return Budget(unit, amount, str(told["window"]), bool(told.get("soft", False)), cast(int, told.get("since_ms", 0)))


def read_budgets(value: object, path: str, problems: Problems) -> tuple[Budget, ...] | None:
    """Several, no two of one unit and window."""
    before = len(problems)
    found = cast(list[Budget], schema.listed(read_budget)(value, path, problems) or [])
    if len(problems) > before:
        return None
    names = [one.name for one in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        problems.append(Problem(path, f"{twice} stands twice; give one amount for each unit and window"))
    elif len(found) > MOST_BUDGETS:
        problems.append(Problem(path, f"must be at most {MOST_BUDGETS}"))
    return tuple(found) if len(problems) == before else None


def read_cap(value: object, path: str, problems: Problems) -> Budget | None:
    """What a tenant may spend at one provider before others are preferred: by the calendar."""
    found = read_budget(value, path, problems)
    if found is not None and found.slots is not None:
        problems.append(Problem(f"{path}.window", "must be day, week or month"))
        return None
    return found


def told_budget(budget: Budget) -> dict[str, object]:
    """By the names of its fields on the wire; `read_budget` undoes it."""
    amount: dict[str, object] = {"usd": usd_of(budget.amount)} if budget.unit is Unit.USD else {"tokens": budget.amount}
    soft: dict[str, object] = {"soft": True} if budget.soft else {}
    return {**amount, "window": budget.window, **soft, "since_ms": budget.since_ms}


def stored(budgets: Iterable[Budget]) -> list[dict[str, object]]:
    """As JSON for the database."""
    return [told_budget(one) for one in budgets]


def from_stored(told: Sequence[Mapping[str, object]]) -> tuple[Budget, ...]:
    """What `stored` made; it was checked then."""
    return tuple(one for item in told if (one := read_budget(item, "budget", [])) is not None)


def in_words(budgets: Iterable[Budget]) -> str:
    """For a list: `50 USD/month, 1000000 tokens/day (soft)`."""
    return ", ".join(
        f"{usd_of(one.amount) + ' USD' if one.unit is Unit.USD else f'{one.amount} tokens'}/{one.window}{' (soft)' if one.soft else ''}"
        for one in budgets
    )
