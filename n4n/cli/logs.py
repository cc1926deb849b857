"""`n4n logs explain`: one request, put together from its log line, its rows in the ledger and its trace."""

from __future__ import annotations

import json
import sys
import time
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, cast

from n4n.cli import values
from n4n.cli.calls import ask
from n4n.cli.instance import offer_instance
from n4n.cli.output import Refused, offer_json, print_json
from n4n.cli.parser import Commands, example

if TYPE_CHECKING:
    from n4n.runtime.operations_calls import AttemptInfo

Facts = Mapping[str, object]
AROUND_MS = 15 * 60_000  # before and after what the log line says: an attempt may take ten minutes


def add(commands: Commands) -> None:
    """Adds the command."""
    group = commands.group("logs", about="request logs", epilog=example("n4n logs explain req_01… router.log"))
    more = (
        "The request log is on the standard output of n4n up and of data planes; give the files it was written to, or - for standard "
        "input. Without them the ledger alone is asked, over the span that --since tells."
    )
    lines = ("n4n logs explain req_5vRk2 router.log", "kubectl logs router-1 | n4n logs explain req_5vRk2 -")
    parser = group.add("explain", about="what became of one request", more=more, epilog=example(*lines))
    parser.add_argument("request_id", type=values.words, metavar="REQUEST_ID", help="x-request-id of the answer")
    parser.add_argument("files", nargs="*", metavar="FILE", help="request logs, - for standard input")
    parser.add_argument("--since", type=values.past, default="1h", metavar="WHEN", help="how far back if no line tells (default 1h)")
    offer_json(parser)
    offer_instance(parser)
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    """`n4n logs explain`"""
    with ExitStack() as opened:
        line = found(args.request_id, (read for name in args.files for read in _lines(name, opened)))
    since, until = args.since, None
    if line is not None:
        at = round(datetime.fromisoformat(str(line["timestamp"])).timestamp() * 1000)
        since, until = at - AROUND_MS, at + AROUND_MS
    rows = ask(args, "asking the ledger", lambda client: client.attempts(args.request_id, since, until))
    if line is None and not rows:
        where = "in these logs and " if args.files else ""
        raise Refused(f"{args.request_id}: nothing is known of it {where}in the ledger since {_utc(since)}; look further back with --since")
    if args.output == "json":
        print_json({"request_id": args.request_id, "log": line, "attempts": [_facts(row) for row in rows]})
    else:
        print("\n".join(story(args.request_id, line, rows)))
    return 0


def found(request_id: str, lines: Iterable[str]) -> Facts | None:
    """The request's line; None: there is none. Lines that are no JSON are passed over."""
    for line in lines:
        if request_id not in line:
            continue
        try:
            told = json.loads(line)
        except ValueError:
            continue
        if isinstance(told, dict) and told.get("request_id") == request_id and "routing" in told:
            return cast(Facts, told)
    return None


def story(request_id: str, line: Facts | None, rows: Sequence[AttemptInfo]) -> list[str]:
    """The request in words, a line for each thing that happened."""
    told = list(_of_the_line(request_id, line)) if line is not None else [f"{request_id}: its log line was not found; what the ledger has:"]
    attempts = cast(Sequence[Facts], cast(Facts, line["routing"])["attempts"]) if line is not None else ()
    by_id = {row.attempt_id: row for row in rows}
    for number, attempt in enumerate(attempts, 1):
        message = f": {attempt['message']}" if attempt.get("message") else ""
        told.append(f"  {number}. {attempt['endpoint']} {attempt['outcome']} after {attempt['ms']} ms{message}")
        row = by_id.pop(str(attempt.get("attempt_id")), None)
        told.append(f"     ledger: {_of_the_row(row)}" if row is not None else "     ledger: no row yet")
    told += [f"  {row.attempt_no}. {row.endpoint}, ledger: {_of_the_row(row)}" for row in by_id.values()]
    return told


def _of_the_line(request_id: str, line: Facts) -> Iterator[str]:
    routing = cast(Facts, line["routing"])
    error = f" ({line['error']})" if line.get("error") else ""
    yield f"{request_id}: {line['model']} for {line['tenant']} (key {line['key_id']}) at {line['timestamp']}"
    yield f"  answered {line['status']} {line['outcome']}{error} in {line['latency_ms']} ms, of which n4n took {line['overhead_ms']} ms"
    waits = [
        (name, line.get(field))
        for name, field in (("first token", "ttft_ms"), ("held by the guard", "hold_ms"), ("in the queue", "queue_ms"))
    ]
    known = [f"{name} {value} ms" for name, value in waits if value]
    if known:
        yield f"  {', '.join(known)}"
    directives = ", ".join(cast(Sequence[str], routing["directives_applied"])) or "none"
    yield (
        f"  catalog version {routing['catalog_version']}, {routing['candidates_considered']} candidates, directives: {directives}, "
        f"selected: {routing['selected'] or 'none'}"
    )
    if line.get("trace_id"):
        yield f"  trace {line['trace_id']}"
    for warning in cast(Sequence[str], line.get("warnings", ())):
        yield f"  warning: {warning}"


def _of_the_row(row: AttemptInfo) -> str:
    cost = f"{row.cost_usd} USD" if row.cost_usd is not None else "no price"
    why = f" ({row.error_class})" if row.error_class else ""
    count = " by our own count" if row.estimated else ""
    return f"{row.state}{why}, {row.prompt_tokens} tokens in, {row.completion_tokens} out{count}, {cost}, account {row.account}"


def _facts(row: AttemptInfo) -> dict[str, object]:
    return {name: getattr(row, name) for name in type(row).__slots__}


def _lines(name: str, opened: ExitStack) -> Iterable[str]:
    if name == "-":
        return sys.stdin
    try:
        return opened.enter_context(Path(name).open(encoding="utf-8", errors="replace"))
    except OSError as error:
        raise Refused(f"{name}: cannot be read ({(error.strerror or str(error)).lower()})") from error


def _utc(ms: int) -> str:
    return f"{time.strftime('%Y-%m-%d %H:%M', time.gmtime(ms / 1000))} UTC"
