"""`n4n status`: the URLs of this n4n, the newest versions, the stores, and every node."""

from __future__ import annotations

from argparse import Namespace

from n4n.cli.calls import ask
from n4n.cli.instance import Instance, locate, offer_instance
from n4n.cli.nodes import COLUMNS, node_row
from n4n.cli.output import offer_json, print_fields, print_json, print_rows
from n4n.cli.parser import Commands, example

TOLD = ("base_url", "metrics_urls", "pid")


def add(commands: Commands) -> None:
    """Adds the command."""
    parser = commands.add("status", about="URLs, versions per node, store health", epilog=example("n4n status --json"))
    offer_json(parser)
    parser.add_argument("--json", action="store_const", const="json", dest="output", help="the same as -o json")
    offer_instance(parser)
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    """`n4n status`; exit status 1 when a store is not well."""
    told = ask(args, "asking for the status", lambda client: client.status())
    head: dict[str, object] = {
        **_urls(locate(args.data_dir)),
        "version": told.build,
        "catalog_version": told.catalog_version,
        "access_version": told.access_version,
        "database": told.database,
        "redis": told.redis,
    }
    rows = [node_row(node) for node in told.nodes]
    if args.output == "json":
        print_json({**head, "nodes": rows})
    else:
        print_fields(head, "table")
        print()
        print_rows(rows, COLUMNS, "table", empty="no node has connected yet")
    return 0


def _urls(instance: Instance) -> dict[str, object]:
    told = {name: instance.told[name] for name in TOLD if name in instance.told}
    return {**told, "admin_url": instance.admin_url}
