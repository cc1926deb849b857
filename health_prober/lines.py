"""A prober's log: one JSON object in one line for each thing that happened, on standard error."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

_FIELDS = "n4n"  # of a log record: what belongs to it beside its text


class JsonLines(logging.Formatter):
    """`timestamp`, `level`, `logger`, `message`, then the fields that were given."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        told: dict[str, object] = {
            "timestamp": at,
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        told |= getattr(record, _FIELDS, {})
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return json.dumps(told, ensure_ascii=False, default=str)


def fields(**given: object) -> dict[str, dict[str, object]]:
    """For `extra=` of a log call."""
    return {_FIELDS: given}


def begin_log() -> None:
    """All of this process's log in these lines."""
    to = logging.StreamHandler(sys.stderr)
    to.setFormatter(JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[to])
