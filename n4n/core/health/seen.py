"""What a router keeps of an endpoint's standing: enough to plan and to show; and a standing made of it while the store is away."""

from __future__ import annotations

import msgspec

from n4n.core.breaker import CLOSED_STATE, BreakerState
from n4n.core.health.spread import MS, PER_S, Spread
from n4n.core.health.standing import Standing


class Seen(msgspec.Struct, frozen=True):
    """As `Standing`, with what was measured in plain numbers. Times in seconds on the clock of who keeps it."""

    score: float = 1.0
    ceiling: float = 1.0
    at: float = 0.0
    good_at: float | None = None  # the last success of live traffic
    breaker: BreakerState = CLOSED_STATE
    latency_ms: float | None = None
    ttft_ms: float | None = None
    ttft_p50_ms: float | None = None
    ttft_p95_ms: float | None = None
    tokens_per_s: float | None = None
    tokens_per_s_p50: float | None = None
    tokens_per_s_p95: float | None = None
    usual: float = 0.0


def seen_of(standing: Standing) -> Seen:
    """What is kept of a standing."""
    ttft, speed = standing.ttft, standing.speed
    return Seen(
        standing.score,
        standing.ceiling,
        standing.at,
        standing.good_at or None,
        standing.breaker,
        standing.latency_ms,
        ttft.mean,
        ttft.quantile(0.5),
        ttft.quantile(0.95),
        speed.mean,
        speed.quantile(0.5),
        speed.quantile(0.95),
        standing.usual,
    )


def standing_of(seen: Seen) -> Standing:
    """To go on from alone. Which failures stood is not known, nor how measures were spread."""
    return Standing(
        seen.score,
        seen.ceiling,
        seen.at,
        0,
        seen.at,
        seen.good_at or 0.0,
        seen.breaker,
        seen.latency_ms,
        Spread(MS, seen.ttft_ms),
        Spread(PER_S, seen.tokens_per_s),
        seen.usual,
    )
