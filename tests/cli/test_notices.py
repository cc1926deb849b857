"""What `n4n up` says while it runs, and how it tells what a program of its own said last."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from n4n.cli import notices
from n4n.cli.services import last_words
from tests.runtime.test_logs import root

__all__ = ["root"]


@pytest.mark.usefixtures("root")
def test_a_notice_is_a_line_of_json_where_nobody_sits_and_words_at_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    notices.begin("info")
    notices.notice("valkey ended by signal 9", "program_ended")
    told = json.loads(capsys.readouterr().err)
    assert (told["role"], told["level"], told["message"], told["code"]) == ("up", "warning", "valkey ended by signal 9", "program_ended")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    notices.notice("valkey ended by signal 9", "program_ended")
    assert capsys.readouterr().err == "n4n: valkey ended by signal 9\n"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("n4n: port 8080 is taken", "port 8080 is taken"),
        ("n4n prober: N4N_NODE_TOKEN is empty", "N4N_NODE_TOKEN is empty"),
        ('{"level": "error", "message": "it broke", "exception": "Traceback\\n  File\\nOSError: disk"}', "it broke: OSError: disk"),
        ('{"level": "info", "message": "serving"}', "serving"),
        ('{"odd": 1}', '{"odd": 1}'),
        ("[1]", "[1]"),
    ],
)
def test_the_last_words_of_a_program_are_words(tmp_path: Path, line: str, words: str) -> None:
    (tmp_path / "a.log").write_text(f"something before\n{line}\n\n")
    assert last_words(tmp_path / "a.log") == words
