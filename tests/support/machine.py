"""`n4n up` as a person starts it: a process of its own on free ports, and everything it started found by the process table."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

ROOT = Path(__file__).resolve().parent.parent.parent
READY_WITHIN_S, STOP_WITHIN_S = 60.0, 15.0


def clean_environ(**more: str) -> dict[str, str]:
    """Ours without anything that would steer n4n: settings and provider keys."""
    steering = ("N4N_", "LLMOCK_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(steering) and not name.endswith("_API_KEY")}
    return {**kept, "PYTHONPATH": str(ROOT), **more}


def run_n4n(*arguments: str, environ: Mapping[str, str] | None = None, told: str = "") -> subprocess.CompletedProcess[str]:
    """One command to its end."""
    command = [sys.executable, "-m", "n4n", *arguments]
    return subprocess.run(command, env=environ or clean_environ(), input=told, capture_output=True, text=True, timeout=60, check=False)


def wait_until(holds: Callable[[], bool], within_s: float = 20.0) -> None:
    """AssertionError when it does not come to hold in time."""
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, "it did not come to hold in time"
        time.sleep(0.02)


def descendants(pid: int) -> set[int]:
    """Every process below `pid`, from /proc."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found, edge = set[int](), {pid}
    while edge:
        edge = {child for child, parent in parents.items() if parent in edge} - found
        found |= edge
    return found


def is_alive(pid: int) -> bool:
    """Whether it runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def command_line(pid: int) -> str:
    """As `ps` shows it; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        return ""


@dataclass(slots=True)
class Machine:
    """One `n4n up` on `data_dir`; `arguments` stay the same over its restarts."""

    data_dir: Path
    arguments: tuple[str, ...] = ("--sim",)
    environ: Mapping[str, str] = field(default_factory=clean_environ)
    popen: subprocess.Popen[str] | None = None

    def start(self) -> Mapping[str, object]:
        """Start it and wait until it is ready; what its runtime.json tells."""
        command = [sys.executable, "-m", "n4n", "up", "--port", "0", "--admin-port", "0", "--data-dir", str(self.data_dir), *self.arguments]
        with self._file("out").open("w") as out, self._file("err").open("w") as err:
            self.popen = subprocess.Popen(command, env=self.environ, stdout=out, stderr=err, text=True)
        wait_until(lambda: self.popen is None or self.popen.poll() is not None or self.runtime_path.exists(), READY_WITHIN_S)
        assert self.popen.poll() is None, self.errors
        wait_until(lambda: "Ctrl-C stops everything" in self.output)
        return self.runtime

    @property
    def pid(self) -> int:
        """Of the running `n4n up`."""
        assert self.popen is not None
        return self.popen.pid

    @property
    def runtime_path(self) -> Path:
        """Of runtime.json."""
        return self.data_dir / "runtime.json"

    @property
    def runtime(self) -> Mapping[str, object]:
        """What runtime.json tells now."""
        return cast(Mapping[str, object], json.loads(self.runtime_path.read_text()))

    @property
    def output(self) -> str:
        """Standard output of this start so far."""
        return self._file("out").read_text()

    @property
    def errors(self) -> str:
        """Standard error of this start so far."""
        return self._file("err").read_text()

    def _file(self, name: str) -> Path:
        return self.data_dir.parent / f"{self.data_dir.name}.{name}"

    def children(self, words: str) -> list[int]:
        """The process ids below whose command line holds these words."""
        return [pid for pid in descendants(self.pid) if words in command_line(pid)]

    def child(self, words: str) -> int:
        """The one of them."""
        (found,) = self.children(words)
        return found

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and wait; the exit status."""
        assert self.popen is not None
        self.popen.send_signal(number)
        return self.popen.wait(STOP_WITHIN_S)

    def end(self) -> None:
        """For clean-up after a test, however it went."""
        if self.popen is not None and self.popen.poll() is None:
            below = descendants(self.pid)
            self.popen.kill()
            self.popen.wait()
            wait_until(lambda: not any(map(is_alive, below)))

    def n4n(self, *arguments: str, told: str = "") -> subprocess.CompletedProcess[str]:
        """A command for this instance."""
        return run_n4n(*arguments, "--data-dir", str(self.data_dir), told=told)

    def ask(self, path: str, body: object = None, headers: Mapping[str, str] | None = None) -> tuple[int, object, Mapping[str, str]]:
        """One HTTP call with the first key: status, JSON body, headers."""
        runtime = self.runtime
        request = urllib.request.Request(
            f"{runtime['base_url']}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {runtime['api_key']}", "Content-Type": "application/json", **(headers or {})},
        )
        try:
            with urllib.request.urlopen(request, timeout=20) as response:
                return response.status, json.load(response), {name.lower(): value for name, value in response.headers.items()}
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error), {name.lower(): value for name, value in error.headers.items()}

    def answers(self, path: str, body: object) -> bool:
        """Whether the same call is a success now."""
        try:
            return self.ask(path, body)[0] == 200
        except OSError:
            return False
