"""The counting process as a data plane keeps it: one for all workers, on a socket that outlives it, started again when it ends."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path

from data_plane.seat import LEAST_PAUSE_S, MOST_PAUSE_S, STEADY_S, say
from n4n.runtime.process import Child, own_command, spawn
from n4n.runtime.settings import Settings

LONGEST_PATH = 100  # of a Unix socket: sun_path holds 108 bytes
BACKLOG = 64
ROLE = "data-plane counting"


class CountingSeat:
    """Where the process sits. `path`: of the socket, '' where there can be none; then nothing is counted, and everything else goes on."""

    def __init__(self, folder: Path, settings: Settings, draw: Callable[[float, float], float]) -> None:
        self._settings, self._draw = settings, draw
        self._child: Child | None = None
        self._began = self._due = self._pause_s = 0.0
        self._sock: socket.socket | None = None
        self.path = ""
        path = str(folder / "counting.sock")
        if not settings.count_one_in:
            return
        try:
            self._sock = _listening(path)
            self.path = path
        except OSError as error:
            say(f"tokens are not counted: there is no socket at {path} ({(error.strerror or str(error)).lower()})", "tokens_not_counted")

    def __repr__(self) -> str:
        return f"<CountingSeat {self.path or 'nowhere'}: {self._child!r}>"

    def look(self, now: float) -> None:
        """Fills the seat, after a growing pause where whoever sat there did not stay."""
        if self._child is not None and (code := self._child.poll()) is not None:
            self._child = None
            self._pause_s = 0.0 if now - self._began >= STEADY_S else min(MOST_PAUSE_S, max(LEAST_PAUSE_S, self._pause_s * 2))
            self._due = now + self._pause_s * self._draw(0.75, 1.25)
            say(f"the counting process ended with {code}; starting it again", "counting_process_ended")
        if self._child is None and self._sock is not None and now >= self._due:
            self._began = now
            self._child = spawn(
                ROLE, own_command("data-plane", "--counting", "1"), environ=self._environ(), keep_open=(self._sock.fileno(),)
            )

    def _environ(self) -> dict[str, str]:
        assert self._sock is not None
        told = replace(self._settings, counting=1, listen_fd=self._sock.fileno())
        settings = {f"N4N_{field.name.upper()}": str(getattr(told, field.name)) for field in fields(Settings)}
        return {**os.environ, **settings}

    def stop(self) -> None:
        """Ends it: nobody asks any more."""
        if self._child is not None:
            self._child.stop(within_s=1.0)
        if self._sock is not None:
            self._sock.close()
            with suppress(OSError):
                os.unlink(self.path)


def _listening(path: str) -> socket.socket:
    """A socket that our own user alone can reach."""
    if len(path.encode()) > LONGEST_PATH:
        raise OSError(f"its path is longer than {LONGEST_PATH} bytes")
    with suppress(FileNotFoundError):
        os.unlink(path)
    sock = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)
    try:
        sock.bind(path)
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    finally:
        os.umask(before)
    return sock
