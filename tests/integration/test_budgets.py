"""Budgets of keys and tenants through real routers over a real Redis."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from n4n.core.breaker import Breaker
from n4n.core.budgets import DAY_MS, Budget, Unit, pico_of
from n4n.core.limits.subjects import plain_subject
from n4n.runtime.limits.budgets import RENEW_BUDGETS, RESERVE_BUDGETS, SEED_BUDGETS, SETTLE_BUDGETS, owner_of, seed
from n4n.runtime.limits.packed import RENEW, RESERVE, SETTLE, SIGHT
from tests.support import answers
from tests.support.answers import completion, error, usage
from tests.support.router import RunningRouter, catalog, running_router
from tests.support.script import Sleep
from tests.support.store import Changes, open_store
from tests.support.upstream import ScriptedUpstream
from tests.support.valkey import ValkeyServer, running_valkey

SCRIPTS = (RESERVE, SETTLE, RENEW, SIGHT, RESERVE_BUDGETS, SETTLE_BUDGETS, RENEW_BUDGETS, SEED_BUDGETS)
FIVE_CENTS = usage(4000, 4000)  # at 2.5 and 10 USD a million


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ValkeyServer]:
    """A Redis of this test alone."""
    with running_valkey(tmp_path) as running:
        learn(running)
        yield running


def learn(server: ValkeyServer) -> None:
    """It knows the scripts: else what is not waited for comes after what follows it."""
    with server.client() as client:
        for script in SCRIPTS:
            client.script_load(script.source.decode())


def usd(amount: str, window: str = "day", *, soft: bool = False, age_ms: int = 0) -> Budget:
    return Budget(Unit.USD, pico_of(amount), window, soft, round(time.time() * 1000) - age_ms)


def tokens(amount: int, window: str = "day") -> Budget:
    return Budget(Unit.TOKENS, amount, window, False, round(time.time() * 1000))


@asynccontextmanager
async def routers_of(
    server: ValkeyServer, made: Mapping[str, object], count: int = 1, changes: Changes | None = None, deadline_s: float = 0.5, **key: object
) -> AsyncIterator[tuple[RunningRouter, ...]]:
    """So many routers, and one key with these rules."""
    async with AsyncExitStack() as stack:
        running = []
        for number in range(count):
            store = await stack.enter_async_context(open_store(server.url, changes, deadline_s=deadline_s))
            running.append(await stack.enter_async_context(running_router(made, key=key, store=store, name=f"r{number}")))
        yield tuple(running)


async def asked(router: RunningRouter, /, **fields: object) -> tuple[int, Mapping[str, str], str]:
    """Status, headers and body of one chat."""
    async with router.chat(fields) as response:  # type: ignore[attr-defined]
        return response.status, response.headers, await response.text()


def kept(server: ValkeyServer, owner: str = "testtesttest:") -> dict[str, float]:
    """The purse of the key, or of its tenant (''), in Redis."""
    with server.client() as client:
        return {str(field): float(value) for field, value in client.hgetall(f"n4n:{{t:acme}}:{owner}m").items()}


async def eventually(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not holds():  # noqa: ASYNC110  # another process changes it
            await asyncio.sleep(0.01)


async def test_a_spent_budget_is_402_before_any_dispatch_and_says_which_and_until_when(server: ValkeyServer) -> None:
    async with ScriptedUpstream() as upstream:
        upstream.script(then=completion(usage=FIVE_CENTS))
        async with routers_of(server, catalog(upstream.base_url), budgets=(usd("0.05", "month"), usd("9"))) as (router,):
            assert (await asked(router))[0] == 200
            await eventually(lambda: kept(server).get("usd/month:s") == 5e10)
            status, headers, text = await asked(router)
            body = json.loads(text)["error"]
            assert (status, headers["x-should-retry"], "retry-after" in headers) == (402, "false", False)
            assert (body["code"], body["type"]) == ("budget_exceeded", "insufficient_quota")
            assert body["message"].startswith(
                "the budget of 0.05 USD per month of this API key is used up: 0.05 USD are spent; it resets at"
            )
            told = body["n4n"]["budget"]
            assert (told["budget"], told["of"], told["limit"], told["spent"], told["reserved"]) == ("usd/month", "key", "0.05", "0.05", "0")
            assert told["resets_at"].endswith("-01T00:00:00Z")
            assert len(upstream.calls) == 1
            (first, second) = await router.logged(2)
            assert (first["status"], second["status"], second["error"], second["outcome"]) == (200, 402, "budget_exceeded", "rejected")


@pytest.mark.parametrize("path", ["completions", "responses", "messages", "embeddings"])
async def test_every_skin_says_so_in_its_own_envelope(server: ValkeyServer, path: str) -> None:
    asks: Mapping[str, Mapping[str, object]] = {
        "completions": {"prompt": "ping"},
        "responses": {"input": "ping", "stream": True},
        "messages": {"messages": [{"role": "user", "content": "ping"}], "max_tokens": 10},
        "embeddings": {"input": "ping"},
    }
    supports = {"endpoint": {"supports": ["embeddings"]}} if path == "embeddings" else {}
    async with (
        ScriptedUpstream() as upstream,
        routers_of(server, catalog(upstream.base_url, **supports), tenant_budgets=(usd("1"),)) as (router,),  # type: ignore[arg-type]
    ):
        with server.client() as client:
            now = round(time.time() * 1000)
            owner = owner_of(plain_subject("acme"), router.state.access.keys["testtesttest"].tenant_budgets)
            since = owner.budgets[0].since_ms
            client.execute_command(*_words(seed(owner, now, {"usd/day": (since, pico_of("1"), ())}).packed))
        async with router.http.post(f"{router.base_url}/{path}", json={"model": "m", **asks[path]}, headers=router.headers()) as response:
            body = await response.json()
        assert response.status == 402, body
        told = body["error"]
        assert (response.status, response.headers["x-should-retry"], told["n4n"]["budget"]["of"]) == (402, "false", "tenant")
        assert body.get("type") == ("error" if path == "messages" else None)
        assert told["type"] == ("billing_error" if path == "messages" else "insufficient_quota")
        assert upstream.calls == []


def _words(packed: bytes) -> list[bytes]:
    """A packed command, taken apart, and as EVAL."""
    parts = packed.split(b"\r\n")[1:-1]
    words = parts[1::2]
    return [b"EVAL", SEED_BUDGETS.source, *words[2:]]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_race_for_the_last_dollar_is_lost_by_one_reservation_at_most(server: ValkeyServer, stream: bool) -> None:
    async with ScriptedUpstream() as upstream:
        answer = answers.sse("pong", usage=FIVE_CENTS) if stream else completion(usage=FIVE_CENTS)
        upstream.script(then=(Sleep(0.05), *answer))
        async with routers_of(server, catalog(upstream.base_url), 2, budgets=(usd("1"),)) as routers:
            answered = await asyncio.gather(*(asked(routers[n % 2], max_tokens=5000, stream=stream) for n in range(200)))
            statuses = [status for status, _, _ in answered]
            assert set(statuses) == {200, 402}
            assert len(upstream.calls) == statuses.count(200)
            assert 0.95 <= 0.05 * statuses.count(200) <= 1.0501
            await eventually(lambda: kept(server).get("ru") == 0.0)
            assert kept(server)["usd/day:s"] == 5e10 * statuses.count(200)
            while (await asked(routers[0], max_tokens=5000))[0] == 200:
                pass
            assert len(upstream.calls) in (20, 21)


async def test_a_failed_or_an_empty_answer_is_not_billed(server: ValkeyServer) -> None:
    once = {"retry": {"max_retries": 0}}
    async with ScriptedUpstream() as upstream:
        upstream.script(error(500), error(400), answers.nothing(), answers.html(200), answers.reset(), answers.hang_before_headers())
        made = catalog(upstream.base_url, model={**once, "timeouts": {"first_token_ms": 100}})
        async with routers_of(server, made, budgets=(usd("1"), tokens(10**6))) as (router,):
            statuses = [(await asked(router))[0] for _ in range(6)]
            assert 200 not in statuses
            await eventually(lambda: (kept(server).get("ru"), kept(server).get("rt")) == (0.0, 0.0))
            assert (kept(server)["usd/day:s"], kept(server)["tokens/day:s"]) == (0.0, 0.0)


async def test_what_is_spent_is_what_the_ledger_says_whatever_was_reserved(server: ValkeyServer) -> None:
    async with ScriptedUpstream() as upstream:
        told = usage(1000, 100, cached=400)
        upstream.script(completion(usage=told), answers.sse("pong", usage=told), answers.reset_after(*"abcdefgh"))
        made = catalog(upstream.base_url, endpoint={"price": {"input_per_1m": 2.5, "output_per_1m": 10, "cached_input_per_1m": 1.25}})
        async with routers_of(server, made, budgets=(usd("5"), tokens(10**6)), tenant_budgets=(usd("9", "24h"),)) as (router,):
            for stream in (False, True, True):
                await asked(router, stream=stream)
            await eventually(lambda: kept(server).get("ru") == 0.0)
            lines = await router.logged(3)
            cost = sum(pico_of(str(line["usage"]["cost_usd"])) for line in lines)  # type: ignore[index]
            taken = sum(line["usage"]["total_tokens"] for line in lines)  # type: ignore[index, misc]
            assert (kept(server)["usd/day:s"], kept(server)["tokens/day:s"]) == (cost, taken)
            (spent,) = [value for field, value in kept(server, "").items() if "#" in field]
            assert spent == cost


async def test_an_endpoint_without_a_price_costs_nothing_and_its_tokens_count(server: ValkeyServer) -> None:
    async with ScriptedUpstream() as upstream:
        upstream.script(then=completion(usage=usage(100, 100)))
        made = catalog(upstream.base_url)
        del made["endpoints"]["e1"]["price"]  # type: ignore[attr-defined, index]
        async with routers_of(server, made, budgets=(usd("0.000001"), tokens(500))) as (router,):
            statuses = []
            for _ in range(5):
                statuses.append((await asked(router, max_tokens=100))[0])
                await eventually(lambda: kept(server).get("rt") == 0.0)
            assert statuses == [200, 200, 200, 402, 402]
            assert kept(server)["usd/day:s"] == 0.0


async def test_a_soft_budget_refuses_nothing(server: ValkeyServer) -> None:
    async with ScriptedUpstream() as upstream:
        upstream.script(then=completion(usage=FIVE_CENTS))
        async with routers_of(server, catalog(upstream.base_url), budgets=(usd("0.01", soft=True),)) as (router,):
            assert [(await asked(router))[0] for _ in range(3)] == [200] * 3


async def test_a_client_that_leaves_gives_back_what_nobody_spent(server: ValkeyServer) -> None:
    async with ScriptedUpstream() as upstream:
        upstream.script(then=answers.hang_before_headers())
        async with routers_of(server, catalog(upstream.base_url), budgets=(usd("5"),)) as (router,):
            asking = asyncio.create_task(asked(router, max_tokens=100_000))
            await upstream.arrived()
            assert kept(server)["ru"] > 1e12
            asking.cancel()
            await asyncio.wait([asking])
            await eventually(lambda: kept(server)["ru"] == 0.0)
            assert 0 < kept(server)["usd/day:s"] < 1e9, "the provider may have read the prompt"


async def test_redis_emptied_in_mid_window_is_no_new_window(server: ValkeyServer) -> None:
    async with ScriptedUpstream() as upstream:
        upstream.script(then=completion(usage=FIVE_CENTS))
        old = usd("0.1", age_ms=3 * DAY_MS)
        async with routers_of(server, catalog(upstream.base_url), 2, budgets=(old,)) as (one, two):
            with server.client() as client:
                owner = owner_of(plain_subject("acme", "testtesttest"), (old,))
                day = round(time.time() * 1000) // DAY_MS * DAY_MS
                client.execute_command(*_words(seed(owner, day, {"usd/day": (day, 0, ())}).packed))
                for _ in range(2):
                    assert (await asked(one))[0] == 200
                    await eventually(lambda: kept(server)["ru"] == 0.0)
                assert (await asked(one))[0] == 402
                client.flushall()
                learn(server)
                assert (await asked(one))[0] == 402, "this router knows what is spent"
                assert (await asked(two))[0] == 402, "and so Redis knows it again"
                client.flushall()
                learn(server)
                assert kept(server) == {}
                fresh = await asyncio.gather(*(asked(two, max_tokens=1000) for _ in range(10)))
                assert [status for status, _, _ in fresh].count(200) <= 1, "at most a tenth, and one reservation"


async def test_while_redis_is_away_each_router_spends_its_share_of_what_was_left(server: ValkeyServer) -> None:
    changes = Changes()
    async with ScriptedUpstream() as upstream:
        upstream.script(then=completion(usage=FIVE_CENTS))
        async with routers_of(server, catalog(upstream.base_url), 2, changes, 0.05, budgets=(usd("0.5"),)) as (one, two):
            for router in (one, two, one):
                assert router.router.quotas is not None
                await router.router.quotas.limits.look()
            for router in (one, two):
                assert (await asked(router, max_tokens=5000))[0] == 200
            await eventually(lambda: kept(server)["ru"] == 0.0)
            server.kill()
            await changes.until(lambda: [state for state, _ in changes[-2:]] == [Breaker.OPEN] * 2 or changes[-1][0] is Breaker.OPEN)
            await asyncio.sleep(0)
            statuses = []
            for n in range(16):
                statuses.append((await asked((one, two)[n % 2], max_tokens=5000))[0])
            assert 402 in statuses
            assert 6 <= statuses.count(200) <= 10, "0.4 USD were left, of which one router knew 0.45"
            assert one.router.quotas is not None
            server.start()
            learn(server)
            await eventually(lambda: kept(server).get("usd/day:s", 0.0) >= 2.5e11)
            assert (await asked(one, max_tokens=5000))[0] in (200, 402)


async def test_a_spent_budget_leaves_no_place_taken_at_the_account_nor_of_the_key(server: ValkeyServer) -> None:
    async with ScriptedUpstream() as upstream:
        upstream.script(then=completion(usage=FIVE_CENTS))
        made = catalog(upstream.base_url)
        made["accounts"]["ae1"]["limits"] = {"concurrency": 2, "rpm": 1000}  # type: ignore[index]
        async with routers_of(server, made, budgets=(usd("0.05"),), limits={"concurrency": 2, "rpm": 1000}) as (router,):
            statuses = []
            for _ in range(6):
                statuses.append((await asked(router, max_tokens=5000))[0])
                await eventually(lambda: kept(server).get("ru") == 0.0)
            assert statuses == [200, 402, 402, 402, 402, 402]
            with server.client() as client:
                await eventually(lambda: not list(client.scan_iter("n4n:*:l")) and not list(client.scan_iter("n4n:*:o")))
