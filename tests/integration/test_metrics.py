"""A router's metrics: the conventions' histograms of models beside its own, and where its own time goes."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from prometheus_client.utils import floatToGoString

from data_plane.parts import ONE_IN
from n4n.core import gen_ai
from tests.support.answers import completion, error, partial, sse, usage
from tests.support.metrics import Page, scraped
from tests.support.router import RunningRouter, catalog, running_router
from tests.support.script import Rst, Sleep
from tests.support.upstream import ScriptedUpstream

PARTS = ("auth", "plan", "reserve", "connect", "translate", "write")


async def page(house: RunningRouter) -> Page:
    return await scraped(house.http, house.port)


async def asked(house: RunningRouter, **fields: object) -> int:
    async with house.chat(**fields) as answer:
        await answer.read()
        return int(answer.status)


async def test_one_request_in_seventeen_tells_where_its_time_went() -> None:
    async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url)) as house:
        upstream.script(then=lambda call: sse("a", "b", "c", usage=usage(3, 3)) if call.json.get("stream") else completion("pong"))
        before = await page(house)
        for number in range(2 * ONE_IN):
            assert await asked(house, stream=number % 2 == 0) == 200
        told = (await page(house)).minus(before)
        assert {part: told("n4n_overhead_part_seconds_count", part=part) for part in PARTS} == dict.fromkeys(PARTS, 2.0)
        seconds = {part: told("n4n_overhead_part_seconds_sum", part=part) for part in PARTS}
        assert all(seconds[part] > 0 for part in ("auth", "plan", "translate", "write")), seconds
        assert seconds["reserve"] == 0  # there are no limits
        assert seconds["connect"] == 0  # the first request of all had to connect, these two had not
        assert sum(seconds.values()) < told("llm_request_latency_seconds_sum")


async def test_the_connection_that_a_request_waited_for_is_a_part_of_it() -> None:
    async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url)) as house:
        upstream.script(then=lambda _: completion("pong", headers={"connection": "close"}))
        before = await page(house)
        for _ in range(ONE_IN):
            assert await asked(house) == 200
        told = (await page(house)).minus(before)
        assert told("n4n_overhead_part_seconds_count", part="connect") == 1
        assert told("n4n_overhead_part_seconds_sum", part="connect") > 0


async def test_what_was_refused_or_failed_has_no_parts() -> None:
    async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url)) as house:
        upstream.script(then=lambda _: error(400))
        before = await page(house)
        for number in range(2 * ONE_IN):
            assert await asked(house, model="m" if number % 2 else "unknown") in (400, 404)
        assert (await page(house)).minus(before)("n4n_overhead_part_seconds_count") == 0


async def test_a_request_is_told_as_the_conventions_for_generative_ai_want_it() -> None:
    async with ScriptedUpstream() as one, ScriptedUpstream() as two, running_router(catalog(one.base_url, two.base_url)) as house:
        one.script(sse("a", "b", "c", gap=0.01, usage=usage(11, 7)), completion("pong", usage=usage(5, 1)), error(503))
        two.script(completion("pong", usage=usage(20, 30)))
        before = await page(house)
        assert [await asked(house, stream=True), await asked(house), await asked(house), await asked(house, model="unknown")] == [
            200, 200, 200, 404,
        ]  # fmt: skip
        told = (await page(house)).minus(before)
    served, called = "gen_ai_server_request_duration_seconds_count", "gen_ai_client_operation_duration_seconds_count"
    of_m = {"gen_ai_operation_name": "chat", "gen_ai_request_model": "m"}
    assert told(served, **of_m, gen_ai_provider_name="pe2", error_type="") == 1
    assert told(served, **of_m, gen_ai_provider_name="pe1", error_type="") == 2
    assert told(served, gen_ai_request_model="", gen_ai_provider_name="n4n", error_type="model_not_found") == 1
    of_theirs = {"gen_ai_operation_name": "chat", "gen_ai_request_model": "scripted-model"}
    assert told(called, **of_theirs, gen_ai_provider_name="pe1", error_type="overloaded") == 1
    assert told(called, **of_theirs, gen_ai_provider_name="pe1", error_type="") == 2
    assert told(called, **of_theirs, gen_ai_provider_name="pe2", error_type="") == 1
    assert told("gen_ai_client_token_usage_sum", **of_theirs, gen_ai_token_type="input") == 11 + 5 + 20
    assert told("gen_ai_client_token_usage_sum", **of_theirs, gen_ai_token_type="output") == 7 + 1 + 30
    assert told("llm_tokens_total", direction="output", model="m") == 7 + 1 + 30
    assert told("gen_ai_server_time_to_first_token_seconds_count", **of_m) == 1  # of the stream
    assert told("gen_ai_server_time_per_output_token_seconds_count", **of_m) == 1
    assert told("llm_ttft_seconds_count", model="m") == 3
    assert told("n4n_attempts_total", provider="pe1", outcome="overloaded") == 1
    assert told("n4n_attempts_total", outcome="ok") == 3
    assert told("llm_requests_total", model="m", status="success") == told("llm_request_latency_seconds_count", model="m") == 3


@pytest.mark.parametrize(
    ("name", "bounds"),
    [
        ("gen_ai_server_request_duration_seconds", gen_ai.DURATIONS),
        ("gen_ai_client_operation_duration_seconds", gen_ai.DURATIONS),
        ("gen_ai_server_time_to_first_token_seconds", gen_ai.FIRST_TOKENS),
        ("gen_ai_server_time_per_output_token_seconds", gen_ai.PER_TOKEN),
        ("gen_ai_client_token_usage", gen_ai.TOKENS),
    ],
)
async def test_the_buckets_are_the_conventions_own_and_add_up(name: str, bounds: tuple[float, ...]) -> None:
    async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url)) as house:
        upstream.script(then=lambda _: sse("a", "b", "c", gap=0.002, usage=usage(11, 7)))
        assert await asked(house, stream=True) == 200
        told = await page(house)
    found = {float(dict(labels)["le"]) for one, labels in told.values if one == f"{name}_bucket"}
    by_bound = {bound: told(f"{name}_bucket", le=floatToGoString(bound)) for bound in found}
    assert sorted(by_bound) == [*map(float, bounds), float("inf")]
    counts = [by_bound[bound] for bound in sorted(by_bound)]
    assert counts == sorted(counts)
    assert counts[-1] == told(f"{name}_count") >= 1


async def test_a_stream_that_broke_or_was_left_is_an_error_of_its_kind() -> None:
    async with ScriptedUpstream() as upstream:
        document = catalog(upstream.base_url, model={"stream_guard": {"chunks": 1, "max_hold_ms": 1}})
        async with running_router(document) as house:
            upstream.script((*partial("one", "two"), Sleep(0.05), Rst()), (Sleep(5.0),))
            before = await page(house)
            assert await asked(house, stream=True) == 200
            with suppress(TimeoutError):
                async with asyncio.timeout(0.3):
                    await asked(house)
            async with asyncio.timeout(10):
                while (told := (await page(house)).minus(before))("llm_requests_total", status="cancelled") < 1:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
    served = "gen_ai_server_request_duration_seconds_count"
    assert told(served, error_type="stream_interrupted", gen_ai_provider_name="pe1") == 1
    assert told(served, error_type="cancelled", gen_ai_provider_name="pe1") == 1
    assert told("gen_ai_server_time_to_first_token_seconds_count") == 0  # neither ended well
    assert told("llm_ttft_seconds_count") == 1
