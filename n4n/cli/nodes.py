"""`n4n nodes`: every router and prober, the version it has, how far behind it is, why it refused the last one, what probers found."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from n4n.cli.calls import ask
from n4n.cli.instance import offer_instance
from n4n.cli.output import iso, offer_json, print_rows, printable
from n4n.cli.parser import Commands, example

if TYPE_CHECKING:
    from n4n.runtime.control_client import Node

COLUMNS = {
    "node": "NODE", "role": "ROLE", "connected": "CONNECTED", "applied_version": "VERSION", "head_version": "HEAD",
    "lag_ms": "LAG MS", "last_ack": "LAST ACK (UTC)", "last_nack": "LAST NACK",
}  # fmt: skip


def add(commands: Commands) -> None:
    """Adds the command."""
    parser = commands.add("nodes", about="data planes and probers: version, lag, last NACK, findings", epilog=example("n4n nodes -o json"))
    offer_json(parser)
    offer_instance(parser)
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    """`n4n nodes`"""
    nodes = ask(args, "asking for the fleet", lambda client: client.nodes())
    print_rows([node_row(node) for node in nodes], COLUMNS, args.output, empty="no node has connected yet")
    if args.output == "table":
        for line in (f"{node.node}: {finding}" for node in nodes for finding in node.findings):
            print(printable(line))
    return 0


def node_row(node: Node) -> dict[str, object]:
    """A node by its column names."""
    return {
        "node": node.node,
        "role": node.role,
        "build": node.build,
        "connected": node.connected,
        "applied_version": node.applied_version,
        "head_version": node.head_version,
        "access_version": node.access_version,
        "access_head_version": node.access_head_version,
        "lag_ms": node.lag_ms,
        "last_nack": node.last_nack or None,
        "last_ack": iso(node.last_ack_ms),
        "last_seen": iso(node.last_seen_ms),
        "findings": list(node.findings),
    }
