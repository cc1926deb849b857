"""What a process says where nobody reads it, or the disk is full: nothing waits, and what is there is whole lines of JSON."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

TALKS = """
import logging, sys
from n4n.runtime.logs import log_as_json
log_as_json("data-plane", "info")
log = logging.getLogger("n4n.x")
for number in range(2000):
    log.warning("number %d %s", number, "x" * (number % 7) * 1000)
print("said", flush=True)
sys.stdin.readline()
log.warning("read again")
log.warning("a bad call %d", "one")
log.warning("the last")
"""


def codes(text: bytes) -> list[object]:
    return [json.loads(line)["code"] for line in text.splitlines()]


def test_a_process_does_not_wait_for_a_reader_that_stalls_and_says_afterwards_what_is_lost() -> None:
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 1 << 16)
    command = [sys.executable, "-c", TALKS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=writer) as process:
        os.close(writer)
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"said\n"  # a process that waits would wait for ever
        os.set_blocking(reader, False)
        first = os.read(reader, 1 << 20)
        process.stdin.write(b"\n")
        process.stdin.close()
        assert process.wait(20) == 0
        rest = os.read(reader, 1 << 20)
    os.close(reader)
    told = [json.loads(line) for line in (first + rest).splitlines()]
    lost = [int(line["message"].split()[0]) for line in told if line["code"] == "lines_lost"]
    numbers = [line for line in told if line["code"] == "number"]
    assert len(numbers) > 20
    assert sum(lost) == 2000 - len(numbers) + 1  # a call whose arguments do not fit is lost, too
    assert [line["message"] for line in told if line["code"] not in ("lines_lost", "number")] == ["read again", "the last"]


FULL = """
import logging, os, resource, signal, sys
from n4n.runtime.logs import log_as_json
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, hard))
log_as_json("data-plane", "info")
log = logging.getLogger("n4n.x")
for number in range(500):
    log.warning("number %d %s", number, "x" * 200)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
log.warning("there is room")
"""


def test_a_full_disk_leaves_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "err"
    with path.open("ab") as out:
        done = subprocess.run([sys.executable, "-c", FULL], stderr=out, timeout=30, check=False)
    assert done.returncode == 0
    told = codes(path.read_bytes())
    assert told[-2:] == ["lines_lost", "there_is_room"]
    assert len(told) < 100
