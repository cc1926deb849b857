"""`make soak`: the steady-load run for so many minutes, and its table. Exit status 1 when anything failed that must not."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # before grpc is imported: children would crash before exec

from tests.soak.load import percentile
from tests.soak.plan import Plan
from tests.soak.run import soak


def main() -> int:
    """Runs it."""
    parser = argparse.ArgumentParser(
        prog="make soak", description="Two routers behind a balancer under steady load, and one fault after the other."
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="how long, at least; under 10 means less of everything (default 10)")
    parser.add_argument("--keep", action="store_true", help="keep the folder with every program's log")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="n4n-soak-"))
    try:
        report = soak(Plan.of_minutes(args.minutes), folder)
    finally:
        if args.keep:
            print(f"logs: {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    print(report)
    good = not report.faults and len(set(report.versions)) == 1 and percentile(report.applied_s, 0.99) < 1.0
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
