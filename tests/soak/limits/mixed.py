"""Interactive requests beside twice as much background as the account's quota."""

from __future__ import annotations

import asyncio
import time

from tests.soak.limits.crowd import Asked, Crowd
from tests.soak.limits.figures import Outcome, at_least, at_most, percentile, told
from tests.soak.limits.provider import Provider
from tests.soak.limits.stage import MIXED_RPM, Stage

INTERACTIVE, BACKGROUND = 0.6, 2.0  # of the quota
WARM_S = 60.0  # until the full bucket of the start is spent


async def mixed(stage: Stage, provider: Provider, seconds: float) -> Outcome:
    """What is told is of the time after the bucket's start."""
    crowd = Crowd(stage.ports, stage.key(rpm=1_000_000))
    rate = MIXED_RPM / 60
    provider.forget()
    warm = min(WARM_S, 30.0)
    begun = time.monotonic() + warm

    def asked(priority: str) -> Asked:
        return Asked("mixed", {"ms": 20}, {"x-n4n-priority": priority})

    try:
        first, rest = await asyncio.gather(
            crowd.steady(rate * INTERACTIVE, warm + seconds, lambda _: asked("interactive")),
            crowd.steady(rate * BACKGROUND, warm + seconds, lambda _: asked("background")),
        )
    finally:
        await crowd.close()
    urgent = [one for one in first if one.at >= begun]
    answered = [one for one in urgent if one.status == 200]
    calls = sum(begun <= call.at < begun + seconds for call in provider.calls)
    left = rate * seconds - len(answered)
    filled = calls - len(answered)
    waits = [one.queued_ms for one in answered]
    return Outcome(
        f"interactive {INTERACTIVE:.0%} and background {BACKGROUND:.0%} of {MIXED_RPM} rpm, {len(stage.ports())} routers, {seconds:.0f} s",
        [
            at_least("interactive answered, %", 100 * len(answered) / len(urgent), 99),
            at_most("interactive wait, p99, ms", percentile(waits, 0.99), 1000),
            at_least("background of what interactive left, %", 100 * filled / left, 95),
            at_most("calls of the quota, %", 100 * calls / (rate * seconds), 102),
            told("background answered", sum(one.status == 200 for one in rest if one.at >= begun)),
            told("background wait, p50, ms", percentile([one.queued_ms for one in rest if one.status == 200 and one.at >= begun], 0.5)),
        ],
    )
