"""Budgets in a whole house, short: a race, a Redis that loses everything, edits and revocations. `make soak-budgets` is the long one."""

from __future__ import annotations

from pathlib import Path

from tests.soak.budgets import CENTS, run


async def test_budgets_hold_in_a_race_and_through_a_redis_that_loses_everything(tmp_path: Path) -> None:
    figures = await run(tmp_path, restarts=1, edits=4)

    assert figures.race_beyond <= CENTS, figures
    assert figures.emptied_beyond <= 10 * CENTS, figures
    assert abs(figures.ledger_differs) < 1e-9, figures
    assert len(figures.changes) == 8 and sorted(figures.changes)[4] < 1.0, figures
