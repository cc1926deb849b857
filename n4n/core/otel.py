"""What the standard OTEL_* variables want of a process: pure, so that a start can be refused before anything runs.

Names and defaults: https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/. The exporters themselves read what
is not decided here: endpoints, headers, certificates, timeouts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from n4n.core.errors import StartFailed
from n4n.core.tracing import Sampling, sampling_of

_MOST_MS = 10**9


@dataclass(frozen=True, slots=True)
class TracesWanted:
    """Where traces go: `protocol` is grpc, http/protobuf, or console."""

    protocol: str
    sampling: Sampling


@dataclass(frozen=True, slots=True)
class MetricsWanted:
    """How metrics are told beside /metrics: `protocol` is grpc or http/protobuf."""

    protocol: str
    every_s: float


def check(environ: Mapping[str, str]) -> None:
    """StartFailed names the variable that cannot be followed."""
    traces_wanted(environ)
    metrics_wanted(environ)


def traces_wanted(environ: Mapping[str, str]) -> TracesWanted | None:
    """None: no traces are wanted. StartFailed names the variable that cannot be followed."""
    if _disabled(environ):
        return None
    kind = environ.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    endpoint = environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    if kind == "none" or not (kind or endpoint):
        return None
    if kind not in ("", "otlp", "console"):
        raise StartFailed(f"OTEL_TRACES_EXPORTER is {kind[:40]!r}; n4n knows otlp, console and none")
    sampling = sampling_of(environ)
    return TracesWanted("console" if kind == "console" else _protocol(environ, "TRACES"), sampling)


def metrics_wanted(environ: Mapping[str, str]) -> MetricsWanted | None:
    """None: /metrics is all that is wanted. StartFailed names the variable that cannot be followed."""
    if _disabled(environ):
        return None
    named = [one.strip().lower() for one in environ.get("OTEL_METRICS_EXPORTER", "").split(",") if one.strip()]
    unknown = [one for one in named if one not in ("otlp", "prometheus", "none")]
    if unknown:
        raise StartFailed(f"OTEL_METRICS_EXPORTER names {unknown[0][:40]!r}; n4n knows otlp, prometheus (always there) and none")
    if "otlp" not in named and (named or not environ.get("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")):
        return None
    kind = environ.get("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "").strip().lower() or "cumulative"
    if kind != "cumulative":
        raise StartFailed(f"OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE is {kind[:40]!r}; n4n tells cumulative sums")
    every = environ.get("OTEL_METRIC_EXPORT_INTERVAL", "").strip() or "60000"
    if not (every.isascii() and every.isdigit() and 0 < int(every) < _MOST_MS):
        raise StartFailed(f"OTEL_METRIC_EXPORT_INTERVAL must be a whole number of milliseconds above 0, not {every[:40]!r}")
    return MetricsWanted(_protocol(environ, "METRICS"), int(every) / 1000)


def _disabled(environ: Mapping[str, str]) -> bool:
    return environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"


def _protocol(environ: Mapping[str, str], signal: str) -> str:
    names = (f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    name = next((one for one in names if environ.get(one)), names[1])
    protocol = environ.get(name) or "grpc"
    if protocol not in ("grpc", "http/protobuf"):
        raise StartFailed(f"{name} is {protocol[:40]!r}; n4n knows grpc and http/protobuf")
    return protocol
