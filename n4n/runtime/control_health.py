"""How endpoints are, as the control plane tells it, in plain values."""

from __future__ import annotations

from dataclasses import dataclass

from n4n.v1 import fleet_pb2


@dataclass(frozen=True, slots=True)
class EndpointRow:
    """One endpoint. `score`: what is left of its configured weight. Times are Unix ms, rates per second; None: not known.

    `attempts`, `errors`: in the window that was asked for. Prices are decimal text, USD per 1,000,000 tokens; None: unpriced.
    """

    endpoint: str
    model: str
    provider: str
    accounts: tuple[str, ...]
    region: str
    state: str
    weight: float
    score: float
    breaker: str
    breaker_until_ms: int | None
    cooldown: str
    cooldown_until_ms: int | None
    latency_ms: float | None
    ttft_ms: float | None
    ttft_p50_ms: float | None
    ttft_p95_ms: float | None
    tokens_per_s: float | None
    tokens_per_s_p50: float | None
    tokens_per_s_p95: float | None
    attempts: int
    errors: int
    input_per_1m: str | None
    output_per_1m: str | None
    last_success_ms: int | None
    findings: tuple[str, ...] = ()  # of probers, about it and its accounts; and that a fault is injected there


@dataclass(frozen=True, slots=True)
class HealthReport:
    """`redis`, `database`: ok, or why what comes from there is missing. `cut`: not all attempts of the window are counted."""

    endpoints: tuple[EndpointRow, ...]
    redis: str
    database: str
    cut: bool


def health_request(model: str, window_ms: int) -> fleet_pb2.HealthRequest:
    """`model` empty: all."""
    return fleet_pb2.HealthRequest(model=model, window_ms=window_ms)


def health_report(reply: fleet_pb2.HealthReply) -> HealthReport:
    """The reply in plain values."""
    return HealthReport(tuple(map(_row, reply.endpoints)), reply.redis, reply.database, reply.cut)


def _row(told: fleet_pb2.EndpointHealth) -> EndpointRow:
    price = told.price
    return EndpointRow(
        endpoint=told.endpoint,
        model=told.model,
        provider=told.provider,
        accounts=tuple(told.accounts),
        region=told.region,
        state=told.state,
        weight=told.weight,
        score=told.score,
        breaker=told.breaker,
        breaker_until_ms=told.breaker_until_ms if told.HasField("breaker_until_ms") else None,
        cooldown=told.cooldown,
        cooldown_until_ms=told.cooldown_until_ms if told.HasField("cooldown_until_ms") else None,
        latency_ms=told.latency_ms if told.HasField("latency_ms") else None,
        ttft_ms=told.ttft_ms if told.HasField("ttft_ms") else None,
        ttft_p50_ms=told.ttft_p50_ms if told.HasField("ttft_p50_ms") else None,
        ttft_p95_ms=told.ttft_p95_ms if told.HasField("ttft_p95_ms") else None,
        tokens_per_s=told.tokens_per_s if told.HasField("tokens_per_s") else None,
        tokens_per_s_p50=told.tokens_per_s_p50 if told.HasField("tokens_per_s_p50") else None,
        tokens_per_s_p95=told.tokens_per_s_p95 if told.HasField("tokens_per_s_p95") else None,
        attempts=told.attempts,
        errors=told.errors,
        input_per_1m=price.input_per_1m if price.HasField("input_per_1m") else None,
        output_per_1m=price.output_per_1m if price.HasField("output_per_1m") else None,
        last_success_ms=told.last_success_ms if told.HasField("last_success_ms") else None,
        findings=tuple(told.findings),
    )
