"""Incidents on a virtual clock: one of three endpoints is ill in some way under a steady load; what its share was, and what clients saw."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from n4n.core.breaker import Breaker, phase
from n4n.core.catalog import Model
from n4n.core.errors import FailureClass
from n4n.core.health.signals import Signal, Source
from tests.simulation.clock import VirtualLoop
from tests.simulation.load import GOOD
from tests.simulation.world import Client, Script, World, refusal
from tests.support.endpoints import chat, endpoint, model

ILL = "e0"
PROBED_EVERY_S = 30.0
Behaviour = Callable[[float, bool, random.Random], Script]  # at an instant, for a stream or not


@dataclass(frozen=True)
class Incident:
    """How the ill endpoint behaves, under which policy; `told`: in words, for the plot."""

    told: str
    behaves: Behaviour
    policy: Model = field(default_factory=lambda: model())
    seconds: float = 240.0


@dataclass
class Course:
    """What happened. Times in seconds since the load began."""

    began: list[float] = field(default_factory=list)
    first_calls: list[str] = field(default_factory=list)  # the endpoint that each request was sent to first
    failed: int = 0
    ttft_s: list[float] = field(default_factory=list)
    scores: list[tuple[float, float]] = field(default_factory=list)
    trials_at_once: int = 0

    @property
    def failure_rate(self) -> float:
        """Of what clients saw."""
        return self.failed / max(1, len(self.began))

    def share(self, name: str = ILL, begin: float = 0.0, end: float = math.inf) -> float:
        """The part of the requests that began in a span which this endpoint was asked first."""
        within = [one == name for at, one in zip(self.began, self.first_calls, strict=True) if begin <= at < end]
        return sum(within) / max(1, len(within))


def later(script: Script, by_s: float) -> Script:
    """The same answer, its head so much later."""
    return replace(script, head_s=(script.head_s or 0.0) + by_s)


def bursts(at: float, stream: bool, _: random.Random) -> Script:
    """500 for ten seconds of each minute."""
    return refusal(500) if at % 60 >= 50 else GOOD[stream]


def flapping(at: float, stream: bool, _: random.Random) -> Script:
    """Seven seconds well, seven seconds 503."""
    return refusal(503) if int(at / 7) % 2 else GOOD[stream]


def drifting(at: float, stream: bool, _: random.Random) -> Script:
    """First tokens after 0.8 s, then ever later, after 3 s in the end."""
    return later(GOOD[stream], 0.7 + 2.2 * min(1.0, max(0.0, at - 40) / 160))


def dead(at: float, stream: bool, _: random.Random) -> Script:
    """500 from 30 s to 120 s."""
    return refusal(500) if 30 <= at < 120 else GOOD[stream]


INCIDENTS: Mapping[str, Incident] = {
    "bursts": Incident("5xx for 10 s of each minute", bursts),
    "flapping": Incident("well and 503 in turn, 7 s each", flapping),
    "drift": Incident("first tokens from 0.8 s to 3 s, sort=latency", drifting, model(strategy="latency")),
    "outage": Incident("500 from 30 s to 120 s", dead),
}


def run(incident: Incident, *, rate: float, seconds: float | None = None, seed: int = 11) -> Course:
    """A load of so many requests per second, half of them streams, over three endpoints of which the first is ill."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(_run(incident, rate, seconds or incident.seconds, seed))


async def _run(incident: Incident, rate: float, seconds: float, seed: int) -> Course:
    dice, loop, course = random.Random(seed), asyncio.get_running_loop(), Course()
    zero = loop.time()

    def answer(name: str, _: int, stream: bool) -> Script:
        if name == ILL:
            return incident.behaves(loop.time() - zero, stream, dice)
        return later(GOOD[stream], 1.1 + 0.2 * dice.random()) if incident.policy.strategy == "latency" else GOOD[stream]

    world = World([endpoint(name, upstream_model=name) for name in (ILL, "e1", "e2")], [incident.policy], answer, dice.random)
    world.health.keep_only(world.snapshot)
    watching = [asyncio.create_task(one) for one in (world.health.shared.keep(), _watch(world, course, zero), _probe(world, answer))]
    clients: list[Client] = []
    async with asyncio.TaskGroup() as group:
        while loop.time() - zero < seconds:
            clients.append(Client(world, f"r{len(clients)}", chat(stream=len(clients) % 2 == 0)))
            group.create_task(clients[-1].run())
            await asyncio.sleep(dice.expovariate(rate))
    for task in watching:
        task.cancel()
    await asyncio.wait(watching)
    first: dict[str, str] = {}
    for call in world.calls:
        first.setdefault(call.request_id, call.endpoint)
    for client in clients:
        course.began.append(client.started - zero)
        course.first_calls.append(first.get(client.name, ""))
        course.failed += client.error is not None
        course.ttft_s.append(client.record.ttft_s or math.nan)
    course.trials_at_once = _most_at_once(world)
    return course


async def _probe(world: World, answer: Callable[[str, int, bool], Script]) -> None:
    """A prober: one call to each endpoint that no client was answered by for an interval."""
    while True:
        for name in world.snapshot.endpoints:
            await asyncio.sleep(PROBED_EVERY_S / len(world.snapshot.endpoints))
            seen = world.health.shared.seen.get(name)
            if seen is not None and seen.good_at is not None and world.clock() - seen.good_at < PROBED_EVERY_S:
                continue
            script = answer(name, 0, True)
            took_s = (script.head_s or 0.0) + sum(wait for wait, _ in script.body[:2])
            failure = None if script.status == 200 else FailureClass.SERVER_ERROR
            world.health.shared.tell([Signal(name, Source.PROBE, failure, took_s, took_s)])


async def _watch(world: World, course: Course, zero: float) -> None:
    while True:
        view = world.health.views.get(ILL)
        out = view is not None and phase(view.breaker, world.clock()) is Breaker.OPEN
        course.scores.append((world.clock() - zero, 0.0 if out else 1.0 if view is None else view.score))
        await asyncio.sleep(0.25)


def _most_at_once(world: World) -> int:
    """The most calls that began at the ill endpoint while its breaker was not closed and were under way together."""
    edges: list[tuple[float, int]] = []
    for call in world.calls:
        if call.endpoint == ILL and call.doubted and call.ended is not None:
            edges += [(call.at, 1), (call.ended, -1)]
    most = running = 0
    for _, step in sorted(edges):
        running += step
        most = max(most, running)
    return most
