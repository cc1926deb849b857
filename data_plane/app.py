"""Composition root of one worker: the only place of the data plane that constructs, and the only one that knows the real clock."""

from __future__ import annotations

import asyncio
import logging
import random
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

import n4n
from data_plane.catalog import Follower, Pace
from data_plane.credentials import Credentials
from data_plane.health import Health
from data_plane.meter import Meter
from data_plane.router import Router
from data_plane.supervisor import listening_socket
from data_plane.web import Web
from n4n.core.dialects.table import DIALECTS
from n4n.core.discovery import LinkRules
from n4n.runtime import disk_snapshot
from n4n.runtime.control_link import ControlLink, Identity
from n4n.runtime.records import LineWriter
from n4n.runtime.settings import Settings
from n4n.runtime.telemetry import Instruments
from n4n.runtime.upstream import Upstream

GAUGES_S = 1.0
FIRST_STATE_S = 3.0  # a control plane on its feet answers in 20 ms
log = logging.getLogger("n4n.data_plane")


def node_name(settings: Settings) -> str:
    """This worker's stable name in the fleet."""
    return f"{settings.node or socket.gethostname()}-{settings.worker}"


@asynccontextmanager
async def worker(settings: Settings) -> AsyncIterator[Web]:
    """One router, serving; leaves by draining."""
    loop = asyncio.get_running_loop()
    instruments = Instruments(settings.worker)
    lines = LineWriter(sys.stdout.fileno(), loop)
    credentials = Credentials()
    saved = disk_snapshot.path_in(settings.data_path)  # one for all workers: a new one starts from it too
    follower = Follower(saved, credentials, pace=Pace(stale_after_s=settings.stale_after_sec))
    follower.start_from_disk()
    clock = time.monotonic  # the loop's own clock, finer: uvloop's stands still during a tick
    health = Health(clock, random.random)
    upstream = Upstream(clock)
    router = Router(follower=follower, credentials=credentials, health=health, upstream=upstream, dialects=DIALECTS, clock=clock)
    served = Web(router, Meter(instruments, lines), settings)
    identity = Identity(node_name(settings), "data-plane", n4n.__version__, settings.node_token)
    link = ControlLink(settings.control_planes, identity, follower, rules=LinkRules(), clock=clock, draw=random.random)
    runner = web.ServerRunner(served.server(), shutdown_timeout=settings.drain_sec)
    await runner.setup()
    sock = socket.socket(fileno=settings.listen_fd) if settings.listen_fd else listening_socket(settings.host, settings.port)
    sock.setblocking(False)
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(follower.keep(), name="follower"),
            group.create_task(link.run(), name="control link"),
            group.create_task(_show(follower, health, instruments), name="gauges"),
        ]
        try:
            await _first_state(router)
            await web.SockSite(runner, sock).start()
            log.info("worker %d serves on %s:%d", settings.worker, settings.host, settings.port)
            yield served
        finally:
            served.draining = True
            await runner.cleanup()
            await upstream.close()
            lines.flush()
            for task in tasks:
                task.cancel()


async def _first_state(router: Router) -> None:
    """Lets connections wait in the backlog while catalog and keys are on their way; after a while they are told that there are none."""
    until = router.clock() + FIRST_STATE_S
    while not router.ready and router.clock() < until:  # noqa: ASYNC110  # once per process, 20 ms long
        await asyncio.sleep(0.01)


async def _show(follower: Follower, health: Health, instruments: Instruments) -> None:
    """Keeps the gauges and what health remembers in step with the catalog in use."""
    version, nacks = 0, 0
    while True:
        instruments.age.set(follower.age_s)
        if follower.nacks > nacks:
            instruments.nacks.inc(follower.nacks - nacks)
            nacks = follower.nacks
        catalog = follower.state.catalog
        if catalog is not None and catalog.version != version:
            version = catalog.version
            instruments.version.set(version)
            health.keep_only(catalog)
        await asyncio.sleep(GAUGES_S)


async def run_worker(settings: Settings) -> None:
    """Serves until SIGTERM or SIGINT, then drains."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with worker(settings):
        await stop.wait()
        log.info("worker %d drains for at most %d s", settings.worker, settings.drain_sec)
