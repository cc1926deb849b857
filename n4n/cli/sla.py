"""`n4n sla`: latency, time to first token, speed and errors by provider, model and region, and how they drift."""

from __future__ import annotations

import time
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from n4n.cli import values
from n4n.cli.calls import ask
from n4n.cli.instance import offer_instance
from n4n.cli.output import Refused, iso, print_json, print_rows
from n4n.cli.parser import Commands, example
from n4n.cli.sla_chart import chart, png
from n4n.core.sla import DRIFTS, WEEK_H

if TYPE_CHECKING:
    from n4n.runtime.operations_calls import SlaLevels

COLUMNS = {
    "provider": "PROVIDER", "model": "MODEL", "region": "REGION", "attempts": "ATTEMPTS", "error_rate": "ERRORS",
    "latency_p95_ms": "P95 MS", "baseline_latency_p95_ms": "WAS", "latency_drift": "DRIFT", "ttft_p95_ms": "TTFT P95 MS",
    "baseline_ttft_p95_ms": "WAS", "ttft_drift": "DRIFT", "tokens_per_s": "TOKENS/S", "drifts": "FLAGGED",
}  # fmt: skip


def add(commands: Commands) -> None:
    """Adds the command."""
    more = (
        f"The newest week is laid beside the oldest of the period, like hours beside like hours; a drift above {DRIFTS:g} is flagged. "
        "Hours come from the usage ledger, probes not among them."
    )
    lines = ("n4n sla --days 30", "n4n sla --model gpt-4o --chart", "n4n sla --png drift.png")
    parser = commands.add("sla", about="service levels by provider, model and region, and their drift", more=more, epilog=example(*lines))
    parser.add_argument("--model", type=values.words, help="only this model")
    parser.add_argument("--days", type=values.count, default=30, metavar="N", help="how far back (default 30)")
    parser.add_argument("--chart", action="store_true", help="draw the 95th percentile of the latency, hour by hour")
    parser.add_argument(
        "--png", type=values.words, metavar="FILE", help="write such a chart of each, median and 95th percentile, to a PNG file"
    )
    parser.add_argument(
        "-o", "--output", choices=("table", "json"), default="table", help="table for people (default), json with every hour"
    )
    offer_instance(parser)
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    """`n4n sla`"""
    since_ms = max(0, round(time.time() * 1000) - args.days * 86_400_000)
    hours = args.chart or args.png is not None or args.output == "json"
    found = ask(args, "reading the hours", lambda client: client.sla(since_ms, args.model or "", hours=hours))
    if args.png is not None:
        _write(args.png, png(found))
    rows = [sla_row(one, hours=args.output == "json") for one in found]
    if args.output == "json":
        print_json(rows)
        return 0
    shown = [{**row, "error_rate": f"{row['error_rate']:.1%}"} for row in rows]
    print_rows(shown, COLUMNS, args.output, empty=f"no traffic in the last {args.days} days; hours are added up every two minutes")
    if rows and all(row["latency_drift"] is None for row in rows):
        print(f"no drift can be told yet: it takes like hours of two weeks ({2 * WEEK_H} hours of traffic at most)")
    if args.chart:
        for one in found:
            print("\n".join(chart(one)))
    return 0


def _write(path: str, content: bytes) -> None:
    try:
        Path(path).write_bytes(content)
    except OSError as error:
        raise Refused(f"--png {path}: {(error.strerror or str(error)).lower()}; name another file") from error


def sla_row(one: SlaLevels, *, hours: bool) -> dict[str, object]:
    """A row by its column names; with `hours`, every hour too."""
    told: dict[str, object] = {
        "provider": one.provider,
        "model": one.model,
        "region": one.region or None,
        "attempts": one.attempts,
        "error_rate": round(one.error_rate, 4),
        "latency_p95_ms": _rounded(one.latency_p95_ms),
        "baseline_latency_p95_ms": _rounded(one.baseline_latency_p95_ms),
        "latency_drift": _rounded(one.latency_drift, 2),
        "ttft_p95_ms": _rounded(one.ttft_p95_ms),
        "baseline_ttft_p95_ms": _rounded(one.baseline_ttft_p95_ms),
        "ttft_drift": _rounded(one.ttft_drift, 2),
        "tokens_per_s": _rounded(one.tokens_per_s, 1),
        "baseline_tokens_per_s": _rounded(one.baseline_tokens_per_s, 1),
        "drifts": one.drifts,
    }
    if hours:
        told["hours"] = [{"hour": iso(hour.hour_ms), **dict(hour.levels)} for hour in one.hours]
    return told


def _rounded(value: float | None, digits: int = 0) -> float | int | None:
    if value is None:
        return None
    return round(value, digits) if digits else round(value)
