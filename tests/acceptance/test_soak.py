"""The steady-load run, short: one fault of each kind. `make soak` is the long one."""

from __future__ import annotations

from pathlib import Path

from tests.soak.load import percentile
from tests.soak.plan import Plan
from tests.soak.run import soak


def test_under_steady_load_no_fault_of_ours_costs_a_request(tmp_path: Path) -> None:
    report = soak(Plan(seconds=40, versions=9, outage_s=3, rolls=1), tmp_path)

    assert report.faults == (), report
    assert report.requests > 30 * 50
    assert report.versions == (10, 10, 10)
    assert len(report.applied_s) == 9
    assert percentile(report.applied_s, 0.99) < 1.0, report
