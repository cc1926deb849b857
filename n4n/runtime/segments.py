"""An append-only log on this process's own disk: memory that the kernel keeps, cut into segments, read back until all is acknowledged.

A segment is a file of fixed size mapped into memory. To append is to copy bytes: no system call, and from that moment the bytes outlive
this process, however it ends. (They outlive the machine's power a little later, when the kernel has written them.) A lock on a file of
their run tells whether the process that writes segments is alive; those of a dead one are taken over, by one process.

    <run>.lock   held by its process with flock(2)         <run>.<number>.segment   lines, then zeros
"""

from __future__ import annotations

import fcntl
import logging
import mmap
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

SEGMENT_BYTES = 4 << 20
MOST_BYTES = 2 << 30  # one worker's segments: an hour of 800 requests a second, whose rows take 700 bytes each
MOST_HELD_BYTES = 64 << 20  # the same where there is no disk, and memory has to do
log = logging.getLogger("n4n.usage")


class Segment:
    """One piece of the log. `path` None: it is held in memory only, and ends with the process."""

    __slots__ = ("acked", "end", "memory", "path", "size")

    def __init__(self, path: Path | None, size: int = SEGMENT_BYTES) -> None:
        """A new one; OSError where there is no room for it."""
        self.path, self.size, self.end, self.acked = path, size, 0, 0
        descriptor = (
            os.memfd_create("n4n-usage") if path is None else os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        )
        try:
            os.posix_fallocate(descriptor, 0, size)  # so that a disk which fills up later cannot break a write
            self.memory = mmap.mmap(descriptor, size)
        except OSError:
            self._unlink()
            raise
        finally:
            os.close(descriptor)

    def __repr__(self) -> str:
        return f"<Segment {self.path and self.path.name}: {self.acked} of {self.end}>"

    def append(self, line: bytes) -> None:
        """There must be room."""
        end = self.end + len(line)
        self.memory[self.end : end] = line
        self.end = end

    def read(self, most: int) -> bytes:
        """What is not acknowledged yet, whole lines, about `most` bytes."""
        end = self.end
        if end - self.acked > most:
            end = self.memory.find(b"\n", self.acked + most) + 1 or end
        return self.memory[self.acked : end]

    def close(self) -> None:
        """It is of no more use to anybody."""
        self.memory.close()
        self._unlink()

    def _unlink(self) -> None:
        if self.path is not None:
            self.path.unlink(missing_ok=True)


class Segments:
    """One run's log. `name`: unique, of the characters of a file name; lines end with a newline and hold no zero byte."""

    def __init__(
        self,
        folder: Path,
        name: str,
        *,
        carried: Callable[[], list[bytes]],
        segment_bytes: int = SEGMENT_BYTES,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        """`carried`: the lines that every new segment begins with, so that those before it can go."""
        self._folder, self._name, self._carried = folder, name, carried
        self._segment_bytes, self._most_bytes = segment_bytes, most_bytes
        self._number = 0
        self._lock: int | None = None
        self._segments: list[Segment] = []
        self.dropped = 0  # lines there was no room for
        self._open()

    def __repr__(self) -> str:
        return f"<Segments {self._name}: {self._segments}>"

    @property
    def folder(self) -> Path:
        """Where all runs of this data directory have theirs."""
        return self._folder

    @property
    def waiting_bytes(self) -> int:
        """How much is not acknowledged."""
        return sum(one.end - one.acked for one in self._segments)

    def append(self, line: bytes) -> None:
        """Keeps a line; from now on it outlives this process."""
        segment = self._segments[-1] if self._segments else None
        if segment is None or segment.end + len(line) > segment.size:
            segment = self._open()
            if segment is None or segment.end + len(line) > segment.size:
                self._drop()
                return
        segment.append(line)

    def oldest(self) -> Segment | None:
        """The first segment that holds something not acknowledged."""
        return next((one for one in self._segments if one.acked < one.end), None)

    def acked(self, segment: Segment, end: int) -> None:
        """All before `end` is safe elsewhere; a segment that is full and safe goes."""
        segment.acked = max(segment.acked, end)
        for one in self._segments[:-1]:
            if one.acked < one.end:
                break
            self._segments.remove(one)
            one.close()

    def close(self) -> None:
        """The end of this run. What is acknowledged leaves nothing behind; the rest waits for whoever comes next."""
        for one in self._segments:
            if one.acked >= one.end and not self._carried():
                one.close()
        if self._lock is not None:
            if not self._of_run():
                _lock_path(self._folder, self._name).unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = None

    def _of_run(self) -> list[Path]:
        return sorted(self._folder.glob(f"{self._name}.*.segment"))

    def _open(self) -> Segment | None:
        """The next segment, on disk, else in memory; None where there is room in neither."""
        used = sum(one.size for one in self._segments)
        found = None
        if used + self._segment_bytes <= self._most_bytes:
            found = self._on_disk() or (self._in_memory() if used + self._segment_bytes <= MOST_HELD_BYTES else None)
        if found is not None:
            self._segments.append(found)
            for line in self._carried():
                if found.end + len(line) <= found.size:
                    found.append(line)
        return found

    def _on_disk(self) -> Segment | None:
        try:
            if self._lock is None:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._lock = _locked(self._folder, self._name)
            self._number += 1
            return Segment(self._folder / f"{self._name}.{self._number:06d}.segment", self._segment_bytes)
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            log.warning("usage cannot be kept in %s (%s): it is held in memory, and ends with this process", self._folder, why)
            return None

    def _in_memory(self) -> Segment | None:
        with suppress(OSError):
            return Segment(None, self._segment_bytes)
        return None

    def _drop(self) -> None:
        if not self.dropped:
            log.error("usage rows are lost: no control plane takes them, and %d MiB of them wait already", self.waiting_bytes >> 20)
        self.dropped += 1


class Orphan:
    """The log of a run whose process is gone, ours alone until it is let go."""

    def __init__(self, folder: Path, name: str, lock: int) -> None:
        self._folder, self._name, self._lock = folder, name, lock
        self._paths = sorted(folder.glob(f"{name}.*.segment"))

    def __repr__(self) -> str:
        return f"<Orphan {self._name}: {len(self._paths)} segments>"

    @property
    def name(self) -> str:
        """Of its run."""
        return self._name

    @property
    def paths(self) -> tuple[Path, ...]:
        """Its segments, oldest first."""
        return tuple(self._paths)

    def shipped(self, path: Path) -> None:
        """This segment is safe elsewhere."""
        path.unlink(missing_ok=True)
        self._paths.remove(path)

    def leave(self) -> None:
        """Lets go. What was not shipped is for whoever comes next."""
        if not self._paths:
            _lock_path(self._folder, self._name).unlink(missing_ok=True)
        os.close(self._lock)


def orphans(folder: Path) -> list[Orphan]:
    """Logs whose process is gone, taken over; those that are somebody's are passed by."""
    found = []
    for path in sorted(folder.glob("*.lock")):
        with suppress(OSError):
            name = path.name.removesuffix(".lock")
            found.append(Orphan(folder, name, _locked(folder, name, create=False)))
    return found


def _lock_path(folder: Path, name: str) -> Path:
    return folder / f"{name}.lock"


def _locked(folder: Path, name: str, *, create: bool = True) -> int:
    """The lock of a run; OSError when another holds it, or when it went while we asked."""
    path = _lock_path(folder, name)
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.stat(path).st_ino != os.fstat(descriptor).st_ino:
            raise FileNotFoundError(path)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
