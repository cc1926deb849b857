"""The listening socket of a data plane, which all its workers accept from, and which loses no connection when it closes."""

from __future__ import annotations

import ctypes
import errno
import socket
import struct
import sys
import time
from contextlib import suppress

from n4n.core.errors import StartFailed

BACKLOG = 1024  # for each worker; the kernel allows net.core.somaxconn in all
PATIENCE_S = 3.0  # the workers of a supervisor that was killed need a moment to leave the port
HANDSHAKE_S = 0.05  # connections whose handshake is under way when newcomers are held back
_LOOK_S = 0.05

# socket(7) and linux/filter.h, absent from Python's socket module. The program sees a TCP segment from its header on and drops what has
# SYN without ACK in byte 13: whoever calls calls again a second later, while what has begun comes in.
_SO_ATTACH_FILTER, _SO_DETACH_FILTER = 26, 27
_LDB, _AND, _JEQ, _RET = 0x30, 0x54, 0x15, 0x06
_NO_NEWCOMERS = ((_LDB, 0, 0, 13), (_AND, 0, 0, 0x12), (_JEQ, 0, 1, 0x02), (_RET, 0, 0, 0), (_RET, 0, 0, 0xFFFFFFFF))


def listening_socket(host: str, port: int, workers: int = 1) -> socket.socket:
    """A listening socket for so many workers; StartFailed when the port is taken."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        sock = socket.socket(family, kind, protocol)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # workers that run without a supervisor may share a port
        sock.bind(address)
        sock.listen(BACKLOG * workers)
    except OSError as error:
        raise _taken(host, port, error) from error
    return sock


def check_free(host: str, port: int) -> None:
    """StartFailed when somebody goes on listening on the port, also somebody who would share it."""
    deadline = time.monotonic() + PATIENCE_S
    while (problem := _problem(host, port)) is not None:
        if problem.errno != errno.EADDRINUSE or time.monotonic() >= deadline:
            raise _taken(host, port, problem) from problem
        time.sleep(_LOOK_S)


def _problem(host: str, port: int) -> OSError | None:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        return error
    return None


def _taken(host: str, port: int, error: OSError) -> StartFailed:
    return StartFailed(f"cannot listen on {host}:{port}: {error.strerror}; choose another with --port or N4N_PORT")


def hold_newcomers_back(sock: socket.socket) -> None:
    """From here on nobody new gets into this socket's queue, whoever else holds it; accept what is in it, then close, and none is reset.

    Closing a socket whose queue is not empty resets whoever waits there. Elsewhere than on Linux this does nothing.
    """
    if not sys.platform.startswith("linux"):
        return
    code = b"".join(struct.pack("=HBBI", *instruction) for instruction in _NO_NEWCOMERS)
    kept = ctypes.create_string_buffer(code, len(code))
    with suppress(OSError):  # a kernel without filters: closing stays as it was
        sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("@HP", len(_NO_NEWCOMERS), ctypes.addressof(kept)))


def let_newcomers_in(sock: socket.socket) -> None:
    """Takes that back."""
    with suppress(OSError):  # nobody was held back
        sock.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)
