"""What is told of a request when it ended: one log line, the metrics, and the `n4n` block of its answer.

Both texts are put together from bytes that are mostly known before: every request pays for them.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache

import msgspec

from data_plane.billing import bill_unanswered
from data_plane.counts import Counts, Totals
from data_plane.parts import ONE_IN, Parts
from data_plane.record import AttemptRecord, Record, Settling
from data_plane.tracing import Tracer
from n4n.runtime.records import LineWriter
from n4n.runtime.telemetry import Instruments

_ENCODE = msgspec.json.Encoder().encode
_LINE = (
    b'{"timestamp":"%b","request_id":%b,"model":%b,%b,"directives_applied":%b,"preference_overridden":%b,"fallback_attempts":%d,'
    b'"attempts":[%b]},"latency_ms":%.1f,"ttft_ms":%b,"overhead_ms":%.1f,%b,"usage":%b,"warnings":%b,'
    b'"priority":%b,"queue_ms":%.1f,"hold_ms":%b,"bytes_in":%d,"bytes_out":%d,"trace_id":%b}\n'
)
_ATTEMPT = b'{"attempt_id":%b,%b,"ms":%.1f%b}'
_USAGE = (
    b'{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d,"cached_tokens":%d,"cache_write_tokens":%d,"reasoning_tokens":%d,'
    b'"local_prompt_tokens":%b,"local_completion_tokens":%b,"cost_usd":%b,"estimated":%b}'
)
_NOTE = b'{"usage":%b,"cost_usd":%b,"provider":%b,"endpoint":%b,"fallback_attempts":%d,"warnings":%b}'


class Meter:
    """Renders finished records."""

    def __init__(
        self, instruments: Instruments, lines: LineWriter, ledger: Settling | None = None, tracer: Tracer | None = None, one_in: int = 1
    ) -> None:
        """Of the requests that ended well, `one_in` so many has a log line."""
        self._lines, self.ledger, self.tracer = lines, ledger, tracer
        self._one_in, self._passed = max(1, one_in), 0
        self._counts = Counts(instruments, lambda: lines.dropped)
        self._conversations = 0

    @property
    def totals(self) -> Totals:
        """What was counted since the start."""
        return self._counts.totals

    def parts(self, clock: Callable[[], float]) -> Parts | None:
        """Whether a request that begins is the one of ONE_IN whose parts are timed."""
        self._conversations += 1
        return Parts(clock) if self._conversations % ONE_IN == 0 else None

    def stream_opened(self) -> None:
        """A stream to a client begins; it ends with its record."""
        self._counts.stream_opened()

    def close(self, record: Record) -> None:
        """The request ended: its attempts are settled, one log line, and its metrics."""
        if record.ended is None:
            if record.usage is None and record.attempts and record.attempts[-1].ended is None:
                bill_unanswered(record)
            record.over()
        if record.attempts and record.ledger is not None:
            record.ledger.settle(record)
        if self._one_in == 1 or self._is_told(record):
            self._lines.write(log_line(record))
        route = self._counts.add(record)
        if self.tracer is not None and self.tracer.ended(record):
            self._counts.traced(record, route)

    def _is_told(self, record: Record) -> bool:
        """Whether a request has a line of its own: all that is not everyday has."""
        if record.outcome != "success" or len(record.attempts) != 1 or record.queued_s:
            return True
        self._passed += 1
        return self._passed % self._one_in == 0

    def tell(self) -> None:
        """The metrics are up to date after this; otherwise they are a moment behind."""
        self._counts.tell()


def log_line(record: Record) -> bytes:
    """The request as one JSON object on one line, names as in docs/architecture.md; no prompt, no answer, no key, no URL."""
    plan, attempts, ttft_s, hold_s = record.plan, record.attempts, record.ttft_s, record.hold_s
    line = _LINE % (
        _timestamp(record.wall),
        _ENCODE(record.request_id),
        _ENCODE(record.model),
        _route(
            record.tenant,
            record.key_id,
            record.stream,
            record.catalog_version,
            plan.considered if plan is not None else record.considered,
            attempts[-1].endpoint.id if attempts else None,
        ),
        _list(record.directives),
        b"null" if plan is None or plan.preferred_overridden is None else _ENCODE(plan.preferred_overridden),
        record.fallback_attempts,
        _attempt(record, attempts[0]) if len(attempts) == 1 else b",".join([_attempt(record, attempt) for attempt in attempts]),
        record.elapsed_s * 1000,
        b"null" if ttft_s is None else b"%.1f" % (ttft_s * 1000),
        record.overhead_s * 1000,
        _ending(record.status, record.outcome, record.error_code),
        usage_block(record),
        _list(record.warnings),
        _word(record.priority),
        record.queued_s * 1000,
        b"null" if hold_s is None else b"%.1f" % (hold_s * 1000),
        record.body_bytes,
        record.bytes_out,
        b"null" if record.trace is None else b'"%032x"' % record.trace.trace_id,
    )
    if record.replayed:
        return line[:-2] + b',"idempotent_replay":true}\n'
    return line if not record.eliminated else line[:-2] + b',"eliminated":%b}\n' % _ENCODE(record.eliminated)


def _attempt(record: Record, attempt: AttemptRecord) -> bytes:
    return _ATTEMPT % (
        _ENCODE(attempt.attempt_id),
        _call(attempt.endpoint.id, attempt.account, attempt.outcome),
        ((attempt.ended if attempt.ended is not None else record.clock()) - attempt.started) * 1000,
        _told(attempt) if attempt.message or attempt.injected else b"",
    )


def _told(attempt: AttemptRecord) -> bytes:
    injected = b',"injected":%b' % _ENCODE(attempt.injected) if attempt.injected else b""
    return (b',"message":%b' % _ENCODE(attempt.message) if attempt.message else b"") + injected


# What many lines have in common. None of it is a client's own word.


@lru_cache(8192)
def _route(tenant: str | None, key_id: str | None, stream: bool, version: int | None, considered: int, selected: str | None) -> bytes:
    return b'"tenant":%b,"key_id":%b,"stream":%b,"routing":{"catalog_version":%b,"candidates_considered":%b,"selected":%b' % tuple(
        map(_ENCODE, (tenant, key_id, stream, version, considered, selected))
    )


@lru_cache(8192)
def _call(endpoint: str, account: str, outcome: str) -> bytes:
    return b'"endpoint":%b,"account":%b,"outcome":%b' % (_ENCODE(endpoint), _ENCODE(account), _ENCODE(outcome))


@lru_cache(1024)
def _ending(status: int, outcome: str, error: str | None) -> bytes:
    return b'"status":%d,"outcome":%b,"error":%b' % (status, _ENCODE(outcome), _ENCODE(error))


def usage_block(record: Record) -> bytes:
    """Reported and counted tokens and the cost as JSON, `null` before there was any. Kept in the record: it is told twice."""
    if record.usage_told is not None:
        return record.usage_told
    usage, counted = record.usage, record.counted
    if usage is None:
        return b"null"
    record.usage_told = told = _USAGE % (
        usage.prompt_tokens,
        usage.completion_tokens,
        usage.prompt_tokens + usage.completion_tokens,
        usage.cached_tokens,
        usage.cache_write_tokens,
        usage.reasoning_tokens,
        b"null" if counted is None else b"%d" % counted.prompt_tokens,
        b"null" if counted is None else b"%d" % counted.completion_tokens,
        b"null" if record.cost_usd is None else record.cost_usd.encode(),
        b"true" if usage.estimated else b"false",
    )
    return told


def note(record: Record) -> bytes:
    """The `n4n` block of an answer, as JSON."""
    endpoint = record.selected
    return _NOTE % (
        usage_block(record),
        b"null" if record.cost_usd is None else record.cost_usd.encode(),
        _word(endpoint.provider.name) if endpoint is not None else b"null",
        _word(endpoint.id) if endpoint is not None else b"null",
        record.fallback_attempts,
        _list(record.warnings),
    )


@lru_cache(8192)
def _word(text: str | None) -> bytes:
    """A name of the catalog, a tenant, a key's public id or a fixed word, as JSON; None as null."""
    return _ENCODE(text)


def _list(texts: tuple[str, ...]) -> bytes:
    return _ENCODE(texts) if texts else b"[]"


_second: tuple[int, bytes] = (0, b"")  # the latest second and its spelling: most lines of one second share it


def _timestamp(wall: float) -> bytes:
    global _second
    second = int(wall)
    if _second[0] != second:
        _second = (second, datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S").encode())
    return b"%b.%03dZ" % (_second[1], (wall - second) * 1000)
