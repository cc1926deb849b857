"""The composition root of the control plane: the only place that builds its parts and knows the real clock."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
import uuid
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime

import grpc

from control_plane.budget_alerts import log_alert
from control_plane.budget_keeper import BudgetKeeper
from control_plane.gauges import Gauges, metrics_server
from control_plane.health import EndpointHealth
from control_plane.ledger import Ledger
from control_plane.publisher import Publisher, backoff_s
from control_plane.rating import Ratings
from control_plane.reaper import Reaper
from control_plane.repository import Repository
from control_plane.roster import Roster
from control_plane.schema import DatabaseAway, engine_url, migrate
from control_plane.service.access import Access
from control_plane.service.audit import Audit
from control_plane.service.catalog import Catalog
from control_plane.service.discovery import Discovery
from control_plane.service.fleet import Fleet
from control_plane.service.health import Health
from control_plane.service.operations import Operations
from control_plane.service.usage import Usage
from control_plane.service_levels import ServiceLevels
from control_plane.store_words import StoreWords
from control_plane.surroundings import Surroundings
from control_plane.tokens import Tokens
from control_plane.tracing import Pushes, Traced
from control_plane.usage_reports import Reports
from control_plane.versions import MAX_DOCUMENT_BYTES
from control_plane.watchers import Watchers
from control_plane.webhooks import webhooks_of
from n4n.core.breaker import Breaker
from n4n.core.errors import StartFailed, StoreUnavailable
from n4n.runtime.bearer import accepted
from n4n.runtime.metrics_out import MetricsOut, metrics_out_of
from n4n.runtime.open_attempts import LeftBehind
from n4n.runtime.probes import findings
from n4n.runtime.settings import Settings
from n4n.runtime.spans import Tracer
from n4n.runtime.stores import Store, command, settings_of
from n4n.runtime.tls import server_credentials, tls_of
from n4n.runtime.tracing import Tracing, tracing_of

HEARTBEAT_S = 5.0
POLL_S = 1.0
_STOP_GRACE_S = 1.0
_CANCELLED_AGAIN_S = 1.0
_REDIS_S = 1.0  # for so long Redis is waited for here, where no request waits
_PING = command(b"PING")
_log = logging.getLogger("n4n.control_plane")


@dataclass(frozen=True, slots=True)
class Running:
    """A control plane that serves. Ports are the real ones, also where the settings said 0."""

    port: int
    metrics_port: int


@asynccontextmanager
async def control_plane(settings: Settings, *, heartbeat_s: float = HEARTBEAT_S, poll_s: float = POLL_S) -> AsyncIterator[Running]:
    """Migrates, loads and serves while inside. Waits for a database that is away; StartFailed for what waiting cannot cure."""
    _check(settings)
    tls = tls_of(settings)
    credentials = server_credentials(tls)
    _refuse_taken(settings.admin_host, settings.admin_port)
    place = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:6]}"
    tracing = tracing_of(os.environ, "control-plane", place)
    tracer = None if tracing is None else Tracer(tracing, time.time_ns)
    await _until_migrated(settings.database_url)
    repository, ledger = Repository(settings.database_url), Ledger(settings.database_url, _now, keep_days=settings.usage_keep_days)
    reports, ratings = Reports(settings.database_url), Ratings(settings.database_url)
    levels, publisher = ServiceLevels(settings.database_url, _now), Publisher(repository, poll_s=poll_s, tracer=tracer)
    telling: MetricsOut | None = None
    roster = Roster(repository, place=place, now=_now, refresh_s=heartbeat_s)
    try:
        await _until_loaded(publisher, repository)
        async with _store(settings.redis_url) as store:
            reaper = _reaper(settings, store, ledger)
            budgets = BudgetKeeper(repository, publisher, ledger.reading, store, tell=log_alert, now=_now)
            health = EndpointHealth(publisher, store, ledger.reading, _now)
            usage = Usage(ledger, reports, ratings, repository, _now)
            services = (
                Catalog(repository, publisher),
                Access(repository, publisher, ledger.reading, _now),
                Audit(repository),
                Fleet(repository, publisher, roster, _Pinger(store).ask, _Findings(store).of_nodes, _now),
                Health(health, _now),
                Discovery(publisher, roster, heartbeat_s=heartbeat_s, pushes=None if tracer is None else Pushes(tracer)),
                usage,
                Operations(ledger.reading, _now),
            )
            around = Surroundings(repository, publisher, health, budgets, store, _now)
            webhooks = webhooks_of(settings.alert_webhooks)
            watchers = Watchers(ledger.reading, around, webhooks, _now, look_s=settings.alert_look_sec, tracer=tracer)
            tokens = Tokens(admin=settings.admin_token, node=settings.node_token, certified=bool(tls.ca))
            server = grpc.aio.server(interceptors=(tokens,) if tracer is None else (tokens, Traced(tracer)), options=_OPTIONS)
            server.add_generic_rpc_handlers(tuple(service.handlers() for service in services))
            port = _listen(server, settings, credentials)
            gauges = Gauges(publisher, roster, budgets, watchers, usage, reaper)
            telling = metrics_out_of(os.environ, "control-plane", place, gauges.collect)
            with metrics_server(settings.admin_host, settings.metrics_port, gauges) as metrics_port:
                looking = watchers if settings.alert_look_sec else None
                async with _serving(server, publisher, roster, ledger, reaper, budgets, levels, looking):
                    _log.info("the control plane serves on %s:%d", settings.admin_host, port)
                    yield Running(port, metrics_port)
    finally:
        for database in (repository, ledger, reports, ratings, levels):
            await database.close()
        await _last_words(tracing, telling)


async def _last_words(*telling: Tracing | MetricsOut | None) -> None:
    """In threads: a receiver that is away would hold the loop for seconds."""
    await asyncio.gather(*[asyncio.to_thread(one.close) for one in telling if one is not None])


@asynccontextmanager
async def _serving(
    server: grpc.aio.Server,
    publisher: Publisher,
    roster: Roster,
    ledger: Ledger,
    reaper: Reaper | None,
    budgets: BudgetKeeper,
    levels: ServiceLevels,
    watchers: Watchers | None,
) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        kept = (publisher.follow(), publisher.listen(), roster.keep(), ledger.keep(), budgets.keep(), levels.keep())
        loops = [group.create_task(loop) for loop in kept]
        if reaper is not None:
            loops.append(group.create_task(reaper.keep()))
        if watchers is not None:
            loops.append(group.create_task(watchers.keep()))
        try:
            await server.start()
            yield
        finally:
            publisher.stop()
            await server.stop(_STOP_GRACE_S)
            await _ended(loops)
            with suppress(DatabaseAway, TimeoutError):
                async with asyncio.timeout(1):
                    await roster.flush()


async def _ended(loops: Iterable[asyncio.Task[None]]) -> None:
    """Cancels until they have: a database driver that is cancelled while its server goes may raise an error of its own instead."""
    left = set(loops)
    while left:
        for loop in left:
            loop.cancel()
        _, left = await asyncio.wait(left, timeout=_CANCELLED_AGAIN_S)


def _check(settings: Settings) -> None:
    engine_url(settings.database_url)
    if not accepted(settings.admin_token):
        raise StartFailed("N4N_ADMIN_TOKEN is empty; give a long random text, and the same to those who run n4n commands")
    if set(accepted(settings.admin_token)) & set(accepted(settings.node_token)):
        raise StartFailed(
            "N4N_NODE_TOKEN equals N4N_ADMIN_TOKEN, or one of them does; give routers a token of their own, they may only watch"
        )


def _refuse_taken(host: str, port: int) -> None:
    """A taken port is told at once, not only when the database has come."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise StartFailed(_taken(host, port, error.strerror or str(error))) from error


def _taken(host: str, port: int, why: str) -> str:
    return f"the control plane cannot listen on {host}:{port} ({why}); free the port or choose another with N4N_ADMIN_PORT or --admin-port"


def _listen(server: grpc.aio.Server, settings: Settings, credentials: grpc.ServerCredentials | None) -> int:
    host = f"[{settings.admin_host}]" if ":" in settings.admin_host else settings.admin_host
    address = f"{host}:{settings.admin_port}"
    try:
        return server.add_insecure_port(address) if credentials is None else server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise StartFailed(_taken(settings.admin_host, settings.admin_port, "the address is in use or not of this machine")) from error


async def _until_migrated(database_url: str) -> None:
    failures = 0
    while True:
        try:
            revision = await asyncio.to_thread(migrate, database_url)
        except DatabaseAway as error:
            if not failures:
                _log.warning("%s; waiting for it", error)
            failures += 1
            await asyncio.sleep(backoff_s(failures))
        else:
            _log.info("the database is at schema revision %s", revision)
            return


async def _until_loaded(publisher: Publisher, repository: Repository) -> None:
    failures = 0
    while True:
        try:
            await publisher.catch_up()
            await repository.forget_nodes(_now())
            return
        except DatabaseAway as error:
            if not failures:
                _log.warning("%s; waiting for it", error)
            failures += 1
            await asyncio.sleep(backoff_s(failures))


class _Pinger:
    """Asks Redis whether it is there, through the connection that routers use: one server, Sentinels or a cluster."""

    def __init__(self, store: Store | None) -> None:
        self._store = store

    async def ask(self) -> str:
        """ok, or what is wrong; never the URL."""
        if self._store is None:
            return "not configured"
        if not await self._store.ready(_REDIS_S):
            return self._store.reason
        try:
            await self._store.command(_PING)
        except StoreUnavailable as error:
            return error.message
        return "ok"


class _Findings:
    """What probers found that is no score."""

    def __init__(self, store: Store | None) -> None:
        self._store = store

    async def of_nodes(self) -> dict[str, list[str]]:
        """A line for each, by the prober's node; none while Redis is away."""
        found: dict[str, list[str]] = {}
        if self._store is None or self._store.state is not Breaker.CLOSED:
            return found
        try:
            told = findings.told(await self._store.command(findings.ask()))
        except StoreUnavailable:
            return found
        for one in findings.standing(told, time.time() * 1000):
            found.setdefault(one.by, []).append(f"{one.about}: {one.kind}: {one.message}")
        return found


def _reaper(settings: Settings, store: Store | None, ledger: Ledger) -> Reaper | None:
    """None: there is no Redis to read from, or nobody wants it."""
    if store is None or not settings.lost_router_sec:
        return None
    return Reaper(LeftBehind(store), ledger, after_s=settings.lost_router_sec, clock=time.monotonic)


@asynccontextmanager
async def _store(redis_url: str) -> AsyncIterator[Store | None]:
    """None: there is none. StartFailed: the URL is none that a router could use either."""
    if not redis_url:
        yield None
        return
    words = StoreWords()
    store = Store(settings_of(redis_url, deadline_s=_REDIS_S), words.told)
    try:
        yield store
    finally:
        words.leaves()
        await store.close()


def _now() -> datetime:
    return datetime.now(UTC)


_OPTIONS = (
    ("grpc.so_reuseport", 0),  # two programs on one port would each get half of the calls; the second must fail instead
    ("grpc.max_receive_message_length", MAX_DOCUMENT_BYTES + 4 * 1024 * 1024),
    ("grpc.max_send_message_length", -1),  # a document with its diff
    ("grpc.keepalive_time_ms", 10_000),  # a node that is gone without a word is noticed within 15 s
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 4_000),  # nodes ping too
    ("grpc.http2.max_ping_strikes", 0),
)
