"""What a process says of itself is one JSON object per line."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from n4n.core.errors import StartFailed
from n4n.runtime.logs import JsonLines, log_as_json


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The root logger, as it was, afterwards."""
    logger = logging.getLogger()
    handlers, level = logger.handlers[:], logger.level
    yield logger
    logger.handlers[:], logger.level = handlers, level


def test_a_message_is_one_line_with_its_level_and_role(root: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    log_as_json("control-plane", "info")
    logging.getLogger("n4n.x").warning("two\nlines of %s", "ünï")
    logging.getLogger("n4n.x").debug("too fine")
    (line,) = capsys.readouterr().err.splitlines()
    told = json.loads(line)
    assert told.pop("timestamp").endswith("Z")
    assert told == {"level": "warning", "role": "control-plane", "logger": "n4n.x", "message": "two\nlines of ünï"}


def test_an_exception_stays_on_its_line() -> None:
    try:
        raise ValueError("a\nb")
    except ValueError as error:
        record = logging.LogRecord("n4n", logging.ERROR, "f.py", 1, "it broke", None, (ValueError, error, error.__traceback__))
    line = JsonLines("data-plane").format(record)
    assert "\n" not in line
    assert json.loads(line)["exception"].endswith("ValueError: a\nb")


def test_a_level_that_is_none_stops_the_start(root: logging.Logger) -> None:
    with pytest.raises(StartFailed, match=r"N4N_LOG_LEVEL is 'warn'"):
        log_as_json("data-plane", "warn")
