"""Signals as a waiting program wants them: wake up at once, know that it was asked to stop, and give up politeness when asked twice."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from types import FrameType

STOP = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Signals:
    """Installed on the main thread. `at_once` runs inside the handler when a second request to stop comes."""

    def __init__(self, at_once: Callable[[], None]) -> None:
        self._at_once = at_once
        self._asked = 0
        self._read, write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        for number in STOP:
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup means it
                signal.signal(number, self._ask)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)  # only to wake up

    def __repr__(self) -> str:
        return f"<Signals: asked to stop {self._asked} times>"

    @property
    def stopping(self) -> bool:
        """Whether somebody asked us to stop."""
        return self._asked > 0

    def wait(self, within_s: float) -> None:
        """Sleep until a signal arrives, a child ended, or `within_s` passed."""
        ready, _, _ = select.select([self._read], [], [], max(within_s, 0))
        if ready:
            os.read(self._read, 4096)

    def _ask(self, _number: int, _frame: FrameType | None) -> None:
        self._asked += 1
        if self._asked > 1:
            self._at_once()
