"""Redis killed, stopped and slow, under load: nobody fails for want of it, and what is admitted stays near the limit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tests.soak.limits.crowd import Asked, Crowd, Ended
from tests.soak.limits.far_redis import FarRedis
from tests.soak.limits.figures import Figure, Outcome, at_least, at_most, percentile, told
from tests.soak.limits.provider import Provider
from tests.soak.limits.stage import ALONE, TOGETHER, Stage

RPM, BURST, RATE = 1200, 20, 60.0
BEFORE_S, AFTER_S = 12.0, 12.0
RETURN_S = 5.0


@dataclass(frozen=True)
class Fault:
    """What is done to Redis, how long it lasts, and what ends it. `opens`: routers give up on it meanwhile."""

    name: str
    begin: Callable[[], None]
    end: Callable[[], None]
    seconds: float
    opens: bool


def killed(stage: Stage, seconds: float) -> Fault:
    """kill -9, and an empty one in its place."""
    return Fault("Redis killed, restarted", stage.redis.kill, stage.redis.begin, seconds, opens=True)


def stopped(stage: Stage, seconds: float) -> Fault:
    """SIGSTOP: connections stay, nothing answers."""
    return Fault("Redis stopped (SIGSTOP)", stage.redis.freeze, stage.redis.thaw, seconds, opens=True)


def slow(way: FarRedis, seconds: float) -> Fault:
    """Every answer 30 ms later, for all routers."""
    return Fault("Redis 30 ms further away", partial(way.add, 0.015), partial(way.add, 0.0), seconds, opens=False)


async def outage(stage: Stage, provider: Provider, fault: Fault) -> Outcome:
    """Load before, during and after."""
    crowd = Crowd(stage.ports, stage.key(rpm=RPM, burst=BURST))
    wall = time.time() - time.monotonic()
    provider.forget()
    marks: list[float] = []

    async def timed() -> None:
        await asyncio.sleep(BEFORE_S)
        marks.append(time.monotonic())
        fault.begin()
        await asyncio.sleep(fault.seconds)
        marks.append(time.monotonic())
        fault.end()

    try:
        ended, _ = await asyncio.gather(
            crowd.steady(RATE, BEFORE_S + fault.seconds + AFTER_S, lambda _: Asked("plain", {"ms": 10}, {})), timed()
        )
    finally:
        await crowd.close()
    went, came = marks
    opened = [at - wall for role in stage.routers for at in stage.said(role, ALONE) if went - 1 <= at - wall < came]
    closed = [at - wall for role in stage.routers for at in stage.said(role, TOGETHER) if at - wall >= came - 1]
    figures = [
        at_most("failed for want of Redis", sum(one.status not in (200, 429) for one in ended), 0),
        *_late(ended, went, came, max(opened, default=went) if fault.opens else came),
        *_admitted(provider, went, came),
    ]
    if fault.opens:
        figures += [
            at_least("routers that said so", len(opened), len(stage.ports())),
            at_most("seconds until the last breaker was open", max(opened, default=went) - went, 1.0),
            at_most("seconds until the last was closed after the return", max(closed, default=came + 99) - came, RETURN_S),
        ]
    return Outcome(f"{fault.name} for {fault.seconds:.0f} s, {len(stage.ports())} routers, {RATE:.0f} requests a second", figures)


def _late(ended: list[Ended], went: float, came: float, opened: float) -> list[Figure]:
    """What the fault added to the time that is not the provider's, by its 99th percentile before."""

    def p99(begin: float, end: float) -> float:
        return percentile([one.overhead_ms for one in ended if begin <= one.at < end and one.status in (200, 429)], 0.99)

    usual = p99(0.0, went)
    figures = [
        told("overhead before, p99, ms", usual),
        at_most("added until it is open, p99, ms", p99(went - 0.05, opened + 0.1) - usual, 60),
    ]
    return figures if opened >= came else [*figures, at_most("added while it is open, p99, ms", p99(opened + 0.1, came) - usual, 2)]


def _admitted(provider: Provider, went: float, came: float) -> list[Figure]:
    """While it was away, and over the return, by what the limit gives in that time."""
    away = sum(went <= call.at < came for call in provider.calls)
    back = sum(came <= call.at < came + RETURN_S for call in provider.calls)
    given = RPM / 60 * (came - went)
    return [
        at_most("admitted while it was away, of the limit", away / (given + BURST), 1.2),
        told("and at least, of the limit", away / given),
        at_most(f"admitted in {RETURN_S:.0f} s after the return, of the limit", back / (RPM / 60 * RETURN_S + BURST), 1.2),
    ]
