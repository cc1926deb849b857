"""The short forms of `python -m tests.soak.ledger`: the provider's bill and the ledger say the same, in peace and while everything dies."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.soak.ledger.run import Plan, run
from tests.soak.reports import WANTED_REPORT_S, measured


def test_the_ledger_is_the_providers_bill_to_the_last_decimal(stores_folder: Path) -> None:
    report = run(Plan(400), Path(tempfile.mkdtemp(dir=stores_folder)))

    assert report.good, report
    assert report.audit.ledger_usd > 0 and report.audit.states.keys() == {"ok", "failed", "partial", "cancelled"}, report


def test_nothing_is_lost_and_nothing_is_twice_while_everything_is_killed(stores_folder: Path) -> None:
    plan = Plan(300, seed=9, workers=1, routers=1, redis=1, postgres=2, planes=1, pause_s=0.4)

    report = run(plan, Path(tempfile.mkdtemp(dir=stores_folder)))

    assert report.good, report
    assert len(report.faults) == 5, report


async def test_every_report_answers_within_a_second(postgres_url: str) -> None:
    """Of 20,000 rows; `python -m tests.soak.reports` asks a million, and lets rows come in while a router serves."""
    figures = await measured(postgres_url, 20_000)

    assert len(figures.reports) == 11 and max(figures.reports.values()) < WANTED_REPORT_S, figures
