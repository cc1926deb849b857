"""Idempotency keys while Redis or its network is ill, and when a router goes silent: nobody fails, nobody waits for long."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest

from tests.support.answers import completion, held
from tests.support.duplicates import CHAT, ask, document, good, routers
from tests.support.router import running_router
from tests.support.script import Gate
from tests.support.store_proxy import store_proxy
from tests.support.upstream import ScriptedUpstream
from tests.support.valkey import running_valkey


def warned(body: bytes) -> bool:
    """Whether the answer says that its key was not kept."""
    told = body.decode()
    if told.startswith("data: "):
        told = next(line[6:] for line in told.splitlines() if '"n4n"' in line)
    return any("idempotency-key" in warning for warning in json.loads(told)["n4n"]["warnings"])


@pytest.mark.parametrize("stream", [False, True])
async def test_while_redis_is_away_requests_are_executed_and_told_so(tmp_path: Path, stream: bool) -> None:
    with running_valkey(tmp_path) as server:
        async with ScriptedUpstream() as upstream, routers(upstream, server.url, deadline_s=0.1) as (router,):
            upstream.script(then=good(CHAT))
            before = await ask(router, stream=stream)
            assert before.status == 200 and not warned(before.body)
            server.kill()
            got = [await ask(router, stream=stream) for _ in range(3)]
            assert [one.status for one in got] == [200] * 3 and all(warned(one.body) and not one.is_replay for one in got)
            assert router.once == {"executed": 4, "alone": 3}


async def test_without_any_redis_one_worker_still_answers_duplicates_at_once_together() -> None:
    gate = Gate()
    async with ScriptedUpstream() as upstream, running_router(document(upstream.base_url)) as router:
        upstream.script(held(gate, completion("pong")))
        asked = [asyncio.create_task(ask(router)) for _ in range(5)]
        await upstream.arrived()
        await asyncio.sleep(0.05)
        gate.open()
        got = await asyncio.gather(*asked)
        assert {one.status for one in got} == {200} and all(warned(one.body) for one in got)
        assert len(upstream.calls) == 1 and sum(one.is_replay for one in got) == 4


async def test_a_redis_that_does_not_answer_costs_a_request_its_deadline_once(tmp_path: Path) -> None:
    with running_valkey(tmp_path) as server:
        async with store_proxy(server.port) as proxy, ScriptedUpstream() as upstream:
            async with routers(upstream, proxy.url, deadline_s=0.1) as (router,):
                upstream.script(then=good(CHAT))
                proxy.stall()
                begun = time.monotonic()
                got = await ask(router)
                assert got.status == 200 and warned(got.body)
                assert time.monotonic() - begun < 2.0  # two steps, and a machine that does other things too
                proxy.flow()


async def test_an_answer_that_redis_did_not_take_is_given_and_the_key_is_free_again(tmp_path: Path) -> None:
    gate = Gate()
    with running_valkey(tmp_path) as server:
        async with store_proxy(server.port) as proxy, ScriptedUpstream() as upstream:
            async with routers(upstream, proxy.url, server.url, deadline_s=0.1, lease_ms=300.0) as (cut, well):
                upstream.script(held(gate, completion("pong")))
                first = asyncio.create_task(ask(cut))
                await upstream.arrived()
                proxy.stall()
                gate.open()
                assert (await first).status == 200 and cut.once == {"executed": 1, "alone": 1}
                got = await ask(well)
                assert got.status == 200 and not got.is_replay and len(upstream.calls) == 2
                proxy.flow()


async def test_a_router_that_went_silent_is_taken_over_from_and_overwrites_nothing(tmp_path: Path) -> None:
    gate = Gate()
    with running_valkey(tmp_path) as server:
        async with store_proxy(server.port) as proxy, ScriptedUpstream() as upstream:
            async with routers(upstream, proxy.url, server.url, server.url, deadline_s=0.2, lease_ms=300.0) as (silent, one, other):
                upstream.script(held(gate, completion("late")), then=completion("in time"))
                first = asyncio.create_task(ask(silent))
                await upstream.arrived()
                begun = time.monotonic()
                proxy.stall()  # its lease is not renewed any more
                got = await asyncio.gather(ask(one), ask(other))
                assert time.monotonic() - begun > 0.2
                assert all(b"in time" in answer.body for answer in got) and len(upstream.calls) == 2
                proxy.flow()
                gate.open()
                assert b"late" in (await first).body
                assert b"in time" in (await ask(one)).body


async def test_a_redis_that_was_emptied_meanwhile_learns_of_what_runs_and_of_the_answer(tmp_path: Path) -> None:
    gate = Gate()
    with running_valkey(tmp_path) as server:
        async with ScriptedUpstream() as upstream, routers(upstream, server.url, server.url, lease_ms=300.0) as (here, there):
            upstream.script(held(gate, completion("pong")))
            first = asyncio.create_task(ask(here))
            await upstream.arrived()
            with server.client() as client:
                client.flushall()
                async with asyncio.timeout(5):
                    while not list(client.scan_iter("n4n:{i:*")):  # noqa: ASYNC110  # another process changes it
                        await asyncio.sleep(0.01)
            second = asyncio.create_task(ask(there))
            await asyncio.sleep(0.1)
            gate.open()
            assert (await first).body == (await second).body and len(upstream.calls) == 1


async def test_connections_that_are_cut_again_and_again_lose_no_request(tmp_path: Path) -> None:
    with running_valkey(tmp_path) as server:
        async with store_proxy(server.port) as proxy, ScriptedUpstream() as upstream:
            async with routers(upstream, proxy.url, server.url, deadline_s=0.1, lease_ms=300.0) as both:
                upstream.script(then=good(CHAT))

                async def cutting() -> None:
                    while True:
                        await asyncio.sleep(0.02)
                        proxy.cut()

                cutter = asyncio.create_task(cutting())
                try:
                    got = await asyncio.gather(*(ask(both[n % 2], f"k{n % 20}", stream=n % 3 == 0) for n in range(120)))
                finally:
                    cutter.cancel()
                assert {one.status for one in got} <= {200, 422}  # a stream and a whole answer are two requests
                assert sum(one.status == 200 for one in got) >= 60
