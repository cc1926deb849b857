"""Case 23, gRPC issue 38290: a Python client that does not come back after its server was restarted, or loses a sound stream.

Here with the pinned grpcio, the rules that production uses, under uvloop and asyncio, with child processes started all the while.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import uvloop

from control_plane.app import control_plane
from n4n.core.discovery import Held, LinkRules
from n4n.runtime.control_client import ControlClient
from n4n.runtime.control_link import ControlLink, Identity, LinkState
from n4n.runtime.credentials import Credentials
from n4n.runtime.follower import Follower, Pace
from n4n.runtime.settings import Settings
from tests.control_plane.client import ADMIN, NODE
from tests.support.catalogs import SMALL, changed
from tests.support.control_plane import ScriptedControlPlane, heartbeat, resources_of, update

RESTARTS, WITHIN_S, IDLE_S = 20, 5.0, 30.0
LONG_GAPS = {7: 2.5, 13: 6.0}  # seconds; long enough for the waits to grow to their longest


class Counting(Follower):
    """The follower, and how many streams there were."""

    streams = 0

    def begin(self) -> Sequence[Held]:
        self.streams += 1
        return super().begin()


def linked(target: str, path: Path, token: str) -> tuple[Counting, ControlLink]:
    follower = Counting(path / "catalog.snapshot", Credentials({}), pace=Pace())
    identity = Identity("router-1", "data-plane", "0.1", token)
    return follower, ControlLink([target], identity, follower, rules=LinkRules(), clock=time.monotonic, draw=random.random)


async def until(holds: Callable[[], bool], within_s: float) -> float:
    """Seconds until something held."""
    began = time.monotonic()
    async with asyncio.timeout(within_s):
        while not holds():  # noqa: ASYNC110  # what is looked at tells nobody
            await asyncio.sleep(0.005)
    return time.monotonic() - began


async def with_link(link: ControlLink, scenario: Callable[[], Awaitable[None]]) -> None:
    running = asyncio.create_task(link.run())
    try:
        await scenario()
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def restarts(database_url: str, path: Path, seed: int) -> None:
    """A real control plane on one port, twenty times anew; a version is applied while the router cannot hear of it."""
    gaps = random.Random(seed)
    settings = Settings(database_url=database_url, admin_port=0, metrics_port=0, admin_token=ADMIN, node_token=NODE)
    async with control_plane(settings) as first:
        settings = replace(settings, admin_port=first.port)
        follower, link = linked(f"127.0.0.1:{first.port}", path, NODE)
    elsewhere = replace(settings, admin_port=0)

    async def scenario() -> None:
        async with control_plane(elsewhere) as other, ControlClient([f"127.0.0.1:{other.port}"], ADMIN) as operator:
            for number in range(1, RESTARTS + 1):
                raw = changed(SMALL, "endpoints", "acme-small", "weight", to=number)
                head = (await operator.apply(json.dumps(raw), author="ann")).version.version
                await asyncio.sleep(LONG_GAPS.get(number, gaps.uniform(0, 0.3)))
                async with control_plane(settings):
                    took = await until(lambda head=head: follower.version == head and link.state is LinkState.UP, WITHIN_S)  # type: ignore[misc]
                    assert took <= WITHIN_S
                    await asyncio.to_thread(subprocess.run, [sys.executable, "-S", "-c", ""], check=True)
                    assert link.state is LinkState.UP, "a child process started beside a stream harms neither"

    await with_link(link, scenario)
    assert follower.nacks == 0


async def idles(path: Path) -> None:
    """One stream on which nothing is said but a heartbeat every five seconds."""
    resources = resources_of(SMALL)
    async with ScriptedControlPlane() as plane:
        follower, link = linked(plane.target, path, "node-token")

        async def scenario() -> None:
            await plane.hello()
            plane.push(update(1, resources))
            ack = await plane.ack()
            for _ in range(round(IDLE_S / 5)):
                await asyncio.sleep(5)
                plane.push(heartbeat(1, ack.checksum))
                assert (link.state, link.problem, follower.streams) == (LinkState.UP, "", 1)

        await with_link(link, scenario)
        assert (follower.version, follower.nacks) == (1, 0)


def test_restarts_are_survived_within_five_seconds_each_at_the_head_and_an_idle_stream_is_not_lost(
    postgres_url: str, tmp_path: Path
) -> None:
    """At once, each on a loop of its own thread, as all of them mostly wait."""
    (tmp_path / "uvloop").mkdir()
    (tmp_path / "asyncio").mkdir()
    with ThreadPoolExecutor(3) as pool:
        running = [
            pool.submit(uvloop.run, restarts(postgres_url, tmp_path, seed=random.randrange(10**6))),
            pool.submit(uvloop.run, idles(tmp_path / "uvloop")),
            pool.submit(asyncio.run, idles(tmp_path / "asyncio")),
        ]
    for one in running:
        one.result()
