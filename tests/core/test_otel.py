"""What the OTEL_* variables want, and which of them stop a start."""

from __future__ import annotations

import pytest

from n4n.core.errors import StartFailed
from n4n.core.otel import MetricsWanted, check, metrics_wanted, traces_wanted

SOMEWHERE = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4317"}


@pytest.mark.parametrize(
    ("environ", "protocol"),
    [
        (SOMEWHERE, "grpc"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4317"}, "grpc"),
        ({"OTEL_TRACES_EXPORTER": "OTLP"}, "grpc"),
        ({"OTEL_TRACES_EXPORTER": "console", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, "console"),
        (SOMEWHERE | {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, "http/protobuf"),
        (SOMEWHERE | {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"}, "http/protobuf"),
        ({}, None),
        (SOMEWHERE | {"OTEL_TRACES_EXPORTER": "none"}, None),
        (SOMEWHERE | {"OTEL_SDK_DISABLED": "TRUE"}, None),
    ],
)
def test_traces_go_where_the_variables_say(environ: dict[str, str], protocol: str | None) -> None:
    wanted = traces_wanted(environ)
    assert (None if wanted is None else wanted.protocol) == protocol


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        (SOMEWHERE, None),
        ({"OTEL_METRICS_EXPORTER": "prometheus"}, None),
        ({"OTEL_METRICS_EXPORTER": "none", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://collector:4317"}, None),
        ({"OTEL_METRICS_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "true"}, None),
        ({"OTEL_METRICS_EXPORTER": "prometheus, otlp"}, MetricsWanted("grpc", 60.0)),
        (
            {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://c", "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "http/protobuf",
             "OTEL_METRIC_EXPORT_INTERVAL": "250"},
            MetricsWanted("http/protobuf", 0.25),
        ),
    ],
)  # fmt: skip
def test_metrics_go_where_the_variables_say(environ: dict[str, str], wanted: MetricsWanted | None) -> None:
    assert metrics_wanted(environ) == wanted


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER"),
        (SOMEWHERE | {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, "OTEL_EXPORTER_OTLP_PROTOCOL"),
        (SOMEWHERE | {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "udp"}, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"),
        (SOMEWHERE | {"OTEL_TRACES_SAMPLER": "some"}, "OTEL_TRACES_SAMPLER"),
        ({"OTEL_METRICS_EXPORTER": "statsd"}, "OTEL_METRICS_EXPORTER"),
        ({"OTEL_METRICS_EXPORTER": "otlp", "OTEL_METRIC_EXPORT_INTERVAL": "0"}, "OTEL_METRIC_EXPORT_INTERVAL"),
        ({"OTEL_METRICS_EXPORTER": "otlp", "OTEL_METRIC_EXPORT_INTERVAL": "soon"}, "OTEL_METRIC_EXPORT_INTERVAL"),
        (
            {"OTEL_METRICS_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": "delta"},
            "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE",
        ),
    ],
)
def test_a_variable_that_cannot_be_followed_is_named(environ: dict[str, str], named: str) -> None:
    with pytest.raises(StartFailed, match=rf"^{named} "):
        check(environ)
    check(SOMEWHERE)
