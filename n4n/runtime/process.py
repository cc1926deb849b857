"""Child programs: named by their role, dying with their parent, stopped politely and then surely.

When to start a dead one again, and after which pause, is the caller's business.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import n4n
from n4n.runtime import launch


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The child is who we are."""

    def __str__(self) -> str:
        return "same"


@dataclass(frozen=True, slots=True)
class AsUser:
    """The child is another user. Only root may ask for it."""

    uid: int
    gid: int

    def __str__(self) -> str:
        return f"user:{self.uid}:{self.gid}"


@dataclass(frozen=True, slots=True)
class PassingFolders:
    """Another user who may enter every folder, so that its files may lie under root's home; root needs CAP_SETPCAP to grant it."""

    uid: int
    gid: int

    def __str__(self) -> str:
        return f"passing:{self.uid}:{self.gid}"


@dataclass(frozen=True, slots=True)
class Mapped:
    """We ourselves on disk, this number in a user namespace of the child's own; works where root is the only user there is."""

    uid: int
    gid: int

    def __str__(self) -> str:
        return f"mapped:{self.uid}:{self.gid}"


Identity = Unchanged | AsUser | PassingFolders | Mapped


@dataclass(frozen=True, slots=True)
class Child:
    """A running child program. `stop_signal` is what it understands as: finish and go."""

    role: str
    popen: subprocess.Popen[bytes]
    stop_signal: signal.Signals

    def __repr__(self) -> str:
        code = self.popen.returncode
        return f"<{self.role}: pid {self.pid}, {'running' if code is None else f'ended with {code}'}>"

    @property
    def pid(self) -> int:
        """The process id; the program's own, as the launcher execs."""
        return self.popen.pid

    def poll(self) -> int | None:
        """The exit status (negative: the signal that ended it), None while it runs."""
        return self.popen.poll()

    def ask_to_stop(self) -> None:
        """Send the stop signal and return at once; nothing happens if it has ended."""
        self.popen.send_signal(self.stop_signal)

    def stop(self, within_s: float = 10.0) -> int:
        """Ask, wait for at most `within_s`, then kill it with all it started; returns the exit status. Blocks; repeating it is harmless."""
        self.ask_to_stop()
        try:
            return self.popen.wait(within_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return self.popen.wait()

    def kill(self) -> None:
        """End it and its process group at once."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)


def spawn(
    role: str,
    command: Sequence[str],
    *,
    stop_signal: signal.Signals = signal.SIGTERM,
    identity: Identity = Unchanged(),
    folder: Path | None = None,
    environ: Mapping[str, str] | None = None,
    output: IO[bytes] | None = None,
    errors: IO[bytes] | None = None,
    keep_open: Sequence[int] = (),
) -> Child:
    """Start `command` (an absolute program path and its arguments) as a child that gets `stop_signal` when we die.

    Call it on the main thread: the kernel sends that signal when the *thread* that spawned ends (prctl(2)). The child has a process group
    of its own, so that Ctrl-C in a terminal reaches us alone and we decide the order of stopping. Its output goes to `output`, else to
    ours, its error output to `errors`, else to `output`, else to ours. `keep_open` are descriptors that it inherits. A program that cannot
    be run ends with status 127 and one line on its error output.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError(f"{role} must be spawned on the main thread: it would be stopped when the thread that spawns it ends")
    popen = subprocess.Popen(
        launcher(command, stop_signal, identity, folder),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=errors or output,
        env=environ,
        pass_fds=keep_open,
        start_new_session=True,
    )
    return Child(role, popen, stop_signal)


def launcher(
    command: Sequence[str],
    stop_signal: signal.Signals = signal.SIGKILL,
    identity: Identity = Unchanged(),
    folder: Path | None = None,
) -> list[str]:
    """The whole command line for `command` under n4n.runtime.launch, for a child of this very process."""
    where = folder or Path.cwd()
    head = [sys.executable, "-I", "-S", launch.__file__]
    return [*head, str(os.getpid()), str(int(stop_signal)), str(identity), str(where), *command]


def own_command(role: str, *arguments: str) -> list[str]:
    """`n4n ROLE …` in this interpreter, as `ps` shows it. Nothing is imported from the working directory, unless n4n itself lies there."""
    ours = Path.cwd() == Path(n4n.__file__).resolve().parent.parent
    return [sys.executable, *([] if ours else ["-P"]), "-m", "n4n", role, *arguments]
