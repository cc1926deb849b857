"""Lines to a file descriptor without ever blocking the loop: collected during one loop tick, written together.

A pipe takes writes of up to PIPE_BUF bytes whole, so lines of several workers on one pipe do not mix; a file takes any whole. A reader that
stalls, or a disk that is full, fills a bounded buffer; what does not fit is dropped and counted.
"""

from __future__ import annotations

import asyncio
import errno
import os
import select
import stat
from collections import deque

from n4n.runtime.pipes import PIPE_BUF, has_room

BUFFER_LIMIT = 8 << 20  # bytes kept while the reader stalls
RETRY_S = 0.02
FILE_BATCH = 64 << 10  # bytes of one write to a file or a device
_FULL = frozenset((errno.EAGAIN, errno.ENOSPC, errno.EDQUOT, errno.EFBIG))  # it may take more later: a line that is half out waits for that


class LineWriter:
    """Appends lines to `fd`; `dropped` counts the lines lost to a stalled reader or a full disk."""

    def __init__(self, fd: int, loop: asyncio.AbstractEventLoop) -> None:
        self._fd, self._loop = fd, loop
        self._lines: deque[bytes] = deque()
        self._size = 0
        self._scheduled = False
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)
        self._most = FILE_BATCH if _is_file(fd) else PIPE_BUF
        self.dropped = 0

    def write(self, line: bytes) -> None:
        """Queues one line, its newline included; it leaves at the end of this loop tick."""
        if self._size + len(line) > BUFFER_LIMIT:
            self.dropped += 1
            return
        self._lines.append(line)
        self._size += len(line)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._scheduled = False
        while self._lines:
            if not self._write_out(self._batch()):
                self._scheduled = True
                self._loop.call_later(RETRY_S, self._flush)
                return

    def _takes(self, batch: bytes) -> bool:
        """Whether it can be written without waiting for the reader."""
        return bool(self._poll.poll(0)) and (len(batch) <= self._most or has_room(self._fd, len(batch)))

    def _batch(self) -> bytes:
        if self._size <= self._most:
            whole = b"".join(self._lines)
            self._lines.clear()
            self._size = 0
            return whole
        batch = [self._lines.popleft()]
        size = len(batch[0])
        while self._lines and size + len(self._lines[0]) <= self._most:
            batch.append(self._lines.popleft())
            size += len(batch[-1])
        self._size -= size
        return b"".join(batch)

    def _write_out(self, batch: bytes) -> bool:
        """Whether it is out, or lost; else it is the first in line again, or what is left of it."""
        try:
            while batch and self._takes(batch):
                batch = batch[os.write(self._fd, batch) :]
        except OSError as error:
            if error.errno not in _FULL:  # the reader is gone: there is nobody left to tell
                self.dropped += batch.count(b"\n")
                return True
        if batch:
            self._lines.appendleft(batch)
            self._size += len(batch)
        return not batch

    def flush(self) -> None:
        """Writes what is queued as far as the reader takes it at once; for the end of the process."""
        while self._lines and self._poll.poll(100):
            size = self._size
            if not self._write_out(self._batch()) and self._size == size:
                break


def _is_file(fd: int) -> bool:
    """Whether it is a file, or a device other than a terminal; what is closed is none."""
    try:
        kind = os.fstat(fd).st_mode
    except OSError:
        return False
    return stat.S_ISREG(kind) or (stat.S_ISCHR(kind) and not os.isatty(fd))
