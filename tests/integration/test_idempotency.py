"""One execution for one idempotency key, through real routers over a real Redis, on every skin."""

from __future__ import annotations

import asyncio
import json

import anthropic
import openai
import pytest
import redis

from n4n.runtime.limits.packed import SETTLE
from tests.support import answers
from tests.support.answers import completion, error, held, sse
from tests.support.clients import TURNS, anthropic_client, openai_client
from tests.support.duplicates import BODIES, CHAT, PROMPT, WAYS, ask, document, good, routers
from tests.support.router import running_router
from tests.support.script import Gate, Sleep
from tests.support.store import open_store
from tests.support.upstream import ScriptedUpstream

SAME = ("content-type", "x-n4n-provider", "x-n4n-endpoint", "x-n4n-model", "x-n4n-catalog-version", "x-n4n-usage-cost-usd")


@pytest.mark.parametrize(("path", "stream"), WAYS)
async def test_a_later_duplicate_has_the_answer_again_from_any_router(redis_url: str, path: str, stream: bool) -> None:
    async with ScriptedUpstream() as upstream, routers(upstream, redis_url, redis_url, path=path) as (here, there):
        upstream.script(good(path, "first"), then=good(path, "second"))
        first = await ask(here, path=path, stream=stream)
        again = [await ask(router, path=path, stream=stream, x_request_id="mine") for router in (here, there, there)]
        assert first.status == 200 and not first.is_replay and len(upstream.calls) == 1
        for one in again:
            assert (one.status, one.is_replay, one.body) == (200, True, first.body)
            assert {name: one.headers.get(name) for name in SAME} == {name: first.headers.get(name) for name in SAME}
            assert one.headers["x-request-id"] == "mine" and "x-n4n-overhead-ms" in one.headers
        assert first.headers["x-n4n-endpoint"] == "e1"
        lines = await here.logged(2) + await there.logged(2)
        assert [line.get("idempotent_replay", False) for line in lines] == [False, True, True, True]
        assert [len(line["routing"]["attempts"]) for line in lines] == [1, 0, 0, 0]  # type: ignore[index]
        assert {line["outcome"] for line in lines} == {"success"}


@pytest.mark.parametrize("stream", [False, True])
async def test_duplicates_at_once_are_one_call_and_one_answer(redis_url: str, stream: bool) -> None:
    gate = Gate()
    async with ScriptedUpstream() as upstream, routers(upstream, redis_url, redis_url) as both:
        slow = (*answers.partial("po"), answers.Wait(gate), *sse("ng")[2:]) if stream else held(gate, completion("pong"))
        upstream.script(slow)
        asked = [asyncio.create_task(ask(both[n % 2], stream=stream)) for n in range(20)]
        await upstream.arrived()
        await asyncio.sleep(0.1)
        assert not any(one.done() for one in asked)
        gate.open()
        got = await asyncio.gather(*asked)
        assert len(upstream.calls) == 1
        assert {one.status for one in got} == {200} and len({one.body for one in got}) == 1
        assert sorted(one.is_replay for one in got) == [False] + [True] * 19
        assert b"[DONE]" in got[0].body or not stream


@pytest.mark.parametrize("path", BODIES)
async def test_another_request_under_the_key_is_refused_in_the_words_of_its_skin(redis_url: str, path: str) -> None:
    async with ScriptedUpstream() as upstream, routers(upstream, redis_url, redis_url, path=path) as (here, there):
        upstream.script(then=good(path))
        assert (await ask(here, path=path)).status == 200
        other_body = await ask(there, path=path, prompt="another prompt")
        other_path = await ask(there, path=next(one for one in BODIES if one != path))
        for got in (other_body, other_path):
            assert got.status == 422 and got.headers["x-should-retry"] == "false" and "retry-after" not in got.headers
            assert got.error["code"] == "idempotency_mismatch" and got.error["type"] == "invalid_request_error"
        assert ("request_id" in json.loads(other_body.body)) == (path == "/v1/messages")
        assert len(upstream.calls) == 1
        assert (await ask(there, path=path)).is_replay


async def test_another_request_under_the_key_is_refused_while_the_first_runs_too(redis_url: str) -> None:
    gate = Gate()
    async with ScriptedUpstream() as upstream, routers(upstream, redis_url, redis_url) as both:
        upstream.script(held(gate, completion("pong")))
        first = asyncio.create_task(ask(both[0]))
        await upstream.arrived()
        assert [(await ask(router, prompt="another prompt")).status for router in both] == [422, 422]
        gate.open()
        assert (await first).status == 200


@pytest.mark.parametrize("stream", [False, True])
async def test_a_failure_is_told_once_and_the_next_that_waits_executes(redis_url: str, stream: bool) -> None:
    gate = Gate()
    fails = (*answers.partial("a", "b", "c", "d"), answers.Wait(gate), answers.Rst()) if stream else held(gate, error(500))
    async with ScriptedUpstream() as upstream, routers(upstream, redis_url, redis_url) as both:
        upstream.script(fails)
        first = asyncio.create_task(ask(both[0], stream=stream))
        await upstream.arrived()
        waiting = [asyncio.create_task(ask(both[n % 2], stream=stream)) for n in range(6)]
        await asyncio.sleep(0.1)
        gate.open()
        failed, got = await first, await asyncio.gather(*waiting)
        assert failed.status == (200 if stream else 502) and b'"error"' in failed.body
        assert {one.status for one in got} == {200} and len({one.body for one in got}) == 1 and b'"error"' not in got[0].body
        assert len(upstream.calls) == 2 and sum(one.is_replay for one in got) == 5


async def test_what_a_provider_refused_is_asked_again(redis_url: str) -> None:
    async with ScriptedUpstream() as upstream, routers(upstream, redis_url) as (router,):
        upstream.script(error(400, code="invalid_value", type="invalid_request_error"))
        statuses = [(await ask(router)).status for _ in range(3)]
        assert statuses == [400, 200, 200] and len(upstream.calls) == 2


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_leaves_the_execution_to_who_waits(redis_url: str, stream: bool) -> None:
    async with ScriptedUpstream() as upstream, routers(upstream, redis_url, redis_url) as both:
        upstream.script(answers.hang_after("a", "b", "c", "d") if stream else answers.hang_before_headers())
        first = asyncio.create_task(ask(both[0], stream=stream))
        call = await upstream.arrived()
        waiting = [asyncio.create_task(ask(router, stream=stream)) for router in both]
        await asyncio.sleep(0.1)
        first.cancel()
        await upstream.closed(call)
        got = await asyncio.gather(*waiting)
        assert {one.status for one in got} == {200} and sum(one.is_replay for one in got) == 1
        assert len(upstream.calls) == 2
        outcomes = [line["outcome"] for line in await both[0].logged(2)]
        assert sorted(outcomes) == ["cancelled", "success"]  # type: ignore[type-var]


async def test_who_waits_waits_no_longer_than_its_own_deadline(redis_url: str) -> None:
    gate = Gate()
    async with ScriptedUpstream() as upstream, routers(upstream, redis_url, redis_url) as both:
        upstream.script(held(gate, completion("pong")))
        first = asyncio.create_task(ask(both[0]))
        await upstream.arrived()
        for got in await asyncio.gather(*(ask(router, x_n4n_timeout_ms="200") for router in both)):
            assert got.status == 504 and got.error["code"] == "timeout" and "idempotency-key" in str(got.error["message"])
            assert "x-should-retry" not in got.headers
        gate.open()
        assert (await first).status == 200 and (await ask(both[1])).is_replay


async def test_a_replay_takes_one_request_of_its_caller_and_nothing_else(redis_url: str) -> None:
    gate, limits = Gate(), {"rpm": 4, "tpm": 5000, "concurrency": 1}
    with redis.Redis.from_url(redis_url) as client:
        client.script_load(SETTLE.source.decode())  # else the first settlement comes after what follows it
    async with ScriptedUpstream() as upstream, routers(upstream, redis_url, redis_url, limits=limits) as both:
        upstream.script(completion("pong", usage=answers.usage(1000, 100)), held(gate, completion("pong", usage=answers.usage(9000))))
        first = await ask(both[0])
        other = asyncio.create_task(ask(both[0], "another"))  # has the one place, and will owe tokens
        await upstream.arrived(2)
        got = [await ask(both[1])]
        gate.open()
        assert (await other).status == 200
        got += [await ask(both[n]) for n in range(2)]
        assert (first.status, first.headers["x-ratelimit-remaining-requests"]) == (200, "3")
        assert [(one.status, one.is_replay) for one in got] == [(200, True), (200, True), (429, False)]
        assert [one.headers["x-ratelimit-remaining-requests"] for one in got] == ["1", "0", "0"]
        assert "4 requests per minute" in str(got[2].error["message"]) and got[2].headers["retry-after"]


async def test_who_waits_takes_no_place_among_those_that_run(redis_url: str) -> None:
    async with ScriptedUpstream() as upstream, routers(upstream, redis_url, redis_url, limits={"concurrency": 1}) as both:
        upstream.script((Sleep(0.2), *completion("pong")))
        got = await asyncio.gather(*(ask(both[n % 2]) for n in range(6)))
        assert {one.status for one in got} == {200} and len(upstream.calls) == 1
        assert (await ask(both[0], "another")).status == 200


async def test_a_key_that_may_not_use_the_model_is_not_told_its_answer(redis_url: str) -> None:
    async with ScriptedUpstream() as upstream, open_store(redis_url) as store:
        made = document(upstream.base_url)
        async with running_router(made, store=store) as free, running_router(made, store=store, key={"models": frozenset({"n"})}) as bound:
            assert (await ask(free)).status == 200
            got = await ask(bound)
            assert (got.status, got.error["code"]) == (403, "model_not_allowed")


async def test_what_left_the_catalog_is_replayed_all_the_same(redis_url: str) -> None:
    async with ScriptedUpstream() as upstream, routers(upstream, redis_url) as (router,):
        first = await ask(router)
        router.use({**document(upstream.base_url), "models": {"n": {}}, "endpoints": {}}, 2)
        assert (await ask(router)).body == first.body
        assert (await ask(router, "another")).status == 404


@pytest.mark.parametrize("key", ["", "k" * 256, "a\tb"])
async def test_what_is_no_key_is_refused(redis_url: str, key: str) -> None:
    async with ScriptedUpstream() as upstream, routers(upstream, redis_url) as (router,):
        got = await ask(router, key)
        assert (got.status, got.error["param"]) == (400, "idempotency-key")
        async with router.chat(headers={"idempotency-key": "k"}, x=1) as _:  # type: ignore[attr-defined]
            pass
        assert len(upstream.calls) == 1


async def test_an_answer_that_is_too_large_is_given_and_not_kept(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("data_plane.idempotency.MOST_BYTES", 500)
    async with ScriptedUpstream() as upstream, routers(upstream, redis_url, redis_url) as both:
        upstream.script(then=lambda call: sse(*["long "] * 200) if call.json.get("stream") else completion("long " * 200))
        for stream in (False, True):
            got = [await ask(router, f"{stream}", stream=stream) for router in both]
            assert [one.status for one in got] == [200, 200] and not any(one.is_replay for one in got)
            assert all(one.body.count(b"long ") == 200 for one in got)
        assert len(upstream.calls) == 4
        assert both[0].once == {"executed": 2, "too_large": 2}


async def test_signs_of_life_are_no_part_of_a_stream_that_is_replayed(redis_url: str) -> None:
    async with ScriptedUpstream() as upstream, routers(upstream, redis_url) as (router,):
        router.router.keep_alive_s = 0.05
        upstream.script((*answers.partial("a", "b", "c", "d"), Sleep(0.3), *sse("e")[2:]))
        first, again = await ask(router, stream=True), await ask(router, stream=True)
        assert first.body.count(b": n4n\n\n") >= 2
        assert again.is_replay and again.body == first.body.replace(b": n4n\n\n", b"")


async def test_who_sends_no_key_is_served_as_ever_and_redis_is_not_asked(redis_url: str) -> None:
    async with ScriptedUpstream() as upstream, routers(upstream, redis_url) as (router,):
        got = [await ask(router, None) for _ in range(2)]
        assert [one.is_replay for one in got] == [False, False] and len(upstream.calls) == 2
        with redis.Redis.from_url(redis_url) as client:
            assert list(client.scan_iter("n4n:{i:*")) == []


@pytest.mark.parametrize("stream", [False, True])
async def test_redis_never_holds_a_prompt_an_answer_or_a_key(redis_url: str, stream: bool) -> None:
    answer = "an answer like no other"
    async with ScriptedUpstream() as upstream, routers(upstream, redis_url) as (router,):
        upstream.script(sse(*answer.split(" ")) if stream else completion(answer))
        assert (await ask(router, "order-of-a-customer", stream=stream)).status == 200
        with redis.Redis.from_url(redis_url) as client:
            names = list(client.scan_iter("*"))
            held_there = b"".join([name + (client.dump(name) or b"") for name in names])
        assert any(name.startswith(b"n4n:{i:") for name in names)
        for told in (PROMPT, answer, "answer", "order-of-a-customer", "acme", "x-n4n-endpoint", "scripted-model"):
            assert told.encode() not in held_there


async def test_the_sdk_of_openai_asks_twice_and_is_answered_once(redis_url: str) -> None:
    header = {"extra_headers": {"idempotency-key": "sdk"}}
    async with ScriptedUpstream() as upstream, routers(upstream, redis_url, redis_url) as (here, there):
        upstream.script(then=good(CHAT, "hello"))
        told = []
        for router in (here, there):
            async with openai_client(router.base_url) as client:
                whole = await client.chat.completions.create(model="m", messages=TURNS, **header)  # type: ignore[call-overload]
                stream = await client.chat.completions.create(
                    model="m", messages=TURNS, stream=True, extra_headers={"idempotency-key": "sdk-stream"}
                )
                pieces = [chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices]
                told.append((whole.model_dump(), "".join(pieces)))
                with pytest.raises(openai.UnprocessableEntityError, match="idempotency-key"):
                    await client.chat.completions.create(model="m", messages=TURNS, temperature=0.5, **header)  # type: ignore[call-overload]
        assert told[0] == told[1] and told[0][1] == "hello" and len(upstream.calls) == 2


async def test_the_sdk_of_anthropic_asks_twice_and_is_answered_once(redis_url: str) -> None:
    header = {"extra_headers": {"idempotency-key": "sdk"}}
    async with ScriptedUpstream() as upstream, routers(upstream, redis_url, redis_url) as (here, there):
        upstream.script(then=good(CHAT, "hello"))
        told = []
        for router in (here, there):
            async with anthropic_client(router.base_url) as client:
                message = await client.messages.create(model="m", max_tokens=50, messages=TURNS, **header)  # type: ignore[arg-type]
                told.append(message.model_dump())
                with pytest.raises(anthropic.UnprocessableEntityError, match="idempotency-key"):
                    await client.messages.create(model="m", max_tokens=51, messages=TURNS, **header)  # type: ignore[arg-type]
        assert told[0] == told[1] and len(upstream.calls) == 1
