"""Requests at the same time: never more than the limit at the provider, whatever becomes of them and of a router."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time

from tests.soak.limits.crowd import Asked, Crowd, Ended
from tests.soak.limits.figures import Outcome, at_least, at_most, told
from tests.soak.limits.provider import Provider
from tests.soak.limits.stage import Stage

MOST = 10
AT_ONCE = 40
LEASE_S = 30.0
_FATES = ("ok",) * 12 + ("500", "reset", "hang", "leave")


async def places(stage: Stage, provider: Provider, count: int, *, kill: bool) -> Outcome:
    """`count` requests of AT_ONCE clients; with `kill` a router's worker is killed when a third of them have ended."""
    crowd, dice = Crowd(stage.ports, stage.key(concurrency=MOST)), random.Random(7)
    provider.forget()

    def asked(_: int) -> Asked:
        fate = dice.choice(_FATES)
        leaves = dice.uniform(0.01, 0.1) if fate == "leave" else None
        return Asked("quick", {"ms": dice.uniform(30, 120), "do": "ok" if leaves else fate}, {}, leaves_s=leaves)

    async def killed() -> None:
        while len(ended) < count / 3:  # noqa: ASYNC110  # they end on their own
            await asyncio.sleep(0.02)
        (worker,) = stage.routers[-1].workers()
        os.kill(worker, signal.SIGKILL)

    ended: list[Ended] = []
    killing = asyncio.create_task(killed()) if kill else None
    try:
        refused = await crowd.together(count, AT_ONCE, asked, ended)
        if killing is not None:
            await killing
        at_rest = time.monotonic()
        while (left := stage.leases()) and time.monotonic() < at_rest + LEASE_S:  # noqa: ASYNC110  # Redis changes it
            await asyncio.sleep(0.1)
    finally:
        await crowd.close()
    return Outcome(
        f"concurrency {MOST}, {len(stage.ports())} routers{', one killed' if kill else ''}, {count} requests by {AT_ONCE} clients",
        [
            at_most("most at the provider at once", provider.most, MOST),
            at_least("and that many", provider.most, MOST - 1),
            at_most(f"leases left after {LEASE_S:.0f} s", left, 0),
            told("seconds until none was left", time.monotonic() - at_rest),
            told("answered", sum(one.status == 200 for one in ended)),
            told("failed or left", sum(one.status != 200 for one in ended)),
            told("told 429 meanwhile", refused),
        ],
    )
