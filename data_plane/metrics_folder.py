"""Where the workers of one data plane share their metrics: in memory, so that a full disk cannot touch them.

The files are mapped. A page of a mapped file that the disk cannot hold any more kills the process that touches it (SIGBUS), and no
`except` catches that; so they lie in the machine's memory file system where there is one with room, else in the data directory.
"""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

MEMORY = Path("/dev/shm")  # noqa: S108  # a folder of our own below it, with a name of its own and mode 0700
ROOM = 16 << 20  # bytes that must be free there


def metrics_folder(data_path: Path, memory: Path = MEMORY) -> Path:
    """The folder of this data directory, made if need be; ours alone."""
    digest = hashlib.sha256(str(data_path).encode()).hexdigest()[:16]
    folder = memory / f"n4n-{os.getuid()}-{digest}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found, room = folder.lstat(), os.statvfs(folder)
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and room.f_bavail * room.f_frsize >= ROOM:
            return folder
    except OSError:
        pass  # no such file system, or no room in it
    folder = data_path / "metrics"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
