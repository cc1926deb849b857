"""A router's telemetry through collectors that somebody else wrote: what arrives behind them is what was sent. Run where installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from n4n.runtime.exemplars import of_this_node
from n4n.runtime.metrics_out import metrics_out_of
from n4n.runtime.tracing import tracing_of
from tests.integration.test_metrics_over_otlp import OFTEN, came
from tests.integration.test_traces import PARENT
from tests.support.answers import error
from tests.support.collector import KNOWN, Collector, running_collector
from tests.support.otlp import Receiver, receiver
from tests.support.router import KEY, PROVIDER_SECRET, catalog, running_router
from tests.support.upstream import ScriptedUpstream


@pytest.fixture(scope="module", params=KNOWN)
def between(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Collector, Receiver]]:
    """A collector, and whom it hands on to."""
    with receiver() as behind, running_collector(request.param, behind, tmp_path_factory.mktemp(request.param)) as collector:
        if collector is None:
            pytest.skip(f"{request.param} is not installed; tests/support/collector.py says how")
        yield collector, behind


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
async def test_a_request_that_fell_back_arrives_behind_a_collector_as_it_was_sent(
    protocol: str, between: tuple[Collector, Receiver], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    collector, behind = between
    behind.spans.clear()
    behind.metrics.clear()
    environ = collector.environ(protocol) | OFTEN
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    traces = tracing_of(environ, "data-plane", "r1")
    assert traces is not None
    async with ScriptedUpstream() as one, ScriptedUpstream() as two:
        one.script(error(503))
        async with running_router(catalog(one.base_url, two.base_url), tracing=traces) as router:
            async with router.chat(headers={"traceparent": PARENT, "tracestate": "vendor=1"}) as answer:
                assert answer.status == 200
            [line] = await router.logged()
            [[server, first, second]] = await behind.traces()
            router.web.told()
            metrics = metrics_out_of(environ, "data-plane", "r1", of_this_node, tmp_path)
            assert metrics is not None
            try:
                attempts = await came(behind, lambda one: one.name == "n4n_attempts")
                served = await came(behind, lambda one: one.name == "gen_ai.server.request.duration")
            finally:
                metrics.close()
    traces.close()
    assert (server.trace_id, server.parent_id, server.state) == (line["trace_id"], PARENT.split("-")[2], "vendor=1")
    assert (server.kind, first.kind, server.resource["service.name"]) == ("SERVER", "CLIENT", "n4n-data-plane")
    assert {first.parent_id, second.parent_id} == {server.span_id}
    assert [span.failed for span in (server, first, second)] == [False, True, False]
    assert server.attributes["n4n.fallback_attempts"] == 1
    assert (first.attributes["n4n.outcome"], second.attributes["n4n.outcome"]) == ("overloaded", "ok")
    assert {"overloaded", "ok"} <= {str(dict(point)["outcome"]) for point in attempts.points}
    assert (served.kind, served.unit, served.cumulative) == ("histogram", "s", True)
    for secret in (KEY, PROVIDER_SECRET):
        assert secret.encode() not in behind.raw
