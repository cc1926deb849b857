"""One worker's place in a data plane: its number, who sits there, who takes over, who is on the way out."""

from __future__ import annotations

import logging
import os
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import fields as members

from data_plane.listeners import let_newcomers_in
from data_plane.reports import LEAVES, SERVES, STOP_ACCEPTING, heard, pipe
from data_plane.tally import Tally, row_of
from n4n.runtime.logs import fields
from n4n.runtime.process import Child, own_command, spawn
from n4n.runtime.settings import Settings
from n4n.runtime.telemetry import forget_worker

LEAST_PAUSE_S, MOST_PAUSE_S = 0.2, 10.0
STEADY_S = 30.0  # a worker that lived this long starts again without a pause
log = logging.getLogger("n4n.data_plane")
HUNG_AFTER_S = 30.0  # a worker says every second that it lives
BLINK_S = 1.0  # of a longer time we saw nothing ourselves, so that it counts no more than this
HEIR_WITHIN_S = 60.0
LATE_S = 5.0  # beyond drain_sec, for last words; then a worker is killed


@dataclass(slots=True)
class Worker:
    """One process. `until`: when it is killed, if it has not gone by then."""

    child: Child
    slot: int
    reports: int
    began: float
    serves: bool = False
    leaves: bool = False
    silent_s: float = 0.0
    until: float = float("inf")

    def listen(self, passed_s: float) -> None:
        """Takes in what it said since the last look."""
        words = heard(self.reports)
        self.serves = self.serves or SERVES in words
        self.leaves = self.leaves or LEAVES in words
        self.silent_s = 0.0 if words else self.silent_s + min(passed_s, BLINK_S)


class Place:
    """What all seats share: the listening socket, and the memory for a tally of connections; 0: there is one seat, and no tally."""

    def __init__(self, sock: socket.socket, tally_fd: int) -> None:
        self.sock, self.tally_fd = sock, tally_fd
        self._tally = Tally(tally_fd) if tally_fd else None

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What a worker inherits."""
        return (self.sock.fileno(), self.tally_fd) if self.tally_fd else (self.sock.fileno(),)

    def left(self, number: int, slot: int) -> None:
        """The process of this slot is gone: nobody waits for it to take a connection."""
        if self._tally is not None:
            self._tally.bury(row_of(number, slot))


class Seat:
    """`sitter` serves; `heir` starts while it does; `retired` drain."""

    def __init__(self, number: int, place: Place, settings: Settings, draw: Callable[[float, float], float]) -> None:
        self.number, self.place = number, place
        self.sitter: Worker | None = None
        self.heir: Worker | None = None
        self.replacement_wanted = False
        self.gave_up = False
        self._retired: list[Worker] = []
        self._settings, self._draw = settings, draw
        self._pause_s = self._due = 0.0

    def __repr__(self) -> str:
        sitter = self.sitter.child if self.sitter else None
        return f"<Seat {self.number}: {sitter!r}, heir {self.heir and self.heir.child!r}, {len(self._retired)} retired>"

    def look(self, now: float, passed_s: float) -> None:
        """Buries the dead, ends the hung and the late, seats the heir that is ready, fills the seat."""
        self._look_at_retired(now)
        self._look_at_heir(now, passed_s)
        self._look_at_sitter(now, passed_s)
        if self.sitter is None and now >= self._due:
            self.sitter = self._start(now, takes_over=False)

    def wants_heir(self, now: float) -> bool:
        """Whether a successor should start now: one is wanted, or whoever sits here was told to go, by somebody else than us."""
        sitter = self.sitter
        return sitter is not None and self.heir is None and now >= self._due and (self.replacement_wanted or sitter.leaves)

    def start_heir(self, now: float) -> None:
        """Starts the successor beside whoever sits here."""
        self.heir = self._start(now, takes_over=True)

    def ask_to_leave(self) -> None:
        """The whole data plane stops: no successor any more, and whoever serves says on /ready that it goes."""
        if self.heir is not None:
            self._end(self.heir)
            self.heir = None
        self.tell(signal.SIGTERM)

    def tell(self, number: signal.Signals) -> None:
        """A signal to whoever sits here."""
        if self.sitter is not None:
            self.sitter.child.popen.send_signal(number)

    def is_alive(self) -> bool:
        """Whether any process is left."""
        return any(one.child.poll() is None for one in self._all())

    def kill(self) -> None:
        """Ends what is left, at once."""
        for one in self._all():
            one.child.kill()

    def _all(self) -> list[Worker]:
        return [one for one in (self.sitter, self.heir, *self._retired) if one is not None]

    def _look_at_retired(self, now: float) -> None:
        for one in list(self._retired):
            if one.child.poll() is not None:
                self._retired.remove(one)
                self._bury(one)
            elif now >= one.until:
                one.child.kill()

    def _look_at_heir(self, now: float, passed_s: float) -> None:
        heir = self.heir
        if heir is None:
            return
        heir.listen(passed_s)
        code = heir.child.poll()
        if code is not None or now >= heir.began + HEIR_WITHIN_S:
            self._end(heir)
            self.heir, self.gave_up = None, self.replacement_wanted
            self._put_off(now, heir)
            what = f"was not ready within {HEIR_WITHIN_S:.0f} s" if code is None else f"ended with {code}"
            say(f"the new worker {self.number} {what}", "new_worker_ended")
        elif heir.serves:
            self._take_over(heir, now)

    def _take_over(self, heir: Worker, now: float) -> None:
        before, self.sitter, self.heir = self.sitter, heir, None
        self.replacement_wanted = False
        self._pause_s = 0.0
        if before is not None:
            before.until = now + self._settings.drain_sec + LATE_S
            before.child.popen.send_signal(STOP_ACCEPTING)
            self._retired.append(before)

    def _look_at_sitter(self, now: float, passed_s: float) -> None:
        sitter = self.sitter
        if sitter is None:
            return
        sitter.listen(passed_s)
        code = sitter.child.poll()
        if code is None and sitter.silent_s >= HUNG_AFTER_S:
            say(f"worker {self.number} has said nothing for {HUNG_AFTER_S:.0f} s; ending it", "worker_silent")
            sitter.child.kill()
            sitter.silent_s = 0.0
        if code is None:
            return
        self._bury(sitter)
        self.sitter, self.heir, self.replacement_wanted = self.heir, None, False
        again = "its successor is starting"
        if self.sitter is None:
            self._put_off(now, sitter)
            again = f"starting it again{f' in {self._due - now:.1f} s' if self._due > now else ''}"
        say(f"worker {self.number} ended with {code} after {now - sitter.began:.0f} s; {again}", "worker_ended")

    def _put_off(self, now: float, ended: Worker) -> None:
        """A growing pause before the next start, none after a long life."""
        lived = now - ended.began
        self._pause_s = 0.0 if ended.serves and lived >= STEADY_S else min(MOST_PAUSE_S, max(LEAST_PAUSE_S, self._pause_s * 2))
        self._due = now + self._pause_s * self._draw(0.75, 1.25)

    def _end(self, one: Worker) -> None:
        one.child.kill()
        one.child.popen.wait()
        self._bury(one)

    def _bury(self, ended: Worker) -> None:
        os.close(ended.reports)
        self.place.left(self.number, ended.slot)
        forget_worker(self.number, ended.slot)

    def _start(self, now: float, *, takes_over: bool) -> Worker:
        let_newcomers_in(self.place.sock)
        taken = {one.slot for one in self._all()}
        slot = next(n for n in range(len(taken) + 1) if n not in taken)
        ours, theirs = pipe()
        try:
            child = spawn(
                f"data-plane worker {self.number}",
                own_command("data-plane", "--worker", str(self.number)),
                environ=self._environ(slot, theirs, takes_over),
                keep_open=(*self.place.descriptors, theirs),
            )
        finally:
            os.close(theirs)
        return Worker(child, slot, ours, now)

    def _environ(self, slot: int, reports: int, takes_over: bool) -> dict[str, str]:
        """Ours, with every setting said, so that a flag of the supervisor's holds for its workers too."""
        settings = {f"N4N_{field.name.upper()}": str(getattr(self._settings, field.name)) for field in members(Settings)}
        told = {
            "N4N_LISTEN_FD": self.place.sock.fileno(),
            "N4N_TALLY_FD": self.place.tally_fd,
            "N4N_REPORT_FD": reports,
            "N4N_SLOT": slot,
            "N4N_TAKES_OVER": int(takes_over),
        }
        return {**os.environ, **settings, **{name: str(value) for name, value in told.items()}, "GRPC_ENABLE_FORK_SUPPORT": "0"}


def say(line: str, code: str) -> None:
    """One line for the operator; `code`: in a word."""
    log.warning("%s", line, extra=fields(code=code))
