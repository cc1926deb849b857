"""`n4n usage reconcile`: the ledger beside a provider's own export."""

from __future__ import annotations

import csv
import json
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

from n4n.cli import values
from n4n.cli.calls import ask
from n4n.cli.instance import offer_instance
from n4n.cli.output import Refused, note, number, print_rows
from n4n.cli.parser import Commands, example
from n4n.core import schema
from n4n.core.provider_exports import NoExport, Stated, read_export
from n4n.core.reconcile import Difference, beyond, compared, totals

if TYPE_CHECKING:
    from n4n.runtime.control_client import ControlClient

LARGEST_BYTES = 256 << 20
COLUMNS = {
    "day": "DAY", "model": "MODEL", "measure": "MEASURE", "ours": "N4N", "theirs": "PROVIDER", "difference": "DIFFERENCE", "share": "%",
}  # fmt: skip
_Ours = tuple[list[Stated], int]


def add(commands: Commands) -> None:
    """Adds the command."""
    parser = commands.add(
        "reconcile",
        about="compare the ledger with a provider's own export, by day and model",
        more="Reads what OpenAI's and Anthropic's usage and cost APIs answer, OpenAI's CSV exports, and any CSV with day, model,"
        " input_tokens, output_tokens, cached_tokens or cost_usd. Exit status 1: they differ by more than the tolerance.",
        epilog=example(
            "n4n usage reconcile --provider openai completions_usage_2026-11-01_2026-11-30.csv",
            "n4n usage reconcile --provider anthropic usage.json costs.json --tolerance 0.5%",
        ),
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="the provider's export; - reads standard input")
    parser.add_argument("--provider", type=values.name, required=True, help="whose it is, by its name in the catalog")
    parser.add_argument("--tolerance", type=values.share, default="1%", metavar="SHARE", help="what may differ (default 1%%)")
    parser.add_argument("--label", type=values.name, help="at the costs of this rating (see n4n usage rerate)")
    parser.add_argument(
        "-o", "--output", choices=("table", "json", "csv"), default="table", help="table: what differs (default); json, csv: everything"
    )
    offer_instance(parser)
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    """`n4n usage reconcile`"""
    theirs = [one for path in args.files for one in _stated(path) if one.says_something]
    if not theirs:
        raise Refused("FILE: tells of no day and of nothing used there; give the export of a period in which something was used")
    ours, unsure = ask(args, "adding up", lambda client: _ours(client, args, theirs))
    if not ours:
        note(f"n4n: --provider: the ledger has nothing of {args.provider!r} in those days; see n4n usage --by provider")
    found = compared(ours, theirs)
    apart = beyond(found, args.tolerance)
    if args.output == "table":
        rows = [difference_row(one) for one in apart]
        print_rows(rows, COLUMNS, "table", empty=f"n4n and {args.provider} agree within {_percent(args.tolerance)} %")
        _tell(found, apart, unsure, args)
    elif args.output == "json":
        print_rows([difference_row(one) for one in found], COLUMNS, "json", empty="")
    else:
        out = csv.DictWriter(sys.stdout, tuple(COLUMNS), lineterminator="\n")
        out.writeheader()
        out.writerows([difference_row(one) | _exact(one) for one in found])
    return 1 if apart else 0


def _tell(found: Sequence[Difference], apart: Sequence[Difference], unsure: int, args: Namespace) -> None:
    note(f"{len(found) - len(apart)} of {len(found)} sums by day and model agree within {_percent(args.tolerance)} %")
    for one in totals(found):
        note(f"{one.measure} in all: {_plain(one.ours)} here, {_plain(one.theirs)} there, {_percent(one.share)} % apart")
    if unsure:
        note(f"{unsure} of our attempts are estimates: their providers told no usage, or the answer broke off")


def difference_row(one: Difference) -> dict[str, object]:
    """By column names; `share` in per cent of the larger."""
    return {
        "day": one.day.isoformat(),
        "model": one.model,
        "measure": one.measure,
        "ours": number(_plain(one.ours)),
        "theirs": number(_plain(one.theirs)),
        "difference": number(_plain(one.ours - one.theirs)) or 0,
        "share": float(_percent(one.share)),
    }


def _exact(one: Difference) -> dict[str, object]:
    return {"ours": _plain(one.ours), "theirs": _plain(one.theirs), "difference": _plain(one.ours - one.theirs)}


def _percent(share: Decimal) -> str:
    return _plain((share * 100).quantize(Decimal("0.01")))


def _plain(amount: Decimal) -> str:
    return schema.plain(amount)


def _stated(path: str) -> list[Stated]:
    try:
        content = sys.stdin.buffer.read(LARGEST_BYTES + 1) if path == "-" else Path(path).read_bytes()
        if len(content) > LARGEST_BYTES:
            raise Refused(f"FILE {path}: is larger than {LARGEST_BYTES >> 20} MiB; export a shorter period")
        return read_export(content.decode("utf-8-sig"))
    except OSError as error:
        raise Refused(f"FILE {path}: {(error.strerror or str(error)).lower()}; give the path of an export") from error
    except UnicodeDecodeError as error:
        raise Refused(f"FILE {path}: is not UTF-8 text (byte {error.start})") from error
    except NoExport as error:
        raise Refused(f"FILE {path}: {error}") from error


async def _ours(client: ControlClient, args: Namespace, theirs: Sequence[Stated]) -> _Ours:
    """What the ledger says of those days, by the names that the provider knows its models by."""
    first, last = min(one.day for one in theirs), max(one.day for one in theirs)
    only = {"provider": args.provider}
    rows = await client.usage("day,endpoint,model", _ms(first), _ms(last + timedelta(days=1)), label=args.label or "", only=only)
    endpoints = json.loads((await client.get()).document_json).get("endpoints", {})
    found = []
    for row in rows:
        day, endpoint, model = row.groups
        found.append(
            Stated(
                date.fromisoformat(day),
                _upstream_name(endpoints.get(endpoint), model),
                Decimal(row.attempts),
                Decimal(row.prompt_tokens),
                Decimal(row.cached_tokens),
                Decimal(row.completion_tokens),
                Decimal(row.cost_usd or 0),
            )
        )
    return found, sum(row.estimated for row in rows)


def _upstream_name(endpoint: Mapping[str, object] | None, model: str) -> str:
    return str((endpoint or {}).get("upstream_model", model))


def _ms(day: date) -> int:
    return round(datetime.combine(day, time(), UTC).timestamp() * 1000)
