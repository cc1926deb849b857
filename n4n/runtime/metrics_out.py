"""Metrics over OTLP, as the standard OTEL_* variables say: the figures of /metrics, every minute.

On where OTEL_METRICS_EXPORTER names otlp or OTEL_EXPORTER_OTLP_METRICS_ENDPOINT is set, and OTEL_SDK_DISABLED is not `true`; else nothing
of it is imported. The common OTEL_EXPORTER_OTLP_ENDPOINT alone turns on traces: whoever has a Prometheus has these figures already. Sums
are cumulative. Names are those of /metrics, but for the generative AI conventions' own, which have their dots here.
"""

from __future__ import annotations

import fcntl
import logging
import os
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import Metric
from prometheus_client.samples import Sample

from n4n.core import gen_ai
from n4n.core.otel import metrics_wanted
from n4n.runtime.tracing import resource_of

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import export
    from opentelemetry.sdk.resources import Resource

LAST_WORDS_S, GIVEN_UP_S = 1.0, 0.5
_UNITS = {"seconds": "s", "bytes": "By", "usd": "{USD}", "ratio": "1", "tokens": "{token}"}
Labels = frozenset[tuple[str, str]]
log = logging.getLogger("n4n.metrics")


class Turn:
    """Which of a node's workers sends: the one that holds a lock on a file, until it ends. The file's age is that of the counters."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.since_ns = os.fstat(self._descriptor).st_mtime_ns

    def __call__(self) -> bool:
        """Whether it is ours, perhaps from now on."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Somebody else's."""
        os.close(self._descriptor)


class MetricsOut:
    """Sends what `collect` gives, from a thread of its own. `turn`: where several processes have the same figures; None: they are ours."""

    def __init__(
        self,
        exporter: export.MetricExporter,
        resource: Resource,
        collect: Callable[[], Iterable[Metric]],
        turn: Turn | None,
        every_s: float,
    ) -> None:
        self._exporter, self._resource, self._collect = exporter, resource, collect
        self._turn, self._every_s = turn, every_s
        self._since_ns = time.time_ns() if turn is None else turn.since_ns
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="metrics over OTLP", daemon=True)
        self._thread.start()

    def _keep(self) -> None:
        over = False
        while not over:
            over = self._over.wait(self._every_s)  # then once more: how everything stands in the end
            if self._turn is None or self._turn():
                self._tell()

    def _tell(self) -> None:
        try:
            self._exporter.export(metrics_data(self._collect(), self._resource, self._since_ns, time.time_ns()))
        except (OSError, ValueError, RuntimeError, struct.error) as error:  # a worker's file may be damaged; the next time is another
            if not self._over.is_set():  # else `close` has waited long enough
                log.warning("metrics could not be told: %s", type(error).__name__)

    def close(self) -> None:
        """Where nobody takes the last word, it is lost after LAST_WORDS_S."""
        self._over.set()
        self._thread.join(LAST_WORDS_S)
        self._exporter.shutdown()
        self._thread.join(GIVEN_UP_S)
        if self._turn is not None:
            self._turn.close()


def metrics_out_of(
    environ: Mapping[str, str], role: str, node: str, collect: Callable[[], Iterable[Metric]], shared: Path | None = None
) -> MetricsOut | None:
    """None: no metrics are wanted. StartFailed names the variable that cannot be followed.

    `role` and `node` as for traces; `shared`: the folder of those who have the same figures, of whom one at a time sends.
    """
    wanted = metrics_wanted(environ)
    if wanted is None:
        return None
    turn = None if shared is None else Turn(shared / "otlp.lock")
    return MetricsOut(_exporter(wanted.protocol), resource_of(environ, role, node), collect, turn, wanted.every_s)


def _exporter(protocol: str) -> export.MetricExporter:
    """The exporters read the remaining OTEL_EXPORTER_OTLP_* variables themselves: endpoint, headers, certificates, timeout."""
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter

        return OTLPMetricExporter()
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as OverHttp

    return OverHttp()


# --- figures of /metrics as OpenTelemetry's ---


def metrics_data(families: Iterable[Metric], resource: Resource, since_ns: int, now_ns: int) -> export.MetricsData:
    """All of them, counted since then, as they stand now."""
    from opentelemetry.sdk.metrics import export
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    import n4n

    told = [found for family in families if (found := _metric(family, since_ns, now_ns)) is not None]
    scope = export.ScopeMetrics(InstrumentationScope("n4n", n4n.__version__), told, "")
    return export.MetricsData([export.ResourceMetrics(resource, [scope], "")])


def _metric(family: Metric, since_ns: int, now_ns: int) -> export.Metric | None:
    from opentelemetry.sdk.metrics import export

    if not family.samples:
        return None
    name, unit = gen_ai.METRICS.get(family.name, (family.name, _UNITS.get(family.name.rpartition("_")[2], "")))
    shape: export.Sum | export.Gauge | export.Histogram
    cumulative = export.AggregationTemporality.CUMULATIVE
    if family.type == "histogram":
        shape = export.Histogram([*_histogram_points(family.samples, since_ns, now_ns)], cumulative)
    elif family.type == "counter":
        counted = [one for one in family.samples if one.name.endswith("_total")]
        shape = export.Sum([_number(one, since_ns, now_ns) for one in counted], cumulative, is_monotonic=True)
    else:
        shape = export.Gauge([_number(one, None, now_ns) for one in family.samples])
    return export.Metric(name, family.documentation, unit, shape)


def _number(sample: Sample, since_ns: int | None, now_ns: int) -> export.NumberDataPoint:
    from opentelemetry.sdk.metrics import export

    return export.NumberDataPoint(_attributes(sample.labels.items()), since_ns, now_ns, sample.value)  # type: ignore[arg-type]  # None: unset


def _histogram_points(samples: Sequence[Sample], since_ns: int, now_ns: int) -> Iterator[export.HistogramDataPoint]:
    from opentelemetry.sdk.metrics import Exemplar, export

    buckets: dict[Labels, list[tuple[float, float]]] = {}
    sums: dict[Labels, float] = {}
    exemplars: dict[Labels, list[Exemplar]] = {}
    for sample in samples:
        labels = frozenset((name, value) for name, value in sample.labels.items() if name != "le")
        if sample.name.endswith("_bucket"):
            buckets.setdefault(labels, []).append((float(sample.labels["le"]), sample.value))
            if (seen := sample.exemplar) is not None and seen.timestamp is not None:
                ids = {name: int(seen.labels[name], 16) for name in ("trace_id", "span_id")}
                exemplars.setdefault(labels, []).append(Exemplar({}, seen.value, int(float(seen.timestamp) * 1e9), **ids))
        elif sample.name.endswith("_sum"):
            sums[labels] = sample.value
    for labels, upto in buckets.items():
        upto.sort()
        counts = [int(count - before) for (_, count), (_, before) in zip(upto, [(0.0, 0.0), *upto], strict=False)]
        yield export.HistogramDataPoint(
            attributes=_attributes(labels),
            start_time_unix_nano=since_ns,
            time_unix_nano=now_ns,
            count=int(upto[-1][1]),
            sum=sums.get(labels, 0.0),
            bucket_counts=counts,
            explicit_bounds=[bound for bound, _ in upto[:-1]],
            min=None,  # type: ignore[arg-type]  # not known: left out
            max=None,  # type: ignore[arg-type]
            exemplars=exemplars.get(labels, []),
        )


def _attributes(labels: Iterable[tuple[str, str]]) -> dict[str, str]:
    return {gen_ai.ATTRIBUTES.get(name, name): value for name, value in sorted(labels) if value}
