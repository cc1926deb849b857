"""Watches over the fleet: gathers facts, finds what is wrong, and notes it to be told, once when it begins and once when it is over.

Several control planes may look; one at a time does, by a lock in Postgres that falls with its connection. What is firing
stands in Postgres, so that whoever looks next goes on where the one before stopped; what is to be told as well (`telling`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final, Protocol

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from control_plane import telling, traffic, vitals
from control_plane.schema import DatabaseAway
from control_plane.traffic import Reading
from control_plane.usual import Week
from control_plane.webhooks import Webhook
from n4n.core.alerts.conditions import violations
from n4n.core.alerts.facts import Compared, Facts, ModelFacts, NodeFacts, Quota
from n4n.core.alerts.rules import BY_NAME, LEAST_COUNTED
from n4n.core.alerts.watch import Board, Notice, Standing, Violation, watch
from n4n.core.catalog import Endpoint, Snapshot
from n4n.core.counting.encodings import is_own
from n4n.core.errors import FailureClass
from n4n.runtime.spans import Tracer

LOOK_S: Final = 15.0
_SPANS_MIN: Final = (5, 10, 30, 60, 360)  # of requests that alerts look at
_LOCK: Final = 0x6E346E07  # Postgres advisory lock "n4n watches"
_THERE_S: Final = 15.0  # a node that nobody holds a stream of is there if it said something so lately
_REASONS: Final = frozenset(one.value for one in FailureClass)
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
        tracer: Tracer | None = None,
    ) -> None:
        self._reading, self._others, self._webhooks, self._now = reading, others, webhooks, now
        self._look_s, self._hold = look_s, hold
        self.teller = telling.Teller(reading, webhooks, now, hold=hold, tracer=tracer)
        self._week = Week()
        self._anew_at: datetime | None = None
        self.known: Facts | None = None  # at the last look, for /metrics; None: another control plane looks

    async def keep(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.teller.keep(), name="alerts are told")
            group.create_task(self._keep_looking(), name="alerts are looked for")

    async def _keep_looking(self) -> None:
        while True:
            try:
                async with self._alone() as ours:
                    if ours:
                        await self.look()
                    else:
                        self.known = None
            except DatabaseAway as error:
                self.known = None
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
            await telling.note(connection, notices, self._webhooks, now)
        for notice in notices:
            word = "is over" if notice.resolved else notice.rule.severity.value
            _log.warning("alert %s (%s): %s", notice.rule.name, word, notice.violation.summary)
        return notices

    async def facts(self, now: datetime) -> Facts:
        """Everything there is to know at this moment, but for what others know at one instant of the database."""
        others = self._others
        snapshot, low, budgets, nodes = await others.snapshot(), await others.low_balances(), await others.budgets(), await others.nodes()
        await self._add_up(now)
        usual = await self._week.at(self._reading, now)
        async with self._reading() as connection:
            reading = _inside(connection)
            minute, week_ago = now.replace(second=0, microsecond=0), now - timedelta(days=7)
            spans = [(minute - timedelta(minutes=minutes), now) for minutes in _SPANS_MIN]
            spans.append((minute - timedelta(minutes=70), minute - timedelta(minutes=10)))
            five, ten, thirty, sixty, longest, before = await vitals.requests(reading, spans)
            said = await vitals.newest(reading, now)
            lately = await traffic.sums(reading, minute - timedelta(minutes=60), now)
            return Facts(
                requests_5=five[0],
                requests_10=ten[0],
                requests_30=thirty[0],
                requests_60=sixty[0],
                requests_360=longest[0],
                requests_hour_before=before[0],
                traffic_15=await traffic.window(reading, minute - timedelta(minutes=15), now),
                traffic_60=lately.traffic(),
                traffic_week_ago=await traffic.window(reading, week_ago - timedelta(minutes=60), week_ago),
                baseline=usual.traffic,
                compared_60=_compared(lately.compared, usual.compared, snapshot),
                quotas=_quotas(said),
                low_balances=tuple(low),
                accounts_out=_accounts_out(said, snapshot),
                budgets=tuple(budgets),
                nodes=_nodes(said, nodes, now),
                inversions=five[1],
                models=() if snapshot is None else _models(snapshot, said),
            )

    async def _add_up(self, now: datetime) -> None:
        """Each look the newest minutes, each minute all that may still change: of a busy fleet those are half a million rows."""
        everything = self._anew_at is None or not self._anew_at <= now < self._anew_at + timedelta(seconds=55)
        await traffic.add_up_minutes(self._reading, now, traffic.ANEW if everything else traffic.NEWEST)
        if everything:
            self._anew_at = now


def _inside(connection: AsyncConnection) -> Reading:
    """For those who want a transaction of their own: this one, which stays open."""
    return lambda: nullcontext(connection)


def _quotas(said: Sequence[vitals.Said]) -> tuple[Quota, ...]:
    most: dict[tuple[str, str, str], float] = {}
    for one in said:
        for provider, account, limit, used in one.quotas:
            most[provider, account, limit] = max(used, most.get((provider, account, limit), 0.0))
    return tuple(Quota(*key, used) for key, used in sorted(most.items()))


def _accounts_out(said: Sequence[vitals.Said], snapshot: Snapshot | None) -> tuple[tuple[str, str, str], ...]:
    """Those of the catalog: whoever has a node's token may say anything, and these are labels."""
    endpoints = () if snapshot is None else snapshot.endpoints.values()
    ours = {(account.provider, account.name) for endpoint in endpoints for account in endpoint.accounts}
    found = {(provider, account, why) for one in said for provider, account, why in one.accounts_out}
    return tuple(sorted(out for out in found if out[:2] in ours and out[2] in _REASONS))


def _nodes(said: Sequence[vitals.Said], known: Sequence[NodeFacts], now: datetime) -> tuple[NodeFacts, ...]:
    """A node that no control plane holds a stream of, and that is silent, has been stopped: it is neither behind nor refuses."""
    minute, words = int(now.timestamp()) // 60, {one.node: one for one in said}
    nodes = {}
    for node in known:
        word = words.get(node.node)
        there = node.connected or (word is not None and now.timestamp() - word.at <= _THERE_S)
        nodes[node.node] = node if there else NodeFacts(node.node, connected=False)
    for one in said:
        nodes[one.node] = replace(
            nodes.get(one.node, NodeFacts(one.node)),
            store_up=one.store_up,
            usage_waiting_bytes=one.usage_waiting_bytes,
            interactive_waiting=one.waited(minute - 1, minute + 1),
            interactive_waiting_before=one.waited(minute - 11, minute - 1),
        )
    return tuple(nodes.values())


def _compared(
    told: Mapping[tuple[str, str], tuple[int, int]], week: Mapping[tuple[str, str], tuple[int, int]], snapshot: Snapshot | None
) -> tuple[Compared, ...]:
    """With what the ratio should be: 1 by a model's own vocabulary, by another what it was in the seven days before."""
    endpoints = {} if snapshot is None else {str(name): endpoint for name, endpoint in snapshot.endpoints.items()}
    found = []
    for (endpoint, direction), (reported, counted) in told.items():
        usual_reported, usual_counted = week.get((endpoint, direction), (0, 0))
        usual = usual_reported / usual_counted if usual_counted >= LEAST_COUNTED else None
        if endpoint in endpoints and is_own(endpoints[endpoint].upstream_model):
            usual = 1.0
        found.append(Compared(endpoint, direction, reported, counted, usual))
    return tuple(found)


def _models(snapshot: Snapshot, said: Sequence[vitals.Said]) -> tuple[ModelFacts, ...]:
    of_model: dict[str, list[Endpoint]] = {}
    for endpoint in snapshot.endpoints.values():
        of_model.setdefault(endpoint.model, []).append(endpoint)
    fewest = {
        model: min([one.candidates.get(model, len(owners)) for one in said], default=len(owners)) for model, owners in of_model.items()
    }
    return tuple(
        ModelFacts(model, fewest[model], len(owners), _weights(snapshot, owners))
        for model, owners in sorted(of_model.items())
        if any(endpoint.state == "active" for endpoint in owners)
    )


def _weights(snapshot: Snapshot, endpoints: Sequence[Endpoint]) -> Mapping[str, float]:
    """What each provider's weight makes its share of a model, of endpoints that are in use."""
    if snapshot.models[endpoints[0].model].strategy != "balanced":
        return {}
    weights: dict[str, float] = {}
    for endpoint in endpoints:
        if endpoint.state == "active":
            weights[endpoint.provider.name] = weights.get(endpoint.provider.name, 0.0) + endpoint.weight
    total = sum(weights.values())
    return {provider: weight / total for provider, weight in weights.items()} if total else {}


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


async def standing(reading: Reading) -> list[Standing]:
    """Every trouble as it stands, those that fire first. DatabaseAway."""
    async with reading() as connection:
        return sorted((await _board(connection)).values(), key=lambda one: (not one.firing, one.since))
