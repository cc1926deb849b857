"""How one of several workers takes in clients: all wait at one queue, and whoever holds the fewest connections takes the next.

The queue is the kernel's, on the one listening socket that the workers share; a connection is nobody's until a worker accepts it, so that
none is lost with a worker that dies, stands still or leaves. A worker that holds clearly more than another leaves what waits to that one,
for PATIENCE_S at most: then the other is asleep, and not waited for until it stirs.

TAKING ──others hold fewer──▶ WAITING   the socket is not watched; a look every LOOK_S
WAITING ─our turn, or empty─▶ TAKING
WAITING ─PATIENCE_S─────────▶ TAKING    who did not take it is overlooked
any ────no descriptors──────▶ PAUSED    takes no part for PAUSE_S, so that the others do
any ────stop────────────────▶ STOPPED   what is in the queue is taken once more
"""

from __future__ import annotations

import asyncio
import logging
import select
import socket
from collections.abc import Callable
from typing import Protocol

from aiohttp import web

from data_plane.listeners import BACKLOG
from data_plane.tally import Tally

TELL_S = 0.05  # how old a count may be where nobody came, but some may have left
LOOK_S = 0.001
PATIENCE_S = 0.1  # a worker may be busy for 50 ms while it takes in a catalog
PAUSE_S = 1.0  # asyncio's own after a failed accept
log = logging.getLogger("n4n.data_plane")


class Intake(Protocol):
    """What lets clients in: aiohttp's own site where one worker has the socket for itself, else `SharedIntake`."""

    async def start(self) -> None:
        """From here on clients come in."""

    async def stop(self) -> None:
        """From here on nobody comes in. Who was let in before is served."""


class SharedIntake:
    """One worker's part. `sock` does not block; it is closed at the end."""

    def __init__(self, server: web.Server, sock: socket.socket, tally: Tally) -> None:
        self._server, self._sock, self._tally = server, sock, tally
        self._loop = asyncio.get_running_loop()
        self._queue = select.poll()
        self._queue.register(sock, select.POLLIN)
        self._coming: dict[asyncio.Task[object], web.RequestHandler] = {}  # accepted, their connections not quite there yet
        self._timer: asyncio.TimerHandle | None = None
        self._telling: asyncio.TimerHandle | None = None
        self._watching = False

    def __repr__(self) -> str:
        return f"<SharedIntake: holds {self._held()}, {'taking' if self._watching else 'not taking'}; {self._tally!r}>"

    async def start(self) -> None:
        """From here on clients come in."""
        self._watch()
        self._tell()

    async def stop(self) -> None:
        """Takes what is in the queue, and no more. Once more is harmless."""
        if self._sock.fileno() < 0:
            return
        if self._telling is not None:
            self._telling.cancel()
        self._unwatch()
        self._tally.withdraw()
        for _ in range(BACKLOG):
            if not self._take():
                break
        self._unwatch()
        await asyncio.gather(*self._coming, return_exceptions=True)
        self._sock.close()

    def _held(self) -> int:
        return len(self._server.connections) + sum(
            isinstance(one, web.RequestHandler) and one.transport is None for one in self._coming.values()
        )

    def _tell(self) -> None:
        if self._watching:
            self._tally.tell(self._held())
        self._telling = self._loop.call_later(TELL_S, self._tell)

    def _watch(self) -> None:
        self._tally.tell(self._held())
        self._watching, self._timer = True, None
        self._loop.add_reader(self._sock, self._ready)

    def _unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._watching:
            self._loop.remove_reader(self._sock)
        self._watching, self._timer = False, None

    def _later(self, seconds: float, step: Callable[[], None]) -> None:
        self._unwatch()
        self._timer = self._loop.call_later(seconds, step)

    def _ready(self) -> None:
        """Somebody is in the queue: takes our share of it."""
        held = self._held()
        self._tally.tell(held)
        while self._tally.ours(held):
            if not self._take():
                return
            held += 1
            self._tally.tell(held)
        since = self._loop.time()
        self._later(LOOK_S, lambda: self._wait(since))

    def _wait(self, since: float) -> None:
        """Somebody was in the queue whom another should take."""
        held = self._held()
        self._tally.tell(held)
        if self._tally.ours(held) or not self._queue.poll(0):
            self._watch()
        elif self._loop.time() >= since + PATIENCE_S:
            self._tally.overlook()
            self._watch()
        else:
            self._later(LOOK_S, lambda: self._wait(since))

    def _take(self) -> bool:
        """Lets one in, if one is there."""
        try:
            sock, _ = self._sock.accept()
        except BlockingIOError:
            return False
        except ConnectionAbortedError:  # it left the queue by itself
            return True
        except OSError as error:
            log.warning("cannot accept connections: %s; trying again in %.0f s", error.strerror, PAUSE_S)
            self._tally.withdraw()
            self._later(PAUSE_S, self._watch)
            return False
        sock.setblocking(False)
        protocol = self._server()
        task = self._loop.create_task(self._let_in(sock, protocol))
        self._coming[task] = protocol
        task.add_done_callback(self._coming.pop)
        return True

    async def _let_in(self, sock: socket.socket, protocol: web.RequestHandler) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: protocol, sock)
        except OSError as error:  # it has left already
            log.info("a connection was lost at once: %s", error.strerror)
            sock.close()
