"""Limits of callers and accounts through real routers over a real Redis."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from n4n.core.breaker import Breaker
from tests.support import answers
from tests.support.answers import completion, error, rate_limited, usage
from tests.support.limited import asked, at_rest, document, redis_for_limits, routers_of, wait_for
from tests.support.router import catalog, running_router
from tests.support.script import Sleep
from tests.support.store import Changes, open_store
from tests.support.upstream import ScriptedUpstream
from tests.support.valkey import ValkeyServer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ValkeyServer]:
    """A Redis of this test alone."""
    with redis_for_limits(tmp_path) as running:
        yield running


async def test_a_key_has_its_requests_and_is_told_how_many_are_left(server: ValkeyServer) -> None:
    async with ScriptedUpstream() as upstream, routers_of(server, document(upstream.base_url), rpm=60, burst=2) as (router,):
        first, _, third = [await asked(router) for _ in range(3)]
        assert (first[0], first[1]["x-ratelimit-limit-requests"], first[1]["x-ratelimit-remaining-requests"]) == (200, "60", "1")
        assert third[0] == 429 and third[1]["retry-after"] == "1"
        assert third[1]["x-ratelimit-remaining-requests"] == "0"
        assert '"rate_limited"' in third[2] and "60 requests per minute" in third[2]
        assert len(upstream.calls) == 2


async def test_every_answer_tells_what_the_caller_has_left(server: ValkeyServer) -> None:
    async with ScriptedUpstream() as upstream, routers_of(server, document(upstream.base_url), rpm=60, tpm=100_000) as (router,):
        fresh = await asked(router, model="nobody's")  # nothing was asked of Redis yet, nor is it for this
        assert (fresh[0], fresh[1]["x-ratelimit-remaining-requests"]) == (404, "60")
        upstream.script(completion(), answers.sse("pong"), error(400))
        told = [await asked(router, stream=stream) for stream in (False, True, False)]
        assert [status for status, _, _ in told] == [200, 200, 400]
        assert [headers["x-ratelimit-remaining-requests"] for _, headers, _ in told] == ["59", "58", "57"]
        assert all(int(headers["x-ratelimit-remaining-tokens"]) < 100_000 for _, headers, _ in told)
        async with router.http.get(f"{router.base_url}/models", headers=router.headers()) as listed:
            assert listed.status == 200 and listed.headers["x-ratelimit-remaining-requests"] in ("57", "58")
        async with router.http.post(f"{router.base_url}/messages", json={}, headers=router.headers()) as refused:
            assert refused.status == 400 and "x-ratelimit-reset-tokens" in refused.headers


async def test_the_plan_weighs_by_what_is_left_of_each_account(server: ValkeyServer) -> None:
    async with ScriptedUpstream() as one, ScriptedUpstream() as two:
        made = document(one.base_url, two.base_url, limits={"rpm": 10}, model={"strategy": "balanced"})
        async with routers_of(server, made) as (router,):
            for _ in range(8):
                assert (await asked(router, headers={"x-n4n-routing": "require=e1"}))[0] == 200
            await wait_for(lambda: router.router.world().left)
            weights = {place: weight for (place, _), weight in router.router.world().left.items()}
            assert 0.1 < weights["ae1"] < 0.4 and "ae2" not in weights
            quotas = router.router.quotas
            assert quotas is not None and 0.6 < quotas.utilization()[("pe1", "ae1", "requests")] <= 0.8


async def test_all_keys_of_a_tenant_share_its_limits_and_the_refusal_says_so(server: ValkeyServer) -> None:
    async with ScriptedUpstream() as upstream, routers_of(server, document(upstream.base_url), 2, rpm=60) as routers:
        for number, router in enumerate(routers):
            router.use_key(public_id=f"key{number:09}", tenant_limits={"rpm": 6, "burst": 4})
        answered = [await asked(routers[n % 2]) for n in range(6)]
        assert [status for status, _, _ in answered] == [200] * 4 + [429] * 2
        wait_s = answered[4][1]["retry-after"]
        assert f"this tenant may use 6 requests per minute; try again in {wait_s} s" in answered[4][2]
        assert answered[4][1]["x-ratelimit-remaining-requests"] == "58"  # of the key's own, of which the refusal took none
        routers[0].use_key(limits={}, tenant_limits={"rpm": 12, "burst": 6})
        told = await asked(routers[0])
        assert (told[0], told[1]["x-ratelimit-limit-requests"], told[1]["x-ratelimit-remaining-requests"]) == (200, "12", "1")


async def test_the_priority_of_a_key_is_that_of_its_requests_that_name_none(server: ValkeyServer) -> None:
    async with ScriptedUpstream() as upstream:
        patient = {"x-n4n-timeout-ms": "300"}
        async with routers_of(server, document(upstream.base_url, limits={"rpm": 10})) as (router,):
            router.use_key(priority="background")
            statuses = [(await asked(router, headers=patient))[0] for _ in range(9)]
            assert statuses == [200] * 8 + [429]
            assert (await asked(router, headers={**patient, "x-n4n-priority": "interactive"}))[0] == 200


async def test_one_limit_holds_whichever_router_is_asked(server: ValkeyServer) -> None:
    async with ScriptedUpstream() as upstream, routers_of(server, document(upstream.base_url), 3, rpm=6, burst=20) as routers:
        answered = await asyncio.gather(*(asked(routers[n % 3]) for n in range(60)))
        assert 20 <= sum(status == 200 for status, _, _ in answered) <= 21
        await wait_for(lambda: at_rest(server))


@pytest.mark.parametrize("stream", [False, True])
async def test_tokens_are_charged_as_the_provider_counted_them(server: ValkeyServer, stream: bool) -> None:
    async with ScriptedUpstream() as upstream, routers_of(server, document(upstream.base_url), tpm=1000) as (router,):
        billed = usage(300, 100)
        upstream.script(then=answers.sse("pong", usage=billed) if stream else completion(usage=billed))
        statuses = [(await asked(router, stream=stream, max_tokens=100))[0] for _ in range(5)]
        assert statuses[:2] == [200, 200] and 429 in statuses[2:4]
        await wait_for(lambda: at_rest(server))


async def test_a_request_larger_than_its_limit_is_refused_for_good(server: ValkeyServer) -> None:
    async with ScriptedUpstream() as upstream, routers_of(server, document(upstream.base_url), tpm=100) as (router,):
        status, headers, body = await asked(router, messages=[{"role": "user", "content": "long " * 400}])
        assert (status, headers["x-should-retry"]) == (400, "false")
        assert "request_exceeds_limit" in body and "100 a minute" in body
    async with ScriptedUpstream() as upstream, routers_of(server, document(upstream.base_url, limits={"tpm": 100})) as (router,):
        status, _, body = await asked(router, messages=[{"role": "user", "content": "long " * 400}])
        assert status == 400 and "request_exceeds_limit" in body
        assert upstream.calls == []


async def test_places_are_free_again_whatever_became_of_the_requests(server: ValkeyServer) -> None:
    quick = {"timeouts": {"first_token_ms": 150}, "retry": {"max_retries": 0}}
    async with ScriptedUpstream() as upstream, routers_of(server, document(upstream.base_url, model=quick), concurrency=10) as (router,):
        bad = (answers.hang_before_headers(), error(502), answers.reset_after("a"))
        upstream.script(*(bad[n % 3] for n in range(30)))
        for _ in range(3):
            await asyncio.gather(*(asked(router) for _ in range(10)))
            router.router.health.keep_only(type(router.state.catalog)(0, "", {}, {}, {}, {}, {}, {}))  # forgets breakers
        await wait_for(lambda: at_rest(server))
        assert (await asked(router))[0] == 200


async def test_never_more_run_at_the_upstream_than_the_key_may(server: ValkeyServer) -> None:
    async with ScriptedUpstream() as upstream, routers_of(server, document(upstream.base_url), 2, concurrency=5) as routers:
        upstream.script(then=(Sleep(0.2), *completion()))
        statuses = [status for status, _, _ in await asyncio.gather(*(asked(routers[n % 2]) for n in range(20)))]
        assert statuses.count(200) == 5 and statuses.count(429) == 15
        await wait_for(lambda: at_rest(server))


async def test_accounts_are_one_pool_and_an_exhausted_one_is_not_called(server: ValkeyServer) -> None:
    async with ScriptedUpstream() as one, ScriptedUpstream() as two:
        made = document(one.base_url, two.base_url, limits={"rpm": 3})
        async with routers_of(server, made, 2) as routers:
            statuses = [(await asked(routers[n % 2], headers={"x-n4n-timeout-ms": "500"}))[0] for n in range(8)]
        assert statuses.count(200) == 6
        assert (len(one.calls), len(two.calls)) == (3, 3)


async def test_a_pool_of_accounts_behind_one_endpoint_is_spent_to_the_end(server: ValkeyServer) -> None:
    async with ScriptedUpstream() as upstream:
        made = document(upstream.base_url, limits={"rpm": 4})
        made["accounts"]["second"] = made["accounts"]["ae1"]  # type: ignore[index]
        endpoint = made["endpoints"]["e1"]  # type: ignore[index]
        del endpoint["account"]
        endpoint["accounts"] = ["ae1", "second"]
        async with routers_of(server, made) as (router,):
            statuses = [(await asked(router, headers={"x-n4n-timeout-ms": "500"}))[0] for _ in range(10)]
        assert statuses.count(200) == 8 and len(upstream.calls) == 8


async def test_short_quota_is_waited_for_and_the_answer_says_how_long(server: ValkeyServer) -> None:
    async with ScriptedUpstream() as upstream:
        made = document(upstream.base_url, limits={"rpm": 120, "burst": 1})
        async with routers_of(server, made) as (router,):
            answered = await asyncio.gather(*(asked(router) for _ in range(4)))
        assert [status for status, _, _ in answered] == [200] * 4
        waits = sorted(int(headers.get("x-n4n-queue-ms", 0)) for _, headers, _ in answered)
        assert waits[0] == 0 and 400 <= waits[1] <= 900 and 1400 <= waits[3] <= 1900


async def test_interactive_requests_go_before_those_that_waited_longer(server: ValkeyServer) -> None:
    async with ScriptedUpstream() as upstream:
        made = document(upstream.base_url, limits={"rpm": 240, "burst": 1})
        async with routers_of(server, made) as (router,):
            await asked(router)
            order: list[str] = []

            async def ask(priority: str) -> None:
                assert (await asked(router, headers={"x-n4n-priority": priority}))[0] == 200
                order.append(priority)

            async with asyncio.TaskGroup() as group:
                for _ in range(3):
                    group.create_task(ask("background"))
                quotas = router.router.quotas
                assert quotas is not None
                await wait_for(lambda: len(quotas.lines) and sum(map(len, quotas.lines.values())) >= 3)
                for _ in range(2):
                    group.create_task(ask("interactive"))
            assert order[:2] == ["interactive", "interactive"]
            assert sum(quotas.waiting.values()) == 0


async def test_a_wait_that_is_too_long_is_not_begun(server: ValkeyServer) -> None:
    async with ScriptedUpstream() as upstream:
        async with routers_of(server, document(upstream.base_url, limits={"rpm": 2, "burst": 1})) as (router,):
            await asked(router)
            begun = time.monotonic()
            status, headers, _ = await asked(router)
            assert status == 429 and 28 <= int(headers["retry-after"]) <= 30
            assert time.monotonic() - begun < 1


async def test_what_a_provider_says_of_its_limits_is_kept(server: ValkeyServer) -> None:
    async with ScriptedUpstream() as upstream:
        upstream.script(completion(headers={"x-ratelimit-remaining-requests": "1", "x-ratelimit-limit-requests": "2"}))
        async with routers_of(server, document(upstream.base_url, limits={"rpm": 60})) as (router,):
            statuses = [(await asked(router, headers={"x-n4n-timeout-ms": "300"}))[0] for _ in range(3)]
        assert statuses == [200, 200, 429] and len(upstream.calls) == 2


async def test_a_429_keeps_every_router_away_until_the_provider_said(server: ValkeyServer) -> None:
    async with ScriptedUpstream() as upstream:
        upstream.script(rate_limited(retry_after=30), rate_limited(retry_after=1), then=completion())
        async with routers_of(server, document(upstream.base_url), 2) as (one, two):
            assert {(await asked(one))[0]} == {429}
            calls = len(upstream.calls)
            await wait_for(lambda: two.router.health.views)
            status, headers, _ = await asked(two)
            assert status == 429 and 25 <= int(headers["retry-after"]) <= 37
            assert len(upstream.calls) == calls


async def test_an_edited_limit_applies_to_the_next_request_and_resets_nothing(server: ValkeyServer) -> None:
    async with ScriptedUpstream() as upstream:
        patient = {"x-n4n-timeout-ms": "300"}
        async with routers_of(server, document(upstream.base_url, limits={"rpm": 2})) as (router,):
            assert [(await asked(router, headers=patient))[0] for _ in range(3)] == [200, 200, 429]
            router.use(document(upstream.base_url, limits={"rpm": 3}), 2)
            assert [(await asked(router, headers=patient))[0] for _ in range(2)] == [200, 429]


async def test_nobody_fails_for_want_of_redis(server: ValkeyServer) -> None:
    async with ScriptedUpstream() as upstream:
        changes = Changes()
        async with open_store(server.url, changes, deadline_s=0.05) as store:
            made = document(upstream.base_url, limits={"rpm": 6000})
            async with running_router(made, key={"limits": {"rpm": 6000}}, store=store) as router:
                assert (await asked(router))[0] == 200
                server.kill()
                assert [(await asked(router))[0] for _ in range(10)] == [200] * 10
                server.start()
                await changes.until(lambda: changes[-1][0] is Breaker.CLOSED)
                assert (await asked(router))[0] == 200
                await wait_for(lambda: at_rest(server))


async def test_who_has_no_limits_does_not_touch_redis(server: ValkeyServer) -> None:
    async with ScriptedUpstream() as upstream, routers_of(server, catalog(upstream.base_url)) as (router,):
        status, headers, _ = await asked(router)
        assert status == 200 and not [name for name in headers if name.lower().startswith("x-ratelimit")]
        with server.client() as client:
            assert set(client.scan_iter("n4n:*")) <= {"n4n:{sight}:r", "n4n:{sight}:c"}
