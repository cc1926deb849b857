"""What a process says of itself: one JSON object per line on standard error, beside the request log, which is on standard output.

Everything that a process may say comes this way: our own loggers, libraries', warnings of Python's, and exceptions that nobody caught, in
whichever thread. grpc's C core writes lines of its own past Python: `n4n` silences it (n4n/cli), what fails there is raised too.

An exception is told by where it came from and what it is. Its words are left out where they may quote what was being worked on: a
KeyError's, a ValueError's and the like hold pieces of requests, answers and files.

Nobody waits for whoever reads this: what a pipe does not take within PATIENCE_S is lost, and how much was is said when it takes more.
"""

from __future__ import annotations

import json
import logging
import os
import re
import select
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from types import TracebackType
from typing import TextIO

from n4n.core.errors import GatewayError, StartFailed
from n4n.core.schema import nearest
from n4n.runtime.pipes import PIPE_BUF, has_room

_FIELDS = "n4n"  # of a log record: what belongs to it beside its words
_UNCAUGHT, _INTERNAL = "uncaught_exception", "internal_error"
_PLACE, _WORD = re.compile(r"%[-+#0]*\d*(?:\.\d+)?[a-z]"), re.compile(r"[A-Za-z]+")
_WORDS, _DEEPEST = 6, 8
_QUOTES_ADDRESSES, _ADDRESS = "opentelemetry.", re.compile(r"url: \S+")
QUOTING = (ValueError, LookupError, RuntimeError)  # whose words may be somebody's prompt or key
HIDDEN = "(its words are not shown: they may quote what was worked on)"
LEVELS = ("debug", "info", "warning", "error")
# Libraries that at `debug` tell the values they work on: statements with their parameters, headers, bodies, addresses of providers.
TALKATIVE = ("sqlalchemy", "psycopg", "psycopg.pool", "aiohttp", "hpack", "urllib3", "httpx", "httpcore", "botocore", "google.auth")
PATIENCE_S = 0.05  # once, for a reader that is busy; after that it is not waited for until it reads
LOST = "lines_lost"
log = logging.getLogger("n4n")


class JsonLines(logging.Formatter):
    """`{"timestamp", "level", "role", "logger", "message"}`, the `fields` that were given, and `exception` where one is told.

    From `warning` on `code` says in a word what happened: the given one, that of an error of ours, or the first words of the message before
    anything is put into it; so it is the same whenever the same happens. `trace_id` is there where the work it happened in is traced.
    """

    def __init__(self, role: str) -> None:
        super().__init__()
        self._role = role

    def format(self, record: logging.LogRecord) -> str:
        """One line, whatever is in the message."""
        told: dict[str, object] = {
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "role": self._role,
            "logger": record.name,
            "message": _without_address(record, record.getMessage()),
        }
        if (trace_id := _trace_id()) is not None:
            told["trace_id"] = trace_id
        given: Mapping[str, object] = getattr(record, _FIELDS, {})
        if record.levelno >= logging.WARNING:
            told["code"] = given.get("event") or _code(record)
        told |= given
        if record.exc_info and record.exc_info[1] is not None:
            told["exception"] = _without_address(record, "\n".join(_told(record.exc_info[1])))
        return json.dumps(told, ensure_ascii=False, default=str)


def _without_address(record: logging.LogRecord, told: str) -> str:
    """A receiver of traces may have its token in its address, and the library quotes the address."""
    return _ADDRESS.sub("url: …", told) if record.name.startswith(_QUOTES_ADDRESSES) else told


def _code(record: logging.LogRecord) -> str:
    error = record.exc_info[1] if record.exc_info else None
    if error is not None:
        return error.code if isinstance(error, GatewayError) else _INTERNAL
    if record.name == "py.warnings":
        return "python_warning"
    words = _WORD.findall(_PLACE.sub("", str(record.msg)).lower())
    return "_".join(words[:_WORDS]) or record.name.replace(".", "_")


def _trace_id() -> str | None:
    """Of the work under way. Only where somebody traces: a supervisor needs no event loop's modules."""
    if "n4n.runtime.spans" not in sys.modules:
        return None
    from n4n.runtime.spans import current_work

    work = current_work()
    return None if work is None else f"{work.trace_id:032x}"


def _told(error: BaseException, depth: int = 0) -> Iterator[str]:
    """What came before it, where it was raised, what it is, and the members of a group."""
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if before is not None and depth < _DEEPEST:
        yield from _told(before, depth + 1)
        yield "and then:"
    for frame in traceback.format_tb(error.__traceback__):
        yield frame.rstrip()
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    hidden = isinstance(error, QUOTING) or kind is Exception
    yield f"{name}: {HIDDEN}" if hidden and str(error) else f"{name}: {error}" if str(error) else name
    if isinstance(error, BaseExceptionGroup) and depth < _DEEPEST:
        for one in error.exceptions:
            yield from _told(one, depth + 1)


class _Patient:
    """A stream that takes whole lines or none, as far as its reader does. `told`: a line that says how many were lost."""

    def __init__(self, stream: TextIO, told: Callable[[int], str]) -> None:
        self._stream, self._told = stream, told
        self.lost, self._rest, self._patience_ms = 0, b"", round(PATIENCE_S * 1000)
        self._ready = select.poll()
        try:
            self._fd = stream.fileno()
            self._ready.register(self._fd, select.POLLOUT)
        except (OSError, ValueError):  # no file of the system's: nobody reads it who could stall
            self._fd = -1

    def write(self, text: str) -> None:
        """A line and its end."""
        if self._fd < 0:
            self._stream.write(text)
            return
        content = (self._told(self.lost) + text if self.lost else text).encode(errors="backslashreplace")
        if not (self._takes(content) and self._out(self._rest)):
            self.lost += 1
            return
        self.lost = 0
        self._out(content)

    def flush(self) -> None:
        """As the stream does it."""
        self._stream.flush()

    def _takes(self, content: bytes) -> bool:
        if not self._ready.poll(self._patience_ms):
            self._patience_ms = 0
            return False
        self._patience_ms = round(PATIENCE_S * 1000)
        return len(content) <= PIPE_BUF or has_room(self._fd, len(content))

    def _out(self, content: bytes) -> bool:
        """Whether all of it is; what is not, for want of disk, comes before the next line."""
        with suppress(OSError):
            while content:
                content = content[os.write(self._fd, content) :]
        self._rest = content
        return not content


class _Shown(logging.StreamHandler[_Patient]):
    def handleError(self, record: logging.LogRecord) -> None:
        """The call was wrong: the library would say so in lines that are no JSON."""
        self.stream.lost += 1


def _shown(role: str) -> logging.Handler:
    lines = JsonLines(role)

    def told(lost: int) -> str:
        words = "%d lines before this one are lost: their reader stalled, or the disk is full"
        record = logging.LogRecord("n4n", logging.WARNING, "", 0, words, (lost,), None)
        vars(record).update(fields(code=LOST))
        return f"{lines.format(record)}\n"

    shown = _Shown(_Patient(sys.stderr, told))
    shown.setFormatter(lines)
    return shown


def fields(**given: object) -> dict[str, dict[str, object]]:
    """For `extra=` of a log call: members of its line beside the message. `code` or `event` name what happened."""
    return {_FIELDS: given}


def log_as_json(role: str, level: str) -> None:
    """Everything that this process says, from now on. StartFailed: there is no such level."""
    if level not in LEVELS:
        raise StartFailed(f"N4N_LOG_LEVEL is {level[:40]!r}{nearest(level[:40], LEVELS)}; it is one of {', '.join(LEVELS)}")
    root = logging.getLogger()
    for before in root.handlers[:]:
        root.removeHandler(before)
    root.addHandler(_shown(role))
    root.setLevel(level.upper())
    for name in TALKATIVE:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.captureWarnings(True)
    sys.excepthook = _uncaught
    threading.excepthook = _uncaught_in_thread
    sys.unraisablehook = _unraisable


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
        return
    log.critical("an exception that nobody caught ends this process", exc_info=(kind, error, trace), extra=fields(code=_UNCAUGHT))


def _uncaught_in_thread(told: threading.ExceptHookArgs) -> None:
    if told.exc_value is not None and not isinstance(told.exc_value, SystemExit):
        info = (told.exc_type, told.exc_value, told.exc_traceback)
        log.error("an exception that nobody caught ended a thread", exc_info=info, extra=fields(code=_UNCAUGHT))


def _unraisable(told: sys.UnraisableHookArgs) -> None:
    if told.exc_value is not None:
        info = (told.exc_type, told.exc_value, told.exc_traceback)
        log.error("an exception where none can be raised: %s", told.err_msg or "", exc_info=info, extra=fields(code=_UNCAUGHT))
