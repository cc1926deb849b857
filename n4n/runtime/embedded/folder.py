"""The data directory: whose it is now, whether it can be written, and who may use which part of it.

Locks are flock(2): they end with the last process that holds them, however it ends. A server inherits the lock of its own part, so that
"is anything of the old server still alive" is one question to the kernel, with no process ids to mistake.
"""

from __future__ import annotations

import errno
import fcntl
import os
import pwd
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from n4n.core.errors import StartFailed

Tell = Callable[[str], None]

OLD_SERVER_WAIT_S = 30.0  # a shutdown checkpoint of a laptop's database takes well under that
TELL_AFTER_S = 1.0  # what takes longer is told
PAUSE_S = 0.02


def silence(_line: str) -> None:
    """Where nobody listens."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to use a data directory, held by this process until `release` or its end."""

    path: Path
    descriptor: int

    def release(self) -> None:
        """Give it back; once only."""
        os.close(self.descriptor)


def claim(data_dir: Path) -> Claim:
    """Make the directory if need be, see that it can be written, and keep every other `n4n up` out of it."""
    path = data_dir.expanduser().absolute()
    with translated(path):
        # root's server runs as another user, who must pass through but needs to see nothing
        path.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700, parents=True, exist_ok=True)
        _try_writing(path)
        descriptor = _lock_file(path / "up.lock")
    if not _lock(descriptor):
        holder = _holder(descriptor)
        os.close(descriptor)
        raise StartFailed(f"{path} is in use by a running n4n up{holder}: stop that one, or choose another directory with --data-dir")
    sign(descriptor, os.getpid())
    return Claim(path, descriptor)


@contextmanager
def server_lock(data_dir: Path, name: str, tell: Tell) -> Iterator[int]:
    """The lock of one server's files, for the child to inherit; waits for an old server that is still going down.

    It happens after kill -9 of `n4n up`: the servers get their signal, and write out what they hold.
    """
    with translated(data_dir):
        descriptor = _lock_file(data_dir / f"{name}.lock")
    try:
        _await_lock(descriptor, data_dir, name, tell)
        yield descriptor
    finally:
        os.close(descriptor)


def _await_lock(descriptor: int, data_dir: Path, name: str, tell: Tell) -> None:
    begun, told = time.monotonic(), False
    while not _lock(descriptor):
        waited = time.monotonic() - begun
        if waited > OLD_SERVER_WAIT_S:
            raise StartFailed(
                f"{data_dir / name} is in use by an older {name} server{_holder(descriptor)} that does not end: stop it first"
            )
        if waited > TELL_AFTER_S and not told:
            told = True
            tell(f"waiting for the {name} server of an earlier run{_holder(descriptor)} to end")
        time.sleep(PAUSE_S)


def sign(descriptor: int, pid: int) -> None:
    """Write into a lock who holds it; only ever shown to a person."""
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{pid}\n".encode(), 0)


def require_space(path: Path, mebibytes: int) -> None:
    """StartFailed if the disk under `path` has less free than that."""
    found = os.statvfs(path)
    free = found.f_bavail * found.f_frsize >> 20
    if free < mebibytes:
        raise StartFailed(
            f"only {free} MiB are free for {path}: free at least {mebibytes} MiB, or choose another directory with --data-dir"
        )


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Every OSError inside becomes one line about the data directory."""
    try:
        yield
    except OSError as error:
        raise StartFailed(refusal(path, error)) from error


def refusal(path: Path, error: OSError) -> str:
    """What went wrong with the data directory, and what to do."""
    remedy = "choose another directory with --data-dir"
    if error.errno == errno.ENOSPC:
        return f"no space is left for {path}: free some, or {remedy}"
    culprit = Path(os.fsdecode(error.filename or path))
    detail = f" ({culprit}{_owner(culprit)})" if culprit != path else _owner(path)
    return f"the data directory {path} cannot be written: {(error.strerror or str(error)).lower()}{detail}; {remedy}"


def _owner(path: Path) -> str:
    try:
        uid = path.stat().st_uid
    except OSError:
        return ""
    return f", it belongs to {user_name(uid)}" if uid != os.geteuid() else ""


def user_name(uid: int) -> str:
    """As people know the user."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _try_writing(path: Path) -> None:
    try:
        with tempfile.TemporaryFile(dir=path) as probe:
            probe.write(b"n4n")
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error  # the probe's own name tells nobody anything


def _lock_file(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(descriptor: int) -> str:
    pid = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
    return f" (pid {pid})" if pid else ""
