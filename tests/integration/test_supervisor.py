"""The data plane's supervisor: what makes it stop, and what does not."""

import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

from data_plane import supervisor
from n4n.runtime.settings import Settings


class Worker:
    """A worker that runs until it is asked to stop."""

    def __init__(self) -> None:
        self.stopped = False

    def poll(self) -> int | None:
        return 0 if self.stopped else None

    def ask_to_stop(self) -> None:
        self.stopped = True

    def kill(self) -> None:
        assert self.stopped


@pytest.fixture
def arriving(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Signal numbers that the supervisor will be told of, one per wait."""
    numbers: list[int] = []
    monkeypatch.setattr(signal, "pthread_sigmask", lambda *_: set())
    monkeypatch.setattr(signal, "sigtimedwait", lambda *_: SimpleNamespace(si_signo=numbers.pop(0)))
    return numbers


def test_a_data_plane_that_stood_still_and_goes_on_keeps_its_workers(
    arriving: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    worker = Worker()
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", "")
    monkeypatch.setattr(supervisor, "spawn", lambda *_, **__: worker)
    made_up = 1_101_380_576  # what CPython 3.11 told of a wait that SIGSTOP and SIGCONT had interrupted
    arriving += [made_up, signal.SIGCHLD, signal.SIGTERM]

    status = supervisor.Supervisor(Settings(data_dir=str(tmp_path), port=0)).run()

    assert (status, arriving) == (0, [])
    assert worker.stopped
