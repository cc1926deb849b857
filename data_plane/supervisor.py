"""Keeps the workers of one data plane running: owns their listening sockets, restarts a dead one, stops all on a signal.

It never imports grpc. Each worker has a listening socket of its own on the one port (SO_REUSEPORT), held open here, so that
connections which arrive while a worker is down wait for its successor instead of being refused.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import FrameType

from n4n.core.errors import StartFailed
from n4n.runtime.process import Child, own_command, spawn
from n4n.runtime.settings import Settings
from n4n.runtime.telemetry import forget_worker

LEAST_PAUSE_S, MOST_PAUSE_S = 0.2, 10.0
STEADY_S = 30.0  # a worker that lived this long starts again without a pause
BACKLOG = 1024


def listening_socket(host: str, port: int) -> socket.socket:
    """A listening socket that shares its port with the other workers' sockets; StartFailed when the port is taken."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        sock = socket.socket(family, kind, protocol)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError as error:
        raise StartFailed(f"cannot listen on {host}:{port}: {error.strerror}; choose another with --port or N4N_PORT") from error
    return sock


def check_free(host: str, port: int) -> None:
    """StartFailed when somebody listens on the port, also somebody who would share it."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise StartFailed(f"cannot listen on {host}:{port}: {error.strerror}; choose another with --port or N4N_PORT") from error


@dataclass(slots=True)
class Seat:
    """One worker's place: its number, its socket, and who sits there now."""

    worker: int
    sock: socket.socket
    child: Child | None = None
    started: float = 0.0
    pause_s: float = 0.0
    due: float = 0.0


class Supervisor:
    """Runs until a signal stops it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stopping = 0
        metrics = settings.data_path / "metrics"
        shutil.rmtree(metrics, ignore_errors=True)
        metrics.mkdir(parents=True, exist_ok=True)
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(metrics)
        check_free(settings.host, settings.port)
        self._seats = [Seat(n + 1, listening_socket(settings.host, settings.port)) for n in range(max(1, settings.workers))]

    def run(self) -> int:
        """Starts the workers and keeps them; returns the exit status."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _WAKING)
        while not self._stopping:
            now = time.monotonic()
            for seat in self._seats:
                self._look_after(seat, now)
            found = signal.sigtimedwait(_WAKING, 0.2)
            if found is not None and found.si_signo in _STOPPING:
                self._stopping = found.si_signo
        return self._stop()

    def _look_after(self, seat: Seat, now: float) -> None:
        if seat.child is not None and (code := seat.child.poll()) is not None:
            forget_worker(seat.worker)
            lived = now - seat.started
            seat.pause_s = 0.0 if lived >= STEADY_S else min(MOST_PAUSE_S, max(LEAST_PAUSE_S, seat.pause_s * 2))
            seat.due = now + seat.pause_s * random.uniform(0.75, 1.25)
            seat.child = None
            say(f"worker {seat.worker} ended with {code} after {lived:.0f} s; starting it again")
        if seat.child is None and now >= seat.due:
            seat.started = now
            seat.child = spawn(
                f"data-plane worker {seat.worker}",
                own_command("data-plane", "--worker", str(seat.worker)),
                environ=self._environ(seat),
                keep_open=(seat.sock.fileno(),),
            )

    def _environ(self, seat: Seat) -> Mapping[str, str]:
        return {**os.environ, "N4N_LISTEN_FD": str(seat.sock.fileno()), "GRPC_ENABLE_FORK_SUPPORT": "0"}

    def _stop(self) -> int:
        children = [seat.child for seat in self._seats if seat.child is not None]
        for child in children:
            child.ask_to_stop()
        deadline = time.monotonic() + self._settings.drain_sec + 5
        while any(child.poll() is None for child in children) and time.monotonic() < deadline:
            found = signal.sigtimedwait(_WAKING, 0.2)
            if found is not None and found.si_signo == signal.SIGINT:
                break  # asked twice: at once
        for child in children:
            child.kill()
        for seat in self._seats:
            seat.sock.close()
        return 0


# Asked for by name: a wait that SIGCONT interrupts after its time returns a made-up signal number (CPython's sigtimedwait).
_STOPPING = frozenset((signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
_WAKING = _STOPPING | {signal.SIGCHLD}


def say(line: str) -> None:
    """One line for the operator, on standard error."""
    sys.stderr.write(f"n4n data-plane: {line}\n")


def _unused(_: int, __: FrameType | None) -> None:
    """SIGCHLD must not be ignored, or it never arrives."""


def supervise(settings: Settings) -> int:
    """The data plane of this machine: `settings.workers` workers on one port. StartFailed when it cannot start."""
    signal.signal(signal.SIGCHLD, _unused)
    return Supervisor(settings).run()
