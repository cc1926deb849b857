"""What watchers ask other parts for: the catalog, nodes that lag or refuse, budgets, and what probers found."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta

from control_plane.budget_keeper import BudgetKeeper
from control_plane.health import EndpointHealth
from control_plane.publisher import Publisher
from control_plane.repository import Repository
from control_plane.service.fleet import SILENT, lag_ms
from n4n.core.alerts.facts import NodeFacts
from n4n.core.breaker import Breaker
from n4n.core.catalog import Snapshot
from n4n.core.errors import StoreUnavailable
from n4n.core.probes.findings import Kind
from n4n.runtime.probes import findings
from n4n.runtime.stores import Store

_GONE = timedelta(minutes=2)  # a node that nobody has seen for so long is no node any more


class Surroundings:
    """Everything here may raise DatabaseAway; what Redis knows is empty while it is away."""

    def __init__(
        self,
        repository: Repository,
        publisher: Publisher,
        health: EndpointHealth,
        budgets: BudgetKeeper,
        store: Store | None,
        now: Callable[[], datetime],
    ) -> None:
        self._repository, self._publisher, self._health = repository, publisher, health
        self._budgets, self._store, self._now = budgets, store, now

    def snapshot(self) -> Awaitable[Snapshot | None]:
        """The catalog that is pushed."""
        return self._health.catalog()

    async def nodes(self) -> Sequence[NodeFacts]:
        """How far each is behind, and whether it refused."""
        now, head = self._now(), self._publisher.catalog.head
        now_ms = round(now.timestamp() * 1000)
        rows = [row for row in await self._repository.known_nodes(now) if row.last_seen > now - _GONE]
        return [
            NodeFacts(
                row.node,
                connected=row.connected_to is not None and row.last_seen > now - SILENT,
                lag_s=(lag_ms(head, row.applied_version, now_ms) or 0) / 1000,
                refuses=bool(row.last_nack),
            )
            for row in rows
        ]

    async def budgets(self) -> Sequence[tuple[str, str, int]]:
        """Tenant, budget and a level it has reached, for each of them."""
        return list(await self._budgets.standing())

    async def low_balances(self) -> Sequence[str]:
        """Accounts."""
        if self._store is None or self._store.state is not Breaker.CLOSED:
            return ()
        try:
            told = findings.told(await self._store.command(findings.ask()))
        except StoreUnavailable:
            return ()
        standing = findings.standing(told, self._now().timestamp() * 1000)
        return [one.about.removeprefix("account ") for one in standing if one.kind is Kind.LOW_BALANCE]
