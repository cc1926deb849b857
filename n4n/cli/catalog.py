"""`n4n catalog …`: see, check, change and roll back the versioned catalog."""

from __future__ import annotations

import json
import os
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from n4n.catalogs import builtin_document
from n4n.cli import catalog_import, values
from n4n.cli.calls import ask, offer_author
from n4n.cli.documents import read_document, readable, to_json, to_yaml
from n4n.cli.instance import offer_instance
from n4n.cli.output import Refused, Row, iso, note, offer_json, print_json, print_rows, printable
from n4n.cli.parser import Commands, Parser, example
from n4n.core.document import parse_document
from n4n.core.faults import injected

if TYPE_CHECKING:
    from n4n.runtime.control_client import Applied, Change, Version

SHOWN_CHANGES = 10  # lines, above a shown version and after a first apply
LISTED_ADDITIONS = 2


def add(commands: Commands) -> None:
    """Adds the group."""
    group = commands.group("catalog", about="the catalog and its versions", epilog=example("n4n catalog diff -f catalog.yaml"))
    apply = group.add("apply", about="make a file the next version", epilog=example("n4n catalog apply -f catalog.yaml -m 'New price'"))
    _offer_file(apply)
    apply.add_argument("--dry-run", action="store_true", help="check and show the changes, make no version")
    apply.add_argument("--expect-version", type=values.expected_version, metavar="N", help="refuse if the newest version is another")
    _offer_change(apply, run_apply)
    diff = group.add("diff", about="what applying a file would change", epilog=example("n4n catalog diff -f catalog.yaml"))
    _offer_file(diff)
    _offer_reading(diff, run_diff)
    show = group.add("show", about="print a version, ready to be applied", epilog=example("n4n catalog show --version 3 > old.yaml"))
    show.add_argument("--version", type=values.version, metavar="N", help="which one (default: the newest)")
    show.add_argument("-o", "--output", choices=("yaml", "json"), default="yaml", help="the format (default yaml)")
    offer_instance(show)
    show.set_defaults(run=run_show)
    builtin = group.add(
        "builtin",
        about="print the catalog that `n4n up` brings for the provider keys in the environment",
        epilog=example("OPENAI_API_KEY=… n4n catalog builtin > catalog.yaml"),
    )
    builtin.add_argument("-o", "--output", choices=("yaml", "json"), default="yaml", help="the format (default yaml)")
    builtin.set_defaults(run=run_builtin)
    history = group.add("history", about="versions, newest first: author, time, message", epilog=example("n4n catalog history --limit 10"))
    history.add_argument("--limit", type=values.number, metavar="N", default=50, help="how many at most (default 50)")
    _offer_reading(history, run_history)
    rollback = group.add("rollback", about="make an old version's contents the next version", epilog=example("n4n catalog rollback 3"))
    rollback.add_argument("version", type=values.version, metavar="N", help="the version to go back to")
    _offer_change(rollback, run_rollback)
    validate = group.add("validate", about="check a file, without a running n4n", epilog=example("n4n catalog validate -f catalog.yaml"))
    _offer_file(validate)
    _offer_reading(validate, run_validate)
    catalog_import.add(group)


def _offer_file(parser: Parser) -> None:
    parser.add_argument("-f", "--file", metavar="FILE", required=True, help="YAML or JSON; - reads standard input")


def _offer_reading(parser: Parser, run: object) -> None:
    offer_json(parser)
    offer_instance(parser)
    parser.set_defaults(run=run)


def _offer_change(parser: Parser, run: object) -> None:
    parser.add_argument("-m", "--message", type=values.words, help="why, for the history")
    parser.add_argument("--allow-shrink", action="store_true", help="let more than half of the endpoints, or a model's last, go")
    offer_author(parser)
    _offer_reading(parser, run)


def run_apply(args: Namespace) -> int:
    """`n4n catalog apply`"""
    raw = read_document(args.file)
    text = to_json(raw)
    with _every_problem(raw):
        applied = ask(
            args,
            "applying the catalog",
            lambda client: client.apply(
                text,
                author=args.author,
                message=args.message or "",
                dry_run=args.dry_run,
                expect_version=args.expect_version,
                allow_shrink=args.allow_shrink,
            ),
        )
    for line in injected(parse_document(raw)[0]["endpoints"]):
        note(f"n4n: {line}")
    return show_applied(applied, args.output)


@contextmanager
def _every_problem(raw: object) -> Iterator[None]:
    """A refusal's metadata has room for some problems only; our own reading of the same document may know the rest."""
    try:
        yield
    except Refused as refused:
        problems = parse_document(raw)[1]
        if len(problems) > len(refused.lines) > 1:
            raise Refused(*map(str, problems)) from refused
        raise


def run_rollback(args: Namespace) -> int:
    """`n4n catalog rollback`"""
    applied = ask(
        args,
        "rolling back",
        lambda client: client.rollback(args.version, author=args.author, message=args.message or "", allow_shrink=args.allow_shrink),
    )
    return show_applied(applied, args.output)


def run_diff(args: Namespace) -> int:
    """`n4n catalog diff`"""
    raw = read_document(args.file)
    text = to_json(raw)
    with _every_problem(raw):
        difference = ask(args, "comparing", lambda client: client.diff(text))
    if args.output == "json":
        print_json([change_row(change) for change in difference.changes])
    elif difference.changes:
        print("\n".join(change_lines(difference.changes)))
    else:
        print(f"no difference to version {difference.head_version}")
    return 0


def run_show(args: Namespace) -> int:
    """`n4n catalog show`"""
    got = ask(args, "fetching the catalog", lambda client: client.get(args.version))
    document = cast(Mapping[str, object], json.loads(got.document_json))
    if args.output == "json":
        print_json(readable(document))
        return 0
    sys.stdout.write("\n".join([*_remarks(got.version, got.changes, got.endpoint_states), to_yaml(document)]))
    return 0


def _remarks(version: Version, changes: Iterable[Change], states: Mapping[str, str]) -> list[str]:
    """What is known about a version beside its contents, as YAML comments."""
    told = [f"# version {version.version} by {version.author} at {iso(version.committed_at_ms)}: {version.message or '(no message)'}"]
    told.append(f"# checksum {version.checksum}")
    told.extend(f"# endpoint {name} is {state}" for name, state in sorted(states.items()))
    told.extend(f"# {line}" for line in summary(changes))
    return told


def run_builtin(args: Namespace) -> int:
    """`n4n catalog builtin`"""
    document, notes = builtin_document(os.environ)
    for line in notes:
        note(f"n4n: {line}")
    if not document["endpoints"]:
        raise Refused("no provider key is set: set OPENAI_API_KEY or another one of the README's table")
    if args.output == "json":
        print_json(readable(document))
    else:
        sys.stdout.write(to_yaml(document))
    return 0


def run_history(args: Namespace) -> int:
    """`n4n catalog history`"""
    versions = ask(args, "fetching the history", lambda client: client.history(limit=args.limit))
    columns = {"version": "VERSION", "committed_at": "TIME (UTC)", "author": "AUTHOR", "changes": "CHANGES", "message": "MESSAGE"}
    print_rows([version_row(version) for version in versions], columns, args.output, empty="no version has been applied yet")
    return 0


def run_validate(args: Namespace) -> int:
    """`n4n catalog validate`"""
    document, problems = parse_document(read_document(args.file))
    if args.output == "json":
        print_json([{"field": problem.field, "message": problem.message} for problem in problems])
        return 1 if problems else 0
    if problems:
        raise Refused(*map(str, problems))
    print(f"valid: {', '.join(f'{len(tables)} {kind}' for kind, tables in document.items())}")
    for line in injected(document["endpoints"]):
        print(line)
    return 0


def show_applied(applied: Applied, output: str) -> int:
    """The new version and its changes."""
    if output == "json":
        changes = [change_row(change) for change in applied.changes]
        print_json({**version_row(applied.version), "unchanged": applied.unchanged, "dry_run": applied.dry_run, "changes": changes})
        return 0
    count = f"{len(applied.changes)} change{'' if len(applied.changes) == 1 else 's'}"
    lines = summary(applied.changes) if applied.version.version == 1 else change_lines(applied.changes)
    if applied.unchanged:
        print(f"nothing to change: version {applied.version.version} is in force")
    elif applied.dry_run:
        print("\n".join([f"would make version {applied.version.version}, {count}:", *lines]))
    else:
        print("\n".join([f"version {applied.version.version} is in force, {count}:", *lines]))
    return 0


def version_row(version: Version) -> dict[str, object]:
    """A version by its column names."""
    return {
        "version": version.version,
        "author": version.author,
        "committed_at": iso(version.committed_at_ms),
        "message": version.message,
        "checksum": version.checksum,
        "endpoints": version.endpoints,
        "changes": version.changes,
    }


def change_row(change: Change) -> Row:
    """A change as values; null: was or is absent."""
    return {"path": change.path, "before": _value(change.before), "after": _value(change.after)}


def _value(text: str) -> object:
    return json.loads(text) if text else None


def change_lines(changes: Iterable[Change]) -> list[str]:
    """`path: before → after`, one line each."""
    return [printable(f"{change.path}: {_shown(change.before)} → {_shown(change.after)}") for change in changes]


def summary(changes: Iterable[Change]) -> list[str]:
    """At most SHOWN_CHANGES lines: what is new in a section is counted where there is much of it."""
    told = list(changes)
    new = Counter(_section(change) for change in told if not change.before)
    counted = {section for section, number in new.items() if number > LISTED_ADDITIONS}
    lines = [f"{section}: {new[section]} additions" for section in sorted(counted)]
    lines += change_lines(change for change in told if change.before or _section(change) not in counted)
    if len(lines) <= SHOWN_CHANGES:
        return lines
    return [*lines[: SHOWN_CHANGES - 1], f"… and {len(lines) - SHOWN_CHANGES + 1} more changes"]


def _section(change: Change) -> str:
    return change.path.split(".")[0]


def _shown(text: str) -> str:
    value = _value(text)
    return "absent" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
