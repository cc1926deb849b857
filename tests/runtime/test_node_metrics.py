"""What a node tells of its workers while one of them is just starting, or died of it."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from n4n.runtime.exemplars import Exemplars, openmetrics
from n4n.runtime.telemetry import exposition, metrics_here
from tests.support.router import instruments_of_tests


def test_a_worker_s_file_that_is_still_empty_is_passed_over() -> None:
    instruments_of_tests().overhead.take([0.001], 0.001)
    empty = metrics_here() / "counter_17.db"
    empty.write_bytes(b"")
    try:
        assert b"n4n_overhead_seconds_count" in exposition()
        assert b"n4n_overhead_seconds_count" in openmetrics()
    finally:
        empty.unlink()


def test_want_of_room_costs_exemplars_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noted = Exemplars(tmp_path / "exemplars-1")
    noted.note(instruments_of_tests().overhead, (), 0.001, (1, 2), 3.0)
    with monkeypatch.context() as full:

        def write_bytes(*_: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        full.setattr(Path, "write_bytes", write_bytes)
        noted.tell()
    noted.note(instruments_of_tests().overhead, (), 0.1, (1, 2), 3.0)
    noted.tell()
    assert (tmp_path / "exemplars-1").read_bytes().count(b"n4n_overhead_seconds_bucket") == 2
