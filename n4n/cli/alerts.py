"""`n4n alerts`: what is wrong now, as the control plane sees it."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from n4n.cli.calls import ask
from n4n.cli.instance import offer_instance
from n4n.cli.output import iso, offer_json, print_rows
from n4n.cli.parser import Commands, example

if TYPE_CHECKING:
    from n4n.runtime.operations_calls import AlertInfo

COLUMNS = {"state": "STATE", "severity": "SEVERITY", "alert": "ALERT", "since": "SINCE (UTC)", "summary": "WHAT"}


def add(commands: Commands) -> None:
    """Adds the command."""
    more = "What is pending becomes firing if it lasts. docs/operations.md has a paragraph for each alert."
    parser = commands.add("alerts", about="what is wrong now", more=more, epilog=example("n4n alerts -o json"))
    offer_json(parser)
    offer_instance(parser)
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    """`n4n alerts`"""
    found = ask(args, "asking what is wrong", lambda client: client.alerts())
    print_rows([alert_row(one) for one in found], COLUMNS, args.output, empty="nothing is wrong")
    return 0


def alert_row(one: AlertInfo) -> dict[str, object]:
    """An alert by its column names."""
    return {
        "state": "firing" if one.firing else "pending",
        "severity": one.severity,
        "alert": one.name,
        "labels": dict(one.labels),
        "value": one.value,
        "since": iso(one.since_ms),
        "summary": one.summary,
    }
