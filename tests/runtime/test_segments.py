"""The log on a router's own disk."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from n4n.core.ledger import whole_lines
from n4n.runtime.segments import Segments, orphans

LINE = b"x" * 99 + b"\n"


def log_in(folder: Path, name: str = "run", *, carried: list[bytes] | None = None, most_bytes: int = 1 << 20) -> Segments:
    """Segments of 40 lines."""
    return Segments(folder, name, carried=lambda: carried or [], segment_bytes=4096, most_bytes=most_bytes)


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_was_appended_is_read_in_whole_lines_until_it_is_acknowledged(tmp_path: Path):
    log = log_in(tmp_path)
    for number in range(60):
        log.append(b"%099d\n" % number)

    seen = []
    while (segment := log.oldest()) is not None:
        lines = segment.read(950)
        assert len(lines) == 1000 or segment.acked + len(lines) == segment.end
        assert log.oldest() is segment and segment.read(950) == lines, "until it is acknowledged it is there"
        seen += lines.splitlines()
        log.acked(segment, segment.acked + len(lines))

    assert list(map(int, seen)) == list(range(60))
    assert log.waiting_bytes == 0
    assert files(tmp_path) == ["run.000002.segment", "run.lock"]
    log.close()
    assert files(tmp_path) == []


def test_a_new_segment_begins_with_what_is_still_open(tmp_path: Path):
    log = log_in(tmp_path, carried=[b"open\n"])
    for _ in range(41):
        log.append(LINE)

    first = log.oldest()
    assert first is not None
    log.acked(first, first.end)

    second = log.oldest()
    assert second is not None and second is not first
    assert second.read(4096) == b"open\n" + LINE


def test_above_its_bound_it_drops_and_counts_and_goes_on_when_there_is_room_again(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    log = log_in(tmp_path, most_bytes=8192)
    for _ in range(100):
        log.append(LINE)

    assert log.dropped == 20
    assert sum("usage rows are lost" in record.message for record in caplog.records) == 1
    for _ in range(2):
        segment = log.oldest()
        assert segment is not None
        log.acked(segment, segment.end)
    log.append(LINE)
    assert (log.dropped, log.waiting_bytes) == (20, 100)


def test_a_line_longer_than_a_segment_is_dropped_alone(tmp_path: Path):
    log = log_in(tmp_path)

    log.append(b"y" * 5000)
    log.append(LINE)

    assert (log.dropped, log.waiting_bytes) == (1, 100)


def test_without_a_disk_it_is_held_in_memory(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    in_the_way = tmp_path / "usage"
    in_the_way.write_text("no folder")
    log = log_in(in_the_way)

    log.append(LINE)

    segment = log.oldest()
    assert segment is not None and segment.read(4096) == LINE
    assert "it is held in memory" in caplog.text
    log.close()
    assert orphans(in_the_way) == []


def test_the_log_of_the_living_is_left_alone_and_that_of_the_dead_taken_over_once(tmp_path: Path):
    program = (
        "import sys, time; from pathlib import Path; from n4n.runtime.segments import Segments\n"
        "log = Segments(Path(sys.argv[1]), 'dead', carried=list, segment_bytes=4096)\n"
        "for number in range(60): log.append(b'%099d\\n' % number)\n"
        "print('ready', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        assert orphans(tmp_path) == []
        os.kill(process.pid, signal.SIGKILL)
        process.wait(10)

    (orphan,) = orphans(tmp_path)
    assert orphans(tmp_path) == [], "it is ours alone"
    lines = b"".join(whole_lines(path.read_bytes()) for path in orphan.paths)
    assert list(map(int, lines.splitlines())) == list(range(60))

    orphan.shipped(orphan.paths[0])
    orphan.leave()
    (again,) = orphans(tmp_path)
    assert [path.name for path in again.paths] == ["dead.000002.segment"], "what was not shipped is for whoever comes next"
    again.shipped(again.paths[0])
    again.leave()
    assert files(tmp_path) == []
