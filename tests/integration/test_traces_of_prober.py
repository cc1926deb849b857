"""Traces of a real prober at a receiver: each probe with its call of the provider, and links to what made it due."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import pytest

from n4n.core.health.signals import Signal, Source
from n4n.runtime.tracing import Tracing, tracing_of
from tests.integration.test_prober import answering, document
from tests.support.answers import completion, error, hang_before_headers, sse
from tests.support.otlp import Receiver, Seen, receiver
from tests.support.prober import running_prober
from tests.support.upstream import ScriptedUpstream

SECRET = "sk-canary-of-the-prober"
PROMPT = "canary-prompt-of-a-probe"


@contextmanager
def sent_to(made: Receiver, monkeypatch: pytest.MonkeyPatch, **environ: str) -> Iterator[Tracing]:
    for name, value in (made.environ() | environ).items():
        monkeypatch.setenv(name, value)
    opened = tracing_of(made.environ() | environ, "prober", "p1")
    assert opened is not None
    try:
        yield opened
    finally:
        opened.close()


async def seen(came: Receiver, wanted: Callable[[Seen], bool], count: int = 1, within_s: float = 10.0) -> list[Seen]:
    """The spans of a kind, once there are so many, oldest first."""
    async with asyncio.timeout(within_s):
        while sum(map(wanted, came.spans)) < count:  # noqa: ASYNC110  # threads fill it
            await asyncio.sleep(0.02)
    return sorted(filter(wanted, came.spans), key=lambda span: span.start_ns)


def probe_of(endpoint: str) -> Callable[[Seen], bool]:
    return lambda span: span.name == "n4n probe" and span.attributes["n4n.endpoint"] == endpoint


def calls_in(came: Receiver, task: Seen) -> list[Seen]:
    return [span for span in came.spans if span.parent_id == task.span_id]


async def test_a_probe_is_a_trace_with_a_client_span_and_links_to_the_turn_that_granted_it(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with receiver() as came, sent_to(came, monkeypatch) as opened:
        async with ScriptedUpstream() as upstream:
            upstream.script(then=sse("pong"))
            catalog = document(upstream, probe={"interval_sec": 0.3, "timeout_ms": 2000, "prompt": PROMPT})
            secrets = {"acme-main": SECRET}
            async with running_prober(catalog, redis_url, secrets=secrets, tracing=opened):
                first, again = (await seen(came, probe_of("e-well"), 2))[:2]
        call, *_ = calls_in(came, first)
        [turn] = [span for span in came.spans if (span.trace_id, span.span_id) == first.links[0]]
    assert (first.attributes["n4n.probe.cause"], again.attributes["n4n.probe.cause"]) == ("first", "schedule")
    assert first.attributes == {
        "n4n.probe.cause": "first",
        "n4n.endpoint": "e-well",
        "n4n.provider": "acme",
        "n4n.model": "well",
        "n4n.account": "acme-main",
        "n4n.outcome": "ok",
    }
    assert (turn.name, turn.attributes["n4n.probers"], turn.attributes["n4n.alone"]) == ("n4n turn", 1, False)
    assert turn.trace_id != first.trace_id
    assert (call.kind, call.name, call.parent_id, call.trace_id) == ("CLIENT", "chat well", first.span_id, first.trace_id)
    assert {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "acme",
        "gen_ai.request.model": "well",
        "gen_ai.request.stream": True,
        "http.response.status_code": 200,
        "n4n.outcome": "ok",
    }.items() <= call.attributes.items()
    assert isinstance(call.attributes["gen_ai.response.time_to_first_chunk"], float)
    assert {"gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens", "n4n.cost_usd", "n4n.attempt_id"} <= call.attributes.keys()
    told = {answered.header("traceparent") for answered in upstream.calls}
    assert f"00-{call.trace_id}-{call.span_id}-01" in told
    assert first.resource["service.name"] == "n4n-prober"
    for canary in (SECRET, PROMPT, f"127.0.0.1:{upstream.port}"):
        assert canary.encode() not in came.raw


async def test_what_no_sampler_chose_is_kept_where_a_probe_failed_and_its_recheck_links_to_it(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with receiver() as came, sent_to(came, monkeypatch, OTEL_TRACES_SAMPLER="always_off") as opened:
        async with ScriptedUpstream() as upstream:
            upstream.script(then=answering(error(503, message=PROMPT)))
            async with running_prober(document(upstream), redis_url, tracing=opened) as running:
                first, second = (await seen(came, probe_of("e-ill"), 2))[:2]
                await running.until(lambda: any(row.state == "ok" for row in running.rows()), "a probe that went well")
    assert {span.attributes["n4n.endpoint"] for span in came.spans if span.name == "n4n probe"} == {"e-ill"}
    assert (first.failed, first.attributes["n4n.outcome"], first.attributes["error.type"]) == (True, "ill", "ill")
    assert (second.attributes["n4n.probe.cause"], second.links[1]) == ("recheck", (first.trace_id, first.span_id))
    [call] = calls_in(came, first)
    assert (call.attributes["n4n.outcome"], call.attributes["http.response.status_code"], call.failed) == ("overloaded", 503, True)
    turns = {(span.trace_id, span.span_id) for span in came.spans if span.name == "n4n turn"}
    assert {first.links[0], second.links[0]} <= turns  # kept with them
    assert any(answered.header("traceparent").endswith("-00") for answered in upstream.calls)
    assert PROMPT.encode() not in came.raw


async def test_a_probe_that_live_traffic_no_longer_spares_says_so(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def good(span: Seen) -> bool:
        return span.attributes["n4n.probe.cause"] == "silence"

    with receiver() as came, sent_to(came, monkeypatch) as opened:
        async with ScriptedUpstream() as upstream:
            upstream.script(then=completion("pong"))
            catalog = document(upstream, probe={"interval_sec": 0.5, "timeout_ms": 2000})
            async with running_prober(catalog, redis_url, tracing=opened) as running:
                await seen(came, probe_of("e-well"))
                spared = running.count("spared")
                async with asyncio.timeout(10):
                    while running.count("spared") == spared:
                        running.health.tell([Signal("e-well", Source.LIVE)])
                        await running.health.flush()  # successes are told every two seconds, which is more than this interval
                        await asyncio.sleep(0.02)
                [silent, *_] = await seen(came, lambda span: probe_of("e-well")(span) and good(span))
    assert not silent.failed


async def test_checks_and_a_balance_are_tasks_of_their_own(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    probe = {"interval_sec": 1, "timeout_ms": 2000, "checks_interval_sec": 1}
    with receiver() as came, sent_to(came, monkeypatch) as opened:
        async with ScriptedUpstream() as upstream:
            upstream.script(then=completion("pong"))
            catalog = document(upstream, probe=probe)
            accounts: Mapping[str, object] = catalog["accounts"]  # type: ignore[assignment]
            account: dict[str, object] = accounts["acme-main"]  # type: ignore[assignment]
            account["balance"] = {"below_usd": 5, "api": "deepseek"}
            monkeypatch.setattr("n4n.core.probes.work.EVERY_S", 1)
            async with running_prober(catalog, redis_url, secrets={"acme-main": SECRET}, tracing=opened):
                [checks, *_] = await seen(came, lambda span: span.name == "n4n checks")
                [balance, *_] = await seen(came, lambda span: span.name == "n4n balance")
    assert checks.attributes["n4n.check.system_prompt"] is False  # nobody obeyed
    assert {span.name.split()[0] for span in calls_in(came, checks)} == {"chat"}
    [call] = calls_in(came, balance)
    assert (call.name, call.kind, call.attributes["n4n.account"]) == ("balance", "CLIENT", "acme-main")
    assert (balance.attributes["n4n.account"], call.attributes["n4n.outcome"]) == ("acme-main", "server_error")
    assert SECRET.encode() not in came.raw


async def test_what_is_under_way_at_a_stop_is_told_as_cancelled(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver() as came, sent_to(came, monkeypatch) as opened:
        async with ScriptedUpstream() as upstream:
            upstream.script(then=hang_before_headers())
            async with running_prober(
                document(upstream, probe={"interval_sec": 1, "timeout_ms": 5000}), redis_url, tracing=opened
            ) as running:
                await running.until(lambda: len(upstream.calls) > 0, "a probe on its way")
        [stopped, *_] = await seen(came, lambda span: span.name == "n4n probe")
    assert stopped.attributes["error.type"] == "cancelled"


async def test_without_a_receiver_nothing_is_made_and_no_provider_is_told(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    monkeypatch.setattr("n4n.runtime.spans.Work.__init__", lambda self, *given, **more: made.append(self))
    async with ScriptedUpstream() as upstream:
        upstream.script(then=completion("pong"))
        async with running_prober(document(upstream), redis_url) as running:
            await running.until(lambda: len(upstream.calls) > 3, "some probes")
        assert made == []
        assert {answered.header("traceparent") for answered in upstream.calls} == {None}
