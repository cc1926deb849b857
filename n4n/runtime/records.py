"""Lines to a file descriptor without ever blocking the loop: collected during one loop tick, written together.

A pipe takes writes of up to PIPE_BUF bytes whole, so lines of several workers on one pipe do not mix. A reader that
stalls fills a bounded buffer; what does not fit is dropped and counted.
"""

from __future__ import annotations

import asyncio
import os
import select
from collections import deque

PIPE_BUF = select.PIPE_BUF
BUFFER_LIMIT = 8 << 20  # bytes kept while the reader stalls
RETRY_S = 0.02


class LineWriter:
    """Appends lines to `fd`; `dropped` counts the lines lost to a stalled reader."""

    def __init__(self, fd: int, loop: asyncio.AbstractEventLoop) -> None:
        self._fd, self._loop = fd, loop
        self._lines: deque[bytes] = deque()
        self._size = 0
        self._scheduled = False
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)
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
            if not self._writable():
                self._scheduled = True
                self._loop.call_later(RETRY_S, self._flush)
                return
            self._write_out(self._batch())

    def _writable(self) -> bool:
        return bool(self._poll.poll(0))

    def _batch(self) -> bytes:
        batch = [self._lines.popleft()]
        size = len(batch[0])
        while self._lines and size + len(self._lines[0]) <= PIPE_BUF:
            batch.append(self._lines.popleft())
            size += len(batch[-1])
        self._size -= size
        return b"".join(batch)

    def _write_out(self, batch: bytes) -> None:
        try:
            while batch:
                batch = batch[os.write(self._fd, batch) :]
        except BlockingIOError:  # somebody made the descriptor non-blocking: what is left waits its turn
            self._lines.appendleft(batch)
            self._size += len(batch)
        except OSError:  # the reader is gone: there is nobody left to tell
            self.dropped += 1

    def flush(self) -> None:
        """Writes what is queued as far as the reader takes it at once; for the end of the process."""
        while self._lines and self._poll.poll(100):
            self._write_out(self._batch())
