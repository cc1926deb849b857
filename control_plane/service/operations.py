"""The Operations service: takes what routers say of themselves, tells service levels and what is wrong now."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from decimal import Decimal
from itertools import groupby
from statistics import median
from typing import cast

import grpc
from google.protobuf.message import Message
from sqlalchemy import Row

from control_plane import service_levels, traffic, vitals, watchers
from control_plane.refusals import InvalidRequest
from control_plane.service.answers import Context, answering, instant, unary_handlers
from control_plane.service_levels import HourRow
from control_plane.traffic import Reading
from n4n.core.alerts.watch import Standing
from n4n.core.schema import plain
from n4n.core.sla import WEEK_H, Drift, Level, drift
from n4n.v1 import operations_pb2

_SERVICE = operations_pb2.DESCRIPTOR.services_by_name["Operations"]
_NAME, _LISTED = 200, 1000


class Operations:
    """`reading`: a transaction on the ledger's database."""

    def __init__(self, reading: Reading, now: Callable[[], datetime]) -> None:
        self._reading, self._now = reading, now

    def handlers(self) -> grpc.GenericRpcHandler[Message, Message]:
        """What the server serves."""
        methods: tuple[Callable[..., object], ...] = (self.Report, self.Sla, self.Alerts, self.Attempts)
        return unary_handlers(_SERVICE, {method.__name__: method for method in methods})

    async def Report(self, request: operations_pb2.Vitals, context: Context) -> operations_pb2.VitalsReceipt:
        """A node's word."""
        async with answering(context):
            if not 0 < len(request.node) <= _NAME or not request.node.isprintable():
                raise InvalidRequest(f"node: must be a name of 1 to {_NAME} printable characters")
            await vitals.take(self._reading(), _said(request), self._now())
            return operations_pb2.VitalsReceipt()

    async def Sla(self, request: operations_pb2.SlaQuery, context: Context) -> operations_pb2.SlaReply:
        """Service levels by (provider, model, region), and how they drift."""
        async with answering(context):
            since = instant("since_ms", request.since_ms)
            found = await service_levels.hours(self._reading, since, request.model)
            groups = groupby(found, key=lambda row: (row.provider, row.model, row.region))
            return operations_pb2.SlaReply(rows=[_row(key, list(rows), hours=request.hours) for key, rows in groups])

    async def Attempts(self, request: operations_pb2.AttemptsQuery, context: Context) -> operations_pb2.AttemptsReply:
        """What became of one request."""
        async with answering(context):
            if not request.request_id or len(request.request_id) > _NAME:
                raise InvalidRequest(f"request_id: must be 1 to {_NAME} characters; every answer bears it as x-request-id")
            until = instant("until_ms", request.until_ms) if request.HasField("until_ms") else self._now()
            rows = await traffic.attempts(self._reading, request.request_id, instant("since_ms", request.since_ms), until)
            return operations_pb2.AttemptsReply(attempts=map(_attempt, rows))

    async def Alerts(self, request: operations_pb2.AlertsQuery, context: Context) -> operations_pb2.AlertsReply:
        """What is wrong now, and what may be in a moment."""
        async with answering(context):
            return operations_pb2.AlertsReply(alerts=map(_alert, await watchers.standing(self._reading)))


def _attempt(row: Row[tuple[object, ...]]) -> operations_pb2.AttemptInfo:
    told = dict(row._mapping)
    started = cast(datetime, told.pop("started_at"))
    cost = cast(Decimal | None, told.pop("cost_usd"))
    known = {name: value for name, value in told.items() if value is not None}
    info = operations_pb2.AttemptInfo(started_at_ms=round(started.timestamp() * 1000), **known)
    if cost is not None:
        info.cost_usd = plain(cost)
    return info


def _said(told: operations_pb2.Vitals) -> vitals.Said:
    """Bounded, and such as Postgres and JSON can hold: a node may be of another version, or not be one."""
    return vitals.Said(
        node=told.node,
        run=_text(told.run),
        store_up=told.store_up,
        usage_waiting_bytes=min(told.usage_waiting_bytes, 1 << 60),
        waiting={_text(name): count for name, count in list(told.waiting.items())[:10]},
        **{name: min(getattr(told, name), 1 << 60) for name in vitals.COUNTERS},
        quotas=[
            (_text(one.provider), _text(one.account), _text(one.limit_type), one.used)
            for one in told.quotas[:_LISTED]
            if math.isfinite(one.used)
        ],
        accounts_out=[(_text(one.provider), _text(one.account), _text(one.reason)) for one in told.accounts_out[:_LISTED]],
        candidates={_text(name): count for name, count in list(told.candidates.items())[:_LISTED]},
    )


def _text(told: str) -> str:
    return "".join(c for c in told[:_NAME] if c.isprintable())


def _row(key: tuple[str, str, str], rows: Sequence[HourRow], *, hours: bool) -> operations_pb2.SlaRow:
    provider, model, region = key
    attempts, failed = sum(row.attempts for row in rows), sum(row.failed for row in rows)
    row = operations_pb2.SlaRow(provider=provider, model=model, region=region, attempts=attempts, error_rate=failed / attempts)
    latency, ttft = (drift(_levels(rows, name)) for name in ("latency_p95_ms", "ttft_p95_ms"))
    _tell(row, "latency", latency, [row.latency_p95_ms for row in rows])
    _tell(row, "ttft", ttft, [row.ttft_p95_ms for row in rows])
    newest, oldest = rows[-1].hour, rows[0].hour
    speeds = [(one.hour, one.tokens_per_s) for one in rows if one.tokens_per_s is not None]
    if speeds:
        row.tokens_per_s = median(
            value for hour, value in speeds if (newest - hour).total_seconds() < WEEK_H * 3600 or hour == speeds[-1][0]
        )
        row.baseline_tokens_per_s = median(
            value for hour, value in speeds if (hour - oldest).total_seconds() < WEEK_H * 3600 or hour == speeds[0][0]
        )
    row.drifts = any(one is not None and one.flagged for one in (latency, ttft))
    if hours:
        row.hours.extend(map(_hour, rows))
    return row


def _levels(rows: Iterable[HourRow], name: str) -> list[Level]:
    return [Level(round(row.hour.timestamp()) // 3600, value) for row in rows if (value := getattr(row, name)) is not None]


def _tell(row: operations_pb2.SlaRow, what: str, found: Drift | None, values: Sequence[float | None]) -> None:
    known = [value for value in values if value is not None]
    if found is not None:
        setattr(row, f"{what}_p95_ms", found.now)
        setattr(row, f"baseline_{what}_p95_ms", found.baseline)
        setattr(row, f"{what}_drift", found.ratio)
    elif known:
        setattr(row, f"{what}_p95_ms", median(known))


def _hour(row: HourRow) -> operations_pb2.SlaHour:
    told = operations_pb2.SlaHour(hour_ms=round(row.hour.timestamp() * 1000), attempts=row.attempts, failed=row.failed)
    for name in (
        "latency_p50_ms", "latency_p95_ms", "latency_p99_ms", "ttft_p50_ms", "ttft_p95_ms", "ttft_p99_ms", "tokens_per_s",
    ):  # fmt: skip
        value = getattr(row, name)
        if value is not None:
            setattr(told, name, value)
    return told


def _alert(one: Standing) -> operations_pb2.AlertInfo:
    violation = one.violation
    return operations_pb2.AlertInfo(
        name=violation.rule,
        severity=violation.severity.value,
        labels=dict(violation.labels),
        summary=violation.summary,
        value=violation.value,
        since_ms=round(one.since * 1000),
        firing=one.firing,
    )
