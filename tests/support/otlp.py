"""A receiver of OpenTelemetry's traces and metrics, as a collector is one: gRPC and HTTP on free loopback ports, what came is kept."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest, ExportMetricsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import (
    MetricsServiceServicer,
    add_MetricsServiceServicer_to_server,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceServicer, add_TraceServiceServicer_to_server
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric as WireMetric
from opentelemetry.proto.trace.v1.trace_pb2 import Span as Wire

Value = str | int | float | bool | list[object] | None


class Seen:
    """A span as it arrived."""

    def __init__(self, span: Wire, resource: Mapping[str, Value]) -> None:
        self.name, self.kind = span.name, Wire.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_")
        self.trace_id, self.span_id, self.parent_id = span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()
        self.start_ns, self.end_ns = span.start_time_unix_nano, span.end_time_unix_nano
        self.attributes = {one.key: _value(one.value) for one in span.attributes}
        self.failed, self.why, self.state = span.status.code == 2, span.status.message, span.trace_state
        self.links = [(link.trace_id.hex(), link.span_id.hex()) for link in span.links]
        self.resource = resource

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name} {self.attributes}>"


class SeenMetric:
    """One metric of one sending, as it arrived. `points`: a number's value or a histogram's (count, sum, buckets), by its attributes."""

    def __init__(self, metric: WireMetric, resource: Mapping[str, Value]) -> None:
        self.name, self.unit, self.resource = metric.name, metric.unit, resource
        self.kind = str(metric.WhichOneof("data"))
        shape = getattr(metric, self.kind)
        self.cumulative = getattr(shape, "aggregation_temporality", 0) == 2
        self.points: dict[frozenset[tuple[str, Value]], Value | tuple[int, float, list[int]]] = {}
        self.bounds: list[float] = []
        self.traces: list[str] = []  # of exemplars
        for point in shape.data_points:
            key = frozenset((one.key, _value(one.value)) for one in point.attributes)
            self.since_ns, self.at_ns = point.start_time_unix_nano, point.time_unix_nano
            if self.kind == "histogram":
                self.bounds = list(point.explicit_bounds)
                self.points[key] = (point.count, point.sum, list(point.bucket_counts))
                self.traces += [one.trace_id.hex() for one in point.exemplars]
            else:
                self.points[key] = point.as_double

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name} {self.points}>"


class Receiver:
    """What came so far."""

    def __init__(self) -> None:
        self.spans: list[Seen] = []
        self.metrics: list[SeenMetric] = []
        self.raw = b""  # all bodies, for a search
        self.grpc_port = self.http_port = 0

    def take(self, request: ExportTraceServiceRequest) -> None:
        """One batch."""
        self.raw += request.SerializeToString()
        for group in request.resource_spans:
            resource = {one.key: _value(one.value) for one in group.resource.attributes}
            self.spans += [Seen(span, resource) for scope in group.scope_spans for span in scope.spans]

    def take_metrics(self, request: ExportMetricsServiceRequest) -> None:
        """One sending."""
        self.raw += request.SerializeToString()
        for group in request.resource_metrics:
            resource = {one.key: _value(one.value) for one in group.resource.attributes}
            self.metrics += [SeenMetric(metric, resource) for scope in group.scope_metrics for metric in scope.metrics]

    async def traces(self, count: int = 1, *, within_s: float = 10.0) -> list[list[Seen]]:
        """The traces that came, once there are so many that have a server's span; each with that span first."""
        async with asyncio.timeout(within_s):
            while sum(span.kind == "SERVER" for span in self.spans) < count:  # noqa: ASYNC110  # threads fill it
                await asyncio.sleep(0.02)
        found: dict[str, list[Seen]] = {}
        for span in self.spans:
            found.setdefault(span.trace_id, []).append(span)
        return [sorted(spans, key=lambda span: (span.kind != "SERVER", span.start_ns)) for spans in found.values()]

    def environ(self, protocol: str = "grpc") -> dict[str, str]:
        """The variables that send a process's traces here, at once."""
        port = self.grpc_port if protocol == "grpc" else self.http_port
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
            "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
            "OTEL_BSP_SCHEDULE_DELAY": "50",
        }


class _Service(TraceServiceServicer):
    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver

    def Export(self, request: ExportTraceServiceRequest, context: grpc.ServicerContext) -> ExportTraceServiceResponse:
        self._receiver.take(request)
        return ExportTraceServiceResponse()


class _MetricsService(MetricsServiceServicer):
    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver

    def Export(self, request: ExportMetricsServiceRequest, context: grpc.ServicerContext) -> ExportMetricsServiceResponse:
        self._receiver.take_metrics(request)
        return ExportMetricsServiceResponse()


@contextmanager
def receiver() -> Iterator[Receiver]:
    """Listening while inside."""
    made = Receiver()

    class Posts(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.path == "/v1/traces":
                made.take(ExportTraceServiceRequest.FromString(body))
            elif self.path == "/v1/metrics":
                made.take_metrics(ExportMetricsServiceRequest.FromString(body))
            self.send_response(200 if self.path in ("/v1/traces", "/v1/metrics") else 404)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Nothing on standard error."""

    with ThreadPoolExecutor(4) as pool, ThreadingHTTPServer(("127.0.0.1", 0), Posts) as http:
        server = grpc.server(pool, options=(("grpc.so_reuseport", 0),))
        add_TraceServiceServicer_to_server(_Service(made), server)
        add_MetricsServiceServicer_to_server(_MetricsService(made), server)
        made.grpc_port, made.http_port = server.add_insecure_port("127.0.0.1:0"), http.server_address[1]
        server.start()
        serving = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.05})
        serving.start()
        try:
            yield made
        finally:
            http.shutdown()
            serving.join()
            server.stop(0).wait()


def _value(value: AnyValue) -> Value:
    match value.WhichOneof("value"):
        case "string_value":
            return value.string_value
        case "int_value":
            return value.int_value
        case "double_value":
            return value.double_value
        case "bool_value":
            return value.bool_value
        case "array_value":
            return [_value(one) for one in value.array_value.values]
        case _:
            return None
