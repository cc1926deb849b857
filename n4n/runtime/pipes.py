"""How much a pipe takes without a wait for whoever reads it."""

from __future__ import annotations

import fcntl
import select
import sys
import termios

PIPE_BUF = select.PIPE_BUF  # bytes; a pipe that is ready to be written to takes so many at once


def has_room(fd: int, size: int) -> bool:
    """Whether so much fits into a pipe at once, pages that are half used counted as full; True: it is no pipe, or as good as empty."""
    try:
        capacity = fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ)
        waiting = int.from_bytes(fcntl.ioctl(fd, termios.FIONREAD, bytes(4)), sys.byteorder)
    except OSError:
        return True
    return waiting == 0 or 2 * waiting + PIPE_BUF + size <= capacity
