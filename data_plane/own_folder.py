"""Keeps a second data plane out of a data directory: the two would delete each other's metrics and start from each other's catalog.

The lock is a flock(2), which ends with the process that holds it. A directory that cannot be written is told and used without a lock: a
router must start also where the disk is full.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from data_plane.seat import say
from n4n.core.errors import StartFailed

PATIENCE_S = 7.0  # a data plane that is on its way out holds it until its last request has ended; under `n4n up` at most 4 s
_LOOK_S = 0.05


@contextmanager
def own_folder(path: Path, patience_s: float = PATIENCE_S) -> Iterator[None]:
    """Inside, this directory is ours; StartFailed when another data plane goes on using it."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path / "data-plane.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        say(f"the data directory {path} cannot be written ({why}): no catalog will outlive a restart", "data_directory_not_writable")
        yield
        return
    try:
        deadline = time.monotonic() + patience_s
        while not _lock(descriptor):
            if time.monotonic() >= deadline:
                raise StartFailed(f"{path} is in use by another data plane{_holder(descriptor)}: give this one its own with --data-dir")
            time.sleep(_LOOK_S)
        with suppress(OSError):  # no room for a number, and none needed
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(descriptor: int) -> str:
    pid = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
    return f" (pid {pid})" if pid else ""
