"""The data plane's supervisor and its seats: what makes it stop, what does not, and which worker is replaced when."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

from data_plane import seat as seats
from data_plane import supervisor
from data_plane.reports import LEAVES, LIVES, SERVES, STOP_ACCEPTING
from data_plane.seat import HEIR_WITHIN_S, HUNG_AFTER_S, Place, Seat
from n4n.runtime.settings import Settings


class Process:
    """A worker as its supervisor sees it."""

    def __init__(self, environ: dict[str, str]) -> None:
        self.environ = environ
        self.reports = os.dup(int(environ["N4N_REPORT_FD"]))
        self.code: int | None = None
        self.signals: list[int] = []
        self.popen = SimpleNamespace(send_signal=self._take, wait=lambda: self.code)

    def __repr__(self) -> str:
        return f"<worker in slot {self.environ['N4N_SLOT']}>"

    def _take(self, number: int) -> None:
        self.signals.append(number)

    def says(self, word: bytes) -> None:
        os.write(self.reports, word)

    def poll(self) -> int | None:
        return self.code

    def kill(self) -> None:
        self.code = -signal.SIGKILL if self.code is None else self.code


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[Process]]:
    """Every worker process that was started, in order."""
    processes: list[Process] = []

    def spawn(*_: object, environ: dict[str, str], **__: object) -> Process:
        processes.append(Process(environ))
        return processes[-1]

    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    monkeypatch.setattr(seats, "spawn", spawn)
    yield processes
    for process in processes:
        os.close(process.reports)


@pytest.fixture
def seat(started: list[Process]) -> Iterator[Seat]:
    """A seat whose worker has just been started and serves, at time 0."""
    sock = supervisor.listening_socket("127.0.0.1", 0)
    one = Seat(1, Place(sock, 0), Settings(admin_url="control:9400"), lambda low, high: (low + high) / 2)
    one.look(0.0, 0.0)
    started[0].says(SERVES)
    one.look(0.2, 0.2)
    yield one
    sock.close()
    for worker in (one.sitter, one.heir):
        if worker is not None:
            os.close(worker.reports)


def settle(seat: Seat, at: float) -> None:
    seat.look(at, passed_s=0.2)


def test_a_worker_gets_every_setting_of_its_supervisor(seat: Seat, started: list[Process]) -> None:
    told = started[0].environ

    assert (told["N4N_ADMIN_URL"], told["N4N_LISTEN_FD"]) == ("control:9400", str(seat.place.sock.fileno()))
    assert (told["N4N_SLOT"], told["N4N_TAKES_OVER"]) == ("0", "0")


def test_the_one_before_goes_on_until_its_successor_serves(seat: Seat, started: list[Process]) -> None:
    seat.replacement_wanted = True
    assert seat.wants_heir(1.0)

    seat.start_heir(1.0)
    started[1].says(LIVES)
    settle(seat, 1.2)

    assert (started[1].environ["N4N_SLOT"], started[1].environ["N4N_TAKES_OVER"]) == ("1", "1")
    assert started[0].signals == []

    started[1].says(SERVES)
    settle(seat, 1.4)

    assert started[0].signals == [STOP_ACCEPTING]
    assert seat.sitter is not None and seat.sitter.child is started[1]
    assert not seat.wants_heir(1.6)
    started[0].code = 0
    settle(seat, 2.0)
    seat.replacement_wanted = True
    seat.start_heir(2.0)
    assert started[2].environ["N4N_SLOT"] == "0", "the slot is free again"


@pytest.mark.parametrize("fate", ["ends", "is late"])
def test_a_successor_that_does_not_start_costs_nothing(
    seat: Seat, started: list[Process], caplog: pytest.LogCaptureFixture, fate: str
) -> None:
    seat.replacement_wanted = True
    seat.start_heir(1.0)
    if fate == "ends":
        started[1].code = 1

    settle(seat, 1.0 + HEIR_WITHIN_S)

    assert seat.gave_up
    assert started[0].signals == []
    assert started[1].code is not None
    assert not seat.wants_heir(1.1 + HEIR_WITHIN_S), "the next try waits"
    assert len(caplog.messages) == 1


def test_a_worker_that_somebody_else_told_to_go_is_replaced_first(seat: Seat, started: list[Process]) -> None:
    started[0].says(LEAVES)
    settle(seat, 1.0)

    assert seat.wants_heir(1.0)


def test_a_retired_worker_that_does_not_go_is_killed(seat: Seat, started: list[Process]) -> None:
    seat.replacement_wanted = True
    seat.start_heir(1.0)
    started[1].says(SERVES)
    settle(seat, 1.2)

    settle(seat, 1.2 + 60 + 6)

    assert started[0].code == -signal.SIGKILL


def test_a_worker_that_says_nothing_for_long_is_ended_and_started_again(seat: Seat, started: list[Process]) -> None:
    ticks = int(HUNG_AFTER_S / 0.2)
    for tick in range(ticks - 1):
        settle(seat, 1 + tick * 0.2)
    assert started[0].code is None
    seat.look(100.0, passed_s=60.0)  # the supervisor stood still too, so that nobody heard anything

    assert started[0].code == -signal.SIGKILL
    settle(seat, 101.0)
    settle(seat, 102.0)
    assert len(started) == 2


def test_a_machine_that_stood_still_hung_nobody(seat: Seat, started: list[Process]) -> None:
    seat.look(1000.0, passed_s=999.0)

    assert started[0].code is None


def test_pauses_grow_while_a_worker_does_not_start(started: list[Process], tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with supervisor.listening_socket("127.0.0.1", 0) as sock:
        one = Seat(1, Place(sock, 0), Settings(), lambda low, high: 1.0)
        now, begun = 0.0, []
        while len(started) < 8:
            before = len(started)
            one.look(now, 0.1)
            if len(started) > before:
                begun.append(now)
                started[-1].code = 1
            now += 0.1
        pauses = [round(later - earlier, 1) for earlier, later in pairwise(begun)]
        one.look(now, 0.1)
    lines = caplog.messages

    assert pauses == sorted(pauses)
    assert pauses[0] < 0.5 and 9 < pauses[-1] < 11
    assert len(lines) == len(started), "one line each"
    assert lines[0] == "worker 1 ended with 1 after 0 s; starting it again in 0.2 s"


@pytest.fixture
def arriving(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Signal numbers that the supervisor will be told of, one per wait; nothing afterwards."""
    numbers: list[int] = []

    def told(*_: object) -> SimpleNamespace | None:
        return SimpleNamespace(si_signo=numbers.pop(0)) if numbers else None

    monkeypatch.setattr(signal, "pthread_sigmask", lambda *_: set())
    monkeypatch.setattr(signal, "sigtimedwait", told)
    return numbers


def run(tmp_path: Path, started: list[Process], *, obedient: bool) -> int:
    """A supervisor with one worker, which goes when it is told to stop accepting, if it obeys."""
    one = supervisor.Supervisor(Settings(data_dir=str(tmp_path), port=0, lame_duck_sec=0, drain_sec=0))
    original: Callable[[int], None] = Process._take

    def take(self: Process, number: int) -> None:
        original(self, number)
        if obedient and number == STOP_ACCEPTING:
            self.code = 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Process, "_take", take)
        return one.run()


def test_a_data_plane_that_stood_still_and_goes_on_keeps_its_workers(arriving: list[int], started: list[Process], tmp_path: Path) -> None:
    made_up = 1_101_380_576  # what CPython 3.11 told of a wait that SIGSTOP and SIGCONT had interrupted
    arriving += [made_up, signal.SIGCHLD, signal.SIGTERM]

    status = run(tmp_path, started, obedient=True)

    assert (status, arriving) == (0, [])
    assert [process.signals for process in started] == [[signal.SIGTERM, STOP_ACCEPTING]]


def test_asked_twice_it_ends_at_once(arriving: list[int], started: list[Process], tmp_path: Path) -> None:
    arriving += [signal.SIGTERM, signal.SIGTERM]

    assert run(tmp_path, started, obedient=False) == 137
    assert started[0].code == -signal.SIGKILL
