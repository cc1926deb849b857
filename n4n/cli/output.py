"""What the command prints: tables for people, JSON for programs, errors in one line each, and a word when something takes long."""

from __future__ import annotations

import json
import sys
import threading
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal

from n4n.core import schema

TELL_AFTER_S = 1.0
Row = Mapping[str, object]


class Refused(Exception):
    """The command could not do it; each line names a field and the remedy. Exit status 1."""

    status = 1

    def __init__(self, *lines: str) -> None:
        self.lines = lines
        super().__init__("; ".join(lines))


class WrongUsage(Refused):
    """Flags that are well formed one by one and not together. Exit status 2."""

    status = 2


def complain(*lines: str) -> None:
    """Each line on standard error, with the program's name, control characters taken out."""
    for line in lines:
        print(f"n4n: {printable(line)}", file=sys.stderr, flush=True)


def note(line: str) -> None:
    """A word to the person at the terminal, on standard error so that it never mixes with a result."""
    print(line, file=sys.stderr, flush=True)


@contextmanager
def progress(doing: str) -> Iterator[None]:
    """Says on a terminal what is being done if it takes longer than a second."""
    timer = threading.Timer(TELL_AFTER_S, note, [f"{doing} …"])
    timer.daemon = True
    if sys.stderr.isatty():
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def offer_json(parser: ArgumentParser) -> None:
    """Adds `-o table|json`."""
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table", help="table for people (default), json for programs")


def print_json(value: object) -> None:
    """Indented JSON on standard output; money as plain numbers, and what cannot be printed escaped."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    if not text.replace("\n", "").isprintable():
        text = "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)
    print(text)


def print_rows(rows: Sequence[Row], columns: Mapping[str, str], output: str, *, empty: str) -> None:
    """Rows as JSON (every field), or as a table of `columns`, which maps a field to its heading; `empty` is said where there are none."""
    if output == "json":
        print_json(list(rows))
    elif rows:
        print("\n".join(table([[cell(row.get(field)) for field in columns] for row in rows], list(columns.values()))))
    else:
        print(empty)


def print_fields(row: Row, output: str) -> None:
    """One thing, a field a line, or as JSON."""
    if output == "json":
        print_json(row)
        return
    width = max(map(len, row))
    print("\n".join(f"{field.ljust(width)}  {cell(value)}" for field, value in row.items()))


def table(rows: Sequence[Sequence[str]], headings: Sequence[str]) -> list[str]:
    """Left-aligned columns, two spaces apart."""
    widths = [max(len(row[i]) for row in (headings, *rows)) for i in range(len(headings))]
    return ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in (headings, *rows)]


def cell(value: object) -> str:
    """A value for a person's eye: nothing is a hyphen, yes and no are words, a list is comma separated, a time has no letter in it."""
    match value:
        case None | "" | [] | ():
            return "-"
        case bool():
            return "yes" if value else "no"
        case list() | tuple():
            return printable(", ".join(map(str, value)))
        case float():
            return schema.plain(Decimal(str(value)))
        case str() if _is_time(value):
            return printable(value[:19].replace("T", " "))
    return printable(str(value))


def printable(text: str) -> str:
    """What is in no way an order to a terminal: names may be anybody's."""
    return "".join(c if c.isprintable() else " " for c in text)


def _is_time(text: str) -> bool:
    return len(text) >= 20 and text[4] == "-" and text[10] == "T" and text.endswith("Z")


def iso(ms: int | None) -> str | None:
    """Unix milliseconds as ISO 8601 in UTC; None and 0 (never) as None."""
    if not ms:
        return None
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def number(text: str | None) -> int | float | None:
    """Decimal text as a plain JSON number."""
    if not text:
        return None
    amount = Decimal(text)
    return int(amount) if amount == int(amount) else float(amount)
