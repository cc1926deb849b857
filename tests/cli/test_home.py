"""What `n4n up` keeps in its data directory, and how another command finds it there."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from n4n.cli.home import FORMAT, Home, Secrets
from n4n.cli.instance import locate
from n4n.cli.output import Refused
from n4n.core.errors import StartFailed

RUNTIME = {"admin_url": "127.0.0.1:9400", "admin_token": "t", "base_url": "http://127.0.0.1:8080/v1", "api_key": "k", "pid": os.getpid()}
NOBODY = 2**22  # above every process id there can be


def test_a_fresh_directory_is_marked_with_our_format(tmp_path: Path) -> None:
    Home(tmp_path).check_format()

    assert (tmp_path / "format").read_text() == f"{FORMAT}\n"
    Home(tmp_path).check_format()


@pytest.mark.parametrize("text", ["2", "99\n", "one", "", "-1", "²"])
def test_a_format_that_we_do_not_know_stops_the_start(tmp_path: Path, text: str) -> None:
    (tmp_path / "format").write_text(text)

    with pytest.raises(StartFailed, match="--data-dir"):
        Home(tmp_path).check_format()


def test_secrets_are_made_once_for_their_owner_only(tmp_path: Path) -> None:
    made = Home(tmp_path).secrets()

    assert Home(tmp_path).secrets() == made
    assert len({made.admin_token, made.node_token}) == 2
    assert stat.S_IMODE((tmp_path / "secrets.json").stat().st_mode) == 0o600
    assert repr(made) == "Secrets(…)"
    Home(tmp_path).keep_secrets(Secrets(made.admin_token, made.node_token, "sk-n4n-1"))
    assert Home(tmp_path).secrets().api_key == "sk-n4n-1"


def test_a_damaged_file_is_one_line_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "secrets.json").write_text("{")

    with pytest.raises(StartFailed, match=r"secrets\.json is damaged: remove it"):
        Home(tmp_path).secrets()


def test_an_end_without_a_word_leaves_a_trace_and_no_old_news(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert home.begin() is False
    home.announce(RUNTIME)

    assert home.begin() is True
    assert not (tmp_path / "runtime.json").exists()
    home.end()
    assert home.begin() is False


def test_a_running_instance_is_found_by_its_data_directory(tmp_path: Path) -> None:
    Home(tmp_path).announce(RUNTIME)

    for found in (locate(str(tmp_path), {}), locate(None, {"N4N_DATA_DIR": str(tmp_path), "N4N_ADMIN_URL": "elsewhere:1"})):
        assert (found.admin_url, found.admin_token, found.api_key) == ("127.0.0.1:9400", "t", "k")


def test_the_folder_here_comes_before_the_address_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert locate(None, {"N4N_ADMIN_URL": "elsewhere:1", "N4N_ADMIN_TOKEN": "x"}).admin_url == "elsewhere:1"

    (tmp_path / ".n4n").mkdir()
    Home(tmp_path / ".n4n").announce(RUNTIME)

    assert locate(None, {"N4N_ADMIN_URL": "127.0.0.1:9400"}).admin_url == "127.0.0.1:9400"
    assert capsys.readouterr().err == ""
    for _ in range(2):  # some commands look twice
        assert locate(None, {"N4N_ADMIN_URL": "elsewhere:1"}).admin_url == "127.0.0.1:9400"
    (line,) = capsys.readouterr().err.splitlines()
    assert f"asking the n4n up of {tmp_path / '.n4n'}, not N4N_ADMIN_URL" in line


def test_what_a_dead_process_left_behind_is_not_believed(tmp_path: Path) -> None:
    Home(tmp_path).announce({**RUNTIME, "pid": NOBODY})

    with pytest.raises(Refused, match=r"no n4n is running on .*: start it with `n4n up --data-dir "):
        locate(str(tmp_path), {"N4N_ADMIN_URL": "elsewhere:1"})


def test_a_damaged_runtime_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "runtime.json").write_text(json.dumps(RUNTIME)[:-5])

    with pytest.raises(Refused, match="cannot be read: start n4n again"):
        locate(str(tmp_path), {})
