"""One data plane per data directory, and a node token or a certificate for each; every refusal is one line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from data_plane.own_folder import own_folder
from n4n.core.errors import StartFailed
from tests.support.house import bare_environ, free_port


def started(folder: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    """`n4n data-plane` to its end, which comes soon."""
    environ = {**bare_environ(), "N4N_ADMIN_URL": "127.0.0.1:9", "N4N_PORT": str(free_port()), "N4N_DATA_DIR": str(folder), **settings}
    return subprocess.run([sys.executable, "-m", "n4n", "data-plane"], env=environ, capture_output=True, text=True, timeout=20)


def test_a_data_directory_that_another_data_plane_uses_is_one_line(tmp_path: Path) -> None:
    with own_folder(tmp_path):
        done = started(tmp_path, N4N_NODE_TOKEN="a-node-token")

    assert done.returncode == 1
    assert done.stderr == f"n4n: {tmp_path} is in use by another data plane (pid {os.getpid()}): give this one its own with --data-dir\n"


def test_a_data_directory_is_free_again_when_its_data_plane_has_ended(tmp_path: Path) -> None:
    for _ in range(2):
        with own_folder(tmp_path / "new", 0), pytest.raises(StartFailed), own_folder(tmp_path / "new", 0):
            pass


def test_a_directory_that_cannot_be_written_is_told_and_does_not_keep_a_router_from_serving(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")

    with own_folder(tmp_path / "file"):
        pass

    assert "cannot be written" in caplog.text


def test_an_empty_node_token_is_one_line_that_names_it(tmp_path: Path) -> None:
    done = started(tmp_path)

    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("n4n: N4N_NODE_TOKEN is empty; ")
