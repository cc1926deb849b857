"""`n4n budget list`: what is spent of every budget, and when it begins anew."""

from __future__ import annotations

from argparse import Namespace

from n4n.cli import values
from n4n.cli.budget_rules import STANDING_COLUMNS, standing_row
from n4n.cli.calls import ask
from n4n.cli.instance import offer_instance
from n4n.cli.output import note, offer_json, print_rows
from n4n.cli.parser import Commands, example


def add(commands: Commands) -> None:
    """Adds the group."""
    group = commands.group("budget", about="what is spent of budgets", epilog=example("n4n budget list --tenant acme"))
    more = (
        "By the ledger, so a second behind routers, which keep hard budgets. Windows are UTC; a cap lowers a provider's weight from 80 %."
    )
    listing = group.add("list", about="every budget: spent, limit, when it resets", more=more, epilog=example("n4n budget list -o json"))
    listing.add_argument("--tenant", type=values.name, help="only this tenant's")
    listing.add_argument("--key", type=values.public_id, metavar="ID", help="only this key's and its tenant's")
    offer_json(listing)
    offer_instance(listing)
    listing.set_defaults(run=run_list)


def run_list(args: Namespace) -> int:
    """`n4n budget list`"""
    found = ask(args, "adding up", lambda client: client.budgets(args.tenant or "", args.key or ""))
    print_rows([standing_row(one) for one in found], STANDING_COLUMNS, args.output, empty="there are no budgets; see `n4n key create -h`")
    unpriced = sum(one.unpriced for one in found if not one.public_id and not one.provider) or sum(one.unpriced for one in found)
    if unpriced and args.output == "table":
        note(f"{unpriced} attempts had no price and cost nothing here; n4n usage tells of which models")
    return 0
