"""`n4n usage export`, `rerate` and `ratings`: the ledger's rows as a file, and a period of it at other prices."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping
from typing import TYPE_CHECKING

from n4n.cli import values
from n4n.cli.calls import ask, offer_author
from n4n.cli.documents import read_document, to_json
from n4n.cli.instance import offer_instance
from n4n.cli.output import Refused, WrongUsage, iso, note, number, offer_json, print_fields, print_rows
from n4n.cli.parser import Commands, Parser, example

if TYPE_CHECKING:
    from n4n.runtime.control_client import ControlClient
    from n4n.runtime.usage_calls import UsageRating

COLUMNS = {
    "label": "LABEL", "since": "SINCE", "until": "UNTIL", "prices": "PRICES", "attempts": "ATTEMPTS", "kept": "KEPT",
    "before_usd": "BEFORE USD", "cost_usd": "COST USD", "created_at": "CREATED", "author": "AUTHOR",
}  # fmt: skip


def offer_period(parser: Parser) -> None:
    """Adds `--since` and `--until`."""
    parser.add_argument("--since", type=values.past, default="7d", metavar="WHEN", help="7d, 12h, or a date (default 7d)")
    parser.add_argument("--until", type=values.past, metavar="WHEN", help="where it ends, written the same way (default now)")


def check_period(args: Namespace) -> None:
    """WrongUsage: it ends before it begins."""
    if args.until is not None and args.until <= args.since:
        raise WrongUsage("--until: is not after --since: write a later time, such as --since 7d --until 1d")


def offer_label(parser: Parser) -> None:
    """Adds `--label`."""
    parser.add_argument("--label", type=values.name, help="at the costs of this rating (see n4n usage rerate)")


def add_export(commands: Commands) -> None:
    """Adds `export`."""
    parser = commands.add(
        "export",
        about="print every attempt of a period, or sums of its days, as CSV",
        more="Columns are named as in the table usage_ledger. Money is exact; it is empty where nothing had a price."
        " A client's label that a spreadsheet would take for a formula begins with an apostrophe.",
        epilog=example("n4n usage export --since 2026-11-01 --until 2026-12-01 > november.csv", "n4n usage export --by day --since 90d"),
    )
    parser.add_argument(
        "--by", choices=("rows", "day"), default="rows",
        help="rows: every attempt (default); day: whole days by tenant, key, model, provider and endpoint",
    )  # fmt: skip
    offer_period(parser)
    offer_label(parser)
    offer_instance(parser)
    parser.set_defaults(run=run_export)


def run_export(args: Namespace) -> int:
    """`n4n usage export`"""
    check_period(args)
    lines = ask(args, "reading the ledger", lambda client: _written(client, args))
    note(f"{lines} lines")
    return 0


async def _written(client: ControlClient, args: Namespace) -> int:
    lines = 0
    async for part in client.export_usage(args.by, args.since, args.until, label=args.label or ""):
        if isinstance(part, int):
            lines = part
        else:
            sys.stdout.buffer.write(part)
    sys.stdout.buffer.flush()
    return lines


def add_rerate(commands: Commands) -> None:
    """Adds `rerate`."""
    parser = commands.add(
        "rerate",
        about="price a period anew, beside the ledger and under a label",
        more="The ledger itself never changes. Endpoints without a price among the new ones keep their cost.",
        epilog=example(
            "n4n usage rerate --since 2026-11-01 --until 2026-12-01 --prices corrected.yaml --label november-2",
            "n4n usage rerate --since 7d --catalog-version 42 --label at-42",
        ),
    )
    offer_period(parser)
    parser.add_argument("--label", type=values.name, required=True, help="what the rating is called")
    prices = parser.add_mutually_exclusive_group(required=True)
    prices.add_argument("--prices", metavar="FILE", help="a catalog document, or of one only endpoints: {NAME: {price: {…}}}; - reads it")
    prices.add_argument("--catalog-version", type=values.version, metavar="N", help="the prices of this version of the catalog")
    offer_author(parser)
    offer_json(parser)
    offer_instance(parser)
    parser.set_defaults(run=run_rerate)


def run_rerate(args: Namespace) -> int:
    """`n4n usage rerate`"""
    check_period(args)
    prices = None if args.prices is None else _prices(args.prices)
    rating = ask(args, "pricing anew", lambda client: _rerated(client, args, prices))
    print_fields(rating_row(rating), args.output)
    return 0


def _prices(path: str) -> str:
    document = read_document(path, "--prices")
    endpoints = document.get("endpoints") if isinstance(document, Mapping) else None
    if not isinstance(endpoints, Mapping):
        raise Refused(f"--prices {path}: holds no endpoints; write endpoints: {{NAME: {{price: {{input_per_1m: …}}}}}}")
    named = {name: {"price": one["price"]} if isinstance(one, Mapping) and "price" in one else {} for name, one in endpoints.items()}
    return to_json(named)


async def _rerated(client: ControlClient, args: Namespace, prices: str | None) -> UsageRating:
    told = None
    calls = client.rerate(args.label, args.since, args.until, author=args.author, catalog_version=args.catalog_version, prices_json=prices)
    async for told in calls:
        if not told.done and sys.stderr.isatty():
            note(f"{told.rows} attempts priced anew …")
    assert told is not None, "a call that ended well told its end"
    return told


def add_ratings(commands: Commands) -> None:
    """Adds `ratings`."""
    parser = commands.add("ratings", about="list what was priced anew", epilog=example("n4n usage ratings"))
    offer_json(parser)
    offer_instance(parser)
    parser.set_defaults(run=run_ratings)


def run_ratings(args: Namespace) -> int:
    """`n4n usage ratings`"""
    found = ask(args, "asking", lambda client: client.ratings())
    print_rows([rating_row(one) for one in found], COLUMNS, args.output, empty="nothing was priced anew")
    return 0


def rating_row(rating: UsageRating) -> dict[str, object]:
    """By column names; `kept`: attempts at the price they had."""
    return {
        "label": rating.label,
        "since": iso(rating.since_ms),
        "until": iso(rating.until_ms),
        "prices": rating.prices,
        "attempts": rating.rows,
        "kept": rating.kept,
        "unpriced": rating.unpriced,
        "before_usd": number(rating.before_usd),
        "cost_usd": number(rating.cost_usd),
        "created_at": iso(rating.created_at_ms),
        "author": rating.author,
    }
