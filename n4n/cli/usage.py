"""`n4n usage`: what was used and what it cost, by tenant, key, model, provider, endpoint or day."""

from __future__ import annotations

import csv
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from n4n.cli import usage_rating, usage_reconcile, values
from n4n.cli.calls import ask
from n4n.cli.instance import offer_instance
from n4n.cli.output import note, number, print_rows
from n4n.cli.parser import Commands, example

if TYPE_CHECKING:
    from n4n.runtime.usage_calls import UsageTotal

GROUPS = ("tenant", "key", "model", "provider", "endpoint", "day")
MOST_GROUPS = 3
COLUMNS = {
    "requests": "REQUESTS", "attempts": "ATTEMPTS", "failed": "FAILED", "prompt_tokens": "TOKENS IN", "cached_tokens": "CACHED",
    "completion_tokens": "TOKENS OUT", "cost_usd": "COST USD", "prompt_count_ratio": "IN/COUNTED",
    "count_ratio": "OUT/COUNTED",
}  # fmt: skip
FIELDS = (
    "requests", "attempts", "failed", "unknown", "unpriced", "estimated", "prompt_tokens", "cached_tokens", "cache_write_tokens",
    "completion_tokens", "reasoning_tokens", "cost_usd", "count_ratio", "prompt_count_ratio",
)  # fmt: skip


def add(commands: Commands) -> None:
    """Adds the command."""
    more = "Times are UTC; a request whose price nobody knew is counted and not in the cost."
    lines = (
        "n4n usage --by model --since 30d",
        "n4n usage --by day,tenant --only provider=openai -o csv > usage.csv",
        "n4n usage export --since 2026-11-01 --until 2026-12-01 > november.csv",
        "n4n usage reconcile --provider openai completions_usage.csv",
    )
    parser = commands.add(
        "usage", about="tokens and cost by tenant, key, model, provider, endpoint or day", more=more, epilog=example(*lines)
    )
    parser.add_argument(
        "--by", type=values.names_of(GROUPS, MOST_GROUPS), default=("tenant",), metavar="NAMES",
        help=f"what is one row (default tenant): one to three of {', '.join(GROUPS)}, comma separated",
    )  # fmt: skip
    usage_rating.offer_period(parser)
    parser.add_argument(
        "--only", type=values.pair_of(GROUPS[:-1]), action="append", default=[], metavar="NAME=VALUE", help="such as tenant=acme"
    )
    usage_rating.offer_label(parser)
    parser.add_argument(
        "-o", "--output", choices=("table", "json", "csv"), default="table", help="table for people (default), or for programs"
    )
    offer_instance(parser)
    parser.set_defaults(run=run)
    inner = Commands(parser, required=False)
    usage_rating.add_export(inner)
    usage_reconcile.add(inner)
    usage_rating.add_rerate(inner)
    usage_rating.add_ratings(inner)


def run(args: Namespace) -> int:
    """`n4n usage`"""
    usage_rating.check_period(args)
    by = ",".join(args.by)
    totals = ask(args, "adding up", lambda client: client.usage(by, args.since, args.until, label=args.label or "", only=dict(args.only)))
    if args.output == "csv":
        _print_csv(args.by, totals)
        return 0
    rows = [usage_row(args.by, total) for total in totals]
    empty = f"nothing was used since {time.strftime('%Y-%m-%d %H:%M', time.gmtime(args.since / 1000))} UTC"
    print_rows(rows, {**{name: name.upper() for name in args.by}, **COLUMNS}, args.output, empty=empty)
    unpriced = sum(total.unpriced for total in totals)
    if unpriced and args.output == "table":
        note(f"{unpriced} of {sum(total.attempts for total in totals)} attempts had no price and are not in the cost")
    return 0


def usage_row(by: Sequence[str], total: UsageTotal) -> dict[str, object]:
    """A group by its column names. `count_ratio`: output tokens as reported by the provider, per token that n4n counted itself, of the
    answers that it counted exactly; `prompt_count_ratio`: the same of input."""
    told = {
        "cost_usd": number(total.cost_usd),
        "count_ratio": _ratio(total.compared_completion_tokens, total.counted_completion_tokens),
        "prompt_count_ratio": _ratio(total.compared_prompt_tokens, total.counted_prompt_tokens),
    }
    names = dict(zip(by, total.groups or (total.group,), strict=True))
    return {**names, **{name: told[name] if name in told else getattr(total, name) for name in FIELDS}}


def _ratio(reported: int, counted: int) -> float | None:
    return round(reported / counted, 3) if counted else None


def _print_csv(by: Sequence[str], totals: Sequence[UsageTotal]) -> None:
    """Money as it stands in the ledger, to the last digit; empty where nothing had a price."""
    out = csv.DictWriter(sys.stdout, (*by, *FIELDS), lineterminator="\n")
    out.writeheader()
    out.writerows([{**usage_row(by, total), "cost_usd": total.cost_usd} for total in totals])
