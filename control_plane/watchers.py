"""Watches over the fleet: gathers facts, finds what is wrong, tells it once to every receiver, and once more when it is over.

Several control planes may look; one at a time does, by a lock in Postgres that falls with its connection. What is firing, and what is
still to be told, stand in Postgres, so that whoever looks next goes on where the one before stopped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final, Protocol, cast

import aiohttp
import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from control_plane import traffic, vitals
from control_plane.schema import DatabaseAway
from control_plane.traffic import Reading
from control_plane.webhooks import Body, Webhook, send, told_of
from n4n.core.alerts.conditions import violations
from n4n.core.alerts.facts import Facts, ModelFacts, NodeFacts, Quota, Traffic
from n4n.core.alerts.rules import BY_NAME
from n4n.core.alerts.watch import Board, Notice, Standing, Violation, watch
from n4n.core.catalog import Snapshot

LOOK_S: Final = 15.0
GIVEN_UP: Final = timedelta(hours=24)  # after which nobody needs to hear of it
_RETRIES_S: Final = (0.0, 2.0, 10.0, 60.0, 300.0)  # and so on, every five minutes
_BASELINE_S: Final = 3600.0  # seven days are summed up so often
_LOCK: Final = 0x6E346E07  # Postgres advisory lock "n4n watches"
_DUE = """
    SELECT id, at, told, pending, tries FROM alert_notices WHERE pending <> '[]' AND due <= :now ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED
"""
_TOLD = "UPDATE alert_notices SET pending = CAST(:left AS jsonb), tries = tries + 1, due = :due WHERE id = :id"
_log = logging.getLogger("n4n.control_plane")


class Others(Protocol):
    """What other parts know. Each may raise DatabaseAway; what Redis knows is empty while it is away."""

    def snapshot(self) -> Awaitable[Snapshot | None]:
        """The catalog that is pushed."""
        ...

    async def nodes(self) -> Sequence[NodeFacts]:
        """How far each is behind, and whether it refused."""
        ...

    async def budgets(self) -> Sequence[tuple[str, str, int]]:
        """Tenant, budget and the level it has reached."""
        ...

    async def low_balances(self) -> Sequence[str]:
        """Accounts."""
        ...


class Watchers:
    """`now`: UTC. `hold`: scales every wait of the rules, `look_s`: between two looks; both for rehearsals."""

    def __init__(
        self,
        reading: Reading,
        others: Others,
        webhooks: Sequence[Webhook],
        now: Callable[[], datetime],
        *,
        look_s: float = LOOK_S,
        hold: float = 1.0,
    ) -> None:
        self._reading, self._others, self._webhooks, self._now = reading, others, webhooks, now
        self._look_s, self._hold = look_s, hold
        self._baseline: dict[tuple[str, str], Traffic] = {}
        self._baseline_until: datetime | None = None
        self.known: Facts | None = None  # at the last look, for /metrics; None: another control plane looks

    async def keep(self) -> None:
        """Until cancelled."""
        async with aiohttp.ClientSession() as session:
            while True:
                try:
                    async with self._alone() as ours:
                        if ours:
                            await self.look()
                        else:
                            self.known = None
                    while await self.deliver(session):
                        pass
                except DatabaseAway as error:
                    _log.warning("alerts: %s", error)
                await asyncio.sleep(self._look_s)

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[bool]:
        """Whether nobody else looks, while inside."""
        async with self._reading() as connection:
            yield bool((await connection.execute(text("SELECT pg_try_advisory_xact_lock(:key)"), {"key": _LOCK})).scalar_one())

    async def look(self) -> list[Notice]:
        """One look; what is new is kept to be told."""
        now = self._now()
        facts = self.known = await self.facts(now)
        async with self._reading() as connection:
            board, notices = watch(await _board(connection), violations(facts), now.timestamp(), hold=self._hold)
            await _keep_board(connection, board)
            for notice in notices:
                await _keep_notice(connection, notice, now, self._webhooks)
        for notice in notices:
            word = "is over" if notice.resolved else notice.rule.severity.value
            _log.warning("alert %s (%s): %s", notice.rule.name, word, notice.violation.summary)
        return notices

    async def facts(self, now: datetime) -> Facts:
        """Everything there is to know at this moment."""
        reading, snapshot = self._reading, await self._others.snapshot()
        await traffic.add_up_minutes(reading, now)
        minute = now.replace(second=0, microsecond=0)
        spans = {minutes: (await vitals.requests(reading, minute - timedelta(minutes=minutes), now)) for minutes in (5, 10, 30, 60, 360)}
        before = (await vitals.requests(reading, minute - timedelta(minutes=70), minute - timedelta(minutes=10)))[0]
        said = await vitals.newest(reading, now)
        week_ago = now - timedelta(days=7)
        return Facts(
            requests_5=spans[5][0],
            requests_10=spans[10][0],
            requests_30=spans[30][0],
            requests_60=spans[60][0],
            requests_hour_before=before,
            requests_360=spans[360][0],
            traffic_15=await traffic.window(reading, minute - timedelta(minutes=15), now),
            traffic_60=await traffic.window(reading, minute - timedelta(minutes=60), now),
            traffic_week_ago=await traffic.window(reading, week_ago - timedelta(minutes=60), week_ago),
            baseline=await self._usual(now),
            quotas=_quotas(said),
            low_balances=tuple(await self._others.low_balances()),
            accounts_out=tuple(sorted({out for one in said for out in one.accounts_out})),
            budgets=tuple(await self._others.budgets()),
            nodes=_nodes(said, await self._others.nodes()),
            inversions=spans[5][1],
            models=() if snapshot is None else _models(snapshot, said),
        )

    async def _usual(self, now: datetime) -> Mapping[tuple[str, str], Traffic]:
        if self._baseline_until is None or now >= self._baseline_until:
            week = await traffic.window(self._reading, now - timedelta(days=7), now - timedelta(minutes=15))
            self._baseline = {(one.provider, one.model): one for one in week}
            self._baseline_until = now + timedelta(seconds=_BASELINE_S if self._baseline else self._look_s)
        return self._baseline

    async def deliver(self, session: aiohttp.ClientSession) -> bool:
        """Tells the oldest notice that is due to whom it is still to be told; False: there is none. Nobody else tells it meanwhile."""
        known, now = {webhook.name: webhook for webhook in self._webhooks}, self._now()
        async with self._reading() as connection:
            row = (await connection.execute(text(_DUE), {"now": now})).one_or_none()
            if row is None:
                return False
            number, at, told, pending, tries = row
            wanted = [known[name] for name in pending if name in known]
            took = await asyncio.gather(*(self._tell(session, webhook, cast(Body, told), tries) for webhook in wanted))
            left = [webhook.name for webhook, taken in zip(wanted, took, strict=True) if not taken]
            if left and now - at > GIVEN_UP:
                _log.warning("alert %s was not told to %s: given up after a day", told["alert"], ", ".join(left))
                left = []
            due = now + timedelta(seconds=_RETRIES_S[min(tries + 1, len(_RETRIES_S) - 1)] * self._hold)
            done = {"left": msgspec.json.encode(left).decode(), "due": due, "id": number}
            await connection.execute(text(_TOLD), done)
        return True

    async def _tell(self, session: aiohttp.ClientSession, webhook: Webhook, told: Body, tries: int) -> bool:
        problem = await send(session, webhook, told)
        if problem and not tries:
            _log.warning("alert %s could not be told to %s: %s; it is tried again", told["alert"], webhook.name, problem)
        return not problem


def _quotas(said: Sequence[vitals.Said]) -> tuple[Quota, ...]:
    most: dict[tuple[str, str, str], float] = {}
    for one in said:
        for provider, account, limit, used in one.quotas:
            most[provider, account, limit] = max(used, most.get((provider, account, limit), 0.0))
    return tuple(Quota(*key, used) for key, used in sorted(most.items()))


def _nodes(said: Sequence[vitals.Said], known: Sequence[NodeFacts]) -> tuple[NodeFacts, ...]:
    nodes = {node.node: node for node in known}
    for one in said:
        nodes[one.node] = replace(
            nodes.get(one.node, NodeFacts(one.node)),
            store_up=one.store_up,
            usage_waiting_bytes=one.usage_waiting_bytes,
            interactive_waiting=one.waiting.get("interactive", 0),
            interactive_waiting_before=one.waiting_before,
        )
    return tuple(nodes.values())


def _models(snapshot: Snapshot, said: Sequence[vitals.Said]) -> tuple[ModelFacts, ...]:
    endpoints: dict[str, list[str]] = {}
    for endpoint in snapshot.endpoints.values():
        endpoints.setdefault(endpoint.model, []).append(endpoint.provider.name)
    fewest = {
        model: min([one.candidates.get(model, len(owners)) for one in said], default=len(owners)) for model, owners in endpoints.items()
    }
    return tuple(ModelFacts(model, fewest[model], len(owners), len(set(owners))) for model, owners in sorted(endpoints.items()))


async def _board(connection: AsyncConnection) -> Board:
    rows = await connection.execute(text("SELECT rule, labels, value, since, last_wrong, firing FROM alerts FOR UPDATE"))
    found = {}
    for rule, labels, value, since, last_wrong, firing in rows:
        if rule in BY_NAME:  # one of another version is forgotten
            by = tuple((label, str(labels.get(label, ""))) for label in BY_NAME[rule].by)
            violation = Violation(rule, by, value)
            found[violation.key] = Standing(violation, since.timestamp(), last_wrong.timestamp(), firing)
    return found


async def _keep_board(connection: AsyncConnection, board: Board) -> None:
    await connection.execute(text("DELETE FROM alerts"))
    for key, standing in board.items():
        await connection.execute(
            text(
                "INSERT INTO alerts (key, rule, labels, value, since, last_wrong, firing) VALUES"
                " (:key, :rule, CAST(:labels AS jsonb), :value, to_timestamp(:since), to_timestamp(:last_wrong), :firing)"
            ),
            {
                "key": key,
                "rule": standing.violation.rule,
                "labels": msgspec.json.encode(dict(standing.violation.labels)).decode(),
                "value": standing.violation.value,
                "since": standing.since,
                "last_wrong": standing.last_wrong,
                "firing": standing.firing,
            },
        )


async def _keep_notice(connection: AsyncConnection, notice: Notice, now: datetime, webhooks: Sequence[Webhook]) -> None:
    insert = text("INSERT INTO alert_notices (at, due, told, pending) VALUES (:now, :now, CAST(:told AS jsonb), CAST(:pending AS jsonb))")
    told = msgspec.json.encode(told_of(notice, now.timestamp())).decode()
    pending = msgspec.json.encode([webhook.name for webhook in webhooks]).decode()
    await connection.execute(insert, {"now": now, "told": told, "pending": pending})
    await connection.execute(text("DELETE FROM alert_notices WHERE at < :before"), {"before": now - timedelta(days=90)})


async def standing(reading: Reading) -> list[Standing]:
    """Every trouble as it stands, those that fire first. DatabaseAway."""
    async with reading() as connection:
        return sorted((await _board(connection)).values(), key=lambda one: (not one.firing, one.since))
