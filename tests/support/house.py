"""The whole house as its user starts it: `n4n up` in a process of its own, with its own data directory and free ports."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

PATIENCE_S = 30.0
T = TypeVar("T")


def free_port() -> int:
    """A loopback port that nobody listens on, below the range from which outgoing connections take theirs."""
    for port in random.sample(range(12_000, 20_000), 200):
        with socket.socket() as sock:
            try:
                sock.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no free port was found")


def listens(port: int) -> bool:
    """Whether somebody takes connections on this loopback port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def eventually(found: Callable[[], T | None], what: str, within: float = PATIENCE_S) -> T:
    """What `found` gives, once it gives something; AssertionError after `within` seconds."""
    deadline = time.monotonic() + within
    while True:
        value = found()
        if value:
            return value
        assert time.monotonic() < deadline, f"waited {within:g} s for {what}"
        time.sleep(0.02)


def bare_environ() -> dict[str, str]:
    """Our environment without anybody's provider keys and settings."""
    return {name: value for name, value in os.environ.items() if not name.startswith("N4N_") and not name.endswith("_API_KEY")}


@dataclass
class House:
    """A running `n4n up`."""

    data_dir: Path
    arguments: list[str]
    environ: Mapping[str, str]
    process: subprocess.Popen[bytes] | None = None

    @property
    def runtime(self) -> dict[str, object]:
        """What runtime.json says."""
        return json.loads((self.data_dir / "runtime.json").read_text())

    @property
    def base_url(self) -> str:
        """Where applications go."""
        return str(self.runtime["base_url"])

    @property
    def api_key(self) -> str:
        """The first key."""
        return str(self.runtime["api_key"])

    @property
    def log_path(self) -> Path:
        """What `n4n up` printed on standard output, request lines included."""
        return self.data_dir.parent / f"{self.data_dir.name}.out"

    def start(self) -> None:
        """Starts it and waits until it is ready."""
        command = [sys.executable, "-m", "n4n", "up", "--data-dir", str(self.data_dir), *self.arguments]
        errors = self.data_dir.parent / f"{self.data_dir.name}.err"
        with self.log_path.open("ab") as out, errors.open("ab") as err:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=self.environ)
        process = self.process

        def ready() -> bool:
            assert process.poll() is None, f"n4n up ended with {process.returncode}: {errors.read_text()[-2000:]}"
            try:
                return self.runtime["pid"] == process.pid
            except (OSError, ValueError):
                return False

        eventually(ready, "runtime.json of this start")

    def stop(self) -> int:
        """SIGTERM, and the exit status."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(PATIENCE_S)
        self.process = None
        return code

    def kill(self) -> None:
        """kill -9."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(PATIENCE_S)
        self.process = None

    def n4n(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """One n4n command against this house."""
        command = [sys.executable, "-m", "n4n", *arguments, "--data-dir", str(self.data_dir)]
        done = subprocess.run(command, capture_output=True, text=True, env=self.environ, timeout=PATIENCE_S)
        assert not check or done.returncode == 0, f"n4n {' '.join(arguments)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def told(self, *arguments: str) -> object:
        """The JSON that one n4n command prints."""
        return json.loads(self.n4n(*arguments, "-o", "json").stdout)

    def pids(self, role: str) -> list[int]:
        """Processes below this house whose command line holds `role`."""
        assert self.process is not None
        return [pid for pid in descendants(self.process.pid) if role in command_line(pid)]

    def log(self) -> list[dict[str, object]]:
        """The request lines so far."""
        lines = self.log_path.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith('{"timestamp"')]


def command_line(pid: int) -> str:
    """A process's command line, '' when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return ""


def descendants(pid: int) -> list[int]:
    """All processes below this one."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found, todo = [], [pid]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


@contextmanager
def running_house(folder: Path, *arguments: str, environ: Mapping[str, str] | None = None, name: str = "n4n data") -> Iterator[House]:
    """`n4n up` on free ports in `folder`, whose data directory's name holds a space; stopped at the end, and nothing of it left."""
    ports = ["--port", str(free_port()), "--admin-port", str(free_port())]
    told = {"N4N_METRICS_PORT": str(free_port()), "N4N_PROBERS": "0"}  # probes would be calls that most tests do not count with
    house = House(folder / name, [*ports, *arguments], {**bare_environ(), **told, **(environ or {})})
    house.start()
    try:
        yield house
    finally:
        if house.process is not None:
            below = descendants(house.process.pid)
            house.stop()
            left = [command_line(pid) for pid in below if "n4n" in command_line(pid)]
            assert not left, f"still running after the stop: {left}"
