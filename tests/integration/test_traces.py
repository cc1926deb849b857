"""Traces of a router at a receiver of OpenTelemetry: what a request was, what was tried, and nothing that is nobody's business."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

import aiohttp
import pytest

from n4n.runtime.tracing import Kind, Span, Tracing, new_span_id, new_trace_id, tracing_of
from tests.support.answers import error, partial
from tests.support.otlp import Receiver, receiver
from tests.support.router import KEY, PROVIDER_SECRET, SECRET, catalog, running_router
from tests.support.script import Rst, Sleep
from tests.support.upstream import ScriptedUpstream, reply

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture(autouse=True)
def quick_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK reads the process's own variables."""
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")


@contextmanager
def sent_to(made: Receiver, monkeypatch: pytest.MonkeyPatch, **environ: str) -> Iterator[Tracing]:
    for name, value in (made.environ() | environ).items():
        monkeypatch.setenv(name, value)
    opened = tracing_of(made.environ() | environ, "data-plane", "r1")
    assert opened is not None
    try:
        yield opened
    finally:
        opened.close()


async def test_a_request_is_one_server_span_with_a_client_span_for_its_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver() as made, sent_to(made, monkeypatch) as opened:
        async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url), tracing=opened) as router:
            async with router.chat(headers={"traceparent": PARENT, "tracestate": "vendor=1"}) as answer:
                assert answer.status == 200
            [line] = await router.logged()
            [[server, client]] = await made.traces()
            [call] = upstream.calls
    assert (server.kind, server.name, client.kind, client.name) == ("SERVER", "chat m", "CLIENT", "chat scripted-model")
    assert server.trace_id == client.trace_id == line["trace_id"] == "4bf92f3577b34da6a3ce929d0e0e4736"
    assert (server.parent_id, client.parent_id, server.state) == ("00f067aa0ba902b7", server.span_id, "vendor=1")
    assert call.header("traceparent") == f"00-{client.trace_id}-{client.span_id}-01"
    assert call.header("tracestate") == "vendor=1"
    assert server.start_ns <= client.start_ns <= client.end_ns <= server.end_ns
    assert server.resource["service.name"] == "n4n-data-plane"
    told = server.attributes
    assert told["http.route"] == "/v1/chat/completions"
    assert (told["n4n.request_id"], told["n4n.endpoint"], told["n4n.account"]) == (line["request_id"], "e1", "ae1")
    assert (told["gen_ai.usage.input_tokens"], told["gen_ai.usage.output_tokens"]) == (11, 7)
    assert (told["gen_ai.response.model"], told["gen_ai.response.finish_reasons"]) == ("scripted-model", ["stop"])
    assert (told["gen_ai.operation.name"], client.attributes["n4n.attempt_id"]) == ("chat", line["routing"]["attempts"][0]["attempt_id"])
    assert not server.failed
    assert not client.failed


async def test_what_fell_back_is_told_attempt_by_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver() as made, sent_to(made, monkeypatch, OTEL_TRACES_SAMPLER="always_off") as opened:
        async with ScriptedUpstream() as one, ScriptedUpstream() as two, ScriptedUpstream() as three:
            one.script(error(503))
            two.script(error(429))
            document = catalog(one.base_url, two.base_url, three.base_url)
            async with running_router(document, tracing=opened) as router:
                async with router.chat() as answer:
                    assert answer.status == 200
                [[server, first, second, third]] = await made.traces()
                assert [call.header("traceparent") for call in (*one.calls, *two.calls, *three.calls)] == [
                    f"00-{span.trace_id}-{span.span_id}-00" for span in (first, second, third)
                ]
    assert server.attributes["n4n.fallback_attempts"] == 2
    assert [span.attributes["n4n.endpoint"] for span in (first, second, third)] == ["e1", "e2", "e3"]
    assert [span.attributes["n4n.outcome"] for span in (first, second, third)] == ["overloaded", "rate_limited", "ok"]
    assert [span.failed for span in (server, first, second, third)] == [False, True, True, False]


async def test_a_dull_request_that_no_sampler_chose_leaves_no_span(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver() as made, sent_to(made, monkeypatch, OTEL_TRACES_SAMPLER="always_off") as opened:
        async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url), tracing=opened) as router:
            async with router.chat() as answer:
                assert answer.status == 200
            async with router.chat(headers={"x-n4n-routing": "region=eu"}) as answer:  # refused: that one is kept
                assert answer.status == 400
            [[server]] = await made.traces()
    assert (server.attributes["http.response.status_code"], server.attributes["error.type"]) == (400, "no_eligible_endpoint")


async def test_a_refused_directive_tells_who_was_out_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver() as made, sent_to(made, monkeypatch) as opened:
        async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url), tracing=opened) as router:
            async with router.chat(headers={"x-n4n-routing": "region=eu"}) as answer:
                assert answer.status == 400
            [[server]] = await made.traces()
    assert not server.failed  # the request was wrong, the gateway was not
    assert server.attributes["error.type"] == "no_eligible_endpoint"


async def test_a_stream_that_breaks_is_a_failed_span_with_its_first_token(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver() as made, sent_to(made, monkeypatch) as opened:
        async with ScriptedUpstream() as upstream:
            upstream.script((*partial("one", "two", "three"), Sleep(0.05), Rst()))
            document = catalog(upstream.base_url, model={"stream_guard": {"chunks": 1, "max_hold_ms": 1}})
            async with running_router(document, tracing=opened) as router:
                async with router.chat(stream=True) as answer:
                    text = await answer.text()
                [[server, client]] = await made.traces()
    assert '"finish_reason":"error"' in text.replace(": ", ":")
    assert (server.failed, client.failed) == (True, True)
    assert isinstance(server.attributes["gen_ai.response.time_to_first_chunk"], float)
    assert server.attributes["gen_ai.request.stream"] is True


async def test_a_client_that_leaves_is_told_as_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver() as made, sent_to(made, monkeypatch) as opened:
        async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url), tracing=opened) as router:
            upstream.script((Sleep(5.0),))
            with suppress(TimeoutError):
                async with asyncio.timeout(0.3), router.chat() as answer:
                    await answer.read()
            [[server, client]] = await made.traces()
    assert (server.attributes["n4n.outcome"], client.attributes["n4n.outcome"]) == ("cancelled", "cancelled")
    assert server.failed


async def test_no_secret_no_prompt_and_no_url_is_in_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    canary = "canary-prompt-7f3a"
    with receiver() as made, sent_to(made, monkeypatch) as opened:
        async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url), tracing=opened) as router:
            upstream.script(reply(f"echo {canary}"), error(500, message=canary), error(400, message=canary))
            for body in ({}, {}, {"stream": True}, {"model": canary}):
                said: Mapping[str, object] = {"messages": [{"role": "user", "content": canary}], **body}
                async with router.chat(said, headers={"x-n4n-routing": "prefer=e1"}) as answer:
                    await answer.read()
            async with aiohttp.ClientSession() as other, other.get(f"{router.base_url}/{canary}", headers=router.headers()) as answer:
                assert answer.status == 404
            await made.traces(5)
            port = str(upstream.port).encode()
    for secret in (canary, PROVIDER_SECRET, KEY, SECRET):
        assert secret.encode() not in made.raw
    assert b"127.0.0.1:" + port not in made.raw


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
async def test_both_protocols_of_the_exporter_deliver(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver() as made:
        environ = made.environ(protocol)
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        opened = tracing_of(environ, "control-plane", "c1")
        assert opened is not None
        opened.emit([Span("work", Kind.SERVER, new_trace_id(), new_span_id(), 0, 1_000, 2_000, {"n4n.x": 1}, links=((7, 9),))])
        await asyncio.to_thread(opened.close)
        [[span]] = await made.traces()
    assert (span.name, span.attributes, span.links) == ("work", {"n4n.x": 1}, [(f"{7:032x}", f"{9:016x}")])


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"},
        {"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"},
    ],
)
def test_without_a_receiver_there_are_no_traces(environ: dict[str, str]) -> None:
    assert tracing_of(environ, "data-plane", "r1") is None


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
async def test_a_receiver_that_is_away_holds_a_stop_for_no_more_than_a_moment(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_EXPORTER_OTLP_PROTOCOL": protocol}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    opened = tracing_of(environ, "control-plane", "c1")
    assert opened is not None
    opened.emit([Span("work", Kind.SERVER, new_trace_id(), new_span_id(), 0, 1_000, 2_000, {})])
    begun = time.monotonic()
    await asyncio.to_thread(opened.close)
    assert time.monotonic() - begun < 5.0  # 7 s where the SDK has its way
