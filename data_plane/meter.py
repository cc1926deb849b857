"""The record of one request: filled while it runs, rendered when it ends as log line and metrics."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal

import msgspec
from aiohttp import web
from prometheus_client import Counter

from n4n.core.catalog import Endpoint
from n4n.core.chat import Usage
from n4n.core.dialects.wording import ABOUT_THE_REQUEST, OWN_WORDS
from n4n.core.errors import Failure, GatewayError
from n4n.core.plan import Plan
from n4n.runtime.records import LineWriter
from n4n.runtime.telemetry import Instruments
from n4n.runtime.upstream import Reply

_ENCODE = msgspec.json.Encoder(decimal_format="number").encode


@dataclass(slots=True)
class AttemptRecord:
    """One dispatch. `attempt_id` is the gateway's own, never from a label that a client or provider sent."""

    attempt_id: str
    endpoint: Endpoint
    account: str
    started: float
    ended: float | None = None
    outcome: str = "cancelled"  # ok, a failure class, interrupted; until something is known: cancelled
    message: str = ""
    first_output_at: float | None = None
    last_output_at: float | None = None


@dataclass(slots=True)
class Record:
    """What happened to one request. Times are on the router's monotonic clock, in seconds."""

    request_id: str
    started: float
    clock: Callable[[], float]
    wall: float = field(default_factory=time.time)
    model: str | None = None
    tenant: str | None = None
    key_id: str | None = None
    stream: bool = False
    catalog_version: int | None = None
    directives: tuple[str, ...] = ()
    plan: Plan | None = None
    attempts: list[AttemptRecord] = field(default_factory=list)
    fallback_attempts: int = 0
    waited_s: float = 0.0  # for providers, backoff included, without the reply under way
    reply: Reply | None = None  # the provider's answer while it is read
    ttft_s: float | None = None
    ended: float | None = None  # the client had its whole answer
    status: int = 499
    outcome: str = "cancelled"  # success, rate_limited, error, cancelled, rejected
    error_code: str | None = None
    usage: Usage | None = None
    cost_usd: Decimal | None = None  # exact; None: unpriced, or not known yet
    counted: Usage | None = None
    warnings: tuple[str, ...] = ()
    no_store: bool = False  # the client asked for no gateway cache
    cache_control: str | None = None  # the provider's own header
    closing: Callable[[], bool] = lambda: False  # whether an answer that begins now is the last on its connection
    interrupt: Callable[[GatewayError], Awaitable[web.StreamResponse]] | None = None  # how a stream that has begun is told of an error

    def dispatched(self, attempt_id: str, endpoint: Endpoint, account: str) -> AttemptRecord:
        """Notes a dispatch; the attempt is cancelled until something else is known."""
        attempt = AttemptRecord(attempt_id, endpoint, account, self.clock())
        self.attempts.append(attempt)
        return attempt

    def output_came(self, now: float) -> None:
        """The newest attempt brought some of its answer."""
        attempt = self.attempts[-1]
        attempt.last_output_at = now
        if attempt.first_output_at is None:
            attempt.first_output_at = now

    def attempt_ended(self, failure: Failure | None) -> None:
        """How the newest attempt ended; None: well."""
        attempt = self.attempts[-1]
        attempt.ended = self.clock()
        attempt.outcome = "ok" if failure is None else failure.failure_class.value
        attempt.message = "" if failure is None else _loggable(failure)

    def succeeded(self) -> None:
        """The client has its whole answer."""
        self.ended, self.status, self.outcome = self.clock(), 200, "success"

    @property
    def elapsed_s(self) -> float:
        """Time from the request to its end, or so far."""
        return (self.clock() if self.ended is None else self.ended) - self.started

    @property
    def selected(self) -> Endpoint | None:
        """The endpoint of the newest attempt."""
        return self.attempts[-1].endpoint if self.attempts else None

    @property
    def overhead_s(self) -> float:
        """Time so far that was not spent waiting for a provider."""
        under_way = self.reply.waited_s if self.reply is not None else 0.0
        return max(0.0, self.elapsed_s - self.waited_s - under_way)

    def reply_over(self) -> None:
        """The reply under way has ended, well or not."""
        if self.reply is not None:
            self.waited_s += self.reply.waited_s
            self.reply = None


def _loggable(failure: Failure) -> str:
    """A failure in words for the log: a provider's own words about a request may quote its prompt, so those are ours."""
    return OWN_WORDS[failure.failure_class] if failure.failure_class in ABOUT_THE_REQUEST else failure.message


class Meter:
    """Renders finished records. Children of the instruments are kept by their labels, which are names of the catalog and fixed words."""

    def __init__(self, instruments: Instruments, lines: LineWriter) -> None:
        self._instruments, self._lines = instruments, lines
        self._dropped = 0
        self._routes: dict[tuple[str, str, str], _Route] = {}
        self._attempts: dict[tuple[str, str], Counter] = {}

    def stream_opened(self) -> None:
        """A stream to a client begins; it ends with its record."""
        self._instruments.streams.inc()

    def close(self, record: Record) -> None:
        """The request ended: one log line and its metrics."""
        self._lines.write(_ENCODE(log_line(record)) + b"\n")
        self._count(record)

    def _count(self, record: Record) -> None:
        endpoint, plan = record.selected, record.plan
        labels = (
            endpoint.provider.name if endpoint else "",
            endpoint.model if endpoint else (plan.model.id if plan else ""),
            (plan.target.tier or "") if plan else "",
        )
        see = self._instruments
        route = self._routes.get(labels)
        if route is None:
            route = self._routes[labels] = _Route(see, labels)
        if record.interrupt is not None:
            see.streams.dec()
        route.ended(record.outcome).inc()
        route.latency.observe(record.elapsed_s)
        see.overhead.observe(record.overhead_s)
        for attempt in record.attempts:
            self._attempted(attempt.endpoint.provider.name, attempt.outcome).inc()
        if record.attempts:
            route.fallbacks.observe(record.fallback_attempts)
        if record.ttft_s is not None:
            route.ttft.observe(record.ttft_s)
        if record.usage is not None:
            route.tokens_in.inc(record.usage.prompt_tokens)
            route.tokens_out.inc(record.usage.completion_tokens)
        if record.cost_usd:
            route.cost.inc(float(record.cost_usd))
        if self._lines.dropped > self._dropped:
            see.log_dropped.inc(self._lines.dropped - self._dropped)
            self._dropped = self._lines.dropped

    def _attempted(self, provider: str, outcome: str) -> Counter:
        child = self._attempts.get((provider, outcome))
        if child is None:
            child = self._attempts[provider, outcome] = self._instruments.attempts.labels(provider, outcome)
        return child


class _Route:
    """The children of one provider, model and tier."""

    __slots__ = ("_ended", "_labels", "_requests", "cost", "fallbacks", "latency", "tokens_in", "tokens_out", "ttft")

    def __init__(self, see: Instruments, labels: tuple[str, str, str]) -> None:
        provider, model, tier = self._labels = labels
        self._requests, self._ended = see.requests, dict[str, Counter]()
        self.latency, self.ttft, self.fallbacks = see.latency.labels(*labels), see.ttft.labels(*labels), see.fallbacks.labels(tier)
        self.tokens_in, self.tokens_out = see.tokens.labels(provider, model, "input"), see.tokens.labels(provider, model, "output")
        self.cost = see.cost.labels(provider, model)

    def ended(self, outcome: str) -> Counter:
        """The count of requests that ended in this way."""
        child = self._ended.get(outcome)
        if child is None:
            child = self._ended[outcome] = self._requests.labels(*self._labels, outcome)
        return child


_second: tuple[int, str] = (0, "")  # the latest second and its spelling: most lines of one second share it


def _timestamp(wall: float) -> str:
    global _second
    second = int(wall)
    if _second[0] != second:
        _second = (second, datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S"))
    return f"{_second[1]}.{int((wall - second) * 1000):03d}Z"


def log_line(record: Record) -> dict[str, object]:
    """The request as one JSON object, names as in docs/architecture.md; no prompt, no answer, no key, no URL."""
    plan, endpoint = record.plan, record.selected
    return {
        "timestamp": _timestamp(record.wall),
        "request_id": record.request_id,
        "model": record.model,
        "tenant": record.tenant,
        "key_id": record.key_id,
        "stream": record.stream,
        "routing": {
            "catalog_version": record.catalog_version,
            "candidates_considered": plan.considered if plan else 0,
            "selected": endpoint.id if endpoint else None,
            "directives_applied": record.directives,
            "preference_overridden": plan.preferred_overridden if plan else None,
            "fallback_attempts": record.fallback_attempts,
            "attempts": [_attempt(record, attempt) for attempt in record.attempts],
        },
        "latency_ms": _ms(record.elapsed_s),
        "ttft_ms": _ms(record.ttft_s),
        "overhead_ms": _ms(record.overhead_s),
        "status": record.status,
        "outcome": record.outcome,
        "error": record.error_code,
        "usage": usage_block(record),
        "warnings": record.warnings,
    }


def _attempt(record: Record, attempt: AttemptRecord) -> dict[str, object]:
    ended = attempt.ended if attempt.ended is not None else record.clock()
    line: dict[str, object] = {
        "attempt_id": attempt.attempt_id,
        "endpoint": attempt.endpoint.id,
        "outcome": attempt.outcome if attempt.ended is not None or record.outcome == "cancelled" else "error",
        "ms": _ms(ended - attempt.started),
    }
    if attempt.message:
        line["message"] = attempt.message
    return line


def usage_block(record: Record) -> dict[str, object] | None:
    """Reported and counted tokens and the cost, as in the log line; None before there was any."""
    usage = record.usage
    if usage is None:
        return None
    counted = record.counted
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "cached_tokens": usage.cached_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "local_prompt_tokens": counted.prompt_tokens if counted else None,
        "local_completion_tokens": counted.completion_tokens if counted else None,
        "cost_usd": record.cost_usd,
        "estimated": usage.estimated,
    }


def note(record: Record) -> bytes:
    """The `n4n` block of an answer, as JSON."""
    endpoint = record.selected
    return _ENCODE(
        {
            "usage": usage_block(record),
            "cost_usd": record.cost_usd,
            "provider": endpoint.provider.name if endpoint else None,
            "endpoint": endpoint.id if endpoint else None,
            "fallback_attempts": record.fallback_attempts,
            "warnings": record.warnings,
        }
    )


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 1)
