"""`make soak-dashboards`: five minutes of traffic of every kind on one n4n with its usual settings, and what every panel shows then.

Prometheus scrapes every 15 seconds and the control plane looks every 15 seconds, as deployed; nothing is written into the past or
added up by hand. Exit status 1: a panel is empty.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # before grpc is imported: children would crash before exec

from tests.support.dashboards import DASHBOARDS
from tests.support.prometheus import PROMETHEUS
from tests.support.watched import Watched, reader_sql, watched

EVERY_S = 3.0  # a round of traffic


@dataclass(frozen=True, slots=True)
class Shown:
    """What one query of a panel gave. `found`: series or rows with numbers."""

    page: str
    panel: str
    found: int
    took_s: float


def shown(live: Watched) -> list[Shown]:
    """Every query of every panel, once."""
    told = []
    for board in DASHBOARDS:
        for panel in board.panels:
            for query, _ in panel.queries:
                began = time.perf_counter()
                found = live.shows(board, panel, query)
                told.append(Shown(board.name, panel.title, found, time.perf_counter() - began))
    return told


def main() -> int:
    """Runs it."""
    parser = argparse.ArgumentParser(prog="make soak-dashboards", description="Is there data on every panel after five minutes of traffic?")
    parser.add_argument("--minutes", type=float, default=5.0, help="how long there is traffic (default 5)")
    minutes = parser.parse_args().minutes
    if PROMETHEUS is None:
        print("there is no prometheus here; name one with N4N_TEST_PROMETHEUS", file=sys.stderr)
        return 1
    folder = Path(tempfile.mkdtemp(prefix="n4n-dashboards-"))
    try:
        with watched(folder, environ={}, interval="15s") as live:
            made = reader_sql(live.database_url)
            assert made.returncode == 0, made.stderr
            until = time.monotonic() + minutes * 60
            while time.monotonic() < until:
                began = time.monotonic()
                live.traffic()
                time.sleep(max(0.0, min(until, began + EVERY_S) - time.monotonic()))
            told, errors = shown(live), live.rule_errors()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    empty = [one for one in told if not one.found]
    print(f"{live.asked:,} requests in {minutes:g} minutes; {len(told)} queries of {len({(one.page, one.panel) for one in told})} panels")
    for page in dict.fromkeys(one.page for one in told):
        of_page = [one for one in told if one.page == page]
        found, nothing = sum(one.found for one in of_page), sum(not one.found for one in of_page)
        print(f"  {page:<14} {len(of_page):3} queries, {found:4} series and rows, {nothing} empty")
    slowest = max(told, key=lambda one: one.took_s)
    print(f"slowest: {slowest.page}, {slowest.panel}, {slowest.took_s * 1000:.0f} ms")
    for one in empty:
        print(f"EMPTY: {one.page}, {one.panel}")
    for name, error in errors:
        print(f"RULE: {name}: {error}")
    return 1 if empty or errors else 0


if __name__ == "__main__":
    sys.exit(main())
