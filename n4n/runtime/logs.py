"""What a process says of itself: one JSON object per line on standard error, beside the request log, which is on standard output."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

from n4n.core.errors import StartFailed
from n4n.core.schema import nearest

_FIELDS = "n4n"  # of a log record: what belongs to it beside its words
LEVELS = ("debug", "info", "warning", "error")


class JsonLines(logging.Formatter):
    """`{"timestamp", "level", "role", "logger", "message"}`, the `fields` that were given, and `exception` where one is told."""

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
            "message": record.getMessage(),
        }
        told |= getattr(record, _FIELDS, {})
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return json.dumps(told, ensure_ascii=False)


def fields(**given: object) -> dict[str, dict[str, object]]:
    """For `extra=` of a log call: members of its line beside the message."""
    return {_FIELDS: given}


def log_as_json(role: str, level: str) -> None:
    """Everything that this process logs, from now on. StartFailed: there is no such level."""
    if level not in LEVELS:
        raise StartFailed(f"N4N_LOG_LEVEL is {level[:40]!r}{nearest(level[:40], LEVELS)}; it is one of {', '.join(LEVELS)}")
    shown = logging.StreamHandler(sys.stderr)
    shown.setFormatter(JsonLines(role))
    root = logging.getLogger()
    for before in root.handlers[:]:
        root.removeHandler(before)
    root.addHandler(shown)
    root.setLevel(level.upper())
