"""`n4n usage`: what was used and what it cost, by tenant, key, model, provider, endpoint or day."""

from __future__ import annotations

import csv
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from n4n.cli import values
from n4n.cli.calls import ask
from n4n.cli.instance import offer_instance
from n4n.cli.output import note, number, print_rows
from n4n.cli.parser import Commands, example

if TYPE_CHECKING:
    from n4n.runtime.control_client import UsageTotal

GROUPS = ("tenant", "key", "model", "provider", "endpoint", "day")
COLUMNS = {
    "requests": "REQUESTS", "attempts": "ATTEMPTS", "failed": "FAILED", "prompt_tokens": "TOKENS IN", "cached_tokens": "CACHED",
    "completion_tokens": "TOKENS OUT", "cost_usd": "COST USD", "count_ratio": "REPORTED/COUNTED",
}  # fmt: skip
FIELDS = (
    "requests", "attempts", "failed", "unknown", "unpriced", "estimated", "prompt_tokens", "cached_tokens", "cache_write_tokens",
    "completion_tokens", "reasoning_tokens", "cost_usd", "count_ratio",
)  # fmt: skip


def add(commands: Commands) -> None:
    """Adds the command."""
    more = "Times are UTC; a request whose price nobody knew is counted and not in the cost."
    lines = ("n4n usage --by model --since 30d", "n4n usage --by day -o csv > usage.csv")
    parser = commands.add(
        "usage", about="tokens and cost by tenant, key, model, provider, endpoint or day", more=more, epilog=example(*lines)
    )
    parser.add_argument("--by", choices=GROUPS, default="tenant", help="what is one row (default tenant)")
    parser.add_argument("--since", type=values.past, default="7d", metavar="WHEN", help="7d, 12h, or a date (default 7d)")
    parser.add_argument("--until", type=values.past, metavar="WHEN", help="where it ends, written the same way (default now)")
    parser.add_argument(
        "-o", "--output", choices=("table", "json", "csv"), default="table", help="table for people (default), or for programs"
    )
    offer_instance(parser)
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    """`n4n usage`"""
    totals = ask(args, "adding up", lambda client: client.usage(args.by, args.since, args.until))
    if args.output == "csv":
        _print_csv(args.by, totals)
        return 0
    rows = [usage_row(args.by, total) for total in totals]
    empty = f"nothing was used since {time.strftime('%Y-%m-%d %H:%M', time.gmtime(args.since / 1000))} UTC"
    print_rows(rows, {args.by: args.by.upper(), **COLUMNS}, args.output, empty=empty)
    unpriced = sum(total.unpriced for total in totals)
    if unpriced and args.output == "table":
        note(f"{unpriced} of {sum(total.attempts for total in totals)} attempts had no price and are not in the cost")
    return 0


def usage_row(by: str, total: UsageTotal) -> dict[str, object]:
    """A group by its column names. `count_ratio`: output tokens as reported by the provider, per token that n4n counted itself."""
    counted = total.counted_completion_tokens
    ratio = round(total.compared_completion_tokens / counted, 3) if counted else None
    told = {"cost_usd": number(total.cost_usd), "count_ratio": ratio}
    return {by: total.group, **{name: told[name] if name in told else getattr(total, name) for name in FIELDS}}


def _print_csv(by: str, totals: Sequence[UsageTotal]) -> None:
    """Money as it stands in the ledger, to the last digit; empty where nothing had a price."""
    out = csv.DictWriter(sys.stdout, (by, *FIELDS), lineterminator="\n")
    out.writeheader()
    out.writerows([{**usage_row(by, total), "cost_usd": total.cost_usd} for total in totals])
