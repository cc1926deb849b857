"""Metrics over OTLP: the figures of /metrics at a receiver of OpenTelemetry's, once for a node, from every role."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from n4n.core import gen_ai
from n4n.runtime import metrics_out
from n4n.runtime.exemplars import of_this_node
from n4n.runtime.metrics_out import MetricsOut, metrics_out_of
from n4n.runtime.telemetry import metrics_here
from tests.integration.test_traces import sent_to
from tests.support.answers import completion, error, usage
from tests.support.house import House, free_port, running_house
from tests.support.otlp import Receiver, SeenMetric, receiver
from tests.support.router import catalog, instruments_of_tests, running_router
from tests.support.upstream import ScriptedUpstream, running_upstream

OFTEN = {"OTEL_METRICS_EXPORTER": "otlp", "OTEL_METRIC_EXPORT_INTERVAL": "100"}
WITHIN_S = 20.0


@pytest.fixture(autouse=True)
def something_to_tell() -> None:
    instruments_of_tests().overhead.take([0.001], 0.001)


@contextmanager
def telling(environ: Mapping[str, str], monkeypatch: pytest.MonkeyPatch, folder: Path, name: str = "n1") -> Iterator[MetricsOut]:
    for variable, value in environ.items():
        monkeypatch.setenv(variable, value)
    opened = metrics_out_of(environ, "data-plane", name, of_this_node, folder)
    assert opened is not None
    try:
        yield opened
    finally:
        opened.close()


async def came(made: Receiver, wanted: Callable[[SeenMetric], bool]) -> SeenMetric:
    """The newest metric of this kind, once there is one."""
    async with asyncio.timeout(WITHIN_S):
        while not (found := [one for one in list(made.metrics) if wanted(one)]):  # noqa: ASYNC110  # threads fill it
            await asyncio.sleep(0.02)
    return found[-1]


def asks(house: House) -> None:
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "ping"}]}).encode()
    headers = {"authorization": f"Bearer {house.api_key}", "content-type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(f"{house.base_url}/chat/completions", body, headers), timeout=20) as answer:
        assert answer.status == 200


def of_model(point: frozenset[tuple[str, object]], model: str) -> bool:
    return ("gen_ai.request.model", model) in point


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
async def test_the_figures_of_metrics_arrive_under_the_conventions_own_names(
    protocol: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with receiver() as made, sent_to(made, monkeypatch) as traces:
        async with ScriptedUpstream() as upstream:
            document = catalog(upstream.base_url)
            document["models"] = {f"m-{protocol[:4]}": {}}
            document["endpoints"]["e1"]["model"] = f"m-{protocol[:4]}"  # type: ignore[index]
            async with running_router(document, tracing=traces) as house:
                upstream.script(completion("pong", usage=usage(11, 7)), error(400))
                for status in (200, 400):
                    async with house.chat(model=f"m-{protocol[:4]}") as answer:
                        assert answer.status == status
                house.web.told()
                with telling(made.environ(protocol) | OFTEN, monkeypatch, tmp_path):
                    served = await came(made, lambda one: one.name == "gen_ai.server.request.duration")
                    used = await came(made, lambda one: one.name == "gen_ai.client.token.usage")
                    requests = await came(made, lambda one: one.name == "llm_requests")
                    streams = await came(made, lambda one: one.name == "n4n_active_streams")
                ids = [str(line["trace_id"]) for line in await house.logged(2)]
    assert (served.kind, served.unit, served.cumulative, used.unit) == ("histogram", "s", True, "{token}")
    assert served.bounds == list(gen_ai.DURATIONS)
    points = {point: value for point, value in served.points.items() if of_model(point, f"m-{protocol[:4]}")}
    assert {dict(point).get("error.type") for point in points} == {None, "invalid_request"}
    assert all(isinstance(value, tuple) and value[0] == sum(value[2]) == 1 for value in points.values())
    assert all(dict(point)["gen_ai.operation.name"] == "chat" for point in points)
    assert set(ids) & set(served.traces)
    assert (requests.kind, requests.cumulative, streams.kind) == ("sum", True, "gauge")
    assert 0 < requests.since_ns <= requests.at_ns <= time.time_ns()
    assert (requests.resource["service.name"], requests.resource["service.instance.id"]) == ("n4n-data-plane", "n1")


async def test_of_several_workers_one_sends_and_another_after_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with receiver() as made:
        environ = made.environ() | OFTEN
        with ExitStack() as left:
            left.enter_context(telling(environ, monkeypatch, tmp_path, "one"))
            one = await came(made, lambda seen: seen.resource["service.instance.id"] == "one")
            with telling(environ, monkeypatch, tmp_path, "two"):
                before = len(made.metrics)
                await came(made, lambda _: len(made.metrics) > before)
                assert {seen.resource["service.instance.id"] for seen in made.metrics} == {"one"}
                left.close()
                two = await came(made, lambda seen: seen.resource["service.instance.id"] == "two" and seen.name == one.name)
    assert two.since_ns == one.since_ns  # the counters are as old as they were


async def test_how_everything_stood_in_the_end_is_told_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(metrics_out, "LAST_WORDS_S", 30.0)  # of all that the tests before counted
    with receiver() as made:
        with telling(made.environ() | OFTEN | {"OTEL_METRIC_EXPORT_INTERVAL": "60000"}, monkeypatch, tmp_path):
            assert made.metrics == []
        assert "n4n_overhead_seconds" in {one.name for one in made.metrics}


async def test_figures_that_cannot_be_read_once_are_told_the_next_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    damaged = metrics_here() / "counter_17.db"
    with receiver() as made, telling(made.environ() | OFTEN, monkeypatch, tmp_path):
        await came(made, lambda one: one.name == "n4n_overhead_seconds")
        damaged.write_bytes(b"\xff" * 64)
        try:
            await asyncio.sleep(0.3)
        finally:
            damaged.unlink()
        made.metrics.clear()
        await came(made, lambda one: one.name == "n4n_overhead_seconds")


async def test_a_receiver_that_is_away_holds_nobody_for_long(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    away = {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": f"http://127.0.0.1:{free_port()}", "OTEL_METRIC_EXPORT_INTERVAL": "10"}
    with telling(away, monkeypatch, tmp_path):
        await asyncio.sleep(0.1)
        begun = time.monotonic()
    assert time.monotonic() - begun < 6.0


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"},
        {"OTEL_METRICS_EXPORTER": "none", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://127.0.0.1:1"},
        {"OTEL_METRICS_EXPORTER": "prometheus"},
        {"OTEL_METRICS_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "true"},
    ],
)
def test_nothing_is_sent_unless_somebody_asks_for_metrics(environ: dict[str, str], tmp_path: Path) -> None:
    assert metrics_out_of(environ, "data-plane", "n1", of_this_node, tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_every_role_tells_and_a_node_of_two_workers_tells_once(tmp_path: Path) -> None:
    with receiver() as made, running_upstream() as upstream:
        upstream.script(then=lambda _: completion("pong", usage=usage(11, 7)))
        document = catalog(upstream.base_url)
        document["accounts"]["ae1"]["credential"] = "env:CANARY"  # type: ignore[index]
        (tmp_path / "catalog.json").write_text(json.dumps(document))
        environ = {**made.environ(), **OFTEN, "CANARY": "sk-canary", "N4N_PROBERS": "1", "OTEL_TRACES_EXPORTER": "none"}
        with running_house(tmp_path, "--catalog", str(tmp_path / "catalog.json"), "--workers", "2", environ=environ) as house:
            for _ in range(20):
                asks(house)

            def told(role: str, name: str) -> list[SeenMetric]:
                return [one for one in list(made.metrics) if one.resource["service.name"] == f"n4n-{role}" and one.name == name]

            def answered() -> float:
                newest = told("data-plane", "llm_requests")[-1:]
                return sum(float(str(value)) for one in newest for point, value in one.points.items() if ("status", "success") in point)

            deadline = time.monotonic() + WITHIN_S
            roles = (("control-plane", "n4n_nodes_connected"), ("prober", "n4n_probe_tasks"))
            while (answered() < 20 or not all(told(*one) for one in roles)) and time.monotonic() < deadline:
                time.sleep(0.05)
            assert answered() == 20
            assert all(told(*one) for one in roles)
            sent = [one.at_ns for one in told("data-plane", "llm_requests")]
            assert len(sent) <= (sent[-1] - sent[0]) / 100_000_000 + 2  # one of two sends
            assert len({one.resource["service.instance.id"] for one in told("data-plane", "llm_requests")}) == 1
