"""Content in traces: of the tenant that asked for it, and of nobody else."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from data_plane.endings import Endings
from n4n.core.access import AccessSnapshot, Key
from n4n.core.content import CUT, MOST
from n4n.core.skins.table import SKINS
from n4n.runtime.tracing import Kind, Span, new_span_id, new_trace_id
from tests.integration.test_cardinality import body_of
from tests.integration.test_traces import sent_to
from tests.support.answers import completion, error, held, partial, sse, tool_call
from tests.support.otlp import Receiver, Seen, receiver
from tests.support.router import KEY, PROVIDER_SECRET, SECRET, RunningRouter, catalog, running_router
from tests.support.script import Gate, Rst, Sleep
from tests.support.upstream import ScriptedUpstream

INPUT, OUTPUT = "gen_ai.input.messages", "gen_ai.output.messages"
QUIET = "quietquietqu"  # public id of the tenant that never asked


def two_tenants(house: RunningRouter) -> dict[str, str]:
    """The key's own tenant asks for content, another one does not; the other's header."""
    digest = hashlib.sha256(SECRET.encode()).digest()
    keys = {"testtesttest": Key("testtesttest", "acme", digest, capture_content=True), QUIET: Key(QUIET, "quiet", digest)}
    house.state.access = AccessSnapshot(2, "a2", keys)
    return {"authorization": f"Bearer sk-n4n-{QUIET}-{SECRET}"}


async def sent(house: RunningRouter, path: str, body: dict[str, object], **headers: str) -> int:
    async with house.http.post(f"http://127.0.0.1:{house.port}{path}", json=body, headers={**house.headers(), **headers}) as answer:
        await answer.read()
        return int(answer.status)


def said(span: Seen, name: str) -> Any:
    told = span.attributes.get(name)
    return None if told is None else json.loads(str(told))


def first_text(span: Seen, name: str) -> str:
    return str(said(span, name)[-1]["parts"][0]["content"])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", [path for path in SKINS if path != "/v1/embeddings"])
async def test_only_the_tenant_that_asked_has_content_in_its_traces(path: str, stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = "canary-of-acme", "canary-of-quiet"
    with receiver() as made, sent_to(made, monkeypatch) as opened:
        async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url), tracing=opened) as house:
            quiet = two_tenants(house)
            upstream.script(
                then=lambda call: (
                    sse("the answer ", *("to " + str(call.json["messages"][-1]["content"])).split())
                    if call.json.get("stream")
                    else completion(f"the answer to {call.json['messages'][-1]['content']}")
                )
            )
            for canary, headers in ((ours, {}), (theirs, quiet)):
                text = json.dumps({**body_of(path, "m"), "stream": stream}).replace("ping", canary)
                assert await sent(house, path, json.loads(text), **headers) == 200
            one, other = [trace[0] for trace in await made.traces(2)]
            logged = json.dumps(await house.logged(2))
    span = one if one.attributes["n4n.tenant"] == "acme" else other
    assert first_text(span, INPUT) == ours
    assert "the answer" in first_text(span, OUTPUT)
    assert ours in first_text(span, OUTPUT).replace(" ", "") + ours * (not stream)
    assert said(span, OUTPUT)[0]["finish_reason"]
    assert theirs.encode() not in made.raw
    assert [span.name for span in made.spans if span.kind != "SERVER" and (INPUT in span.attributes or OUTPUT in span.attributes)] == []
    for secret in (KEY, SECRET, PROVIDER_SECRET, QUIET + "-"):
        assert secret.encode() not in made.raw
    assert ours not in logged


async def traces_of(made: Receiver, count: int) -> list[Seen]:
    return [trace[0] for trace in await made.traces(count)]


async def test_tools_and_reasoning_are_told_as_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver() as made, sent_to(made, monkeypatch) as opened:
        async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url), tracing=opened) as house:
            two_tenants(house)
            upstream.script(completion(None, tool_calls=[tool_call("weather", '{"at": "Rome"}')]))
            async with house.chat(
                messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": f"is {KEY} mine?"}]
            ) as answer:
                assert answer.status == 200
            [span] = await traces_of(made, 1)
    assert said(span, INPUT) == [
        {"role": "system", "parts": [{"type": "text", "content": "Be brief."}]},
        {"role": "user", "parts": [{"type": "text", "content": "is [key] mine?"}]},
    ]
    assert said(span, OUTPUT) == [
        {
            "role": "assistant",
            "parts": [{"type": "tool_call", "name": "weather", "arguments": '{"at": "Rome"}'}],
            "finish_reason": "tool_calls",
        }
    ]


async def test_content_is_cut_with_a_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver() as made, sent_to(made, monkeypatch) as opened:
        async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url), tracing=opened) as house:
            two_tenants(house)
            upstream.script(completion("y" * 100_000), sse(*["z" * 1000] * 100))
            for stream in (False, True):
                async with house.chat(stream=stream, messages=[{"role": "user", "content": "x" * 200_000}]) as answer:
                    assert answer.status == 200
                    await answer.read()
            spans = await traces_of(made, 2)
    for span in spans:
        for name in (INPUT, OUTPUT):
            assert MOST // 3 < len(str(span.attributes[name]).encode()) <= MOST
            assert first_text(span, name).endswith(CUT)


async def test_a_trace_that_is_kept_for_its_failure_tells_what_was_asked_and_of_a_stream_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver() as made, sent_to(made, monkeypatch, OTEL_TRACES_SAMPLER="always_off") as opened:
        async with ScriptedUpstream() as upstream:
            document = catalog(upstream.base_url, model={"stream_guard": {"chunks": 1, "max_hold_ms": 1}})
            async with running_router(document, tracing=opened) as house:
                quiet = two_tenants(house)
                upstream.script(completion("dull"), (*partial("one", "two"), Sleep(0.05), Rst()), error(400))
                for headers in ({}, {}, quiet):
                    async with house.chat(headers=headers, stream=True) as answer:
                        await answer.read()
                broken, refused = await traces_of(made, 2)
    assert broken.attributes["n4n.outcome"] == "error"
    assert first_text(broken, INPUT) == "ping"
    assert said(broken, OUTPUT) is None
    assert said(refused, INPUT) is None


async def test_of_a_stream_that_fell_back_the_answer_is_what_the_client_saw(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver() as made, sent_to(made, monkeypatch) as opened:
        async with ScriptedUpstream() as one, ScriptedUpstream() as two:
            one.script((*partial("never seen"), Rst()))
            two.script(sse("Hel", "lo"))
            async with running_router(catalog(one.base_url, two.base_url), tracing=opened) as house:
                two_tenants(house)
                async with house.chat(stream=True) as answer:
                    assert answer.status == 200
                    await answer.read()
                [span] = await traces_of(made, 1)
    assert span.attributes["n4n.fallback_attempts"] == 1
    assert first_text(span, OUTPUT) == "Hello"
    assert b"never seen" not in made.raw


async def test_many_spans_with_content_leave_in_messages_that_a_receiver_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver() as made, sent_to(made, monkeypatch) as opened:
        for number in range(200):
            told = {INPUT: "x" * MOST, OUTPUT: "y" * MOST, "number": number}
            opened.emit([Span("chat m", Kind.SERVER, new_trace_id(), new_span_id(), 0, 1, 2, told)])
        await made.traces(200)
    assert len(made.raw) > 200 * 2 * MOST


async def test_where_no_traces_are_wanted_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url)) as house:
        two_tenants(house)
        upstream.script(sse("a", "b"))
        seen = []
        close = house.web._meter.close
        monkeypatch.setattr(house.web._meter, "close", lambda record: (seen.append(record.content), close(record)))
        async with house.chat(stream=True) as answer:
            await answer.read()
        assert seen == [None]


@pytest.mark.parametrize("where", ["in its body", "in its answer"])
async def test_content_that_is_not_wanted_any_more_is_not_told_of_what_still_runs(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate()
    with receiver() as made, sent_to(made, monkeypatch) as opened:
        async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url), tracing=opened) as house:
            upstream.script(held(gate, sse("an answer", "that nobody tells")))
            house.use_key(capture_content=True)
            endings = Endings(house.router, house.web)
            half = asyncio.Event()
            body = json.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": "a canary"}]}).encode()

            async def pieces() -> AsyncIterator[bytes]:
                yield body[:20]
                if where == "in its body":
                    await half.wait()
                yield body[20:]

            asking = asyncio.create_task(sent_slowly(house, pieces()))
            async with asyncio.timeout(10):
                while not (house.web.running if where == "in its body" else upstream.calls):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            before = house.state.access
            house.use_key(capture_content=False)
            endings.changed(before, house.state.access)
            half.set()
            gate.open()
            assert await asking == 200
            [[server, *_]] = await made.traces()
    assert server.attributes["n4n.outcome"] == "success"
    assert INPUT not in server.attributes
    assert OUTPUT not in server.attributes
    assert b"canary" not in made.raw


async def sent_slowly(house: RunningRouter, body: AsyncIterator[bytes]) -> int:
    headers = {**house.headers(), "content-type": "application/json"}
    async with house.http.post(f"{house.base_url}/chat/completions", data=body, headers=headers) as answer:
        await answer.read()
        return int(answer.status)
