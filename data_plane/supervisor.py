"""Keeps the workers of one data plane running: owns their sockets, restarts a dead one, replaces them without losing a request.

It never imports grpc. All workers accept from one listening socket, held open here, so that connections which arrive while no worker is
there wait instead of being refused; which worker takes the next one is told in data_plane/intake.py. A successor starts on the same socket
while the worker before it still serves, and takes over once it says that it serves.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from types import FrameType

from data_plane.counting_seat import CountingSeat
from data_plane.listeners import HANDSHAKE_S, check_free, hold_newcomers_back, listening_socket
from data_plane.metrics_folder import metrics_folder
from data_plane.reports import AT_ONCE, STOP_ACCEPTING
from data_plane.seat import LATE_S, Place, Seat, say
from data_plane.tally import shared_memory
from n4n.runtime.settings import Settings

TICK_S = 0.2


class Supervisor:
    """Runs until a signal stops it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._rolling = False
        shutil.rmtree(metrics_folder(settings.data_path), ignore_errors=True)
        self._metrics = metrics_folder(settings.data_path)
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(self._metrics)
        check_free(settings.host, settings.port)
        workers = max(1, settings.workers)
        self._sock = listening_socket(settings.host, settings.port, workers)
        self._counting = CountingSeat(self._metrics, settings, random.uniform)
        settings = replace(settings, counting_socket=self._counting.path)
        place = Place(self._sock, shared_memory(workers) if workers > 1 else 0)
        self._seats = [Seat(number, place, settings, random.uniform) for number in range(1, workers + 1)]

    def __repr__(self) -> str:
        return f"<Supervisor: {', '.join(map(repr, self._seats))}>"

    def run(self) -> int:
        """Starts the workers and keeps them; returns the exit status."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _WAKING)
        before = time.monotonic()
        while True:
            now = time.monotonic()
            for seat in self._seats:
                seat.look(now, passed_s=now - before)
            self._counting.look(now)
            self._roll(now)
            before = now
            found = signal.sigtimedwait(_WAKING, TICK_S)
            if found is not None and found.si_signo in _STOPPING:
                return self._stop()
            if found is not None and found.si_signo == ROLL:
                self._begin_rolling()

    def _begin_rolling(self) -> None:
        say(f"replacing {len(self._seats)} worker{'' if len(self._seats) == 1 else 's'}, one after the other", "rolling_restart_begins")
        self._rolling = True
        for seat in self._seats:
            seat.replacement_wanted, seat.gave_up = True, False

    def _roll(self, now: float) -> None:
        """One successor starts at a time, so that the machine serves meanwhile."""
        if any(seat.heir is not None for seat in self._seats):
            return
        if self._rolling and any(seat.gave_up for seat in self._seats):
            say("the new workers do not start; the ones before go on, and the rolling restart is given up", "rolling_restart_given_up")
            for seat in self._seats:
                seat.gave_up = seat.replacement_wanted = False
        due = next((seat for seat in self._seats if seat.wants_heir(now)), None)
        if due is not None:
            due.start_heir(now)
        elif self._rolling and not any(seat.replacement_wanted for seat in self._seats):
            self._rolling = False
            say("the rolling restart is over", "rolling_restart_over")

    def _stop(self) -> int:
        """Leave, let a balancer notice, make sure that nobody waits in a queue, drain."""
        deadline = time.monotonic() + self._settings.drain_sec + LATE_S
        for seat in self._seats:
            seat.ask_to_leave()
        asked_again = _asked_again(min(self._settings.lame_duck_sec, self._settings.drain_sec), self._is_empty)
        hold_newcomers_back(self._sock)
        asked_again = asked_again or _asked_again(HANDSHAKE_S, self._is_empty)
        for seat in self._seats:
            seat.tell(STOP_ACCEPTING)
        self._sock.close()
        asked_again = asked_again or _asked_again(deadline - time.monotonic(), self._is_empty)
        for seat in self._seats:
            seat.kill()
        self._counting.stop()
        shutil.rmtree(self._metrics, ignore_errors=True)
        return AT_ONCE if asked_again else 0

    def _is_empty(self) -> bool:
        return not any(seat.is_alive() for seat in self._seats)


ROLL = signal.SIGUSR2
# Asked for by name: a wait that SIGCONT interrupts after its time returns a made-up signal number (CPython's sigtimedwait).
_STOPPING = frozenset((signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
_WAKING = _STOPPING | {signal.SIGCHLD, ROLL}


def _asked_again(within_s: float, over: Callable[[], bool]) -> bool:
    """Waits so long, or until it is over; True: somebody asked again to stop, which means at once."""
    deadline = time.monotonic() + within_s
    while not over() and (left := deadline - time.monotonic()) > 0:
        found = signal.sigtimedwait(_WAKING, min(left, TICK_S))
        if found is not None and found.si_signo in _STOPPING:
            return True
    return False


def _unused(_: int, __: FrameType | None) -> None:
    """SIGCHLD must not be ignored, or it never arrives."""


def supervise(settings: Settings) -> int:
    """The data plane of this machine: `settings.workers` workers on one port. StartFailed when it cannot start."""
    signal.signal(signal.SIGCHLD, _unused)
    return Supervisor(settings).run()
