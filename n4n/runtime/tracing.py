"""OpenTelemetry of one process, as the standard OTEL_* variables say; nothing of it is imported where they say nothing.

Traces are on where OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or OTEL_TRACES_EXPORTER is set, and
OTEL_SDK_DISABLED is not `true`. A span is made when its work has ended and is known to be worth keeping, and leaves in a batch
by a thread of the SDK.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

import n4n
from n4n.core.otel import traces_wanted
from n4n.core.tracing import Sampling

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter

LAST_WORDS_S, GIVEN_UP_S = 1.0, 0.5
Value = str | int | float | bool | Sequence[str]


class Kind(Enum):
    """Whose side of a call a span tells of."""

    INTERNAL = "INTERNAL"
    SERVER = "SERVER"
    CLIENT = "CLIENT"


@dataclass(frozen=True, slots=True)
class Span:
    """One finished piece of work. Ids as in W3C trace context; times in nanoseconds since 1970; `parent_id` 0: it has none."""

    name: str
    kind: Kind
    trace_id: int
    span_id: int
    parent_id: int
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Value]
    error: str | None = None  # why it failed; None: it did not
    links: tuple[tuple[int, int], ...] = ()  # trace and span that caused it, in another trace
    state: str = ""  # the sender's tracestate, passed on
    remote_parent: bool = field(default=False)


def new_trace_id() -> int:
    """Never 0; its low bits are random, as samplers need them."""
    return random.getrandbits(128) or 1


def new_span_id() -> int:
    """Never 0."""
    return random.getrandbits(64) or 1


class Tracing:
    """Where spans go."""

    def __init__(self, exporter: SpanExporter, resource: Resource, sampling: Sampling) -> None:
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        from n4n.runtime.span_batches import Bounded

        self.sampling = sampling
        self._exporter, self._resource = exporter, resource
        self._batches = BatchSpanProcessor(Bounded(exporter))

    def emit(self, spans: Sequence[Span]) -> None:
        """They are exported with the next batch; where the receiver is away or slow, the oldest that wait are lost."""
        for span in spans:
            self._batches.on_end(_readable(span, self._resource))

    def close(self) -> None:
        """Sends what is left; where nobody takes it, it is lost after LAST_WORDS_S. The SDK alone would try for eight seconds."""
        closing = threading.Thread(target=self._batches.shutdown, name="last spans", daemon=True)
        closing.start()
        closing.join(LAST_WORDS_S)
        if closing.is_alive():
            self._exporter.shutdown()
            closing.join(GIVEN_UP_S)


def tracing_of(environ: Mapping[str, str], role: str, node: str) -> Tracing | None:
    """None: no traces are wanted. StartFailed names the variable that cannot be followed.

    `role` makes service.name (`n4n-data-plane`) unless OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES give one; `node` is
    service.instance.id.
    """
    wanted = traces_wanted(environ)
    return None if wanted is None else Tracing(_exporter(wanted.protocol), resource_of(environ, role, node), wanted.sampling)


def resource_of(environ: Mapping[str, str], role: str, node: str) -> Resource:
    """Who tells it: `role` and `node` as above."""
    from opentelemetry.sdk.resources import Resource

    named = environ.get("OTEL_SERVICE_NAME") or "service.name=" in environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    facts = {"service.version": n4n.__version__, "service.instance.id": node, "service.namespace": "n4n"}
    return Resource.create(facts if named else {**facts, "service.name": f"n4n-{role}"})


def _exporter(protocol: str) -> SpanExporter:
    """The exporters read the remaining OTEL_EXPORTER_OTLP_* variables themselves: endpoint, headers, certificates, timeout."""
    if protocol == "console":
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        return ConsoleSpanExporter()
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

        return OTLPSpanExporter()
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as OverHttp

    return OverHttp()


def _readable(span: Span, resource: Resource) -> ReadableSpan:
    from opentelemetry import trace
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    flags, state = trace.TraceFlags(trace.TraceFlags.SAMPLED), trace.TraceState.from_header([span.state] if span.state else [])
    context = trace.SpanContext(span.trace_id, span.span_id, is_remote=False, trace_flags=flags, trace_state=state)
    parent = None
    if span.parent_id:
        parent = trace.SpanContext(span.trace_id, span.parent_id, is_remote=span.remote_parent, trace_flags=flags, trace_state=state)
    status = trace.Status(trace.StatusCode.UNSET) if span.error is None else trace.Status(trace.StatusCode.ERROR, span.error)
    return ReadableSpan(
        name=span.name,
        context=context,
        parent=parent,
        resource=resource,
        attributes=span.attributes,
        links=[trace.Link(trace.SpanContext(trace_id, span_id, is_remote=True, trace_flags=flags)) for trace_id, span_id in span.links],
        kind=trace.SpanKind[span.kind.value],
        status=status,
        start_time=span.start_ns,
        end_time=span.end_ns,
        instrumentation_scope=InstrumentationScope("n4n", n4n.__version__),
    )
