"""Faults that the catalog injects, over real sockets: as if the provider had done so, nobody is called, and everything says so."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from typing import Any

import pytest

from n4n.core.breaker import Breaker, phase
from tests.integration.test_metrics import page
from tests.integration.test_traces import sent_to
from tests.integration.test_usage_rows import metered
from tests.support.answers import completion, error, held, sse
from tests.support.otlp import receiver
from tests.support.router import KEY, RunningRouter, catalog, running_router
from tests.support.script import Gate, Raw, Sleep, Status
from tests.support.upstream import ScriptedUpstream

TURNS = [{"role": "user", "content": "ping"}]
SKINS: Mapping[str, Mapping[str, object]] = {
    "chat/completions": {"messages": TURNS},
    "completions": {"prompt": "ping"},
    "messages": {"messages": TURNS, "max_tokens": 9},
    "responses": {"input": "ping"},
    "embeddings": {"input": "ping"},
}
VECTOR = {
    "object": "list",
    "data": [{"object": "embedding", "index": 0, "embedding": [1.0]}],
    "usage": {"prompt_tokens": 1, "total_tokens": 1},
}
ASKED = [(path, stream) for path in SKINS for stream in (False, True) if not (stream and path == "embeddings")]
ABORTS = {"abort_status": 503}
ALONE = {"retry": {"max_retries": 0}, "stream_guard": {"chunks": 1}}


def rehearsing(fault: Mapping[str, object] | None, *upstreams: str, **fields: Any) -> dict[str, Any]:
    """A catalog whose first endpoint has this fault."""
    document: dict[str, Any] = catalog(*upstreams, **fields)
    if fault is not None:
        document["endpoints"]["e1"]["fault"] = fault
    return document


async def ask(house: RunningRouter, path: str = "chat/completions", /, *, stream: bool = False, **headers: str) -> tuple[int, str]:
    """Status and body."""
    body = {"model": "m", **SKINS[path], **({"stream": True} if stream else {})}
    async with house.http.post(f"{house.base_url}/{path}", json=body, headers=house.headers(**headers)) as answer:
        return answer.status, await answer.text()


async def opened(house: RunningRouter, *, stream: bool) -> asyncio.StreamWriter:
    """A request on a socket of its own, whose answer nobody awaits."""
    _, writer = await asyncio.open_connection("127.0.0.1", house.port)
    body = json.dumps({"model": "m", "stream": stream, "messages": TURNS}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    return writer


def called(line: Mapping[str, Any]) -> list[tuple[str, str, str | None]]:
    """Endpoint, outcome and what was injected, of every attempt in a log line."""
    return [(one["endpoint"], one["outcome"], one.get("injected")) for one in line["routing"]["attempts"]]


@pytest.mark.parametrize(("path", "stream"), ASKED)
async def test_an_aborted_attempt_calls_nobody_and_the_next_endpoint_answers_on_every_skin(path: str, stream: bool) -> None:
    kind = {"supports": ["embeddings"]} if path == "embeddings" else None
    async with ScriptedUpstream() as e1, ScriptedUpstream() as e2:
        e2.script(then=(Status(200), Raw(json.dumps(VECTOR).encode())) if kind else sse("pong") if stream else completion("pong"))
        async with running_router(rehearsing(ABORTS, e1.base_url, e2.base_url, endpoint=kind)) as house:
            status, text = await ask(house, path, stream=stream)
            (line,) = await house.logged()
        assert (len(e1.calls), len(e2.calls)) == (0, 1)
    assert status == 200 and "injected" not in text
    assert called(line) == [("e1", "overloaded", "abort 503"), ("e2", "ok", None)]
    assert line["routing"]["attempts"][0]["message"] == "injected by the catalog, for a rehearsal: status 503"


@pytest.mark.parametrize(("path", "stream"), ASKED)
async def test_a_delayed_attempt_is_answered_later_on_every_skin_and_the_delay_is_not_n4ns_own(path: str, stream: bool) -> None:
    kind = {"supports": ["embeddings"]} if path == "embeddings" else None
    async with ScriptedUpstream() as e1:
        e1.script(then=(Status(200), Raw(json.dumps(VECTOR).encode())) if kind else sse("pong") if stream else completion("pong"))
        async with running_router(rehearsing({"delay_ms": 400}, e1.base_url, endpoint=kind)) as house:
            status, _ = await ask(house, path, stream=stream)
            (line,) = await house.logged()
        assert len(e1.calls) == 1
    assert status == 200 and called(line) == [("e1", "ok", "delay 400 ms")]
    assert line["ttft_ms"] >= 395 and line["routing"]["attempts"][0]["ms"] >= 395
    assert line["overhead_ms"] < line["latency_ms"] - 350


@pytest.mark.parametrize(
    ("status", "stream"), [(one, False) for one in (400, 401, 402, 404, 408, 429, 500, 503, 504, 529)] + [(429, True), (500, True)]
)
async def test_client_cooldown_breaker_and_health_fare_as_if_the_provider_had_answered_so(status: int, stream: bool) -> None:
    seen = []
    for injects in (False, True):
        async with ScriptedUpstream() as e1:
            e1.script(then=(Status(status), Raw(b"")))
            fault = {"abort_status": status} if injects else None
            model = {**ALONE, "circuit_breaker": {"failure_threshold": 2, "window_sec": 60}}
            async with running_router(rehearsing(fault, e1.base_url, model=model)) as house:
                answers = []
                for _ in range(3):
                    async with house.chat(stream=stream, headers={"x-n4n-timeout-ms": "900"}) as answer:
                        told = (await answer.json())["error"]
                        answers.append((answer.status, told["code"], told["type"], answer.headers.get("retry-after")))
                lines = await house.logged(3)
                health = house.router.health
                view = health.views.get("e1")
                cooling = {name: cooldown.failure_class for name, cooldown in health.cooling_accounts.items()}
                standing = (
                    None
                    if view is None
                    else (phase(view.breaker, time.monotonic()), view.cooldown_class, view.overloaded_until > 0, round(view.score, 2))
                )
                seen.append((answers, [[one[:2] for one in called(line)] for line in lines], cooling, standing))
            assert injects is (e1.calls == [])
    assert seen[0] == seen[1]
    assert status != 500 or seen[1][3][0] is Breaker.OPEN


@pytest.mark.parametrize("stream", [False, True])
async def test_the_callers_deadline_binds_over_the_delay(stream: bool) -> None:
    async with ScriptedUpstream() as e1, running_router(rehearsing({"delay_ms": 60_000}, e1.base_url)) as house:
        began = time.monotonic()
        status, text = await ask(house, stream=stream, x_n4n_timeout_ms="300")
        took = time.monotonic() - began
        (line,) = await house.logged()
        assert e1.calls == []
    assert (status, json.loads(text)["error"]["code"]) == (504, "timeout") and 0.29 < took < 10
    assert called(line) == [("e1", "timeout", "delay 60000 ms")]


@pytest.mark.parametrize("stream", [False, True])
async def test_the_clock_of_the_first_token_runs_while_an_attempt_is_delayed(stream: bool) -> None:
    model = {"timeouts": {"first_token_ms": 600}}
    async with ScriptedUpstream() as e1, ScriptedUpstream() as e2:
        e1.script(then=(Sleep(0.5), *(sse("late") if stream else completion("late"))))  # soon enough by itself
        e2.script(then=sse("pong") if stream else completion("pong"))
        async with running_router(rehearsing({"delay_ms": 300}, e1.base_url, e2.base_url, model=model)) as house:
            status, text = await ask(house, stream=stream)
            (line,) = await house.logged()
        assert (len(e1.calls), len(e2.calls)) == (1, 1)
    assert status == 200 and "pong" in text and "late" not in text
    assert called(line) == [("e1", "timeout", "delay 300 ms"), ("e2", "ok", None)]


async def test_a_delay_beyond_the_first_tokens_bound_times_out_there_and_calls_nobody() -> None:
    model = {"timeouts": {"first_token_ms": 250}}
    async with ScriptedUpstream() as e1, ScriptedUpstream() as e2:
        async with running_router(rehearsing({"delay_ms": 60_000, **ABORTS}, e1.base_url, e2.base_url, model=model)) as house:
            status, _ = await ask(house)
            (line,) = await house.logged()
        assert (status, len(e1.calls), len(e2.calls)) == (200, 0, 1)
    assert called(line)[0] == ("e1", "timeout", "delay 60000 ms, abort 503") and line["latency_ms"] < 10_000


@pytest.mark.parametrize("abruptly", [True, False])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_during_the_delay_is_gone_at_once_and_pays_nothing(tmp_path, stream: bool, abruptly: bool) -> None:
    async with ScriptedUpstream() as e1, metered(tmp_path, e1.base_url) as (house, kept):
        house.use(rehearsing({"delay_ms": 60_000}, e1.base_url), version=2)
        writer = await opened(house, stream=stream)
        async with asyncio.timeout(5):
            while not house.router.busy.get("ae1"):  # noqa: ASYNC110  # it waits
                await asyncio.sleep(0.005)
        left = time.monotonic()
        writer.transport.abort() if abruptly else writer.close()
        (line,) = await house.logged()
        took = time.monotonic() - left
        (row,) = await kept.rows(1)
        assert e1.calls == [] and house.router.busy["ae1"] == 0
    assert took < 2 and line["outcome"] == "cancelled" and line["usage"] is None
    assert called(line) == [("e1", "cancelled", "delay 60000 ms")]
    assert (row.state, row.status, row.cost_usd, row.prompt_tokens) == ("cancelled", None, "0", 0)


async def test_the_row_of_an_aborted_attempt_failed_at_no_cost_and_without_a_providers_status(tmp_path) -> None:
    async with ScriptedUpstream() as e1, ScriptedUpstream() as e2, metered(tmp_path, e1.base_url, e2.base_url) as (house, kept):
        house.use(rehearsing({"abort_status": 429}, e1.base_url, e2.base_url), version=2)
        assert (await ask(house))[0] == 200
        first, last = await kept.rows(2)
    assert (first.endpoint, first.state, first.error_class, first.status) == ("e1", "failed", "rate_limited", None)
    assert (first.cost_usd, first.prompt_tokens, first.completion_tokens, first.catalog_version) == ("0", 0, 0, 2)
    assert (last.endpoint, last.state, last.status) == ("e2", "ok", 200)


async def test_a_push_that_takes_the_fault_out_holds_for_the_next_attempt_even_of_a_request_under_way() -> None:
    gate = Gate()
    async with ScriptedUpstream() as e1, ScriptedUpstream() as e2:
        e1.script(then=held(gate, error(503)))
        document = rehearsing(None, e1.base_url, e2.base_url)
        document["endpoints"]["e2"]["fault"] = ABORTS
        async with running_router(document) as house:
            asked = asyncio.create_task(ask(house))
            await e1.arrived()
            house.use(catalog(e1.base_url, e2.base_url), version=2)
            gate.open()
            status, _ = await asked
            (line,) = await house.logged()
    assert status == 200 and called(line) == [("e1", "overloaded", None), ("e2", "ok", None)]


async def test_a_push_that_brings_a_fault_or_takes_it_out_holds_for_the_next_request() -> None:
    async with ScriptedUpstream() as e1, ScriptedUpstream() as e2:
        plain = catalog(e1.base_url, e2.base_url)
        async with running_router(plain) as house:
            for version, fault in enumerate((None, {"delay_ms": 10}, None), 2):
                house.use(rehearsing(fault, e1.base_url, e2.base_url), version)
                await ask(house)
            told = [called(line)[0] for line in await house.logged(3)]
    assert told == [("e1", "ok", None), ("e1", "ok", "delay 10 ms"), ("e1", "ok", None)]


async def test_the_routers_own_draw_decides_and_where_there_is_no_fault_nothing_more_is_drawn() -> None:
    counts = []
    for fault in (None, {"abort_percent": 30, "delay_percent": 20, "delay_ms": 1}):
        drawn = 0

        def draw() -> float:
            nonlocal drawn
            drawn += 1
            return 0.25

        async with ScriptedUpstream() as e1, ScriptedUpstream() as e2, running_router(rehearsing(fault, e1.base_url)) as house:
            house.router.draw = draw
            house.use(rehearsing(fault, e1.base_url, e2.base_url), version=2)
            await ask(house)
            (line,) = await house.logged()
            counts.append((drawn, called(line)))
    (plain, told), (struck, rehearsed) = counts
    assert told == [("e1", "ok", None)] and rehearsed == [("e1", "overloaded", "abort 503"), ("e2", "ok", None)]
    assert struck == plain + 2 + 1, "two for the fault, and one for the next step"


async def test_the_trace_and_a_counter_say_which_attempt_was_struck(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    with receiver() as made, sent_to(made, monkeypatch) as tracing:
        async with ScriptedUpstream() as e1, ScriptedUpstream() as e2:
            async with running_router(rehearsing(ABORTS, e1.base_url, e2.base_url), tracing=tracing) as house:
                before = await page(house)
                assert (await ask(house))[0] == 200
                told = (await page(house)).minus(before)
                [[_, first, second]] = await made.traces()
    assert (first.attributes["n4n.injected_fault"], first.attributes["n4n.outcome"]) == ("abort 503", "overloaded")
    assert "http.response.status_code" not in first.attributes, "nobody answered"
    assert "n4n.injected_fault" not in second.attributes
    assert told("n4n_injected_faults_total", endpoint="e1") == 1 and told("n4n_injected_faults_total") == 1
    assert told("n4n_attempts_total", provider="pe1", outcome="overloaded") == 1


async def test_explain_says_where_a_fault_is_injected() -> None:
    async with ScriptedUpstream() as e1, ScriptedUpstream() as e2:
        async with running_router(rehearsing({"abort_percent": 20}, e1.base_url, e2.base_url)) as house:
            async with house.http.post(f"{house.base_url}/route:explain", json={"model": "m"}, headers=house.headers()) as answer:
                told = await answer.json()
        assert e1.calls == []
    assert {one["endpoint"]: one["injected_fault"] for one in told["candidates"]} == {
        "e1": "20 % of attempts are answered with status 503",
        "e2": None,
    }
