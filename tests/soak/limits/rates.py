"""Requests and tokens per minute of one key, under five times of what it may have, through all routers in turn."""

from __future__ import annotations

import asyncio
import random
import time

from tests.soak.limits.crowd import Asked, Crowd, Ended
from tests.soak.limits.figures import Outcome, at_least, at_most, told
from tests.soak.limits.provider import Provider
from tests.soak.limits.stage import Stage

RPM, BURST = 600, 20
OVERLOAD = 5.0
PROMPT, OUTPUT = 150, 250  # tokens of a mean request
TPM = 60 * (PROMPT + OUTPUT)
SWING_S = 20.0  # for so long answers are larger than the mean, then smaller


async def rpm(stage: Stage, provider: Provider, seconds: float) -> Outcome:
    """What was admitted lies between what the limit gives and 2 % less."""
    crowd = Crowd(stage.ports, stage.key(rpm=RPM, burst=BURST))
    provider.forget()
    begun = time.monotonic()
    try:
        ended = await crowd.steady(OVERLOAD * RPM / 60, seconds, lambda _: Asked("plain", {"ms": 20}, {}))
    finally:
        await crowd.close()
    span = max(one.at for one in ended) - begun
    given, admitted = RPM / 60 * span, sum(one.status == 200 for one in ended)
    return Outcome(
        f"rpm {RPM} burst {BURST}, {len(stage.ports())} routers, {span:.0f} s, {len(ended)} requests",
        [
            at_most("calls at the provider", len(provider.calls), given + BURST + 1),
            at_least("admitted", admitted, 0.98 * given),
            at_most("neither admitted nor told 429", others(ended), 0),
            told("admitted of what the limit gives, burst included, %", 100 * admitted / (given + BURST)),
        ],
    )


async def tpm(stage: Stage, provider: Provider, seconds: float) -> Outcome:
    """Answers are up to 30 % larger than the mean for a while, then up to 30 % smaller: what was billed is at most 5 % over."""
    crowd, dice = Crowd(stage.ports, stage.key(tpm=TPM)), random.Random(7)
    provider.forget()
    begun = time.monotonic()

    def asked(_: int) -> Asked:
        larger = (time.monotonic() - begun) // SWING_S % 2 == 0
        share = 1 + (0.3 if larger else -0.3) * dice.random()
        how = {"ms": 50, "prompt": int(PROMPT * share), "output": int(OUTPUT * share)}
        return Asked("plain", how, {}, max_tokens=2 * OUTPUT, text="word " * 90)

    try:
        ended = await crowd.steady(OVERLOAD * TPM / 60 / (PROMPT + OUTPUT), seconds, asked)
    finally:
        await crowd.close()
    span = max(one.at for one in ended) - begun
    billed = sum(call.tokens for call in provider.calls)
    await asyncio.sleep(0.5)
    return Outcome(
        f"tpm {TPM}, estimates biased by up to 30 %, {len(stage.ports())} routers, {span:.0f} s, {len(ended)} requests",
        [
            at_most("tokens billed", billed, 1.05 * (TPM / 60 * span + TPM)),
            at_most("held at rest", stage.leases(), 0),
            at_most("neither admitted nor told 429", others(ended), 0),
            told("billed of what the limit gives, a full bucket included, %", 100 * billed / (TPM / 60 * span + TPM)),
        ],
    )


def others(ended: list[Ended]) -> int:
    """Requests that were neither answered nor told that they are too many."""
    return sum(one.status not in (200, 429) for one in ended)
