"""`n4n health`: the provider matrix: score, breaker, cooldown, first tokens, speed, errors and price of every endpoint, once or live."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from typing import TYPE_CHECKING

from n4n.cli import values
from n4n.cli.calls import ask
from n4n.cli.instance import offer_instance
from n4n.cli.output import iso, note, number, offer_json, print_rows, printable
from n4n.cli.parser import Commands, example

if TYPE_CHECKING:
    from n4n.runtime.control_health import EndpointRow, HealthReport

WATCH_S = 2.0
CLEAR = "\x1b[2J\x1b[H"
COLUMNS = {
    "endpoint": "ENDPOINT", "model": "MODEL", "score": "SCORE", "breaker": "BREAKER", "cooldown": "COOLDOWN", "ttft_ms": "TTFT MS",
    "ttft_p95_ms": "P95", "tokens_per_s": "TOKENS/S", "error_rate": "ERRORS", "attempts": "ATTEMPTS", "input_per_1m": "USD/1M IN",
    "output_per_1m": "USD/1M OUT",
}  # fmt: skip


def add(commands: Commands) -> None:
    """Adds the command."""
    parser = commands.add(
        "health",
        about="score, breaker, cooldown, TTFT, tokens/s, error rate and price per endpoint",
        more="Errors are those of the endpoint or its account, of the last 100,000 attempts at most. A score is the part of the configured"
        " weight that is left.",
        epilog=example("n4n health", "n4n health --model gpt-4o --window 15m --watch", "n4n health -o json"),
    )
    parser.add_argument("--model", type=values.words, help="only its endpoints (a model's id)")
    parser.add_argument("--window", type=values.span, default="1h", metavar="SPAN", help="over which errors are counted (default 1h)")
    parser.add_argument("--watch", action="store_true", help="show it anew every two seconds, until Ctrl-C")
    offer_json(parser)
    offer_instance(parser)
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    """`n4n health`"""
    while True:
        report = ask(args, "asking for health", lambda client: client.health(args.model or "", args.window))
        if args.watch and sys.stdout.isatty():
            print(CLEAR, end="")
        show(report, args)
        if not args.watch:
            return 0
        sys.stdout.flush()
        time.sleep(WATCH_S)


def show(report: HealthReport, args: Namespace) -> None:
    """The matrix, and on a terminal what is missing of it."""
    rows = [health_row(one) for one in report.endpoints]
    empty = f"no endpoint serves {args.model}: n4n catalog show lists the models" if args.model else "the catalog has no endpoint yet"
    if args.output == "json":
        print_rows(rows, COLUMNS, "json", empty=empty)
    else:
        print_rows([{**row, **_shown(row)} for row in rows], COLUMNS, "table", empty=empty)
        for line in (f"{one.endpoint}: {finding}" for one in report.endpoints for finding in one.findings):
            print(printable(line))
    if report.redis != "ok":
        note(f"Redis: {report.redis}; scores, breakers, cooldowns and measures are not known")
    if report.database != "ok":
        note(f"Postgres: {report.database}; attempts are not known")
    if report.cut:
        note("errors are counted over the last 100,000 attempts, which is less than the window")


def health_row(one: EndpointRow) -> dict[str, object]:
    """An endpoint by its column names."""
    return {
        "endpoint": one.endpoint,
        "model": one.model,
        "provider": one.provider,
        "accounts": list(one.accounts),
        "region": one.region or None,
        "state": one.state,
        "weight": one.weight,
        "score": round(one.score, 3),
        "breaker": one.breaker,
        "breaker_until": iso(one.breaker_until_ms),
        "cooldown": one.cooldown or None,
        "cooldown_until": iso(one.cooldown_until_ms),
        "latency_ms": _rounded(one.latency_ms),
        "ttft_ms": _rounded(one.ttft_ms),
        "ttft_p50_ms": _rounded(one.ttft_p50_ms),
        "ttft_p95_ms": _rounded(one.ttft_p95_ms),
        "tokens_per_s": _rounded(one.tokens_per_s),
        "tokens_per_s_p50": _rounded(one.tokens_per_s_p50),
        "tokens_per_s_p95": _rounded(one.tokens_per_s_p95),
        "error_rate": round(one.errors / one.attempts, 4) if one.attempts else None,
        "attempts": one.attempts,
        "errors": one.errors,
        "input_per_1m": number(one.input_per_1m),
        "output_per_1m": number(one.output_per_1m),
        "last_success": iso(one.last_success_ms),
        "findings": list(one.findings),
    }


def _shown(row: dict[str, object]) -> dict[str, object]:
    """What a person reads differently: times of day, percent, words for states."""
    told: dict[str, object] = {}
    if row["state"] != "active":
        told["breaker"] = row["state"]
    elif isinstance(row["breaker_until"], str):
        told["breaker"] = f"{row['breaker']} until {row['breaker_until'][11:19]}"
    if isinstance(row["cooldown_until"], str):
        told["cooldown"] = f"{str(row['cooldown']).rpartition(' ')[2]} until {row['cooldown_until'][11:19]}"
    if isinstance(row["error_rate"], float):
        told["error_rate"] = f"{row['error_rate']:.1%}"
    return told


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
