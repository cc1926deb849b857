"""`n4n endpoint …`: the endpoints of the newest catalog, and taking single ones out of service."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Mapping
from typing import cast

from n4n.cli import values
from n4n.cli.calls import ask, offer_author
from n4n.cli.catalog import show_applied
from n4n.cli.instance import offer_instance
from n4n.cli.output import number, offer_json, print_rows
from n4n.cli.parser import Commands, example

STATE = {"drain": "draining", "enable": "active", "disable": "disabled"}
ABOUT = {
    "drain": "send an endpoint nothing new; what runs there may end",
    "enable": "put an endpoint back into service",
    "disable": "take an endpoint out of service, retries there included",
}
COLUMNS = {
    "endpoint": "ENDPOINT", "model": "MODEL", "provider": "PROVIDER", "accounts": "ACCOUNT", "region": "REGION",
    "input_per_1m": "USD/1M IN", "output_per_1m": "USD/1M OUT", "weight": "WEIGHT", "state": "STATE",
}  # fmt: skip
Table = Mapping[str, object]


def add(commands: Commands) -> None:
    """Adds the group."""
    group = commands.group("endpoint", about="endpoints and their state", epilog=example("n4n endpoint drain openai-gpt-4o"))
    listing = group.add("list", about="every endpoint: model, account, region, price, state", epilog=example("n4n endpoint list -o json"))
    offer_json(listing)
    offer_instance(listing)
    listing.set_defaults(run=run_list)
    for verb, about in ABOUT.items():
        more = "It is an override beside the document, and later applies keep it."
        parser = group.add(verb, about=about, more=more, epilog=example(f"n4n endpoint {verb} openai-gpt-4o"))
        parser.add_argument("name", type=values.name, metavar="NAME", help="the endpoint")
        parser.add_argument("-m", "--message", type=values.words, help="why, for the history")
        offer_author(parser)
        offer_json(parser)
        offer_instance(parser)
        parser.set_defaults(run=run_state, state=STATE[verb])


def run_list(args: Namespace) -> int:
    """`n4n endpoint list`"""
    got = ask(args, "fetching the catalog", lambda client: client.get(None))
    rows = endpoint_rows(json.loads(got.document_json), got.endpoint_states)
    print_rows(rows, COLUMNS, args.output, empty="the catalog has no endpoints")
    return 0


def endpoint_rows(document: Mapping[str, Mapping[str, Table]], states: Mapping[str, str]) -> list[dict[str, object]]:
    """One row per endpoint, in order of model and name."""
    accounts = document.get("accounts", {})
    rows = [_row(name, table, accounts, states.get(name, "active")) for name, table in document.get("endpoints", {}).items()]
    return sorted(rows, key=lambda row: (str(row["model"]), str(row["endpoint"])))


def _row(name: str, table: Table, accounts: Mapping[str, Table], state: str) -> dict[str, object]:
    pool = cast(list[str], table.get("accounts") or [table.get("account")])
    price = cast(Mapping[str, str], table.get("price", {}))
    return {
        "endpoint": name,
        "model": table.get("model"),
        "provider": accounts.get(pool[0], {}).get("provider"),
        "accounts": pool,
        "region": table.get("region"),
        "upstream_model": table.get("upstream_model", table.get("model")),
        "weight": table.get("weight", 1.0),
        "input_per_1m": number(price.get("input_per_1m")),
        "output_per_1m": number(price.get("output_per_1m")),
        "state": state,
    }


def run_state(args: Namespace) -> int:
    """`n4n endpoint drain|enable|disable`"""
    applied = ask(
        args,
        f"changing {args.name}",
        lambda client: client.set_endpoint_state(args.name, args.state, message=args.message or "", author=args.author),
    )
    return show_applied(applied, args.output)
