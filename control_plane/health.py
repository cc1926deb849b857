"""How endpoints are: what routers and probers told Redis, beside what the ledger says of the last attempts and the catalog of prices."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from control_plane.lines import NONE, Held
from control_plane.publisher import Publisher
from control_plane.schema import DatabaseAway
from n4n.core import faults
from n4n.core.catalog import Endpoint, Snapshot
from n4n.core.errors import FailureClass, StoreUnavailable
from n4n.core.health.seen import Seen
from n4n.core.health.standing import share
from n4n.core.probes.findings import Finding
from n4n.runtime.health import scripts
from n4n.runtime.probes import findings
from n4n.runtime.stores import Store
from n4n.runtime.wire import build_catalog

MOST_ATTEMPTS = 100_000
REDIS_S = 1.0  # an operator waits so long for a connection
_THEIRS = [FailureClass.BAD_REQUEST, FailureClass.CONTEXT_LENGTH, FailureClass.CONTENT_POLICY]  # of the request
_COUNT: Final = """
    SELECT endpoint, count(*), count(*) FILTER (WHERE state <> 'ok') FROM (
        SELECT endpoint, state, error_class FROM usage_ledger
        WHERE started_at >= :since AND (:model = '' OR model = :model) ORDER BY started_at DESC LIMIT :most
    ) AS latest
    WHERE state IN ('ok', 'failed', 'partial') AND (error_class IS NULL OR NOT (error_class = ANY(:theirs)))
    GROUP BY endpoint"""
_TOTAL: Final = """
    SELECT count(*) FROM (
        SELECT 1 FROM usage_ledger WHERE started_at >= :since AND (:model = '' OR model = :model) LIMIT :most
    ) AS found"""


@dataclass(frozen=True, slots=True)
class Known:
    """One endpoint. Times are Unix seconds; `cooldown`: whose and why, empty: none. `seen` None: nobody told of it."""

    endpoint: Endpoint
    score: float
    seen: Seen | None
    cooldown: str
    cooldown_until: float | None
    attempts: int
    errors: int
    findings: tuple[str, ...] = ()  # of probers, about it and its accounts; and that a fault is injected there


@dataclass(frozen=True, slots=True)
class Report:
    """All that were asked for. `redis`, `database`: ok, or why what comes from there is missing."""

    endpoints: tuple[Known, ...]
    redis: str
    database: str
    cut: bool


@dataclass(frozen=True, slots=True)
class _Told:
    seen: Mapping[str, Seen] = field(default_factory=dict)
    cooling: Mapping[str, float] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    redis: str = "ok"


@dataclass(frozen=True, slots=True)
class _Counted:
    attempts: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    cut: bool = False
    database: str = "ok"


class EndpointHealth:
    """`reading`: a transaction on the ledger."""

    def __init__(
        self,
        publisher: Publisher,
        store: Store | None,
        reading: Callable[[], AbstractAsyncContextManager[AsyncConnection]],
        now: Callable[[], datetime],
    ) -> None:
        self._publisher, self._store, self._reading, self._now = publisher, store, reading, now
        self._held: Held = NONE
        self._snapshot: Snapshot | None = None

    async def report(self, model: str, window: timedelta) -> Report:
        """Every endpoint of a model, or of all where it is empty, in order of model and name. Whatever is away is said, not waited for."""
        snapshot = await self.catalog()
        endpoints = [] if snapshot is None else [one for one in snapshot.endpoints.values() if model in ("", one.model)]
        told, counted = await asyncio.gather(self._told(), self._counted(model, window))
        known = [self._known(one, snapshot, told, counted) for one in endpoints if snapshot is not None]
        known.sort(key=lambda one: (one.endpoint.model, one.endpoint.id))
        return Report(tuple(known), told.redis, counted.database, counted.cut)

    async def catalog(self) -> Snapshot | None:
        """The catalog that is pushed; None: there is none."""
        head = self._publisher.catalog.head
        if head.held != self._held:
            version, checksum = head.held
            build = await asyncio.to_thread(build_catalog, head.resources, version=version, checksum=checksum)
            self._snapshot, self._held = build.snapshot, head.held
        return self._snapshot

    def _known(self, endpoint: Endpoint, snapshot: Snapshot, told: _Told, counted: _Counted) -> Known:
        policy, seen, now = snapshot.models[endpoint.model].health, told.seen.get(endpoint.id), self._now().timestamp()
        cooldown, until = _cooldown(endpoint, told.cooling)
        attempts, errors = counted.attempts.get(endpoint.id, (0, 0))
        return Known(
            endpoint,
            policy.neutral if seen is None else share(seen, now, policy),
            seen,
            cooldown,
            None if until is None else now + until,
            attempts,
            errors,
            _about(endpoint, told.findings),
        )

    async def _told(self) -> _Told:
        store = self._store
        if store is None:
            return _Told(redis="not configured")
        if not await store.ready(REDIS_S):
            return _Told(redis=store.reason)
        seen: dict[str, Seen] = {}
        number = 0
        try:
            while True:
                answer = scripts.answered(await store.command(scripts.look(number)), self._now().timestamp())
                seen |= answer.seen
                if answer.number <= number or len(answer.seen) < scripts.MOST_READ:
                    break
                number = answer.number
            cooling = scripts.cools(await store.command(scripts.cooling()))
            found = findings.told(await store.command(findings.ask()))
            return _Told(seen, cooling, tuple(findings.standing(found, self._now().timestamp() * 1000)))
        except StoreUnavailable as error:
            return _Told(redis=error.message)

    async def _counted(self, model: str, window: timedelta) -> _Counted:
        values = {"since": self._now() - window, "model": model, "most": MOST_ATTEMPTS}
        try:
            async with self._reading() as connection:
                rows = (await connection.execute(text(_COUNT), values | {"theirs": list(map(str, _THEIRS))})).all()
                total = (await connection.execute(text(_TOTAL), values | {"most": MOST_ATTEMPTS + 1})).scalar_one()
        except DatabaseAway as error:
            return _Counted(database=str(error))
        return _Counted({name: (attempts, errors) for name, attempts, errors in rows}, total > MOST_ATTEMPTS)


def _about(endpoint: Endpoint, found: Iterable[Finding]) -> tuple[str, ...]:
    whose = {f"endpoint {endpoint.id}", *(f"account {account.name}" for account in endpoint.accounts)}
    rehearsed = () if endpoint.fault is None else (faults.told(endpoint.fault),)
    return (*rehearsed, *(f"{one.kind}: {one.message}" for one in found if one.about in whose))


def _cooldown(endpoint: Endpoint, cooling: Mapping[str, float]) -> tuple[str, float | None]:
    """Its own or, where every account of its pool cools, the soonest of theirs."""
    own = [(until, name) for name, until in cooling.items() if name.split(" ")[:2] == ["endpoint", endpoint.id]]
    of_accounts = [
        max(((until, name) for name, until in cooling.items() if name.split(" ")[:2] == ["account", one.name]), default=None)
        for one in endpoint.accounts
    ]
    out = [one for one in of_accounts if one is not None]
    found = max(own, default=None)
    if len(out) == len(of_accounts) and out and (found is None or min(out) > found):
        found = min(out)
    return ("", None) if found is None else (found[1], found[0])
