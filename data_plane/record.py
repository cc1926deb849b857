"""The record of one request: filled while it runs, and all that log line, metrics and usage are made of."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Protocol

import msgspec

from n4n.core.candidates import Plan
from n4n.core.catalog import Endpoint, Target
from n4n.core.chat import Chunk, Usage
from n4n.core.dialects.wording import ABOUT_THE_REQUEST, OWN_WORDS
from n4n.core.errors import Failure, GatewayError
from n4n.core.tracing import Parent, traceparent
from n4n.runtime.tracing import new_span_id
from n4n.runtime.upstream import Reply

if TYPE_CHECKING:
    from data_plane.content import Content
    from data_plane.counting import Counting
    from data_plane.parts import Parts


class Trace(msgspec.Struct, frozen=True):
    """Under which ids a request is traced; `parent`: where it came from. `sampled`: it is kept in any case, and providers are told so."""

    trace_id: int
    span_id: int
    parent: Parent | None
    sampled: bool
    method: str
    route: str  # one of the gateway's own paths, or `other`


class AttemptRecord(msgspec.Struct):
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
    status: int | None = None  # the provider's; None: no answer came
    injected: str = ""  # what befell it by the catalog's fault; empty: nothing
    head: bytes = b""  # of its lines in the ledger
    span_id: int = 0  # 0: it is not traced


class Answered(msgspec.Struct):
    """What is needed to count an answer: the request as it was sent, and what came of it. `pieces` None: not all of them are there."""

    body: bytes
    pieces: list[bytes] | None
    reported: Usage | None
    output_bytes: int


class Settling(Protocol):
    """Who is told of every dispatch before it is made."""

    counting: Counting | None  # None: nothing is counted beside what providers report

    def dispatched(self, record: Record, attempt: AttemptRecord) -> None:
        """This one is next; those before it have ended."""
        ...

    def settle(self, record: Record) -> None:
        """All have ended."""
        ...


class Record(msgspec.Struct):
    """What happened to one request. Times are on the router's monotonic clock, in seconds."""

    request_id: str
    started: float
    clock: Callable[[], float]
    wall: float = msgspec.field(default_factory=time.time)
    model: str | None = None
    tenant: str | None = None
    key_id: str | None = None
    stream: bool = False
    operation: str = ""  # chat, text_completion, embeddings; '': none that a model is asked for
    catalog_version: int | None = None
    directives: tuple[str, ...] = ()
    plan: Plan | None = None
    considered: int = 0  # endpoints, where a refusal tells it and there is no plan
    eliminated: Mapping[str, int] | None = None  # and what ruled them out
    target: Target | None = None  # what was asked for, where there is no plan and the catalog has the name
    attempts: list[AttemptRecord] = msgspec.field(default_factory=list)
    fallback_attempts: int = 0
    queued_s: float = 0.0  # for quota, in line
    limit_fields: bytes = b""  # the caller's own limits, as header lines
    waited_s: float = 0.0  # for providers, backoff included, without the reply under way
    reply: Reply | None = None  # the provider's answer while it is read
    ttft_s: float | None = None
    ended: float | None = None  # the client had its whole answer
    status: int = 499
    outcome: str = "cancelled"  # success, rate_limited, error, cancelled, rejected
    error_code: str | None = None
    usage: Usage | None = None
    usage_told: bytes | None = None  # its JSON, once it was told
    cost_usd: str | None = None  # exact, in plain decimals; None: unpriced, or not known yet
    counted: Usage | None = None
    sent: bytes = b""  # the body of the newest attempt
    answered: Answered | None = None  # None: nothing came that could be counted, or nobody counts
    tags: bytes = b""  # of its rows, a JSON object; empty: it has none
    warnings: tuple[str, ...] = ()
    no_store: bool = False  # the client asked for no gateway cache
    replayed: bool = False  # the answer is that of an earlier request with the same idempotency key
    cache_control: str | None = None  # the provider's own header
    closing: Callable[[], bool] = lambda: False  # whether an answer that begins now is the last on its connection
    priority: str = "interactive"
    body_bytes: int = 0
    bytes_out: int = 0  # of the answer's body, without heads and framing
    most_output: int | None = None  # tokens the client asked for at most
    ledger: Settling | None = None  # None: this request is not metered
    trace: Trace | None = None  # None: no traces are wanted
    parts: Parts | None = None  # where its time went; None: it is not looked at so closely
    content: Content | None = None  # what is said, for its trace; None: its tenant never asked for that
    queued_at: float | None = None  # when it began to wait for quota
    reserved_at: float | None = None  # when the newest reservation began, where traces are wanted
    reserved_s: float = 0.0  # and what all of them took
    last_chunk: Chunk | None = None  # of the answer, with its finish reason
    interrupt: Callable[[GatewayError], Awaitable[None]] | None = None  # how a stream that has begun is told of an error

    def dispatched(self, attempt_id: str, endpoint: Endpoint, account: str) -> AttemptRecord:
        """Notes a dispatch; the attempt is cancelled until something else is known."""
        attempt = AttemptRecord(attempt_id, endpoint, account, self.clock())
        self.attempts.append(attempt)
        if self.trace is not None:
            attempt.span_id = new_span_id()
        if self.ledger is not None:
            self.ledger.dispatched(self, attempt)
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
        attempt.status = 200 if failure is None else failure.status
        attempt.message = "" if failure is None else _loggable(failure)

    def succeeded(self) -> None:
        """The client has its whole answer."""
        self.ended, self.status, self.outcome = self.clock(), 200, "success"

    def over(self) -> None:
        """It ended without a whole answer, for all that tell of it; an attempt that was under way ended with it."""
        self.ended = self.clock()
        if self.attempts and (last := self.attempts[-1]).ended is None:
            last.ended = self.ended
            last.outcome = self.outcome if self.outcome == "cancelled" else "error"

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

    @property
    def hold_s(self) -> float | None:
        """How long the guard held the first output of a stream; None: it is no stream, or nothing came or went out."""
        first = self.attempts[-1].first_output_at if self.attempts else None
        if not self.stream or first is None or self.ttft_s is None:
            return None
        return max(0.0, self.started + self.ttft_s - first)

    @property
    def trace_line(self) -> bytes:
        """The header line that ties the newest attempt at its provider to this trace; empty: there is none."""
        trace = self.trace
        if trace is None:
            return b""
        state = f"\r\ntracestate: {trace.parent.state}" if trace.parent is not None and trace.parent.state else ""
        return f"traceparent: {traceparent(trace.trace_id, self.attempts[-1].span_id, sampled=trace.sampled)}{state}\r\n".encode()

    def reply_over(self) -> None:
        """The reply under way has ended, well or not."""
        if self.reply is not None:
            self.waited_s += self.reply.waited_s
            self.reply = None


def _loggable(failure: Failure) -> str:
    """A failure in words for the log: a provider's own words about a request may quote its prompt, so those are ours."""
    return OWN_WORDS[failure.failure_class] if failure.failure_class in ABOUT_THE_REQUEST else failure.message
