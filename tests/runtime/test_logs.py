"""What a process says of itself is one JSON object per line."""

from __future__ import annotations

import json
import logging
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace.export import SpanExportResult

from n4n.core.errors import StartFailed
from n4n.runtime.logs import HIDDEN, JsonLines, fields, log_as_json


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The root logger, as it was, afterwards."""
    logger = logging.getLogger()
    handlers, level = logger.handlers[:], logger.level
    hooks = sys.excepthook, threading.excepthook, sys.unraisablehook
    yield logger
    logger.handlers[:], logger.level = handlers, level
    sys.excepthook, threading.excepthook, sys.unraisablehook = hooks
    logging.captureWarnings(False)


def test_a_message_is_one_line_with_its_level_and_role(root: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    log_as_json("control-plane", "info")
    logging.getLogger("n4n.x").warning("two\nlines of %s", "ünï")
    logging.getLogger("n4n.x").debug("too fine")
    (line,) = capsys.readouterr().err.splitlines()
    told = json.loads(line)
    assert told.pop("timestamp").endswith("Z")
    assert told == {
        "level": "warning", "role": "control-plane", "logger": "n4n.x", "message": "two\nlines of ünï", "code": "two_lines_of",
    }  # fmt: skip


def test_an_exception_stays_on_its_line() -> None:
    try:
        raise ValueError("a\nb")
    except ValueError as error:
        record = logging.LogRecord("n4n", logging.ERROR, "f.py", 1, "it broke", None, (ValueError, error, error.__traceback__))
    line = JsonLines("data-plane").format(record)
    assert "\n" not in line
    told = json.loads(line)
    assert told["exception"].endswith('raise ValueError("a\\nb")\nValueError: ' + HIDDEN)
    assert (told["code"], "test_an_exception_stays" in told["exception"]) == ("internal_error", True)


def test_a_level_that_is_none_stops_the_start(root: logging.Logger) -> None:
    with pytest.raises(StartFailed, match=r"N4N_LOG_LEVEL is 'warn'"):
        log_as_json("data-plane", "warn")


def line_of(message: str, *given: object, **more: object) -> dict[str, object]:
    record = logging.LogRecord("n4n.x", logging.ERROR, "f.py", 1, message, given, None)
    record.__dict__ |= fields(**more)
    told = json.loads(JsonLines("data-plane").format(record))
    assert isinstance(told, dict)
    return told


def test_a_code_is_the_same_whatever_is_put_into_the_message() -> None:
    codes = {str(line_of("control link to %s: %s", target, why)["code"]) for target, why in (("a:1", "gone"), ("b:2", "too late"))}
    assert codes == {"control_link_to"}
    assert line_of("%s", "anything at all")["code"] == "n4n_x"
    assert line_of("%s: %d%%", "x", 5, code="disk_full")["code"] == "disk_full"
    assert line_of("whatever", event="finding")["code"] == "finding"


def test_what_an_exception_may_quote_is_not_shown_and_what_it_says_of_the_system_is() -> None:
    def caught(error: BaseException) -> str:
        try:
            try:
                {}["my prompt"]
            except KeyError as missing:
                raise error from missing
        except (Exception, ExceptionGroup) as raised:  # noqa: BLE001
            record = logging.LogRecord("n4n", logging.ERROR, "f.py", 1, "it broke", None, (type(raised), raised, raised.__traceback__))
        return str(json.loads(JsonLines("x").format(record))["exception"])

    for quoting in (ValueError("my prompt"), RuntimeError("my prompt"), Exception("my prompt"), json.JSONDecodeError("x", "my prompt", 1)):
        assert "'my prompt'" not in caught(quoting).replace('{}["my prompt"]', "")
        assert caught(quoting).count(HIDDEN) == 2
    assert caught(FileNotFoundError(2, "No such file", "/a/b")).endswith("FileNotFoundError: [Errno 2] No such file: '/a/b'")
    group = caught(ExceptionGroup("two of them", [OSError(5, "disk"), ValueError("my prompt")]))
    assert "OSError: [Errno 5] disk" in group
    assert "my prompt'" not in group.replace('{}["my prompt"]', "")


def test_what_nobody_caught_and_what_python_warns_of_are_lines_too(tmp_path: Path) -> None:
    program = (
        "import threading, warnings, gc; from n4n.runtime.logs import log_as_json; log_as_json('prober', 'debug');"
        "warnings.warn('old'); t = threading.Thread(target=lambda: 1 / 0); t.start(); t.join()\n"
        "class Bad:\n    def __del__(self): raise OSError('late')\n"
        "Bad(); gc.collect()\nraise TypeError('at last')"
    )
    done = subprocess.run([sys.executable, "-W", "always", "-c", program], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    told = [json.loads(line) for line in done.stderr.splitlines()]
    assert (done.returncode, [(line["level"], line["code"]) for line in told]) == (
        1,
        [
            ("warning", "python_warning"),
            ("error", "uncaught_exception"),
            ("error", "uncaught_exception"),
            ("critical", "uncaught_exception"),
        ],
    )
    assert [line["exception"].splitlines()[-1] for line in told[1:]] == [
        "ZeroDivisionError: division by zero", "OSError: late", "TypeError: at last",
    ]  # fmt: skip


def test_the_address_of_a_receiver_which_may_hold_a_token_is_not_told(root: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}/a-token/v1/traces?key=another"
        log_as_json("data-plane", "info")
        exporter = OTLPSpanExporter(url, timeout=0.2)
        assert exporter.export([]) is SpanExportResult.FAILURE
    told = capsys.readouterr().err
    assert "export" in told
    assert "token" not in told
    assert "another" not in told
