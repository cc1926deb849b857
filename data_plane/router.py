"""What a request needs, gathered once: catalog state, health, dialects, credentials, the upstream pool, clock and draw."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Mapping

from data_plane.answers import KEEP_ALIVE_S
from data_plane.aside import Aside
from data_plane.caps import Caps
from data_plane.health import Health
from data_plane.idempotency import Once
from data_plane.quota import Quotas
from n4n.core.access import AccessSnapshot, Key
from n4n.core.candidates import Candidate, World
from n4n.core.catalog import Account, Snapshot
from n4n.core.dialects import Dialect
from n4n.core.errors import NoSnapshot
from n4n.runtime.credentials import Credentials
from n4n.runtime.follower import Follower
from n4n.runtime.idempotency import Records
from n4n.runtime.upstream import Upstream

_ALL_LEFT: Mapping[tuple[str, str], float] = {}


class Router:
    """Everything a request may touch; all of it is in memory."""

    def __init__(
        self,
        *,
        follower: Follower,
        credentials: Credentials,
        health: Health,
        upstream: Upstream,
        dialects: Mapping[str, Dialect],
        clock: Callable[[], float],
    ) -> None:
        self._follower, self._credentials = follower, credentials
        self.health, self.upstream, self.dialects, self.clock = health, upstream, dialects, clock
        self._spoken = frozenset(dialects)
        self._world: World | None = None  # the latest one that was asked for
        self.quotas: Quotas | None = None  # None: no store, so no limits are kept
        self.factors: Mapping[str, float] = {}  # of accounts, in the plan: what budgets leave
        self.caps: Caps | None = None  # None: no store, so nothing is added up
        self.once = Once(Records(None, os.urandom(32)), clock, random.random)  # until there is a store: for this worker alone
        self.aside = Aside()
        self.busy: dict[str, int] = {}  # attempts under way, by account
        self.draw = random.random
        self.wall = time.time
        self.keep_alive_s = KEEP_ALIVE_S

    @property
    def ready(self) -> bool:
        """Whether there is a valid catalog to serve from, and keys to know callers by."""
        return self._follower.state.catalog is not None and self._follower.state.access is not None

    def access(self) -> AccessSnapshot:
        """The keys in force; NoSnapshot before any came."""
        access = self._follower.state.access
        if access is None:
            raise NoSnapshot
        return access

    def world(self) -> World:
        """What a plan is made from; NoSnapshot before a catalog came."""
        world, snapshot, health = self._world, self.snapshot, self.health
        usable, views, cooling = self._credentials.usable, health.views, health.cooling_accounts
        left = _ALL_LEFT if self.quotas is None else self.quotas.left()
        if (
            world is None
            or world.snapshot is not snapshot
            or world.usable_accounts is not usable
            or world.views is not views
            or world.cooling_accounts is not cooling
            or world.factors is not self.factors
            or world.left is not left
        ):
            self._world = world = World(snapshot, self._spoken, usable, views, cooling, self.dialects, self.factors, left, self.busy)
        return world

    def world_of(self, key: Key) -> World:
        """The same, as the key's tenant finds it."""
        world = self.world()
        return world if not key.provider_caps or self.caps is None else self.caps.world(world, key.tenant)

    @property
    def snapshot(self) -> Snapshot:
        """The catalog in force; NoSnapshot before one came."""
        catalog = self._follower.state.catalog
        if catalog is None:
            raise NoSnapshot
        return catalog

    def weigh(self, factors: Mapping[str, float]) -> None:
        """What budgets leave of accounts from now on."""
        self.factors = factors

    def in_force(self) -> tuple[Snapshot | None, AccessSnapshot | None]:
        """Catalog and keys, None before they came."""
        state = self._follower.state
        return state.catalog, state.access

    def withdrawn(self, candidate: Candidate) -> bool:
        """Whether the catalog in force, or the credentials, no longer let a candidate of an older plan be called."""
        catalog = self._follower.state.catalog
        endpoint = None if catalog is None else catalog.endpoints.get(candidate.endpoint.id)
        gone = endpoint is None or endpoint.state == "disabled"
        return gone or candidate.account.name not in self._credentials.usable

    def secret(self, account: Account) -> str | None:
        """The account's key for the Authorization header; None where it needs none."""
        return self._credentials.reveal(account.name)
