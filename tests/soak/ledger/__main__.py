"""`make soak-ledger`: mixed requests and their bill, once in peace and once while everything is killed. Exit status 1: they differ."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # before grpc is imported: children would crash before exec

from tests.soak.ledger.run import Plan, run

FULL = 20_000


def main() -> int:
    """Runs both."""
    parser = argparse.ArgumentParser(prog="make soak-ledger", description="An upstream that keeps its own bill, and the ledger beside it.")
    parser.add_argument("--requests", type=int, default=FULL, help=f"in each run (default {FULL})")
    parser.add_argument("--only", choices=("peace", "mayhem"), help="one of the two runs")
    parser.add_argument("--keep", action="store_true", help="keep the folders with every program's log")
    args = parser.parse_args()
    share = min(1.0, args.requests / FULL)
    plans = {
        "peace": Plan(args.requests),
        "mayhem": Plan(
            args.requests, seed=8, workers=max(2, round(8 * share)), routers=max(1, round(2 * share)), redis=max(1, round(3 * share)),
            postgres=5, planes=max(1, round(3 * share)), pause_s=max(0.5, 3 * share),
        ),
    }  # fmt: skip
    good = True
    for name, plan in plans.items():
        if args.only in (None, name):
            folder = Path(tempfile.mkdtemp(prefix="n4n-ledger-"))
            try:
                report = run(plan, folder)
            finally:
                if args.keep:
                    print(f"logs: {folder}", file=sys.stderr)
                else:
                    shutil.rmtree(folder, ignore_errors=True)
            print(f"{name}\n{report}\n", flush=True)
            good = good and report.good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
