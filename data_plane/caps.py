"""Caps that lower weights: of a tenant at a provider, and the daily tokens of an account. Nobody is refused for them; traffic moves.

From 80 % of a cap on, the provider's weight goes down for that tenant, to nothing at 100 %; an account has no weight from 80 % of its day
on. What has no weight goes last, so where nothing else is left it is asked all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping

from msgspec.structs import replace

from data_plane.record import Record
from n4n.core.access import AccessSnapshot, Key
from n4n.core.budgets import Budget, Unit, factor_of_account, factor_of_cap
from n4n.core.candidates import World
from n4n.core.catalog import Snapshot
from n4n.core.errors import StoreUnavailable
from n4n.core.limits.subjects import Took
from n4n.runtime.limits.tallies import Counter, Tallies, of_account, of_cap, tallied
from n4n.runtime.stores import Store

EVERY_S = 1.0
_NONE: Mapping[str, float] = {}


class Caps:
    """Of one worker. `wall`: Unix seconds; `use`: hears of the factors of accounts when they are others."""

    def __init__(self, store: Store, wall: Callable[[], float], use: Callable[[Mapping[str, float]], None]) -> None:
        self._store, self._wall, self._use = store, wall, use
        self._tallies = Tallies()
        self._snapshot: Snapshot | None = None
        self._accounts: dict[str, int] = {}  # daily tokens
        self._providers: dict[str, tuple[str, ...]] = {}  # and their accounts
        self._tenants: Mapping[str, Mapping[str, Budget]] = {}
        self._factors: Mapping[str, float] = _NONE
        self._lowered: dict[str, dict[str, float]] = {}  # tenant -> provider -> factor, those below 1
        self._worlds: dict[str, tuple[World, World]] = {}

    def __repr__(self) -> str:
        return f"<Caps {self._factors} {self._lowered}>"

    def world(self, world: World, tenant: str) -> World:
        """The world as a tenant with caps finds it."""
        lowered = self._lowered.get(tenant)
        if not lowered:
            return world
        known = self._worlds.get(tenant)
        if known is None or known[0] is not world:
            factors = dict(world.factors)
            for provider, factor in lowered.items():
                for account in self._providers.get(provider, ()):
                    factors[account] = factors.get(account, 1.0) * factor
            known = self._worlds[tenant] = (world, replace(world, factors=factors))
        return known[1]

    def spent(self, key: Key, record: Record, billed: Took) -> None:
        """A request came to this."""
        attempt, now_ms = record.attempts[-1], int(self._wall() * 1000)
        if attempt.account in self._accounts and billed.tokens:
            self._tallies.add(of_account(attempt.account, now_ms), billed.tokens)
        cap = key.provider_caps.get(attempt.endpoint.provider.name)
        if cap is not None:
            amount = billed.spend if cap.unit is Unit.USD else billed.tokens
            if amount:
                self._tallies.add(of_cap(key.tenant, attempt.endpoint.provider.name, cap, now_ms), amount)

    def counts(self, key: Key, account: str) -> bool:
        """Whether anything is added up for such a request."""
        return bool(key.provider_caps) or account in self._accounts

    def know(self, snapshot: Snapshot | None, access: AccessSnapshot | None) -> None:
        """What is in force now."""
        if snapshot is not None and snapshot is not self._snapshot:
            self._snapshot = snapshot
            accounts = {account.name: account for endpoint in snapshot.endpoints.values() for account in endpoint.accounts}
            self._accounts = {name: one.daily_token_budget for name, one in accounts.items() if one.daily_token_budget}
            providers: dict[str, list[str]] = {}
            for name, one in accounts.items():
                providers.setdefault(one.provider, []).append(name)
            self._providers = {provider: tuple(names) for provider, names in providers.items()}
            self._worlds.clear()
        if access is not None:
            self._tenants = {name: tenant.provider_caps for name, tenant in access.tenants.items() if tenant.provider_caps}

    async def exchange(self) -> None:
        """Brings what was spent here, hears of the rest, and weighs anew."""
        now_ms = int(self._wall() * 1000)
        for ends_ms, counters in self._tallies.asks(self._watched(now_ms)).items():
            command, brought = self._tallies.command(ends_ms, counters)
            try:
                totals = tallied(await self._store.command(command))
            except StoreUnavailable:
                self._tallies.lost(brought)
            else:
                self._tallies.heard(brought, totals)
        self._weigh(now_ms)

    async def keep(self, know: Callable[[], tuple[Snapshot | None, AccessSnapshot | None]]) -> None:
        """Until it is cancelled."""
        while True:
            self.know(*know())
            await self.exchange()
            await asyncio.sleep(EVERY_S)

    def _watched(self, now_ms: int) -> Iterator[Counter]:
        for account in self._accounts:
            yield of_account(account, now_ms)
        for tenant, caps in self._tenants.items():
            for provider, cap in caps.items():
                yield of_cap(tenant, provider, cap, now_ms)

    def _weigh(self, now_ms: int) -> None:
        found = {name: factor_of_account(self._tallies.total(of_account(name, now_ms)) / most) for name, most in self._accounts.items()}
        factors = {name: factor for name, factor in found.items() if factor < 1.0}
        if factors != self._factors:
            self._factors = factors
            self._use(factors)
        lowered: dict[str, dict[str, float]] = {}
        for tenant, caps in self._tenants.items():
            for provider, cap in caps.items():
                factor = factor_of_cap(self._tallies.total(of_cap(tenant, provider, cap, now_ms)) / cap.amount)
                if factor < 1.0:
                    lowered.setdefault(tenant, {})[provider] = factor
        if lowered != self._lowered:
            self._lowered = lowered
            self._worlds.clear()
