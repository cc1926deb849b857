"""Composition root of a prober: the only place of this plane that constructs, and the only one that knows the real clock."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import n4n
from health_prober.calls import Calls
from health_prober.instruments import Instruments
from health_prober.jobs import Jobs
from health_prober.ledger import Ledger
from health_prober.notes import Notes
from health_prober.prober import Prober
from health_prober.stalls import Stalls
from health_prober.tracing import Traces
from health_prober.web import served
from n4n.core.breaker import Breaker
from n4n.core.catalog import Snapshot
from n4n.core.dialects.table import DIALECTS
from n4n.core.discovery import LinkRules
from n4n.core.errors import StartFailed
from n4n.core.health.standing import Policies
from n4n.runtime import wire
from n4n.runtime.control_link import ControlLink, Identity
from n4n.runtime.credentials import Credentials
from n4n.runtime.follower import Follower, Pace
from n4n.runtime.health import SharedHealth
from n4n.runtime.metrics_out import metrics_out_of
from n4n.runtime.segments import Segments
from n4n.runtime.settings import Settings
from n4n.runtime.spans import Tracer
from n4n.runtime.stores import Store, settings_of
from n4n.runtime.tls import tls_of
from n4n.runtime.tracing import tracing_of
from n4n.runtime.upstream import Upstream
from n4n.runtime.upstream.dial import proxy_of
from n4n.runtime.usage_link import UsageLink

GAUGES_S = 1.0
LIVE_WITHIN_S = 10.0  # a loop that made no turn for longer is not live
LAST_WORDS_S = 1.0
FIRST_STORE_S = 1.0
log = logging.getLogger("n4n.prober")


def node_name(settings: Settings) -> str:
    """This prober's name in the fleet."""
    return settings.node or f"{socket.gethostname()}-prober"


@asynccontextmanager
async def prober(settings: Settings) -> AsyncIterator[Prober]:
    """One prober, at work while inside. StartFailed: it cannot be configured so."""
    if not settings.redis_url:
        raise StartFailed("N4N_REDIS_URL is empty; probers share their work there: give the one that routers have")
    instruments, clock, wall, draw = Instruments(), time.monotonic, time.time, random.random
    telling = metrics_out_of(os.environ, "prober", node_name(settings), instruments.collect)
    credentials = Credentials(proxy=proxy_of(settings.egress_proxy))
    saved = settings.data_path / "prober" / "catalog.snapshot"
    follower = Follower(saved, credentials, pace=Pace(stale_after_s=settings.stale_after_sec), collections=(wire.CATALOG,))
    follower.start_from_disk()
    node = node_name(settings)
    run = f"{node}-{time.time_ns():x}-{os.getpid()}"
    tracing = tracing_of(os.environ, "prober", node)
    tracer = None if tracing is None else Tracer(tracing, time.time_ns)
    store = Store(settings_of(settings.redis_url), _store_told(instruments))
    health = SharedHealth(store, policies_of=_policies(lambda: follower.state.catalog), clock=clock, draw=draw)
    ledger, stalls = Ledger(), Stalls(clock)
    segments = Segments(settings.data_path / "usage", f"p-{time.time_ns():x}-{os.getpid()}", carried=ledger.unsettled)
    ledger.segments = segments
    upstream = Upstream(clock, proxy=settings.egress_proxy, most=settings.upstream_connections)
    notes = Notes(node, store, instruments, wall)
    jobs = Jobs(
        Calls(upstream, DIALECTS, credentials.reveal, clock, wall, draw), health, notes, ledger, instruments, stalls,
        usable=lambda: credentials.usable, version=lambda: follower.version, clock=clock, wall=wall, draw=draw,
    )  # fmt: skip
    working = Prober(
        run, store, health, jobs, notes, instruments,
        catalog=lambda: follower.state.catalog, dialects=frozenset(DIALECTS), clock=clock, wall=wall, draw=draw,
        traces=None if tracer is None else Traces(tracer),
    )  # fmt: skip
    identity = Identity(node, "prober", n4n.__version__, settings.node_token, tls_of(settings))
    link = ControlLink(settings.control_planes, identity, follower, rules=LinkRules(), clock=clock, draw=draw)
    usage = UsageLink(settings.control_planes, identity, segments, clock=clock, draw=draw, tracer=tracer)

    def ready() -> bool:
        return follower.state.catalog is not None and clock() - working.turned_at < LIVE_WITHIN_S

    async with served(settings.host, settings.prober_port, instruments, ready) as port, asyncio.TaskGroup() as group:
        await store.ready(FIRST_STORE_S)
        loops = (
            follower.keep(), link.run(), usage.run(), health.keep(), stalls.keep(), working.run(),
            _show(follower, upstream, segments, instruments),
        )  # fmt: skip
        tasks = [group.create_task(loop) for loop in loops]
        try:
            log.info("the prober %s is at work; /metrics on port %d", node, port)
            yield working
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await working.leave()
            await health.flush()
            await upstream.close()
            credentials.close()
            await usage.last_words(LAST_WORDS_S)
            segments.close()
            await store.close()
            await asyncio.gather(*[asyncio.to_thread(out.close) for out in (tracing, telling) if out is not None])


def _policies(catalog: Callable[[], Snapshot | None]) -> Callable[[str], Policies | None]:
    def found(name: str) -> Policies | None:
        snapshot = catalog()
        endpoint = None if snapshot is None else snapshot.endpoints.get(name)
        if snapshot is None or endpoint is None:
            return None
        model = snapshot.models[endpoint.model]
        return Policies(model.health, model.breaker)

    return found


def _store_told(instruments: Instruments) -> Callable[[Breaker, str], None]:
    def told(state: Breaker, _: str) -> None:
        instruments.store_up.set(1 if state is Breaker.CLOSED else 0)

    return told


async def _show(follower: Follower, upstream: Upstream, segments: Segments, instruments: Instruments) -> None:
    version, nacks = 0, 0
    while True:
        instruments.age.set(follower.age_s)
        instruments.usage_waiting.set(segments.waiting_bytes)
        if follower.nacks > nacks:
            instruments.nacks.inc(follower.nacks - nacks)
            nacks = follower.nacks
        catalog = follower.state.catalog
        if catalog is not None and catalog.version != version:
            version = catalog.version
            instruments.version.set(version)
            upstream.keep_only((one.provider.base_url, one.provider.allow_private) for one in catalog.endpoints.values())
        await asyncio.sleep(GAUGES_S)


async def run_prober(settings: Settings) -> None:
    """Until a signal comes; what runs then is cancelled, and told as not done."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)
    async with prober(settings):
        await stop.wait()
