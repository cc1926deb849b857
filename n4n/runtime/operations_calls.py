"""The control client's calls to the Operations service: service levels, and what is wrong now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from n4n.runtime.usage_calls import Caller
from n4n.v1 import operations_pb2


@dataclass(frozen=True, slots=True)
class SlaHourLevels:
    """One hour. `levels` by their names in operations.proto, only those that are known, and attempts and failed."""

    hour_ms: int
    levels: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class SlaLevels:
    """Service levels of one (provider, model, region), milliseconds; None: nothing to tell it by."""

    provider: str
    model: str
    region: str
    attempts: int
    error_rate: float
    latency_p95_ms: float | None
    baseline_latency_p95_ms: float | None
    latency_drift: float | None
    ttft_p95_ms: float | None
    baseline_ttft_p95_ms: float | None
    ttft_drift: float | None
    tokens_per_s: float | None
    baseline_tokens_per_s: float | None
    drifts: bool
    hours: tuple[SlaHourLevels, ...]


@dataclass(frozen=True, slots=True)
class AlertInfo:
    """One trouble; not `firing`: it has to last a while yet."""

    name: str
    severity: str
    labels: Mapping[str, str]
    summary: str
    value: float
    since_ms: int
    firing: bool


@dataclass(frozen=True, slots=True)
class AttemptInfo:
    """One attempt as the ledger has it. Money is decimal text; None: unpriced, or not known."""

    attempt_no: int
    started_at_ms: int
    endpoint: str
    account: str
    state: str
    error_class: str
    status: int | None
    prompt_tokens: int
    completion_tokens: int
    cost_usd: str | None
    latency_ms: float | None
    ttft_ms: float | None
    estimated: bool
    attempt_id: str
    tenant: str
    key_id: str
    model: str


class OperationsCalls:
    """Part of the control client."""

    async def sla(self: Caller, since_ms: int, model: str = "", *, hours: bool = False) -> tuple[SlaLevels, ...]:
        """Service levels since then (Unix ms) and their drift; with `hours`, each hour too."""
        request = operations_pb2.SlaQuery(model=model, since_ms=since_ms, hours=hours)
        return tuple(map(_levels, (await self.ask("Operations/Sla", request, operations_pb2.SlaReply)).rows))

    async def attempts(self: Caller, request_id: str, since_ms: int, until_ms: int | None = None) -> tuple[AttemptInfo, ...]:
        """The attempts of one request that began in this span (Unix ms), in order."""
        request = operations_pb2.AttemptsQuery(request_id=request_id, since_ms=since_ms, until_ms=until_ms)
        return tuple(map(_attempt, (await self.ask("Operations/Attempts", request, operations_pb2.AttemptsReply)).attempts))

    async def alerts(self: Caller) -> tuple[AlertInfo, ...]:
        """What is wrong now, what fires first."""
        reply = await self.ask("Operations/Alerts", operations_pb2.AlertsQuery(), operations_pb2.AlertsReply)
        return tuple(
            AlertInfo(one.name, one.severity, dict(one.labels), one.summary, one.value, one.since_ms, one.firing) for one in reply.alerts
        )


def _levels(told: operations_pb2.SlaRow) -> SlaLevels:
    known = {one.name: float(value) for one, value in told.ListFields() if one.has_presence}
    return SlaLevels(
        provider=told.provider,
        model=told.model,
        region=told.region,
        attempts=told.attempts,
        error_rate=told.error_rate,
        latency_p95_ms=known.get("latency_p95_ms"),
        baseline_latency_p95_ms=known.get("baseline_latency_p95_ms"),
        latency_drift=known.get("latency_drift"),
        ttft_p95_ms=known.get("ttft_p95_ms"),
        baseline_ttft_p95_ms=known.get("baseline_ttft_p95_ms"),
        ttft_drift=known.get("ttft_drift"),
        tokens_per_s=known.get("tokens_per_s"),
        baseline_tokens_per_s=known.get("baseline_tokens_per_s"),
        drifts=told.drifts,
        hours=tuple(map(_hour, told.hours)),
    )


def _hour(told: operations_pb2.SlaHour) -> SlaHourLevels:
    levels = {one.name: value for one, value in told.ListFields() if one.name != "hour_ms"}
    return SlaHourLevels(told.hour_ms, {"attempts": 0, "failed": 0, **levels})


def _attempt(told: operations_pb2.AttemptInfo) -> AttemptInfo:
    return AttemptInfo(
        attempt_no=told.attempt_no,
        started_at_ms=told.started_at_ms,
        endpoint=told.endpoint,
        account=told.account,
        state=told.state,
        error_class=told.error_class,
        status=told.status if told.HasField("status") else None,
        prompt_tokens=told.prompt_tokens,
        completion_tokens=told.completion_tokens,
        cost_usd=told.cost_usd if told.HasField("cost_usd") else None,
        latency_ms=told.latency_ms if told.HasField("latency_ms") else None,
        ttft_ms=told.ttft_ms if told.HasField("ttft_ms") else None,
        estimated=told.estimated,
        attempt_id=told.attempt_id,
        tenant=told.tenant,
        key_id=told.key_id,
        model=told.model,
    )
