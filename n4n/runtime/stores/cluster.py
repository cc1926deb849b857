"""A Redis Cluster: a link to each master, and which slots each serves, corrected by every MOVED and asked anew in the background."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Sequence

from n4n.core.breaker import Breaker
from n4n.core.errors import StoreUnavailable
from n4n.runtime.stores.dial import Dialer
from n4n.runtime.stores.discovery import cluster_map
from n4n.runtime.stores.link import Link, ended
from n4n.runtime.stores.place import Place
from n4n.runtime.stores.slots import SLOTS, Share

CALM_S, ILL_S = 30.0, 0.5  # how often the map is asked for unbidden: while all masters are up, and while one is not
BETWEEN_S = 0.1  # at least, and up to twice as long
GRACE_S = 1.0  # what a node that left was asked may still be answered
KEPT_S = 60.0  # a node outside the map that others sent us to: slots are on their way there

UNSERVED = "no node of the Redis Cluster serves this key"


class Cluster:
    """Which link serves which slot. `connect` makes a link to a place."""

    def __init__(self, dialer: Dialer, seeds: Sequence[Place], connect: Callable[[Place], Link], clock: Callable[[], float]) -> None:
        self._dialer, self._seeds, self._connect, self._clock = dialer, seeds, connect, clock
        self._slots: list[Link | None] = [None] * SLOTS
        self._links: dict[Place, Link] = {}
        self._sent_to: dict[Place, float] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._wanted = asyncio.Event()

    @property
    def links(self) -> Collection[Link]:
        """To all masters that are known."""
        return self._links.values()

    def link_of(self, slot: int) -> Link:
        """Who serves it. StoreUnavailable: nobody."""
        link = self._slots[slot]
        if link is None:
            self.want_map()
            raise StoreUnavailable(UNSERVED)
        return link

    def any_link(self) -> Link:
        """One that can be used, if there is one. StoreUnavailable: there is none at all."""
        links = tuple(self._links.values())
        if not links:
            raise StoreUnavailable(UNSERVED)
        return random.choice([link for link in links if link.state is Breaker.CLOSED] or links)

    def moved(self, slot: int, place: Place) -> Link:
        """The slot is served there from now on, and perhaps others too."""
        link = self._slots[slot] = self.sent_to(place)
        self.want_map()
        return link

    def sent_to(self, place: Place) -> Link:
        """A node that another one named."""
        self._sent_to[place] = self._clock()
        return self._link(place)

    def want_map(self) -> None:
        """It is not right any more."""
        self._wanted.set()

    def apply(self, shares: Sequence[Share]) -> None:
        """Takes up a map. Links to nodes that are not in it end in a moment."""
        slots: list[Link | None] = [None] * SLOTS
        for share in shares:
            slots[share.first : share.last + 1] = [self._link(share.master)] * (share.last + 1 - share.first)
        self._slots = slots
        masters, recently = {share.master for share in shares}, self._clock() - KEPT_S
        for place in [known for known in self._links if known not in masters and self._sent_to.get(known, recently) <= recently]:
            self._sent_to.pop(place, None)
            task = asyncio.create_task(_leave(self._links.pop(place)), name="redis link leaves")
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

    async def keep(self) -> None:
        """Asks for the map whenever it is wanted, for ever."""
        while True:
            calm = all(link.state is Breaker.CLOSED for link in self._links.values())
            try:
                async with asyncio.timeout(CALM_S if calm else ILL_S):
                    await self._wanted.wait()
            except TimeoutError:
                pass
            self._wanted.clear()
            shares = await self._asked()
            if shares:
                self.apply(shares)
            await asyncio.sleep(BETWEEN_S * (1 + random.random()))

    async def close(self) -> None:
        """Ends all links."""
        for task in tuple(self._leaving):
            await ended(task)
        for link in self._links.values():
            await link.close()

    async def _asked(self) -> Sequence[Share]:
        """By the first node that answers, those that are well before the others."""
        known = sorted(self._links, key=lambda place: (self._links[place].state is not Breaker.CLOSED, random.random()))
        for place in dict.fromkeys((*known, *self._seeds)):
            try:
                if shares := await cluster_map(self._dialer, place):
                    return shares
            except StoreUnavailable:
                continue
        return ()

    def _link(self, place: Place) -> Link:
        link = self._links.get(place)
        if link is None:
            link = self._links[place] = self._connect(place)
        return link


async def _leave(link: Link) -> None:
    try:
        await asyncio.sleep(GRACE_S)
    finally:
        await link.close()
