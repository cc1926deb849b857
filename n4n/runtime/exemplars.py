"""Exemplars: the newest trace of every bucket of a histogram, for scrapers that read OpenMetrics.

The library's way of sharing metrics between processes has no room for them, so each worker leaves its own in a small file beside its
metrics, which whoever answers a scrape adds to what it tells. https://prometheus.io/docs/specs/om/open_metrics_spec/#exemplars
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar, Sample
from prometheus_client.utils import floatToGoString

from n4n.runtime.node_metrics import NodeMetrics
from n4n.runtime.telemetry import EXEMPLARS, Distribution, metrics_here

OPENMETRICS = "application/openmetrics-text"
CONTENT_TYPE = f"{OPENMETRICS}; version=1.0.0; charset=utf-8"


class Noted(msgspec.Struct, frozen=True, array_like=True):
    """One exemplar. `labels`: the series' own, the bucket's bound among them; `at`: Unix seconds."""

    series: str
    labels: dict[str, str]
    trace_id: str
    span_id: str
    value: float
    at: float


_ENCODE = msgspec.json.Encoder().encode
_DECODE = msgspec.json.Decoder(list[Noted]).decode


_Place = tuple[Distribution, tuple[str, ...], int]  # a histogram, the values of its labels, which bucket
_Seen = tuple[float, int, int, float]  # a value, its trace and span, when


class Exemplars:
    """One worker's, in a file of its own. Noting one is cheap, for every trace that is kept is one; the rest is done when they are told."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._new: dict[_Place, _Seen] = {}
        self._told: dict[_Place, bytes] = {}

    def __repr__(self) -> str:
        return f"Exemplars({self._path.name}, {len(self._told | self._new)})"

    def note(self, histogram: Distribution, values: tuple[str, ...], value: float, trace: tuple[int, int], at: float) -> None:
        """This value, of the series whose labels have these values, came of this trace and span."""
        self._new[histogram, values, bisect_left(histogram.bounds, value)] = (value, *trace, at)

    def tell(self) -> None:
        """Lets others see them."""
        if not self._new:
            return
        for place, seen in self._new.items():
            self._told[place] = _ENCODE(_noted(place, seen))
        self._new.clear()
        partial = self._path.with_name(f".{self._path.name}")
        with suppress(OSError):  # no room: whoever scrapes sees those of before
            partial.write_bytes(b"[%b]" % b",".join(self._told.values()))
            os.replace(partial, self._path)


def _noted(place: _Place, seen: _Seen) -> Noted:
    histogram, values, bucket = place
    value, trace_id, span_id, at = seen
    labels = {**dict(zip(histogram.label_names, values, strict=True)), "le": floatToGoString(histogram.bounds[bucket])}  # type: ignore[no-untyped-call]
    return Noted(f"{histogram.name}_bucket", labels, f"{trace_id:032x}", f"{span_id:016x}", value, at)


class _WithExemplars(Collector):
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def collect(self) -> Iterator[Metric]:
        noted = _all_in(self._folder)
        for metric in NodeMetrics(self._folder).collect():
            if metric.type == "histogram":
                metric.samples = [_with(sample, noted) for sample in metric.samples]
            yield metric


def _with(sample: Sample, noted: Mapping[tuple[str, frozenset[tuple[str, str]]], Noted]) -> Sample:
    found = noted.get((sample.name, frozenset(sample.labels.items())))
    if found is None:
        return sample
    return sample._replace(exemplar=Exemplar({"trace_id": found.trace_id, "span_id": found.span_id}, found.value, found.at))


def _all_in(folder: Path) -> dict[tuple[str, frozenset[tuple[str, str]]], Noted]:
    """The newest of all workers."""
    newest: dict[tuple[str, frozenset[tuple[str, str]]], Noted] = {}
    for path in folder.glob(f"{EXEMPLARS}*"):
        try:
            found = _DECODE(path.read_bytes())
        except (OSError, msgspec.DecodeError):
            continue  # it went meanwhile, or another version wrote it
        for one in found:
            key = (one.series, frozenset(one.labels.items()))
            if key not in newest or newest[key].at < one.at:
                newest[key] = one
    return newest


def of_this_node() -> Iterator[Metric]:
    """The metrics of every worker of this node, exemplars included."""
    return _WithExemplars(metrics_here()).collect()


def openmetrics() -> bytes:
    """The same in OpenMetrics' text format."""
    registry = CollectorRegistry()
    registry.register(_WithExemplars(metrics_here()))
    return bytes(generate_latest(registry))  # type: ignore[no-untyped-call]
