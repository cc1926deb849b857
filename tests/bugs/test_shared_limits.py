"""Limits that were each process' own, that charged a request where tokens were meant, and that never let go of a request that failed."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from n4n.core.limits.subjects import Draw, account_subject, key_subject
from n4n.runtime.limits import Limits, Reservation
from tests.support import answers
from tests.support.answers import completion, error, usage
from tests.support.limited import asked, at_rest, document, redis_for_limits, routers_of, wait_for
from tests.support.router import RunningRouter
from tests.support.script import Answer
from tests.support.store import open_store
from tests.support.store_proxy import store_proxy
from tests.support.upstream import ScriptedUpstream
from tests.support.valkey import ValkeyServer

SKINS = {
    "chat/completions": {"messages": [{"role": "user", "content": "ping"}], "max_tokens": 500},
    "messages": {"messages": [{"role": "user", "content": "ping"}], "max_tokens": 500},
    "responses": {"input": "ping", "max_output_tokens": 500},
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ValkeyServer]:
    """A Redis of this test alone."""
    with redis_for_limits(tmp_path) as running:
        yield running


async def sent(router: RunningRouter, path: str, stream: bool) -> tuple[int, float]:
    """The status on one skin, and the tokens that the answer says are left."""
    body = {"model": "m", "stream": stream, **SKINS[path]}
    async with router.http.post(f"{router.base_url}/{path}", json=body, headers=router.headers()) as answer:
        await answer.read()
        return answer.status, float(answer.headers["x-ratelimit-remaining-tokens"])


@pytest.mark.parametrize("limits", [{"tpm": 10_000}, {"rpm": 10}], ids=["tokens", "requests"])
@pytest.mark.parametrize("routers", [2, 3])
async def test_a_limit_is_one_for_all_routers_together(limits: dict[str, int], routers: int, server: ValkeyServer) -> None:
    """LiteLLM #40291 (case 15): the check read this process' memory, so the real limit was the limit times the replicas."""
    async with ScriptedUpstream() as upstream, routers_of(server, document(upstream.base_url), routers, **limits) as all_of_them:
        upstream.script(then=completion(usage=usage(600, 400)))
        begun = asyncio.get_running_loop().time()
        prompt = [{"role": "user", "content": "word " * 480}]
        statuses = [(await asked(all_of_them[n % routers], messages=prompt, max_tokens=400))[0] for n in range(30)]
        drained = 10 * (asyncio.get_running_loop().time() - begun) / 60
        assert statuses.count(200) * 1.0 <= 10.5 + drained and statuses.count(200) >= 9
        assert len(upstream.calls) == statuses.count(200)


WAYS: dict[str, Answer] = {
    "hangs": answers.hang_before_headers(),
    "hangs in the body": answers.hang_after_headers(),
    "502": error(502),
    "reset in the body": answers.reset_after("a"),
    "not an answer": answers.garbled(),
    "hung up": answers.hung_up(),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("way", WAYS)
async def test_a_request_that_fails_frees_its_place(way: str, stream: bool, server: ValkeyServer) -> None:
    """LiteLLM #20256 (case 16): after timeouts and 502s the count of running requests never fell, until Redis was flushed."""
    quick = {"timeouts": {"first_token_ms": 100, "idle_ms": 100}, "retry": {"max_retries": 0}}
    limits = {"concurrency": 10, "streams": 10, "rpm": 100_000}
    async with ScriptedUpstream() as upstream:
        made = document(upstream.base_url, limits=limits, model=quick)
        async with routers_of(server, made, 2, **limits) as routers:
            for _ in range(2):
                upstream.script(*[WAYS[way]] * 10)
                ended = await asyncio.gather(*(asked(routers[n % 2], stream=stream) for n in range(10)))
                assert 429 not in [status for status, _, _ in ended]
                for router in routers:
                    router.router.health.keep_only(type(router.state.catalog)(0, "", {}, {}, {}, {}, {}, {}))  # forgets breakers
            await wait_for(lambda: at_rest(server))
            upstream.script(then=completion())
            assert (await asked(routers[0]))[0] == 200


async def test_clients_that_leave_free_their_places(server: ValkeyServer) -> None:
    """The same kind: whoever ends the request, its place is free."""
    async with ScriptedUpstream() as upstream, routers_of(server, document(upstream.base_url), concurrency=5) as (router,):
        upstream.script(then=answers.hang_before_headers())
        gone = [asyncio.ensure_future(asked(router, stream=n % 2 == 0)) for n in range(5)]
        await upstream.arrived(5)
        [one.cancel() for one in gone]
        await asyncio.gather(*gone, return_exceptions=True)
        await wait_for(lambda: at_rest(server))
        upstream.script(then=completion())
        assert (await asked(router))[0] == 200


async def test_reservations_that_nobody_waits_for_any_more_are_nobody_else_s(server: ValkeyServer) -> None:
    """redis-py #2665 (case 28): after a cancelled call the next one on that connection had its answer."""
    key, account = key_subject("acme", "k", {"rpm": 10**6, "concurrency": 10**5}), account_subject("main", "m", {"tpm": 10**9})
    assert key is not None and account is not None
    async with store_proxy(server.port) as proxy, open_store(proxy.url, deadline_s=5.0) as store:
        limits = Limits(store, router="r1", clock=time.monotonic)
        parties = [(limits.party(key), Draw()), (limits.party(account), Draw(10.0))]
        proxy.delay_s = 0.1

        async def one(number: int) -> None:
            for held in await limits.reserve(b"%12d" % number, parties):
                assert isinstance(held, Reservation) and held.id == b"%12d" % number
                limits.give_back(held)

        calls = [asyncio.ensure_future(one(number)) for number in range(400)]
        for number, call in enumerate(calls):
            if number % 2:
                await asyncio.sleep(random.uniform(0.0, 0.001))
                call.cancel()
        ended = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(one) for one in ended} <= {type(None), asyncio.CancelledError}
        assert limits.fallbacks == 0, "no answer was another's"
        limits.close()
        assert limits.held == 0
        await wait_for(lambda: at_rest(server))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", SKINS)
async def test_tokens_are_charged_not_requests_and_streamed_or_not_alike(path: str, stream: bool, server: ValkeyServer) -> None:
    """Envoy AI Gateway #2248 (case 17): without a stream, a limit on tokens was charged one for each request."""
    async with ScriptedUpstream() as upstream, routers_of(server, document(upstream.base_url), tpm=1000) as (router,):
        billed = usage(300, 100)
        upstream.script(then=answers.sse("pong", usage=billed) if stream else completion(usage=billed))
        first, _ = await sent(router, path, stream)
        await wait_for(lambda: at_rest(server))
        second, left = await sent(router, path, stream)
        await wait_for(lambda: at_rest(server))
        later = [await sent(router, path, stream) for _ in range(2)]
        assert (first, second) == (200, 200) and later[-1][0] == 429
        assert 0 <= left <= 600  # the first cost 400, whatever it was estimated at
        if later[0][0] == 200:
            assert later[-1][1] <= 200
        text = json.dumps([status for status, _ in later])
        assert len(upstream.calls) == 2 + text.count("200")
