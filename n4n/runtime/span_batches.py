"""Batches of spans no larger than a receiver takes: those that bear what was said are large. Imported only where traces are wanted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

MOST_BYTES = 3 << 20  # of one message, roughly: a gRPC server takes 4 MiB unless it is told otherwise
USUAL_BYTES = 2048  # of a span


class Bounded(SpanExporter):
    """Another exporter, given no more at a time than that."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """In as many messages as it takes."""
        results = [self._exporter.export(part) for part in _parts(spans)]
        return SpanExportResult.SUCCESS if all(one is SpanExportResult.SUCCESS for one in results) else SpanExportResult.FAILURE

    def shutdown(self) -> None:
        """As the other one."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """As the other one."""
        return self._exporter.force_flush(timeout_millis)


def _parts(spans: Sequence[ReadableSpan]) -> Iterator[list[ReadableSpan]]:
    part, size = list[ReadableSpan](), 0
    for span in spans:
        texts = [value for value in (span.attributes or {}).values() if isinstance(value, str) and len(value) > USUAL_BYTES]
        more = USUAL_BYTES + sum(len(text.encode()) for text in texts)
        if part and size + more > MOST_BYTES:
            yield part
            part, size = [], 0
        part.append(span)
        size += more
    if part:
        yield part
