"""Composition root of one worker: the only place of the data plane that constructs, and the only one that knows the real clock."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import random
import resource
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

import n4n
from data_plane.counting import Counting
from data_plane.endings import Endings
from data_plane.health import Health
from data_plane.health_gauges import HealthGauges
from data_plane.idempotency import Once
from data_plane.intake import Intake, SharedIntake
from data_plane.leaving import Orders, Serving, drain, until
from data_plane.ledger import Ledger
from data_plane.limiting import Limiting, reserves_of
from data_plane.listeners import BACKLOG, listening_socket
from data_plane.meter import Meter
from data_plane.reports import LIVES, SERVES, Reports
from data_plane.router import Router
from data_plane.tally import Tally, row_of
from data_plane.tracing import Tracer
from data_plane.vitals import vitals_of
from data_plane.web import Web
from n4n.core.dialects.table import DIALECTS
from n4n.core.discovery import LinkRules
from n4n.runtime import disk_snapshot, spans
from n4n.runtime.control_link import ControlLink, Identity
from n4n.runtime.credentials import Credentials
from n4n.runtime.exemplars import of_this_node
from n4n.runtime.follower import Follower, Pace
from n4n.runtime.idempotency import Records
from n4n.runtime.metrics_out import metrics_out_of
from n4n.runtime.open_attempts import OpenAttempts
from n4n.runtime.records import LineWriter
from n4n.runtime.sealing import secret_of
from n4n.runtime.segments import Segments
from n4n.runtime.settings import Settings
from n4n.runtime.telemetry import Instruments, metrics_here
from n4n.runtime.tls import tls_of
from n4n.runtime.tracing import tracing_of
from n4n.runtime.upstream import Upstream
from n4n.runtime.upstream.dial import proxy_of
from n4n.runtime.usage_link import UsageLink
from n4n.runtime.vitals_link import VitalsLink

GAUGES_S = 1.0
TURN_S = 0.0005  # how long a thread that sends traces or answers a scrape keeps the loop waiting; Python's own is ten times that
OWN_FILES = 500  # files and sockets that are no client's
LAST_BYTES_S = 2.0  # draining has waited for the requests; this is for bytes on their way out
LAST_ROWS_S = 1.5  # for usage on its way to a control plane; the rest waits on the disk
LONGEST_VITALS_S = 30  # who says nothing for a minute is not counted
FIRST_STATE_S = 3.0  # a control plane on its feet answers in 20 ms
log = logging.getLogger("n4n.data_plane")


def node_name(settings: Settings) -> str:
    """This worker's stable name in the fleet."""
    return f"{settings.node or socket.gethostname()}-{settings.worker}"


@asynccontextmanager
async def worker(settings: Settings, reports: Reports) -> AsyncIterator[Serving]:
    """One router, serving."""
    loop = asyncio.get_running_loop()
    instruments = Instruments(settings.worker, settings.slot)
    lines = LineWriter(sys.stdout.fileno(), loop)
    credentials = Credentials(proxy=proxy_of(settings.egress_proxy))
    saved = disk_snapshot.path_in(settings.data_path)  # one for all workers: a new one starts from it too
    follower = Follower(saved, credentials, pace=Pace(stale_after_s=settings.stale_after_sec))
    follower.start_from_disk()
    clock = time.monotonic  # the loop's own clock, finer: uvloop's stands still during a tick
    health = Health(clock, random.random)
    upstream = Upstream(clock, proxy=settings.egress_proxy, most=settings.upstream_connections)
    router = Router(follower=follower, credentials=credentials, health=health, upstream=upstream, dialects=DIALECTS, clock=clock)
    ledger = Ledger()
    run = f"{settings.worker}-{time.time_ns():x}-{os.getpid()}"
    segments = Segments(settings.data_path / "usage", run, carried=ledger.unsettled, most_bytes=settings.usage_disk_mib << 20)
    ledger.segments = segments
    if settings.counting_socket:
        ledger.counting = Counting(settings.counting_socket, settings.count_one_in, ledger, clock=clock)
    tracing = tracing_of(os.environ, "data-plane", node_name(settings))
    telling = metrics_out_of(os.environ, "data-plane", settings.node or socket.gethostname(), of_this_node, metrics_here())
    served = Web(
        router, Meter(instruments, lines, ledger, None if tracing is None else Tracer(tracing, time.time), settings.log_one_in), settings
    )
    identity = Identity(node_name(settings), "data-plane", n4n.__version__, settings.node_token, tls_of(settings))
    link = ControlLink(settings.control_planes, identity, follower, rules=LinkRules(), clock=clock, draw=random.random)
    limiting = None
    instruments.store_up.set(1)  # until it is found to be away, if there is one
    if settings.redis_url:
        limiting = Limiting(
            settings.redis_url,
            router,
            instruments,
            name=f"{identity.node}-{settings.slot}",
            workers=settings.workers,
            draw=random.random,
            reserves=reserves_of(settings),
        )
        limiting.limits.fleet = lambda: follower.routers
        ledger.known = OpenAttempts(limiting.store, run, identity.node, unsettled=ledger.unsettled, wall=time.time)
    spanned = None if tracing is None else spans.Tracer(tracing, time.time_ns)
    usage = UsageLink(settings.control_planes, identity, segments, known=ledger.known, clock=clock, draw=random.random, tracer=spanned)
    totals = served.totals
    heard = settings.control_planes if settings.vitals_sec else ()
    vitals = VitalsLink(
        heard, identity, run, lambda: vitals_of(router, totals, segments, limiting), every_s=min(settings.vitals_sec, LONGEST_VITALS_S)
    )
    kept = Records(None if limiting is None else limiting.store, secret_of(settings))
    router.once = Once(kept, clock, random.random, lambda outcome: instruments.idempotent.labels(outcome).inc())
    endings = Endings(router, served)
    follower.heard = endings.changed
    server = served.server()
    runner = web.ServerRunner(server, shutdown_timeout=LAST_BYTES_S)
    await runner.setup()
    sock = socket.socket(fileno=settings.listen_fd) if settings.listen_fd else listening_socket(settings.host, settings.port)
    sock.setblocking(False)
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(follower.keep(), name="follower"),
            group.create_task(link.run(), name="control link"),
            group.create_task(health.shared.keep(), name="health"),
            group.create_task(_show(follower, health, upstream, segments, instruments, reports), name="gauges"),
            group.create_task(usage.run(), name="usage"),
            group.create_task(endings.keep(), name="endings"),
            group.create_task(vitals.run(), name="vitals"),
        ]
        if limiting is not None:
            tasks.append(group.create_task(limiting.keep(), name="limits"))
        if ledger.counting is not None:
            tasks.append(group.create_task(ledger.counting.keep(instruments), name="counting"))
        if ledger.known is not None:
            tasks.append(group.create_task(ledger.known.keep(), name="open attempts"))
        try:
            await (_newest_state if settings.takes_over else _first_state)(router, follower)
            intake = _intake(settings, runner, server, sock)
            await intake.start()
            reports.say(SERVES)
            log.info("worker %d serves on %s:%d", settings.worker, settings.host, settings.port)
            yield Serving(served, server, intake, sock, shares=bool(settings.tally_fd))
        finally:
            await runner.cleanup()
            await upstream.close()
            credentials.close()
            served.told()
            lines.flush()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await usage.last_words(LAST_ROWS_S)
            if ledger.known is not None:
                ledger.known.close(all_shipped=not segments.waiting_bytes)
            segments.close()
            if limiting is not None:
                await limiting.close()
            await asyncio.gather(*[asyncio.to_thread(out.close) for out in (tracing, telling) if out is not None])


def _intake(settings: Settings, runner: web.ServerRunner, server: web.Server, sock: socket.socket) -> Intake:
    """How clients come in: by turns with other workers, or all of them."""
    if not settings.tally_fd:
        return web.SockSite(runner, sock, backlog=BACKLOG)
    return SharedIntake(server, sock, Tally(settings.tally_fd, row_of(settings.worker, settings.slot)))


async def _first_state(router: Router, _: Follower) -> None:
    """Lets connections wait in the queue while catalog and keys are on their way; after a while they are told that there are none."""
    await until(lambda: router.ready, FIRST_STATE_S)


async def _newest_state(router: Router, follower: Follower) -> None:
    """Another still serves: waits until we can too, and a while for word that what came from disk is the newest version."""
    clock, begun = router.clock, router.clock()
    await until(lambda: router.ready and follower.age_s <= clock() - begun, FIRST_STATE_S)
    await until(lambda: router.ready, math.inf)


async def _show(
    follower: Follower, health: Health, upstream: Upstream, segments: Segments, instruments: Instruments, reports: Reports
) -> None:
    """Keeps the gauges and what health remembers in step with the catalog in use, and the supervisor assured that the loop turns."""
    version, nacks, dropped = 0, 0, 0
    gauges = HealthGauges(instruments, health)
    while True:
        reports.say(LIVES)
        instruments.age.set(follower.age_s)
        if follower.nacks > nacks:
            instruments.nacks.inc(follower.nacks - nacks)
            nacks = follower.nacks
        instruments.usage_waiting.set(segments.waiting_bytes)
        if segments.dropped > dropped:
            instruments.usage_dropped.inc(segments.dropped - dropped)
            dropped = segments.dropped
        catalog = follower.state.catalog
        if catalog is not None and catalog.version != version:
            version = catalog.version
            instruments.version.set(version)
            health.keep_only(catalog)
            gauges.use(catalog)
            upstream.keep_only((one.provider.base_url, one.provider.allow_private) for one in catalog.endpoints.values())
        gauges.show(time.monotonic())
        await asyncio.sleep(GAUGES_S)


def make_room(settings: Settings) -> None:
    """Allows as many open files as the connections may need: one to the client and one to a provider each, and some of our own."""
    wanted, least = 2 * settings.max_connections + OWN_FILES, settings.max_connections + OWN_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < least:
        log.warning("%d open files are allowed and %d connections: raise the limit (ulimit -n) or lower N4N_MAX_CONNECTIONS", hard, least)


async def run_worker(settings: Settings) -> None:
    """Serves until it is told to go, then drains. Until it serves, a signal ends it at once: nobody loses anything."""
    make_room(settings)
    sys.setswitchinterval(TURN_S)
    reports = Reports(settings.report_fd)
    orders = Orders(reports)
    async with worker(settings, reports) as serving:
        orders.obey(asyncio.get_running_loop())
        asked_to_leave = await orders.given()
        log.info("worker %d drains for at most %d s", settings.worker, settings.drain_sec)
        await drain(serving, orders, reports, settings, replaced=not asked_to_leave)
