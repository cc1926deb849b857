"""`Store`: Redis as a worker sees it. One shared connection per server; calls fail in time and never wait for a connection."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Sequence

from n4n.core.breaker import Breaker
from n4n.core.errors import StoreUnavailable
from n4n.runtime.stores.calls import Batch, Call, Deadlines, Outcome, Part, Single, Unheard
from n4n.runtime.stores.cluster import Cluster
from n4n.runtime.stores.commands import Command, Script, Word
from n4n.runtime.stores.dial import Dialer
from n4n.runtime.stores.discovery import cluster_map, master_by_sentinels, one_of, sentinels_of
from n4n.runtime.stores.link import CLOSED, NOT_YET, Link, ended, pause_s
from n4n.runtime.stores.place import Place, StoreSettings
from n4n.runtime.stores.replies import Ask, Moved, Reply
from n4n.runtime.stores.slots import Share, place_of, slot_of

MOST_HOPS = 5  # a call is sent on so often, then the cluster does not know itself where the slot is
ASTRAY = "the nodes of the Redis Cluster send calls around in a circle"
NOT_A_CLUSTER = "Redis sends calls on to other nodes, but told no map of a cluster"

Told = Callable[[Breaker, str], None]


class Store:
    """Redis or Valkey: one server, a cluster (it says itself which it is), or the master that Sentinels name.

    Every call ends within `settings.deadline_s`: with Redis' answer or with StoreUnavailable, at once where the store is known to be away.
    Whether a call that ran out of time was carried out is not known. Nothing is sent twice but what surely had not run: a script that the
    server did not know, and what a cluster's node sent on to another.

    `told` hears of every change of `state` and why, in words without addresses, passwords or keys.
    """

    def __init__(self, settings: StoreSettings, told: Told | None = None) -> None:
        """Begins to connect, in the background of the running loop. StartFailed: the settings' TLS files cannot be used."""
        self._settings, self._told = settings, told
        self._loop = asyncio.get_running_loop()
        self._deadlines = Deadlines(self._loop, settings.deadline_s)
        self._dialer = Dialer(settings)
        self._sentinels = sentinels_of(settings) if settings.master else None
        self._link: Link | None = None
        self._cluster: Cluster | None = None
        self._state, self._reason = Breaker.OPEN, NOT_YET
        self._closed = asyncio.Event()  # as the breaker is
        self._task = self._loop.create_task(self._keep(), name="redis")

    def __repr__(self) -> str:
        return (
            f"<Store {self._state.value}{f': {self._reason}' if self._reason else ''}, {len(self._links())} links, {self.pending} pending>"
        )

    # --- life ---

    async def ready(self, within_s: float) -> bool:
        """Waits until all of it can be used; False: not in time. Only for starts and tests: requests do not wait for a store."""
        try:
            async with asyncio.timeout(within_s):
                await self._closed.wait()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """Ends every connection; what is pending fails."""
        await ended(self._task)
        if self._cluster is not None:
            await self._cluster.close()
        if self._link is not None:
            await self._link.close()
        self._deadlines.stop()
        for dialer in (self._dialer, self._sentinels):
            if dialer is not None:
                await dialer.close()
        self._become(Breaker.OPEN, CLOSED)

    @property
    def state(self) -> Breaker:
        """CLOSED: all is well. OPEN, HALF_OPEN: the only server, or a master of the cluster, cannot be used, or is being tried."""
        return self._state

    @property
    def reason(self) -> str:
        """Why it is not CLOSED."""
        return self._reason

    @property
    def pending(self) -> int:
        """Commands whose reply has not come, on all connections."""
        return sum(link.pending for link in self._links())

    # --- calls ---

    async def run(self, script: Script, keys: Sequence[bytes | str], args: Sequence[Word] = ()) -> Reply:
        """Runs a script where its first key is. StoreRefused: it failed there; StoreUnavailable: no answer in time."""
        call = Single(self._loop.create_future(), script.packed(keys, args), script.name, script)
        self._route(keys[0] if keys else None).send(call)
        self._deadlines.begin(call)
        return await call.future

    async def command(self, command: Command) -> Reply:
        """Runs one command (see `commands.command`). Errors as `run`."""
        return await self.ask(command)

    def ask(self, command: Command) -> asyncio.Future[Reply]:
        """The same, sent now and to be awaited at once; StoreUnavailable where it cannot be sent."""
        future = self._loop.create_future()
        call = Single(future, command.packed, command.name, command.script)
        (self._link or self._route(command.key)).send(call)
        self._deadlines.begin(call)
        return future

    async def pipeline(self, commands: Sequence[Command]) -> list[Outcome]:
        """Sends all in one write per server and waits for all; no order between them is promised.

        Each has its own outcome, in the order of the commands: an answer, or the StoreUnavailable that would have been raised.
        """
        if not commands:
            return []
        future: asyncio.Future[list[Outcome]] = self._loop.create_future()
        batch = Batch(future, len(commands))
        for index, command in enumerate(commands):
            part = Part(batch, index, command)
            try:
                self._route(command.key).send(part)
            except StoreUnavailable as error:
                part.fail(error)
            else:
                self._deadlines.begin(part)
        return await future

    def post(self, command: Command) -> bool:
        """Sends one for whose answer nobody waits. False: it cannot be sent now.

        It runs before all that is sent to the same server later, unless that has yet to be taught its script.
        """
        call = Unheard(command.packed, command.name, command.script)
        try:
            self._route(command.key).send(call)
        except StoreUnavailable:
            return False
        self._deadlines.begin(call)
        return True

    # --- called by links ---

    def changed(self, link: Link) -> None:
        """The state of the store is that of its worst link."""
        links = self._links()
        worst = next((one for state in (Breaker.OPEN, Breaker.HALF_OPEN) for one in links if one.state is state), None)
        self._become(worst.state if worst is not None else Breaker.CLOSED, worst.reason if worst is not None else "")
        if self._cluster is not None and link.state is Breaker.OPEN:
            self._cluster.want_map()

    def send_on(self, link: Link, call: Call, where: Moved | Ask) -> None:
        """Sends a call to the node that another one named. It keeps its deadline."""
        call.hops += 1
        try:
            if self._cluster is None or link.place is None:
                raise StoreUnavailable(NOT_A_CLUSTER)
            if call.hops > MOST_HOPS:
                raise StoreUnavailable(ASTRAY)
            place = place_of(where.host, where.port, link.place)
            asking = isinstance(where, Ask)
            target = self._cluster.sent_to(place) if isinstance(where, Ask) else self._cluster.moved(where.slot, place)
            target.send_redirected(call, asking=asking)
        except StoreUnavailable as error:
            call.fail(error)

    def unserved(self) -> None:
        """A new map is wanted."""
        if self._cluster is not None:
            self._cluster.want_map()

    # --- the background ---

    async def _keep(self) -> None:
        if self._sentinels is not None:
            self._link = Link(self, self._dialer, self._deadlines, master_by_sentinels(self._sentinels, self._settings))
            return
        shares = await self._first_map()
        if shares is None:
            self._link = Link(self, self._dialer, self._deadlines, one_of(self._settings.places))
            return
        self._cluster = Cluster(self._dialer, self._settings.places, self._linked, self._loop.time)
        self._cluster.apply(shares)
        await self._cluster.keep()

    async def _first_map(self) -> tuple[Share, ...] | None:
        locate, tries = one_of(self._settings.places), 0
        while True:
            self._become(Breaker.HALF_OPEN, self._reason)
            try:
                return await cluster_map(self._dialer, await locate())
            except StoreUnavailable as error:
                self._become(Breaker.OPEN, error.message)
            await asyncio.sleep(pause_s(tries, random.random()))
            tries += 1

    def _linked(self, place: Place) -> Link:
        return Link(self, self._dialer, self._deadlines, one_of((place,)))

    def _links(self) -> Collection[Link]:
        if self._cluster is not None:
            return self._cluster.links
        return (self._link,) if self._link is not None else ()

    def _route(self, key: bytes | str | None) -> Link:
        if self._link is not None:
            return self._link
        if self._cluster is None:
            raise StoreUnavailable(self._reason)
        return self._cluster.link_of(slot_of(key)) if key is not None else self._cluster.any_link()

    def _become(self, state: Breaker, reason: str) -> None:
        if (state, reason) == (self._state, self._reason):
            return
        self._state, self._reason = state, reason
        if state is Breaker.CLOSED:
            self._closed.set()
        else:
            self._closed.clear()
        if self._told is not None:
            self._told(state, reason)
