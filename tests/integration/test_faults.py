"""Every fault of an upstream, before and after release, in a stream and not: the right next step, one call per attempt."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from n4n.runtime.settings import Settings
from tests.support import answers
from tests.support.answers import completion, error, error_event, partial, rate_limited, sse
from tests.support.router import KEY, PROVIDER_SECRET, catalog, running_router
from tests.support.script import Hang, Raw
from tests.support.upstream import ScriptedUpstream

QUICK = {"timeouts": {"connect_ms": 300, "first_token_ms": 250, "idle_ms": 250, "total_ms": 4000}, "stream_guard": {"chunks": 3}}
CORRUPT = Raw(b'data: {"choices":[{"index":0,"del\n\n')
BEFORE = {
    "429": (rate_limited(retry_after=1), "rate_limited"),
    "429 that is billing": (error(429, code="insufficient_quota"), "quota_exhausted"),
    "500": (error(500), "server_error"),
    "503": (error(503), "overloaded"),
    "401": (error(401, code="invalid_api_key"), "auth"),
    "404": (error(404, code="model_not_found"), "model_not_found"),
    "502 page": (answers.html(502), "server_error"),
    "200 page": (answers.html(200), "server_error"),
    "200 empty": (answers.nothing(), "server_error"),
    "200 garbled": (answers.garbled(), "server_error"),
    "reset": (answers.reset(), "server_error"),
    "hung up": (answers.hung_up(), "server_error"),
    "hang": (answers.hang_before_headers(), "timeout"),
}
BEFORE_RELEASE = {
    "silent end": (answers.silent_end("a"), "server_error"),
    "reset": (answers.reset_after("a"), "server_error"),
    "cut": (answers.cut_after("a"), "server_error"),
    "hang": (answers.hang_after("a"), "timeout"),
    "hang after headers": (answers.hang_after_headers(), "timeout"),
    "error event": (answers.fails_after("a", code="rate_limit_exceeded"), "rate_limited"),
    "error after the role": ((*partial(), error_event("insufficient_quota")), "quota_exhausted"),
    "corrupt": ((*partial("a"), CORRUPT), "server_error"),
    "done without a finish": ((*partial("a"), answers.DONE), "server_error"),
}
LONG = ("one ", "two ", "three ", "four ")
AFTER_RELEASE = {
    "silent end": (answers.silent_end(*LONG), "server_error"),
    "reset": (answers.reset_after(*LONG), "server_error"),
    "cut": (answers.cut_after(*LONG), "server_error"),
    "hang": (answers.hang_after(*LONG), "timeout"),
    "error event": (answers.fails_after(*LONG, code="rate_limit_exceeded"), "rate_limited"),
    "corrupt": ((*partial(*LONG), CORRUPT), "server_error"),
}


def events(text: str) -> list[dict]:
    """The JSON of every data event but [DONE]."""
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ") and line != "data: [DONE]"]


def content(chunks: list[dict]) -> str:
    """All text."""
    return "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])


def told_nothing_secret(text: str, *upstreams: ScriptedUpstream) -> None:
    """No provider address and no key."""
    assert PROVIDER_SECRET not in text
    assert all(str(upstream.port) not in text for upstream in upstreams)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("fault", BEFORE)
async def test_a_fault_before_any_output_is_invisible(fault, stream):
    answer_of_e1, failure_class = BEFORE[fault]
    async with ScriptedUpstream() as e1, ScriptedUpstream() as e2:
        e1.script(answer_of_e1, then=error(500))
        async with running_router(catalog(e1.base_url, e2.base_url, model=QUICK)) as house:
            async with house.chat(stream=stream) as answer:
                text = await answer.text()
            (line,) = await house.logged()
    assert answer.status == 200
    assert (content(events(text)) if stream else json.loads(text)["choices"][0]["message"]["content"]) == "pong"
    assert (answer.headers["x-n4n-endpoint"], answer.headers["x-n4n-fallback-attempts"]) == ("e2", "1")
    assert [(one["endpoint"], one["outcome"]) for one in line["routing"]["attempts"]] == [("e1", failure_class), ("e2", "ok")]
    assert line["routing"]["fallback_attempts"] == 1
    assert (len(e1.calls), len(e2.calls)) == (1, 1)
    told_nothing_secret(text + json.dumps(line), e1, e2)


@pytest.mark.parametrize("fault", BEFORE_RELEASE)
async def test_a_stream_that_fails_before_release_is_replaced_silently(fault):
    answer_of_e1, failure_class = BEFORE_RELEASE[fault]
    model = {**QUICK, "stream_guard": {"chunks": 3, "max_hold_ms": 5000}}
    async with ScriptedUpstream() as e1, ScriptedUpstream() as e2:
        e1.script(answer_of_e1, then=error(500))
        async with running_router(catalog(e1.base_url, e2.base_url, model=model)) as house:
            async with house.chat(stream=True) as answer:
                text = await answer.text()
            (line,) = await house.logged()
    assert content(events(text)) == "pong"
    assert text.endswith("data: [DONE]\n\n")
    assert answer.headers["x-n4n-endpoint"] == "e2"
    assert [(one["endpoint"], one["outcome"]) for one in line["routing"]["attempts"]] == [("e1", failure_class), ("e2", "ok")]
    assert (len(e1.calls), len(e2.calls)) == (1, 1)


@pytest.mark.parametrize("fault", AFTER_RELEASE)
async def test_a_stream_that_fails_after_release_says_so_and_closes(fault):
    answer_of_e1, failure_class = AFTER_RELEASE[fault]
    async with ScriptedUpstream() as e1, ScriptedUpstream() as e2:
        e1.script(answer_of_e1, then=error(500))
        async with running_router(catalog(e1.base_url, e2.base_url, model=QUICK)) as house:
            async with house.chat(stream=True) as answer:
                text = await answer.text()
            (line,) = await house.logged()
    *chunks, last = events(text)
    assert content(chunks) == "".join(LONG)
    assert last["choices"] == [{"index": 0, "delta": {}, "finish_reason": "error"}]
    assert last["error"]["code"] == "stream_interrupted"
    assert last["error"]["n4n"]["attempts"][0]["class"] == failure_class
    assert "[DONE]" not in text
    assert not any(choice["finish_reason"] == "stop" for chunk in chunks for choice in chunk["choices"])
    assert (len(e1.calls), len(e2.calls)) == (1, 0)
    assert (line["outcome"], line["error"]) == ("error", "stream_interrupted")
    told_nothing_secret(text + json.dumps(line), e1, e2)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("fault", "status", "code"),
    [
        (error(400, code="context_length_exceeded", message="maximum context length is 10 tokens"), 400, "context_length_exceeded"),
        (error(400, type="invalid_request_error", message="temperature must be below 2"), 400, "invalid_request"),
        (error(400, code="content_policy_violation"), 400, "content_filter"),
    ],
)
async def test_what_fails_alike_everywhere_ends_the_request_at_once(fault, status, code, stream):
    async with ScriptedUpstream() as e1, ScriptedUpstream() as e2:
        e1.script(fault)
        async with running_router(catalog(e1.base_url, e2.base_url)) as house, house.chat(stream=stream) as answer:
            told = (await answer.json())["error"]
    assert (answer.status, told["code"]) == (status, code)
    assert (len(e1.calls), len(e2.calls)) == (1, 0)


@pytest.mark.parametrize("stream", [False, True])
async def test_when_all_fail_the_most_telling_failure_is_told(stream):
    async with ScriptedUpstream() as e1, ScriptedUpstream() as e2, ScriptedUpstream() as e3:
        e1.script(then=error(500)), e2.script(then=error(401)), e3.script(then=rate_limited(retry_after=30))
        async with running_router(catalog(e1.base_url, e2.base_url, e3.base_url)) as house, house.chat(stream=stream) as answer:
            told = (await answer.json())["error"]
    assert (answer.status, told["code"]) == (429, "rate_limited")
    assert int(answer.headers["retry-after"]) >= 1
    assert [one["class"] for one in told["n4n"]["attempts"]] == ["server_error", "auth", "rate_limited"]
    assert [len(one.calls) for one in (e1, e2, e3)] == [1, 1, 1]


async def test_nobody_is_called_inside_a_cooldown_that_the_provider_ordered():
    async with ScriptedUpstream() as e1:
        e1.script(then=rate_limited(retry_after=30))
        async with running_router(catalog(e1.base_url)) as house:
            async with house.chat() as first:
                assert first.status == 429
            calls = len(e1.calls)
            async with house.chat() as second:
                told = (await second.json())["error"]
    assert (second.status, told["code"]) == (429, "rate_limited")
    assert 25 <= int(second.headers["retry-after"]) <= 34
    assert len(e1.calls) == calls == 1


async def test_the_callers_deadline_binds_every_attempt():
    async with ScriptedUpstream() as e1, ScriptedUpstream() as e2:
        e1.script(then=answers.hang_before_headers()), e2.script(then=answers.hang_before_headers())
        async with running_router(catalog(e1.base_url, e2.base_url)) as house:
            began = time.monotonic()
            async with house.chat(headers={"x-n4n-timeout-ms": "300"}) as answer:
                told = (await answer.json())["error"]
    assert (answer.status, told["code"]) == (504, "timeout")
    assert time.monotonic() - began < 2
    assert len(e1.calls) + len(e2.calls) == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_goes_ends_the_upstream_call_and_no_other_is_made(stream):
    async with ScriptedUpstream() as e1, ScriptedUpstream() as e2:
        e1.script(then=answers.hang_before_headers())
        async with running_router(catalog(e1.base_url, e2.base_url)) as house:
            request = asyncio.ensure_future(house.chat(stream=stream).__aenter__())
            call = await e1.arrived()
            await asyncio.sleep(0.3)
            left = time.monotonic()
            request.cancel()
            closed = await e1.closed(call)
            (line,) = await house.logged()
    assert closed - left < 0.5
    assert (len(e1.calls), len(e2.calls)) == (1, 0)
    assert (line["status"], line["outcome"]) == (499, "cancelled")
    assert line["overhead_ms"] < line["latency_ms"] - 250  # the wait was for the provider


async def test_a_client_that_goes_in_mid_stream_ends_the_upstream_call():
    async with ScriptedUpstream() as e1:
        e1.script(answers.hang_after(*LONG))
        async with running_router(catalog(e1.base_url)) as house:
            async with house.chat(stream=True) as answer:
                await answer.content.readany()
                call, left = e1.calls[0], time.monotonic()
                answer.close()
            closed = await e1.closed(call)
            (line,) = await house.logged()
    assert closed - left < 0.5
    assert line["outcome"] == "cancelled"


async def test_an_answer_shorter_than_the_guard_arrives_whole():
    async with ScriptedUpstream() as e1, running_router(catalog(e1.base_url, model={"stream_guard": {"chunks": 6}})) as house:
        e1.script(sse("only"))
        async with house.chat(stream=True) as answer:
            assert content(events(await answer.text())) == "only"


async def test_held_output_is_released_by_time_while_the_provider_pauses():
    model = {"stream_guard": {"chunks": 3, "max_hold_ms": 50}}
    async with ScriptedUpstream() as e1, running_router(catalog(e1.base_url, model=model)) as house:
        e1.script(answers.hang_after("one"))
        began = time.monotonic()
        async with house.chat(stream=True) as answer:
            first = await answer.content.readany()
            assert b"one" in first
            assert time.monotonic() - began < 2


async def test_a_stream_that_finished_does_not_wait_for_a_connection_kept_open():
    async with ScriptedUpstream() as e1, running_router(catalog(e1.base_url)) as house:
        e1.script((*sse("all", done=False), Hang()))
        began = time.monotonic()
        async with house.chat(stream=True) as answer:
            text = await answer.text()
    assert text.endswith("data: [DONE]\n\n")
    assert time.monotonic() - began < 2.5


@pytest.mark.parametrize("fallback", ["off", "on"])
async def test_fallback_off_stays_with_the_first_endpoint(fallback):
    async with ScriptedUpstream() as e1, ScriptedUpstream() as e2:
        e1.script(then=error(401))
        async with running_router(catalog(e1.base_url, e2.base_url)) as house:
            async with house.chat(headers={"x-n4n-routing": f"fallback={fallback}"}) as answer:
                assert answer.status == (502 if fallback == "off" else 200)
    assert len(e2.calls) == (fallback == "on")


async def test_directives_bind_the_fallback_too():
    async with ScriptedUpstream() as e1, ScriptedUpstream() as e2:
        e1.script(then=error(500))
        async with running_router(catalog(e1.base_url, e2.base_url)) as house:
            async with house.chat(headers={"x-n4n-routing": "only=provider:pe1,max_attempts=2"}) as answer:
                assert answer.status == 502
    assert (len(e1.calls), len(e2.calls)) == (2, 0)


async def test_a_stream_answered_by_plain_json_still_streams():
    async with ScriptedUpstream() as e1, running_router(catalog(e1.base_url)) as house:
        e1.script(completion("whole"))
        async with house.chat(stream=True) as answer:
            text = await answer.text()
    assert content(events(text)) == "whole"
    assert text.endswith("data: [DONE]\n\n")


async def test_a_plain_request_answered_by_a_stream_is_put_together():
    async with ScriptedUpstream() as e1, running_router(catalog(e1.base_url)) as house:
        e1.script(sse("to", "gether"))
        async with house.chat() as answer:
            assert (await answer.json())["choices"][0]["message"]["content"] == "together"


async def test_a_client_that_goes_leaves_no_error_in_the_log(caplog):
    async with ScriptedUpstream() as e1:
        e1.script(then=sse(*["word "] * 400, gap=0.002))
        async with running_router(catalog(e1.base_url)) as house:
            for _ in range(5):
                async with house.chat(stream=True) as answer:
                    await answer.content.readany()
                    answer.close()
            lines = await house.logged(5)
    assert {line["outcome"] for line in lines} == {"cancelled"}
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


async def test_a_client_that_reads_nothing_is_closed_after_a_while():
    settings = Settings(slow_reader_sec=1)
    async with ScriptedUpstream() as e1:
        e1.script(then=sse(*["x" * 60_000] * 400))
        async with running_router(catalog(e1.base_url), settings=settings) as house:
            _reader, writer = await asyncio.open_connection("127.0.0.1", house.port, limit=1024)
            body = b'{"model":"m","stream":true,"messages":[{"role":"user","content":"x"}]}'
            head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\ncontent-length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            call = await e1.arrived()
            await e1.closed(call)
            (line,) = await house.logged()
            writer.close()
    assert (line["status"], line["outcome"]) == (499, "cancelled")


async def test_an_error_tells_every_candidate_attempt_and_elimination():
    async with ScriptedUpstream() as e1, ScriptedUpstream() as e2, ScriptedUpstream() as e3:
        e1.script(then=error(500)), e2.script(then=answers.reset_after(*LONG))
        async with running_router(catalog(e1.base_url, e2.base_url, e3.base_url, model=QUICK)) as house:
            routing = {"x-n4n-routing": "exclude=endpoint:e3"}
            async with house.chat(stream=True, headers=routing) as answer:
                broken = events(await answer.text())[-1]["error"]["n4n"]
            e2.script(then=error(500))
            async with house.chat(headers=routing) as answer:
                exhausted = (await answer.json())["error"]["n4n"]
    for told in (broken, exhausted):
        assert told["candidates"] == 3
        assert told["eliminated"] == {"exclude=endpoint:e3": 1}
    assert [(one["endpoint"], one["class"]) for one in broken["attempts"]] == [("e1", "server_error"), ("e2", "server_error")]
    assert {one["endpoint"] for one in exhausted["attempts"]} == {"e1", "e2"}


@pytest.mark.parametrize("told", [{"prompt_tokens": 10**20, "completion_tokens": 1}, {"prompt_tokens": 11, "completion_tokens": 7}, None])
async def test_what_a_broken_stream_used_is_judged_counted_and_priced(told):
    begun = partial(*LONG)
    chunk = answers.delta({"content": "x"})
    last = answers.Chunk({**chunk.json, "usage": told}) if told else chunk
    async with ScriptedUpstream() as e1:
        e1.script((*begun, last, answers.Rst()))
        async with running_router(catalog(e1.base_url, model=QUICK)) as house:
            async with house.chat(stream=True) as answer:
                await answer.text()
            (line,) = await house.logged()
    believed = told is not None and told["prompt_tokens"] == 11
    assert line["outcome"] == "error"
    assert line["usage"]["estimated"] is not believed
    assert line["usage"]["prompt_tokens"] < 1000
    assert line["usage"]["cost_usd"] > 0


async def test_the_overhead_in_the_header_is_ours_and_not_the_providers():
    async with ScriptedUpstream() as e1, running_router(catalog(e1.base_url)) as house:
        for stream in (False, True):
            e1.script((answers.Sleep(0.3), *(sse("a") if stream else completion("a"))))
            async with house.chat(stream=stream) as answer:
                await answer.text()
            assert float(answer.headers["x-n4n-overhead-ms"]) < 150


async def test_a_whole_answer_that_its_client_did_not_take_is_no_success():
    async with ScriptedUpstream() as e1:
        e1.script(completion("x" * 30_000_000))
        async with running_router(catalog(e1.base_url), settings=Settings(slow_reader_sec=1)) as house:
            _reader, writer = await asyncio.open_connection("127.0.0.1", house.port, limit=1024)
            body = b'{"model":"m","messages":[{"role":"user","content":"x"}]}'
            head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\ncontent-length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            (line,) = await house.logged()
            writer.close()
    assert (line["status"], line["outcome"]) == (499, "cancelled")
