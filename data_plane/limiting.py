"""Limits of one worker, put together: the store, what is reserved in it, and what is told of both."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from data_plane.caps import Caps
from data_plane.quota import Quotas
from data_plane.router import Router
from n4n.core.breaker import Breaker
from n4n.core.errors import StoreUnavailable
from n4n.core.limits.subjects import RESERVES, Priority
from n4n.runtime.limits import Limits, Sight
from n4n.runtime.settings import Settings
from n4n.runtime.stores import Store, command, settings_of
from n4n.runtime.telemetry import Instruments

SHOWN_EVERY_S = 1.0
FIRST_STORE_S = 1.0  # a Redis on its feet is there at once; without it a router starts all the same
log = logging.getLogger("n4n.data_plane")


class Limiting:
    """Opens the store when made, in the running loop. StartFailed: its URL says nothing that can be used."""

    def __init__(
        self,
        url: str,
        router: Router,
        instruments: Instruments,
        *,
        name: str,
        workers: int,
        draw: Callable[[], float],
        reserves: Mapping[Priority, float] = RESERVES,
    ) -> None:
        self._instruments, self._router, self._is_away, self._leaves = instruments, router, False, False
        self.store = Store(settings_of(url), self._told)
        self.limits = Limits(self.store, router=name, clock=router.clock, others=self._heard, routers=workers)
        self.quotas = Quotas(self.limits, router.clock, draw, reserves=reserves)
        router.quotas, router.health.announce = self.quotas, self.limits.announce
        router.caps = self._caps = Caps(self.store, router.wall, router.weigh)
        router.health.shared.attach(self.store)

    async def keep(self) -> None:
        """Runs until it is cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.limits.keep(), name="limits")
                group.create_task(self._show(), name="limits' gauges")
                group.create_task(self._caps.keep(self._router.in_force), name="caps")
                if await self.store.ready(FIRST_STORE_S):
                    await self._check_policy()
        finally:
            self.limits.close()

    @property
    def is_away(self) -> bool:
        """Whether Redis cannot be used."""
        return self._is_away

    async def close(self) -> None:
        """Closes the store; after `keep`."""
        await asyncio.sleep(0)  # what is written leaves at the end of the loop's turn
        self._leaves = True
        await self.store.close()

    async def _check_policy(self) -> None:
        """A Redis that throws away what it holds when it is full would throw away limits."""
        try:
            reply = await self.store.command(command(b"CONFIG", "GET", "maxmemory-policy"))
        except StoreUnavailable:
            return  # not allowed, or not now
        if isinstance(reply, list) and len(reply) == 2 and reply[1] not in (b"noeviction", b"volatile-ttl"):
            log.warning("Redis may evict limits when it is full: set maxmemory-policy to noeviction")

    async def _show(self) -> None:
        alone, inverted, shown = 0, 0, set[tuple[str, str, str]]()
        while True:
            for priority, waiting in self.quotas.waiting.items():
                self._instruments.queue.labels(priority.value).set(waiting)
            if self._router.ready:
                self.quotas.keep_only(self._router.snapshot)
            utilization = self.quotas.utilization()
            for limit in shown | utilization.keys():  # of an account that left the catalog nothing is used
                self._instruments.quota.labels(*limit).set(utilization.get(limit, 0.0))
            shown |= utilization.keys()
            if self.quotas.inversions > inverted:
                self._instruments.inversions.inc(self.quotas.inversions - inverted)
                inverted = self.quotas.inversions
            if self.limits.fallbacks > alone:
                self._instruments.limits_alone.inc(self.limits.fallbacks - alone)
                alone = self.limits.fallbacks
            await asyncio.sleep(SHOWN_EVERY_S)

    def _told(self, state: Breaker, reason: str) -> None:
        self._instruments.store_up.set(1 if state is Breaker.CLOSED else 0)
        if state is Breaker.CLOSED and self._is_away:
            log.info("Redis can be used again: limits hold across routers")
        elif state is Breaker.OPEN and not (self._is_away or self._leaves):  # once, not with every try
            log.warning("each router keeps its share of the limits by itself: %s", reason)
        self._is_away = self._is_away if state is Breaker.HALF_OPEN else state is Breaker.OPEN

    def _heard(self, sight: Sight) -> None:
        if self._router.ready:
            self._router.health.heard(sight.name, sight.seconds, self._router.snapshot)


def reserves_of(settings: Settings) -> Mapping[Priority, float]:
    """The shares of every account's limits that lower priorities leave."""
    return {
        **RESERVES,
        Priority.BACKGROUND: min(100, settings.background_reserve_percent) / 100,
        Priority.BEST_EFFORT: min(100, settings.best_effort_reserve_percent) / 100,
    }
