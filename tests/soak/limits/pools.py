"""Accounts as a pool at a provider with quotas of its own (llmock), and an endpoint that refuses a fifth of its calls."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from llmock.chaos import ChaosSettings
from llmock.ratelimit import Admission, LimitSettings, RateLimiter
from llmock.testing import LLMockServer

from tests.soak.limits.crowd import Asked, Crowd
from tests.soak.limits.figures import Outcome, at_least, at_most, told
from tests.soak.limits.provider import Provider
from tests.soak.limits.stage import POOL_RPM, POOL_TPM, Stage

OVERLOAD = 1.5
WARM_S = 45.0  # until the full buckets of the start are spent
IN_FLIGHT_S = 0.25  # what was sent before a refusal was known may arrive for so long after it
MAX_TOKENS = 100


@dataclass
class Quotas:
    """An llmock server whose buckets tell what they were asked: (when, account, tokens, seconds to wait; 0: admitted)."""

    server: LLMockServer
    asked: list[tuple[float, str, int, float]] = field(default_factory=list)

    def limit(self, *, rpm: int | None = None, tpm: int | None = None) -> None:
        """Full buckets of this size for every account."""
        self.server.state.limiter.configure(LimitSettings(rpm=rpm, tpm=tpm))
        self.asked = []

    def inside(self, begin: float, end: float) -> int:
        """Calls of an account in this time that came while it had said to wait, later than those that were under way when it did."""
        waits: dict[str, tuple[float, float]] = {}
        count = 0
        for at, account, _, wait_s in self.asked:
            since, until = waits.get(account, (0.0, 0.0))
            count += begin <= at < end and since + IN_FLIGHT_S < at < until
            if wait_s and at + wait_s > until:
                waits[account] = (since if at < until else at, at + wait_s)
        return count


@contextmanager
def quotas() -> Iterator[Quotas]:
    """One that serves."""
    with LLMockServer(chaos=ChaosSettings(latency_ms=30)) as server:
        made, limiter = Quotas(server), server.state.limiter
        admit = RateLimiter.admit

        def noted(provider: str, key: str, tokens: int) -> Admission:
            answer = admit(limiter, provider, key, tokens)
            made.asked.append((time.monotonic(), key, tokens, 0.0 if answer.allowed else answer.retry_after or 0.0))
            return answer

        limiter.admit = noted  # type: ignore[method-assign]
        yield made


async def pool(stage: Stage, quotas: Quotas, seconds: float, *, deep: bool) -> Outcome:
    """Three accounts, by requests or (`deep`) by tokens, asked for half as much again as they have, once the full buckets are spent."""
    quotas.limit(tpm=POOL_TPM) if deep else quotas.limit(rpm=POOL_RPM)
    crowd = Crowd(stage.ports, stage.key(rpm=1_000_000))
    text = "word " * 60
    size = len(Asked("deep", {}, {}, MAX_TOKENS, text).body()) // 4 + MAX_TOKENS  # about what llmock charges
    given = 3 * (POOL_TPM / size if deep else POOL_RPM) / 60  # requests a second
    model = "deep" if deep else "pool"
    try:
        await crowd.steady(given * 4, WARM_S if seconds > 60 else WARM_S / 2, lambda _: Asked(model, {}, {}, MAX_TOKENS, text))
        before, begun = len(quotas.asked), time.monotonic()
        ended = await crowd.steady(given * OVERLOAD, seconds, lambda _: Asked(model, {}, {}, MAX_TOKENS, text))
    finally:
        await crowd.close()
    seen = [one for one in quotas.asked[before:] if one[0] < begun + seconds]
    admitted = sum((tokens if deep else 1) for _, _, tokens, wait_s in seen if not wait_s)
    refused = sum(wait_s > 0 for _, _, _, wait_s in seen)
    quota = 3 * (POOL_TPM if deep else POOL_RPM) / 60 * seconds
    what = "tokens" if deep else "requests"
    return Outcome(
        f"a pool of three accounts by {what}, {len(stage.ports())} routers, {seconds:.0f} s, {len(ended)} requests",
        [
            at_least(f"{what} admitted of the pool's quota, %", 100 * admitted / quota, 97),
            at_most("calls that llmock refused, %", 100 * refused / max(1, len(seen)), 1),
            at_most("calls inside a retry-after window", quotas.inside(begun, begun + seconds), 0),
            told("and while the full buckets were spent", quotas.inside(0.0, begun)),
            told("refused then, %", 100 * sum(wait_s > 0 for _, _, _, wait_s in quotas.asked[:before]) / max(1, before)),
            told("answered", sum(one.status == 200 for one in ended)),
            told("told 429", sum(one.status == 429 for one in ended)),
            at_most("neither", sum(one.status not in (200, 429) for one in ended), 0),
        ],
    )


async def fifth(stage: Stage, provider: Provider, seconds: float) -> Outcome:
    """One of two endpoints refuses a fifth of its calls."""
    dice = random.Random(7)
    provider.forget()
    provider.refuses = lambda account: account == "fifth" and dice.random() < 0.2
    crowd = Crowd(stage.ports, stage.key(rpm=1_000_000))
    try:
        ended = await crowd.steady(40, seconds, lambda _: Asked("fifth", {"ms": 20}, {}))
    finally:
        provider.refuses = lambda _: False
        await crowd.close()
    failed = sum(one.status != 200 for one in ended)
    return Outcome(
        f"an endpoint that refuses a fifth, {len(stage.ports())} routers, {seconds:.0f} s, {len(ended)} requests",
        [
            at_most("client failures, %", 100 * failed / len(ended), 0.1),
            at_most("calls for each request", len(provider.calls) / len(ended), 1.25),
            told("calls there, of all, %", 100 * sum(call.account == "fifth" for call in provider.calls) / len(provider.calls)),
            told("refused, of those there, %", _refused_there(provider)),
        ],
    )


def _refused_there(provider: Provider) -> float:
    there = [call.status for call in provider.calls if call.account == "fifth"]
    return 100 * there.count(429) / max(1, len(there))
