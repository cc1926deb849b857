"""A budget that is spent, as an error that says which, how much, and when it resets."""

from __future__ import annotations

from datetime import UTC, datetime

from n4n.core.budgets import Budget, Unit, told_amount, usd_of
from n4n.core.errors import BudgetExceeded
from n4n.core.limits.purse import Overspent


def budget_exceeded(over: Overspent, wall: float) -> BudgetExceeded:
    """`wall`: Unix time in seconds. Amounts are decimal text in `n4n.budget`, as money is everywhere."""
    budget = over.budget
    spent, limit = told_amount(budget.unit, over.spent), told_amount(budget.unit, budget.amount)
    resets = resets_at(budget, wall, over.wait_ms)
    also = f", and {told_amount(budget.unit, over.reserved)} are reserved by requests that run" if over.reserved else ""
    return BudgetExceeded(
        f"the budget of {limit} per {budget.window} of this {over.owner} is used up: {spent} are spent{also}; it resets at {resets}",
        told={
            "budget": budget.name,
            "of": "tenant" if over.owner == "tenant" else "key",
            "unit": budget.unit.value,
            "limit": _amount(budget, budget.amount),
            "spent": _amount(budget, over.spent),
            "reserved": _amount(budget, over.reserved),
            "window": budget.window,
            "resets_at": resets,
        },
    )


def resets_at(budget: Budget, wall: float, wait_ms: float) -> str:
    """When its calendar window ends, or when enough of a rolling one is old; ISO 8601 in UTC."""
    at_ms = budget.span(int(wall * 1000)).ends if budget.slots is None else wall * 1000 + wait_ms
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _amount(budget: Budget, amount: int) -> str:
    return usd_of(amount) if budget.unit is Unit.USD else str(amount)
