"""One server and the connection to it, kept up in the background: the breaker of a store.

    OPEN ──the pause is over──▶ HALF_OPEN      connect, AUTH, SELECT, one PING; no caller waits for any of it
    HALF_OPEN ──PONG within the deadline──▶ CLOSED
    HALF_OPEN ──anything else──▶ OPEN          for a longer pause, with jitter
    CLOSED ──lost, silent, too many misses, garbage──▶ OPEN     all that is pending fails at once

Only while CLOSED there is a connection for callers; otherwise their calls fail at once. So the breaker's trial costs no request anything,
and the state tells the truth also where nobody calls: a quiet connection is asked for a PONG twice a second.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Protocol

from n4n.core.breaker import Breaker
from n4n.core.errors import StoreUnavailable
from n4n.runtime.stores.calls import Call, Deadlines
from n4n.runtime.stores.connection import Connection
from n4n.runtime.stores.dial import Dialer
from n4n.runtime.stores.place import Place
from n4n.runtime.stores.replies import Ask, Moved

QUIET_S = 0.5  # without a reply for so long, a PING is sent
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 2.0
SETTLED_S = 5.0  # up for so long, the next pause is a first one again
MOST_EARLY = 256
NOT_YET = "Redis is not connected yet"
CLOSED = "the connection to Redis was closed"


class Network(Protocol):
    """What a link tells its store."""

    def changed(self, link: Link) -> None:
        """`state` is another."""

    def send_on(self, link: Link, call: Call, where: Moved | Ask) -> None:
        """Another node is to be asked."""

    def unserved(self) -> None:
        """The map of the cluster's slots is not right."""


def pause_s(tries: int, draw: float) -> float:
    """How long to wait before the next try: doubled each time up to 2 s, and by `draw` in [0, 1) down to half of it, so that routers do not
    come back in step.
    """
    return min(FIRST_PAUSE_S * 2.0 ** min(tries, 16), LONGEST_PAUSE_S) * (1.0 - draw / 2)


async def ended(task: asyncio.Task[None]) -> None:
    """Cancels a task and waits for its end. An error of its own is raised: it would be a fault in here."""
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()


class Link:
    """Starts connecting when made. `locate` says where the server is, before each try."""

    __slots__ = ("_connection", "_deadlines", "_dialer", "_down", "_early", "_locate", "_network", "_place", "_task", "reason", "state")

    def __init__(self, network: Network, dialer: Dialer, deadlines: Deadlines, locate: Callable[[], Awaitable[Place]]) -> None:
        self._network, self._dialer, self._deadlines, self._locate = network, dialer, deadlines, locate
        self._connection: Connection | None = None
        self._place: Place | None = None
        self._early: list[tuple[Call, bool]] | None = []
        self._down = asyncio.Event()
        self.state, self.reason = Breaker.OPEN, NOT_YET
        self._task = asyncio.create_task(self._keep(), name="redis link")

    def __repr__(self) -> str:
        return f"<Link {self.state.value}: {self.reason or self._connection}>"

    @property
    def pending(self) -> int:
        """Commands whose reply has not come."""
        return self._connection.pending if self._connection is not None else 0

    @property
    def place(self) -> Place | None:
        """Where it was last tried."""
        return self._place

    def send(self, call: Call) -> None:
        """StoreUnavailable at once where it cannot be sent."""
        if self._connection is None:
            raise StoreUnavailable(self.reason)
        self._connection.send(call)

    def send_redirected(self, call: Call, *, asking: bool) -> None:
        """For a call that another node sent here. A node that is new to us is given the time of its first try: the call's deadline runs."""
        if self._connection is None and self._early is not None and len(self._early) < MOST_EARLY:
            self._early.append((call, asking))
        elif self._connection is None:
            raise StoreUnavailable(self.reason)
        elif asking:
            self._connection.send_asking(call)
        else:
            self._connection.send(call)

    async def close(self) -> None:
        """Ends the connection; what is pending fails."""
        await ended(self._task)
        if self._connection is not None:
            self._connection.end(CLOSED)
        self._become(Breaker.OPEN, CLOSED)
        self._give_up_early()

    # --- called by the connection ---

    def lost(self, connection: Connection, why: str) -> None:
        """Nothing can be sent from here on."""
        if connection is self._connection:
            self._connection = None
            self._become(Breaker.OPEN, why)
            self._down.set()

    def send_on(self, connection: Connection, call: Call, where: Moved | Ask) -> None:
        """The store knows the other nodes."""
        self._network.send_on(self, call, where)

    def unserved(self) -> None:
        """The store asks for the map anew."""
        self._network.unserved()

    # --- the background ---

    async def _keep(self) -> None:
        loop, tries = asyncio.get_running_loop(), 0
        while True:
            self._become(Breaker.HALF_OPEN, self.reason)
            try:
                self._place = await self._locate()
                connection = await self._dialer.connect(self._place, self)
            except StoreUnavailable as error:
                self._become(Breaker.OPEN, error.message)
                self._give_up_early()
            else:
                since = loop.time()
                self._use(connection)
                await self._watch(loop)
                if loop.time() - since > SETTLED_S:
                    tries = 0
            await asyncio.sleep(pause_s(tries, random.random()))
            tries += 1

    def _use(self, connection: Connection) -> None:
        self._down.clear()
        self._connection = connection
        early, self._early = self._early or [], None
        for call, asking in early:
            if not call.is_done():
                try:
                    self.send_redirected(call, asking=asking)
                except StoreUnavailable as error:
                    call.fail(error)
        self._become(Breaker.CLOSED, "")

    def _give_up_early(self) -> None:
        early, self._early = self._early or [], None
        for call, _ in early:
            call.fail(StoreUnavailable(self.reason))

    async def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Returns when the connection is lost."""
        while self._connection is not None:
            try:
                async with asyncio.timeout(QUIET_S):
                    await self._down.wait()
            except TimeoutError:
                if self._connection is not None and loop.time() - self._connection.heard_at > QUIET_S / 2:
                    self._ping(self._connection)

    def _ping(self, connection: Connection) -> None:
        try:
            self._deadlines.begin(connection.ping())
        except StoreUnavailable:
            return  # full: then there is enough asked already

    def _become(self, state: Breaker, reason: str) -> None:
        if self.state is state and self.reason == reason:
            return
        self.state, self.reason = state, reason
        self._network.changed(self)
