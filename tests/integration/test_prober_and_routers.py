"""What probers find changes what routers do, without a request having failed; and system prompts that have to be spelled out."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.support.answers import JSON, completion, error
from tests.support.call import Call
from tests.support.prober import running_prober
from tests.support.router import RunningRouter, catalog, running_router
from tests.support.script import Answer, Whole
from tests.support.store import open_store
from tests.support.upstream import ScriptedUpstream

QUICK = {"interval_sec": 0.2, "timeout_ms": 1000}


def two(first: ScriptedUpstream, second: ScriptedUpstream) -> dict[str, object]:
    """Two endpoints at two providers, each billed apart, the first one cheaper."""
    told = catalog(first.base_url, second.base_url, model={"probe": QUICK})
    for provider in told["providers"].values():  # type: ignore[attr-defined]
        provider["probe_budget_usd_per_day"] = 1_000_000
    return told


def live(upstream: ScriptedUpstream) -> int:
    """Requests that were no probes."""
    return sum(call.method == "POST" and "max_tokens" not in call.json for call in upstream.calls)


async def first_choice(router: RunningRouter) -> str:
    """Where a request goes now."""
    async with router.chat() as answer:  # type: ignore[attr-defined]
        assert answer.status == 200
        return str(answer.headers["x-n4n-endpoint"])


async def until_moved(router: RunningRouter, to: str) -> None:
    """Until the plan has this endpoint first; asks nobody."""
    async with asyncio.timeout(10):
        while True:
            body = {"model": "m", "messages": [{"role": "user", "content": "ping"}]}
            async with router.http.post(f"{router.base_url}/route:explain", json=body, headers=router.headers()) as answer:
                rows = (await answer.json())["candidates"]
            if rows and next(row for row in rows if row["kept"])["endpoint"] == to:
                return
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("what", ["nothing is left", "402"])
async def test_an_account_without_money_is_left_for_one_that_is_billed_apart_before_a_request_fails(redis_url: str, what: str) -> None:
    def broke(call: Call) -> Answer:
        if call.method == "GET":
            return (JSON, Whole(json.dumps({"data": {"limit_remaining": 0.0 if what == "nothing is left" else 9.0}}).encode()))
        return error(402, message="Insufficient credits") if what == "402" else completion()

    async with ScriptedUpstream() as first, ScriptedUpstream() as second, open_store(redis_url) as store:
        first.script(then=broke)
        told = two(first, second)
        told["accounts"]["ae1"]["balance"] = {"api": "openrouter"}  # type: ignore[index]
        async with running_router(told, store=store) as router:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("n4n.core.probes.work.EVERY_S", 0.3)
                async with running_prober(told, redis_url):
                    await until_moved(router, "e2")

                    assert [await first_choice(router) for _ in range(3)] == ["e2"] * 3
                    assert live(first) == 0


async def test_a_model_that_only_probes_found_ill_has_lost_its_rank_at_routers(redis_url: str) -> None:
    async with ScriptedUpstream() as first, ScriptedUpstream() as second, open_store(redis_url) as store:
        told = two(first, second)
        told["models"]["m"]["strategy"] = "health"  # type: ignore[index]
        async with running_router(told, store=store) as router, running_prober(told, redis_url):
            await first.arrived()
            await second.arrived()
            first.script(then=error(500))
            await until_moved(router, "e2")

            assert await first_choice(router) == "e2" and live(first) == 0


@pytest.mark.parametrize("path", ["/chat/completions", "/messages", "/responses"])
async def test_a_system_prompt_is_spelled_out_for_an_endpoint_that_overlooks_it(path: str) -> None:
    said = {"model": "m", "max_tokens": 9}
    bodies = {
        "/chat/completions": {**said, "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]},
        "/messages": {**said, "system": "Be brief.", "messages": [{"role": "user", "content": "Hi"}]},
        "/responses": {"model": "m", "instructions": "Be brief.", "input": "Hi"},
    }
    async with ScriptedUpstream() as upstream:
        async with running_router(catalog(upstream.base_url, endpoint={"explicit_system_prompt": True})) as router:
            async with router.http.post(f"{router.base_url}{path}", json=bodies[path], headers=router.headers()) as answer:
                assert answer.status == 200, await answer.text()

        (call,) = upstream.calls
        assert call.json["messages"] == [{"role": "user", "content": "Be brief.\n\nHi"}]
