"""A slow bucket leads to a trace that was in it: exemplars, of every worker, as a real Prometheus keeps them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.samples import Exemplar

from n4n.runtime.exemplars import CONTENT_TYPE, Exemplars, openmetrics
from n4n.runtime.telemetry import exemplar_file, forget_worker
from tests.integration.test_traces import sent_to
from tests.support.answers import completion, error
from tests.support.otlp import receiver
from tests.support.prometheus import PROMETHEUS, a_prometheus, told
from tests.support.router import RunningRouter, catalog, instruments_of_tests, running_router
from tests.support.upstream import ScriptedUpstream

WITHIN_S = 30.0


def exemplars_in(page: str, series: str) -> list[tuple[dict[str, str], Exemplar]]:
    return [
        (sample.labels, sample.exemplar)
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == series and sample.exemplar is not None
    ]


async def page_of(house: RunningRouter) -> str:
    url = f"http://127.0.0.1:{house.port}/metrics"
    async with house.http.get(url, headers={"accept": "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"}) as answer:
        assert answer.headers["content-type"] == CONTENT_TYPE
        return await answer.text()


async def test_a_bucket_names_the_newest_trace_that_fell_into_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver() as made, sent_to(made, monkeypatch) as opened:
        async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url), tracing=opened) as house:
            upstream.script(completion("one"), completion("two"))
            for _ in range(2):
                async with house.chat() as answer:
                    assert answer.status == 200
            page = await page_of(house)
            _, newest = [line["trace_id"] for line in await house.logged(2)]
            async with house.http.get(f"http://127.0.0.1:{house.port}/metrics") as answer:
                assert "trace_id" not in await answer.text()  # the older format has no room for it
    for series in ("llm_request_latency_seconds_bucket", "gen_ai_server_request_duration_seconds_bucket", "n4n_overhead_seconds_bucket"):
        found = exemplars_in(page, series)
        assert newest in [exemplar.labels["trace_id"] for _, exemplar in found], series
        assert all(exemplar.value <= float(labels["le"]) for labels, exemplar in found)


async def test_only_a_trace_that_was_kept_is_an_exemplar(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver() as made, sent_to(made, monkeypatch, OTEL_TRACES_SAMPLER="always_off") as opened:
        async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url), tracing=opened) as house:
            upstream.script(completion("one"), error(400))
            for status in (200, 400):
                async with house.chat() as answer:
                    assert answer.status == status
            page = await page_of(house)
            dull, failed = [line["trace_id"] for line in await house.logged(2)]
    assert str(dull) not in page
    assert str(failed) in page


def test_of_several_workers_the_newest_exemplar_of_a_bucket_is_told_and_a_dead_one_s_are_not() -> None:
    see = instruments_of_tests()
    below, bound, last = see.LATENCY[3], see.LATENCY[4], see.LATENCY[-1]
    see.latency.labels("p", "several", "").take([bound], bound)
    older, newer = Exemplars(exemplar_file(7, 0)), Exemplars(exemplar_file(8, 1))
    older.note(see.latency, ("p", "several", ""), bound, (0xA, 1), 100.0)
    older.note(see.latency, ("p", "several", ""), last, (0xB, 1), 100.0)
    newer.note(see.latency, ("p", "several", ""), (below + bound) / 2, (0xC, 1), 200.0)
    for one in (newer, older):
        one.tell()

    def now() -> dict[float, str]:
        found = exemplars_in(openmetrics().decode(), "llm_request_latency_seconds_bucket")
        return {float(labels["le"]): exemplar.labels["trace_id"][-1] for labels, exemplar in found if labels["model"] == "several"}

    assert now() == {bound: "c", last: "b"}
    forget_worker(8, 1)
    assert now() == {bound: "a", last: "b"}
    forget_worker(7)
    assert now() == {}


async def test_a_file_that_another_version_left_is_passed_over() -> None:
    path = exemplar_file(9, 0)
    path.write_bytes(b'[["half a')
    try:
        assert openmetrics().endswith(b"# EOF\n")
    finally:
        path.unlink()


@pytest.mark.skipif(PROMETHEUS is None, reason="there is no prometheus here; name one with N4N_TEST_PROMETHEUS")
async def test_a_prometheus_keeps_the_traces_that_a_router_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with receiver() as made, sent_to(made, monkeypatch) as opened:
        async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url), tracing=opened) as house:
            async with house.chat() as answer:
                assert answer.status == 200
            [line] = await house.logged()
            urls = [f"http://127.0.0.1:{house.port}/metrics"]
            with a_prometheus(tmp_path, urls, "--enable-feature=exemplar-storage") as base_url:
                query = {"query": "llm_request_latency_seconds_bucket", "start": str(float(0)), "end": "4000000000"}
                async with asyncio.timeout(WITHIN_S):
                    while not (kept := await asyncio.to_thread(told, base_url, "query_exemplars", **query)):  # noqa: ASYNC110
                        await asyncio.sleep(0.2)
                rate = await asyncio.to_thread(told, base_url, "query", query='llm_requests_total{status="success",model="m"}')
    traces = {exemplar["labels"]["trace_id"] for series in kept for exemplar in series["exemplars"]}
    assert line["trace_id"] in traces
    assert rate["result"]
