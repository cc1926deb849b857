"""Whether a TCP port is free to listen on, and finding one that is."""

from __future__ import annotations

import errno
import random
import socket
import time
from collections.abc import Callable, Collection

from n4n.core.errors import StartFailed

LOOPBACK = "127.0.0.1"
PATIENCE_S = 10.0  # what an earlier run left behind may still be closing its ports
PAUSE_S = 0.05
LASTING = range(20_000, 32_000)  # below the range from which the kernel takes ports for outgoing connections (ip(7))


def is_free(host: str, port: int) -> bool:
    """Whether a server could listen there now; StartFailed when the address is none of this machine's."""
    try:
        for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE):
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return False
        if error.errno == errno.EACCES:
            raise StartFailed(f"port {port} may only be opened by root: choose one above 1023 with --port or --admin-port") from error
        raise StartFailed(f"cannot listen on {host} port {port}: {error.strerror or error}") from error
    return True


def settled(host: str, port: int, flag: str, *, patient: bool, keep_waiting: Callable[[], bool]) -> int:
    """The port to listen on: `port` once it is free, or a free one for 0. StartFailed naming `flag` when it is taken.

    `patient`: an earlier run ended without a word, so a taken port may be one that it is still closing.
    """
    if port == 0:
        return any_free(host)
    if not becomes_free(host, port, patient=patient, keep_waiting=keep_waiting):
        raise StartFailed(f"port {port} on {host} is taken by another program: stop it, or choose another port with {flag}")
    return port


def becomes_free(host: str, port: int, *, patient: bool, keep_waiting: Callable[[], bool]) -> bool:
    """Whether it is free, now or, if `patient`, within the time that an earlier run may need to go."""
    deadline = time.monotonic() + (PATIENCE_S if patient else 0.0)
    while not is_free(host, port):
        if time.monotonic() >= deadline or not keep_waiting():
            return False
        time.sleep(PAUSE_S)
    return True


def any_free(host: str) -> int:
    """A port that is free now, and that no outgoing connection takes until it is listened on."""
    return lasting(host, ())


def lasting(host: str, but: Collection[int]) -> int:
    """A free port to be written down and used again at later starts."""
    for port in random.sample(LASTING, 200):
        if port not in but and is_free(host, port):
            return port
    raise StartFailed(f"no free port from {LASTING.start} to {LASTING.stop - 1} was found on {host}: stop some programs that listen there")


def reachable(host: str) -> str:
    """Where a program on this machine finds a server that listens on `host`, as a URL spells it."""
    told = {"0.0.0.0": LOOPBACK, "": LOOPBACK, "::": "::1"}.get(host, host)
    return f"[{told}]" if ":" in told else told


def accepts(host: str, port: int) -> bool:
    """Whether somebody listens there now."""
    try:
        with socket.create_connection((host, port), timeout=0.5):
            return True
    except OSError:
        return False
