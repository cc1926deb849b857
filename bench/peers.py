"""A program under measurement: its processes, where it answers, and whether it answers rightly."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

from bench import payloads
from bench.machine import Cpu, cpu_seconds, pinned, place, resident_mib, signal_all, tree

STARTS_WITHIN_S = 90.0
STOPS_WITHIN_S = 15.0
RIGHT_WITHIN_S = 20.0  # a peer that answered before, after standing still

PLAIN, TLS, PACED = "plain", "tls", "paced"  # which upstream stands behind: plain HTTP, TLS, one with a longer gap between events
UNGUARDED, PACED_UNGUARDED = "unguarded", "paced, unguarded"  # the same by a model without stream guard


class Absent(Exception):
    """A peer that is not on this machine; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class Program:
    """A started command and the file that its standard error goes to."""

    popen: subprocess.Popen[bytes]
    log: Path

    def said(self) -> str:
        """The last of what it wrote there."""
        return self.log.read_text(errors="replace").strip()[-500:]


@dataclass(frozen=True, slots=True)
class Target:
    """Where requests go. `base_url` ends in /v1; `ca`: a PEM file by which its certificate is signed."""

    base_url: str
    key: str = "none"
    model: str = payloads.MODEL
    ca: Path | None = None

    @property
    def chat_url(self) -> str:
        """The one path that is measured."""
        return f"{self.base_url}/chat/completions"

    def ask(self, *, stream: bool) -> bytes:
        """One answer, whole. URLError, OSError where there is none."""
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.key}"}
        tls = ssl.create_default_context(cafile=self.ca) if self.ca else None
        request = Request(self.chat_url, payloads.request(stream=stream, model=self.model), headers)
        with urlopen(request, timeout=10, context=tls) as answer:
            return bytes(answer.read())


@dataclass(frozen=True, slots=True)
class Peer:
    """Something that answers POST /v1/chat/completions, and the processes that do it."""

    name: str
    ways: Mapping[str, Target]
    program: Program
    home: tuple[Cpu, ...]  # where its processes live
    measured: tuple[Cpu, ...] = ()  # where those live that answer requests; empty: with the others
    answers: Callable[[Sequence[int]], list[int]] = field(default=list)  # which of its processes answer requests
    others: Sequence[Program] = ()  # further programs that belong to it
    slow: bool = False  # hundreds of streams are more than it takes
    loud: bool = False  # what it complained of is shown at its end

    def pids(self) -> list[int]:
        """All its processes."""
        return [pid for program in (self.program, *self.others) for pid in tree(program.popen.pid)]

    def workers(self) -> list[int]:
        """Those that answer requests."""
        return self.answers(self.pids())

    def cpu_seconds(self) -> float:
        """What all its processes have used so far."""
        return cpu_seconds(self.pids())

    def worker_seconds(self) -> float:
        """What those that answer have used so far."""
        return cpu_seconds(self.workers())

    def worker_mib(self) -> float:
        """Memory of those that answer."""
        return resident_mib(self.workers())

    def spread(self, *cpus: Cpu) -> None:
        """All its processes on all these CPUs."""
        place(self.pids(), *cpus)

    def go_home(self) -> None:
        """Every process on its CPU."""
        pids = self.pids()
        place(pids, *self.home)
        if self.measured:
            place(self.answers(pids), *self.measured)

    def pause(self) -> None:
        """Stands still until `resume`, so that it cannot disturb the others."""
        signal_all(self.pids(), signal.SIGSTOP)

    def resume(self) -> None:
        """Goes on."""
        signal_all(reversed(self.pids()), signal.SIGCONT)

    def stop(self) -> None:
        """Ends it and all its processes; shows what it complained of."""
        self.resume()
        pids = self.pids()
        if self.loud and (said := self.program.said()):
            print(f"{self.name}: {said}", file=sys.stderr)
        self.program.popen.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.program.popen.wait(STOPS_WITHIN_S)
        signal_all(pids, signal.SIGKILL)
        self.program.popen.wait()

    def check(self, *ways: str, within_s: float = RIGHT_WITHIN_S) -> None:
        """Both kinds of answer are whole and right by these ways, or by all, within some seconds. RuntimeError else."""
        deadline = time.monotonic() + within_s
        for way in ways or self.ways:
            target = self.ways[way]
            while (fault := _fault(target)) is not None:
                if time.monotonic() > deadline or self.program.popen.poll() is not None:
                    raise RuntimeError(f"{self.name} ({way}) does not answer rightly: {fault}\n{self.program.said()}".strip())
                time.sleep(0.1)


def _fault(target: Target) -> str | None:
    try:
        for stream in (False, True):
            if (fault := payloads.fault_in(target.ask(stream=stream), stream=stream)) is not None:
                return fault
    except (URLError, OSError, ValueError) as error:
        return str(error)
    return None


def start(command: Sequence[str], log: Path, *cpus: Cpu, environ: Mapping[str, str] | None = None, cwd: Path | None = None) -> Program:
    """Starts it on these CPUs; only its standard error is kept."""
    with log.open("wb") as errors:
        popen = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env=environ,
            cwd=cwd,
            start_new_session=True,
            preexec_fn=pinned(*cpus),
        )
    return Program(popen, log)


def wait_for(file: Path, program: Program) -> Mapping[str, object]:
    """The JSON object that a program writes when it is ready. RuntimeError when it does not."""
    deadline = time.monotonic() + STARTS_WITHIN_S
    while not file.exists():
        if time.monotonic() > deadline or program.popen.poll() is not None:
            raise RuntimeError(f"a program did not become ready: {program.said()}")
        time.sleep(0.05)
    content: Mapping[str, object] = json.loads(file.read_text())
    return content


def own_environ() -> dict[str, str]:
    """Ours, without what would configure an n4n."""
    return {name: value for name, value in os.environ.items() if not name.startswith("N4N_")}


def free_port() -> int:
    """One that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
