"""What a supervisor and its worker say to each other: signals down, single bytes on a pipe (never half written) up."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

SERVES, LIVES, LEAVES = b"s", b".", b"l"
STOP_ACCEPTING = signal.SIGUSR2  # to a worker: another has your socket now, or nobody waits there any more
AT_ONCE = 137  # the exit status of who was asked twice to stop


class Reports:
    """The worker's end. `descriptor` 0: there is no supervisor, and nothing is said."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._parent = os.getppid()
        if descriptor:
            os.set_blocking(descriptor, False)

    @property
    def supervised(self) -> bool:
        """Whether a supervisor is there, and still the one that started us."""
        return self._descriptor != 0 and os.getppid() == self._parent

    @property
    def orphaned(self) -> bool:
        """Whether our supervisor is gone: its successor wants the port."""
        return self._descriptor != 0 and os.getppid() != self._parent

    def say(self, word: bytes) -> None:
        """Say it, or not, if nobody listens."""
        if self._descriptor:
            with suppress(OSError):
                os.write(self._descriptor, word)


def pipe() -> tuple[int, int]:
    """The supervisor's end, which never blocks, and the worker's."""
    ours, theirs = os.pipe()
    os.set_blocking(ours, False)
    return ours, theirs


def heard(descriptor: int) -> bytes:
    """What was said since the last look; empty: nothing."""
    try:
        return os.read(descriptor, 4096)
    except BlockingIOError:
        return b""
