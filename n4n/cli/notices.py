"""What `n4n up` says while it runs: words to a person at a terminal, and elsewhere lines of JSON, as every process does."""

from __future__ import annotations

import logging
import sys

from n4n.cli.output import note
from n4n.runtime.logs import fields, log_as_json

log = logging.getLogger("n4n.up")


def begin(level: str) -> None:
    """From now on. StartFailed: there is no such level."""
    if not sys.stderr.isatty():
        log_as_json("up", level)


def notice(line: str, code: str, *, level: int = logging.WARNING) -> None:
    """One line; `code` says in a word what happened."""
    if sys.stderr.isatty():
        note(f"n4n: {line}")
    else:
        log.log(level, "%s", line, extra=fields(code=code))
