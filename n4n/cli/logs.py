"""`n4n logs explain`: one request, put together from its log line, its rows in the ledger and its trace."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, cast

from n4n.cli import values
from n4n.cli.calls import ask
from n4n.cli.instance import offer_instance
from n4n.cli.output import Refused, note, offer_json, print_json
from n4n.cli.parser import Commands, example
from n4n.cli.request_log import Facts, Found, about, lines_of

if TYPE_CHECKING:
    from n4n.runtime.operations_calls import AttemptInfo

AROUND_MS = 15 * 60_000  # before and after what the log line says: an attempt may take ten minutes


def add(commands: Commands) -> None:
    """Adds the command."""
    group = commands.group("logs", about="request logs", epilog=example("n4n logs explain req_01… router.log"))
    more = (
        "The request log is on the standard output of n4n up and of data planes; give the files it was written to, plain or gzip, as many "
        "as there are, or - for standard input; what is on standard error may be among them. Without them the ledger alone is asked, over "
        "the span that --since tells."
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
    found = about(args.request_id, lines_of(args.files))
    since, until = args.since, None
    if found.lines:
        times = [round(datetime.fromisoformat(str(line["timestamp"])).timestamp() * 1000) for line in found.lines]
        since, until = min(times) - AROUND_MS, max(times) + AROUND_MS
    problem = ""
    try:
        rows = ask(args, "asking the ledger", lambda client: client.attempts(args.request_id, since, until))
    except Refused as refused:
        if not found.lines:
            raise
        problem, rows = "; ".join(refused.lines), ()
        note(f"n4n: the ledger could not be asked, so this is what the log says: {problem}")
    if not found.lines and not rows:
        raise Refused(_nothing(args, found, since))
    if args.output == "json":
        told = {"request_id": args.request_id, "log": found.lines[-1] if found.lines else None, "earlier": found.lines[:-1]}
        print_json({**told, "said": found.said, "attempts": [_facts(row) for row in rows], "ledger_problem": problem or None})
    else:
        print("\n".join(map(_printable, story(args.request_id, found, rows, asked=not problem))))
    return 0


def _nothing(args: Namespace, found: Found, since: int) -> str:
    """Why there is nothing, and where to look."""
    where = f"in the ledger since {_utc(since)}"
    if found.seen:
        where = f"among {found.seen} requests of these logs ({found.span}) and {where}"
    elif args.files:
        return f"{args.request_id}: no request log is in {', '.join(args.files)}; it is the standard output of data planes and n4n up"
    elsewhere = "give other log files" if args.files else "a request that was refused is in the request log alone: give its files"
    return f"{args.request_id}: nothing is known of it {where}; look further back with --since, or {elsewhere}"


def story(request_id: str, found: Found, rows: Sequence[AttemptInfo], *, asked: bool = True) -> list[str]:
    """The request in words, a line for each thing that happened; several where its label was used again. `asked`: the ledger was."""
    told: list[str] = [] if found.lines else [f"{request_id}: its log line was not found; what the ledger has:"]
    by_id = {row.attempt_id: row for row in rows}
    for line in found.lines:
        told += _of_the_line(request_id, line)
        for number, attempt in enumerate(cast(Sequence[Facts], cast(Facts, line["routing"])["attempts"]), 1):
            message = f": {attempt['message']}" if attempt.get("message") else ""
            injected = f" (injected by the catalog: {attempt['injected']})" if attempt.get("injected") else ""
            told.append(f"  {number}. {attempt['endpoint']} {attempt['outcome']} after {attempt['ms']} ms{message}{injected}")
            row = by_id.pop(str(attempt.get("attempt_id")), None)
            if row is not None or asked:
                told.append(f"     ledger: {_of_the_row(row)}" if row is not None else "     ledger: no row yet")
    if found.lines and by_id:
        told.append("  in the ledger alone, under the same id:")
    told += [f"  {row.attempt_no}. {row.endpoint}, ledger: {_of_the_row(row)}" for row in by_id.values()]
    for said in found.said:
        why = str(said.get("exception", "")).strip().splitlines()
        told.append(f"  {said.get('role')} said ({said.get('level')}): {said.get('message')}{f': {why[-1]}' if why else ''}")
    return told


def _printable(line: str) -> str:
    """Without control characters: a label and a model are what a client wrote."""
    return "".join(c if c.isprintable() else " " for c in line)


def _of_the_line(request_id: str, line: Facts) -> Iterator[str]:
    routing = cast(Facts, line["routing"])
    error = f" ({line['error']})" if line.get("error") else ""
    whose = f"for {line['tenant']} (key {line['key_id']})" if line.get("tenant") else "for nobody we know"
    yield f"{request_id}: {line['model'] or 'no model'} {whose} at {line['timestamp']}"
    yield f"  answered {line['status']} {line['outcome']}{error} in {line['latency_ms']} ms, of which n4n took {line['overhead_ms']} ms"
    if line.get("idempotent_replay"):
        yield "  with the answer of an earlier request under the same idempotency-key: nobody was asked"
    waits = [
        (name, line.get(field))
        for name, field in (("first token", "ttft_ms"), ("held by the guard", "hold_ms"), ("in the queue", "queue_ms"))
    ]
    known = [f"{name} {value} ms" for name, value in waits if value]
    if known:
        yield f"  {', '.join(known)}"
    directives = ", ".join(cast(Sequence[str], routing["directives_applied"])) or "none"
    if routing["catalog_version"] is not None:
        yield (
            f"  catalog version {routing['catalog_version']}, {routing['candidates_considered']} candidates, directives: {directives}, "
            f"selected: {routing['selected'] or 'none'}"
        )
    eliminated = cast(Mapping[str, int], line.get("eliminated") or {})
    if eliminated:
        yield f"  ruled out: {', '.join(f'{count} by {reason}' for reason, count in eliminated.items())}"
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


def _utc(ms: int) -> str:
    return f"{time.strftime('%Y-%m-%d %H:%M', time.gmtime(ms / 1000))} UTC"
