"""`n4n audit`: who changed the catalog, an endpoint, a key or a tenant or priced usage anew, from where, and what it was before."""

from __future__ import annotations

import json
from argparse import Namespace
from contextlib import suppress
from typing import TYPE_CHECKING

from n4n.cli import values
from n4n.cli.calls import ask
from n4n.cli.instance import offer_instance
from n4n.cli.output import iso, note, offer_json, print_rows
from n4n.cli.parser import Commands, example
from n4n.cli.usage_rating import check_period

if TYPE_CHECKING:
    from n4n.runtime.control_client import AuditEntry

KINDS = ("catalog", "endpoint", "key", "tenant", "rating", "budget")
COLUMNS = {
    "at": "AT (UTC)", "author": "AUTHOR", "source": "FROM", "action": "ACTION", "kind": "KIND", "name": "NAME", "before": "BEFORE",
    "after": "AFTER",
}  # fmt: skip
_SHOWN = 60  # characters of a value in a table


def add(commands: Commands) -> None:
    """Adds the command."""
    more = "Newest first. Secrets are never in it. Entries cannot be altered or deleted."
    lines = ("n4n audit --since 30d --kind key", "n4n audit --name 2k3h5m7p9r1t -o json")
    parser = commands.add("audit", about="who changed what, when and from where", more=more, epilog=example(*lines))
    parser.add_argument("--since", type=values.past, default="7d", metavar="WHEN", help="7d, 12h, or a date (default 7d)")
    parser.add_argument("--until", type=values.past, metavar="WHEN", help="where it ends, written the same way (default now)")
    parser.add_argument("--author", default="", help="only changes of this author")
    parser.add_argument(
        "--kind", choices=KINDS, default="", help="only changes of this kind of thing; budget: of keys and tenants whose budgets changed"
    )
    parser.add_argument("--name", default="", help="only changes of this endpoint, key (its public id), tenant or rating")
    parser.add_argument("--limit", type=values.count, default=1000, metavar="N", help="at most so many, newest first (default 1000)")
    parser.add_argument("--before", type=values.count, default=0, metavar="ID", help="only entries older than this one, to read on")
    offer_json(parser)
    offer_instance(parser)
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    """`n4n audit`"""
    check_period(args)
    entries = ask(
        args,
        "reading the audit trail",
        lambda client: client.audit(
            args.since,
            until_ms=args.until,
            author=args.author,
            kind=args.kind,
            name=args.name,
            limit=args.limit,
            before_id=args.before,
        ),
    )
    rows = [audit_row(entry) for entry in entries]
    if args.output == "table":
        rows = [{**row, "before": _short(row["before"]), "after": _short(row["after"])} for row in rows]
    print_rows(rows, COLUMNS, args.output, empty="nothing was changed in that time")
    if len(entries) == args.limit:
        note(f"n4n: there may be older ones: --before {entries[-1].id}")
    return 0


def audit_row(entry: AuditEntry) -> dict[str, object]:
    """An entry by its column names."""
    return {
        "id": entry.id,
        "at": iso(entry.at_ms),
        "author": entry.author,
        "source": entry.source,
        "action": entry.action,
        "kind": entry.kind,
        "name": entry.name,
        "before": json.loads(entry.before_json) if entry.before_json else None,
        "after": json.loads(entry.after_json) if entry.after_json else None,
    }


def _short(facts: object) -> str:
    """`name: value, …`, as people read it; values of the catalog are JSON of their own."""
    if not isinstance(facts, dict):
        return "" if facts is None else _cut(_word(facts))
    return _cut(", ".join(f"{name}: {_word(value)}" for name, value in sorted(facts.items())))


def _word(value: object) -> str:
    with suppress(ValueError):
        value = json.loads(value) if isinstance(value, str) else value
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


def _cut(told: str) -> str:
    return told if len(told) <= _SHOWN else f"{told[:_SHOWN]}…"
