"""Metrics lie in memory, whatever becomes of the disk, and never in a folder that is somebody else's."""

from __future__ import annotations

from pathlib import Path

from data_plane.metrics_folder import metrics_folder


def test_two_data_directories_never_share_a_folder(tmp_path: Path):
    first, second = (metrics_folder(tmp_path / name, memory=tmp_path) for name in ("a", "b"))
    assert first != second
    assert first == metrics_folder(tmp_path / "a", memory=tmp_path)
    assert first.parent == tmp_path
    assert first.stat().st_mode & 0o777 == 0o700


def test_without_memory_to_lie_in_they_lie_in_the_data_directory(tmp_path: Path):
    assert metrics_folder(tmp_path / "a", memory=tmp_path / "no-such-place") == tmp_path / "a" / "metrics"


def test_a_name_that_somebody_else_took_is_not_used(tmp_path: Path):
    planned = metrics_folder(tmp_path / "a", memory=tmp_path)
    planned.rmdir()
    (tmp_path / "elsewhere").mkdir()
    planned.symlink_to(tmp_path / "elsewhere")
    assert metrics_folder(tmp_path / "a", memory=tmp_path) == tmp_path / "a" / "metrics"
