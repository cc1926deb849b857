"""Traces of requests: ids while one runs, spans when it ended and is worth keeping. Nothing is built for a request that turns out dull.

Kept are the traces that the sampler chose, and besides, up to a bound per second, every request that failed, was refused, was left by its
client, fell back or waited for quota. No key and no URL is in any attribute, and no
prompt and no answer, but of tenants that asked for them (data_plane/content.py).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping

import msgspec
from aiohttp import web

from data_plane.record import AttemptRecord, Record, Trace
from n4n.core.chat import Chunk
from n4n.core.gen_ai import OPERATIONS, provider_name
from n4n.core.tracing import Room, Sampling, read_parent
from n4n.runtime.tracing import Kind, Span, Tracing, Value, new_span_id, new_trace_id

ROUTES = frozenset((*OPERATIONS, "/v1/messages/count_tokens", "/v1/route:explain", "/v1/models"))  # any other path is the sender's word
NOTICEABLE_S = 0.001  # a wait shorter than this has no span of its own
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,127}\Z")


class Tracer:
    """Of one worker. `wall` gives seconds since 1970."""

    def __init__(self, tracing: Tracing, wall: Callable[[], float]) -> None:
        self._tracing, self._wall = tracing, wall
        self._sampling: Sampling = tracing.sampling
        self._room = Room()

    def began(self, request: web.BaseRequest) -> Trace:
        """A request came."""
        headers, path = request.headers, request.raw_path
        parent = read_parent(headers.get("traceparent"), ",".join(headers.getall("tracestate", ())))
        trace_id = new_trace_id() if parent is None else parent.trace_id
        if path not in ROUTES:  # as it was sent; seldom in other words
            path = request.path
        route = "/v1/models/{id}" if path.startswith("/v1/models/") else path if path in ROUTES else "other"
        return Trace(trace_id, new_span_id(), parent, self._sampling.keeps(trace_id, parent), request.method, route)

    def ended(self, record: Record) -> bool:
        """It is over: its spans leave, or are never made; whether they left."""
        trace = record.trace
        kept = trace is not None and (trace.sampled or (_is_notable(record) and self._room.takes(self._wall())))
        if trace is not None and kept:
            self._tracing.emit(spans_of(record, trace))
        return kept


def _is_notable(record: Record) -> bool:
    return record.outcome != "success" or len(record.attempts) > 1 or record.queued_s > 0.0


def spans_of(record: Record, trace: Trace) -> list[Span]:
    """The server's span first, then a wait that took time, then one client span for each attempt."""
    moment = _Moments(record)
    spans = [_server(record, trace, moment)]
    if record.queued_s >= NOTICEABLE_S and record.queued_at is not None:
        spans.append(_part("n4n queue", record, trace, moment, record.queued_at, record.queued_s))
    if record.reserved_s >= NOTICEABLE_S and record.reserved_at is not None:
        spans.append(_part("n4n reserve", record, trace, moment, record.reserved_at, record.reserved_s))
    spans += [_client(record, trace, attempt, moment) for attempt in record.attempts]
    return spans


class _Moments:
    """The router's clock as nanoseconds since 1970."""

    def __init__(self, record: Record) -> None:
        self._offset = record.wall - record.started

    def __call__(self, at: float) -> int:
        return round((at + self._offset) * 1_000_000_000)


def _server(record: Record, trace: Trace, moment: _Moments) -> Span:
    operation = OPERATIONS.get(trace.route)
    told: dict[str, Value] = {
        "http.request.method": trace.method,
        "http.route": trace.route,
        "http.response.status_code": record.status,
        "n4n.request_id": record.request_id,
        "n4n.outcome": record.outcome,
        "n4n.overhead_ms": round(record.overhead_s * 1000, 3),
        "n4n.fallback_attempts": record.fallback_attempts,
        "n4n.priority": record.priority,
        "http.request.body.size": record.body_bytes,
        "http.response.body.size": record.bytes_out,
    }
    plan, endpoint = record.plan, record.selected
    if operation is not None:
        told["gen_ai.operation.name"] = operation
        told["gen_ai.request.stream"] = record.stream
    if plan is not None:
        told["n4n.candidates"] = plan.considered
        told["n4n.eliminated"] = _counted(Counter(one.reason for one in plan.eliminated))
        if plan.preferred_overridden is not None:
            told["n4n.preference_overridden"] = plan.preferred_overridden
    elif record.eliminated:
        told["n4n.candidates"], told["n4n.eliminated"] = record.considered, _counted(record.eliminated)
    target = plan.target if plan is not None else record.target
    if target is not None:
        told["gen_ai.request.model"] = target.name
    if record.catalog_version is not None:
        told["n4n.catalog_version"] = record.catalog_version
    if record.directives:
        told["n4n.directives"] = list(record.directives)
    for name, value in (("n4n.tenant", record.tenant), ("n4n.key_id", record.key_id), ("n4n.cost_usd", record.cost_usd)):
        if value is not None:
            told[name] = value
    if endpoint is not None:
        told |= _place(endpoint.provider.name, endpoint.provider.dialect, endpoint.id, record.attempts[-1].account, endpoint.region)
    if record.queued_s:
        told["n4n.queue_ms"] = round(record.queued_s * 1000, 3)
    if record.hold_s is not None:
        told["n4n.guard_hold_ms"] = round(record.hold_s * 1000, 3)
    if record.warnings:
        told["n4n.warnings"] = len(record.warnings)
    if record.replayed:
        told["n4n.idempotent_replay"] = True
    told |= (answered := _answered(record))
    if record.content is not None:
        reasons = answered.get("gen_ai.response.finish_reasons")
        told |= record.content.attributes(record, reasons if isinstance(reasons, list) else [])
    if record.ttft_s is not None:
        told["gen_ai.response.time_to_first_chunk"] = round(record.ttft_s, 6)
    failed = record.outcome in ("error", "cancelled") or record.status >= 500
    if record.error_code is not None:
        told["error.type"] = record.error_code
    elif failed:
        told["error.type"] = record.outcome
    parent, name = trace.parent, f"{operation or trace.method} {trace.route if target is None else target.name}"
    return Span(
        name=name,
        kind=Kind.SERVER,
        trace_id=trace.trace_id,
        span_id=trace.span_id,
        parent_id=0 if parent is None else parent.span_id,
        start_ns=moment(record.started),
        end_ns=moment(record.started + record.elapsed_s),
        attributes=told,
        error=(record.error_code or record.outcome) if failed else None,
        state="" if parent is None else parent.state,
        remote_parent=parent is not None,
    )


def _client(record: Record, trace: Trace, attempt: AttemptRecord, moment: _Moments) -> Span:
    endpoint = attempt.endpoint
    told: dict[str, Value] = {
        "gen_ai.operation.name": OPERATIONS.get(trace.route, "chat"),
        "gen_ai.request.model": endpoint.upstream_model,
        "gen_ai.request.stream": record.stream,
        "n4n.attempt_id": attempt.attempt_id,
        "n4n.outcome": attempt.outcome,
        **_place(endpoint.provider.name, endpoint.provider.dialect, endpoint.id, attempt.account, endpoint.region),
    }
    if attempt.status is not None:
        told["http.response.status_code"] = attempt.status
    if attempt.injected:
        told["n4n.injected_fault"] = attempt.injected
    if attempt.first_output_at is not None:
        told["gen_ai.response.time_to_first_chunk"] = round(attempt.first_output_at - attempt.started, 6)
    if attempt is record.attempts[-1]:
        told |= _answered(record)
    error = None if attempt.outcome == "ok" else attempt.outcome
    if error is not None:
        told["error.type"] = error
    ended = attempt.ended if attempt.ended is not None else record.started + record.elapsed_s
    return Span(
        name=f"{told['gen_ai.operation.name']} {endpoint.upstream_model}",
        kind=Kind.CLIENT,
        trace_id=trace.trace_id,
        span_id=attempt.span_id or new_span_id(),
        parent_id=trace.span_id,
        start_ns=moment(attempt.started),
        end_ns=moment(ended),
        attributes=told,
        error=error,
        state="" if trace.parent is None else trace.parent.state,
    )


def _part(name: str, record: Record, trace: Trace, moment: _Moments, began: float, took_s: float) -> Span:
    state = "" if trace.parent is None else trace.parent.state
    told: dict[str, Value] = {"n4n.priority": record.priority}
    begun, ended = moment(began), moment(began + took_s)
    return Span(name, Kind.INTERNAL, trace.trace_id, new_span_id(), trace.span_id, begun, ended, told, state=state)


def _place(provider: str, dialect: str, endpoint: str, account: str, region: str | None) -> dict[str, Value]:
    told: dict[str, Value] = {
        "gen_ai.provider.name": provider_name(provider, dialect),
        "n4n.provider": provider,
        "n4n.endpoint": endpoint,
        "n4n.account": account,
    }
    if region:
        told["n4n.region"] = region
    return told


def _answered(record: Record) -> dict[str, Value]:
    told: dict[str, Value] = {}
    usage = record.usage
    if usage is not None:
        told["gen_ai.usage.input_tokens"] = usage.prompt_tokens
        told["gen_ai.usage.output_tokens"] = usage.completion_tokens
        told["gen_ai.usage.cache_read.input_tokens"] = usage.cached_tokens
        told["gen_ai.usage.cache_creation.input_tokens"] = usage.cache_write_tokens
        told["gen_ai.usage.reasoning.output_tokens"] = usage.reasoning_tokens
        told["n4n.usage.estimated"] = usage.estimated
    if record.last_chunk is not None:
        model, reasons = ending_of(record.last_chunk)
        if model is not None:
            told["gen_ai.response.model"] = model
        if reasons:
            told["gen_ai.response.finish_reasons"] = reasons
    return told


def _counted(counts: Mapping[str, int]) -> list[str]:
    return [f"{reason}: {count}" for reason, count in sorted(counts.items())]


# What an answer says of itself in its last event, in whichever shape it came.


class _Choice(msgspec.Struct):
    finish_reason: object = None


class _Delta(msgspec.Struct):
    stop_reason: object = None


class _Response(msgspec.Struct):
    model: object = None
    status: object = None


class _Ending(msgspec.Struct):
    model: object = None
    choices: list[_Choice] = []  # msgspec copies it
    stop_reason: object = None
    status: object = None
    delta: _Delta | None = None
    response: _Response | None = None


_DECODE = msgspec.json.Decoder(_Ending, strict=False).decode


def ending_of(chunk: Chunk) -> tuple[str | None, list[str]]:
    """Model and finish reasons as the answer's last event tells them; whatever is no plain word is left out."""
    try:
        told = _DECODE(chunk.payload)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None, []
    response = told.response if told.response is not None else _Response()
    delta = told.delta if told.delta is not None else _Delta()
    reasons = [choice.finish_reason for choice in told.choices] or [told.stop_reason or delta.stop_reason or told.status or response.status]
    return _word(told.model) or _word(response.model), [word for reason in reasons if (word := _word(reason)) is not None]


def _word(value: object) -> str | None:
    return value if isinstance(value, str) and _WORD.match(value) else None
