"""Budgets as flags say them, as the control plane takes them, and as they are shown."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from n4n.cli import values
from n4n.cli.output import WrongUsage, iso, number
from n4n.cli.values import Budget

if TYPE_CHECKING:
    from n4n.runtime.access_calls import BudgetInfo, Standing

_UNITS = {"usd": "budget_usd", "tokens": "budget_tokens"}  # and the flags that give them


def offer_budgets(parser: ArgumentParser, reader: Callable[[Callable[[str], object]], Callable[[str], object]], also: str) -> None:
    """Adds the flags; `reader` lets `none` take budgets away where that is meant, and `also` says so."""
    windows = "day, week, month, or a rolling window such as 24h or 30d"
    for unit, flag in _UNITS.items():
        example = "50/month" if unit == "usd" else "1m/day"
        parser.add_argument(
            f"--{flag.replace('_', '-')}", action="append", type=reader(getattr(values, flag)), metavar=f"{unit.upper()}/WINDOW",
            help=f"such as {example}: {windows}; repeatable{also}",
        )  # fmt: skip
    parser.add_argument("--budget-soft", action="store_true", help="the budgets given here are told of (50, 80, 100 %%) and refuse nothing")


def gives_budgets(args: Namespace) -> bool:
    """Whether any flag speaks of budgets. WrongUsage: only --budget-soft does."""
    given = any(getattr(args, flag) is not None for flag in _UNITS.values())
    if args.budget_soft and not given:
        raise WrongUsage("--budget-soft: say which budget is soft, with --budget-usd or --budget-tokens beside it")
    return given


def given_budgets(args: Namespace, now: Sequence[BudgetInfo]) -> list[dict[str, object]]:
    """All budgets as they are to be: those of a unit that a flag names are replaced, the others stay."""
    found: list[dict[str, object]] = []
    for unit, flag in _UNITS.items():
        told = cast(list[Budget | None] | None, getattr(args, flag))
        if told is None:
            found += [wire_budget(one.unit, one.amount, one.window, soft=one.soft) for one in now if one.unit == unit]
            continue
        wanted = [one for one in told if one is not None]
        names = [f"{one.unit}/{one.window}" for one in wanted]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice or (wanted and len(wanted) < len(told)):
            remedy = f"{twice} is given twice; give one amount for each window" if twice else "none takes all away; give it alone"
            raise WrongUsage(f"--{flag.replace('_', '-')}: {remedy}")
        found += [wire_budget(one.unit, one.amount, one.window, soft=one.soft or args.budget_soft) for one in wanted]
    return found


def wire_budget(unit: str, amount: str, window: str, *, soft: bool) -> dict[str, object]:
    """One budget by the names of the wire."""
    return {unit: amount, "window": window, **({"soft": True} if soft else {})}


def budget_fields(budgets: Sequence[BudgetInfo]) -> dict[str, object]:
    """The budgets of a key or tenant by column names; `budget_usd` and `budget_tokens` are the first of each."""
    first: dict[str, BudgetInfo] = {}
    for one in budgets:
        first.setdefault(one.unit, one)
    told: dict[str, object] = {}
    for unit, flag in _UNITS.items():
        told[flag] = number(first[unit].amount) if unit in first else None
        told["budget_window" if unit == "usd" else "budget_tokens_window"] = first[unit].window if unit in first else None
    return {**told, "budgets": [spelled(one.unit, one.amount, one.window, soft=one.soft) for one in budgets]}


def spelled(unit: str, amount: str, window: str, *, soft: bool) -> str:
    """`50 USD/month`, `1000000 tokens/day (soft)`."""
    return f"{amount} {'USD' if unit == 'usd' else 'tokens'}/{window}{' (soft)' if soft else ''}"


def standing_row(one: Standing) -> dict[str, object]:
    """How a budget stands, by column names."""
    return {
        "tenant": one.tenant,
        "key": one.public_id or None,
        "provider": one.provider or None,
        "budget": f"{one.budget.unit}/{one.budget.window}",
        "kind": "cap" if one.provider else "soft" if one.budget.soft else "hard",
        "spent": number(one.spent),
        "limit": number(one.budget.amount),
        "level": one.level,
        "begins_at": iso(one.begins_at_ms),
        "resets_at": iso(one.resets_at_ms),
        "unpriced": one.unpriced,
    }


STANDING_COLUMNS: Mapping[str, str] = {
    "tenant": "TENANT", "key": "KEY", "provider": "PROVIDER", "budget": "BUDGET", "kind": "KIND", "spent": "SPENT", "limit": "LIMIT",
    "level": "LEVEL %", "resets_at": "RESETS (UTC)", "unpriced": "UNPRICED",
}  # fmt: skip
