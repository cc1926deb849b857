"""A key that was blocked is blocked everywhere, however busy it is."""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
import time
from dataclasses import replace
from pathlib import Path

import pytest

from control_plane.app import control_plane
from data_plane.endings import Endings
from n4n.core.access import AccessSnapshot, Key
from n4n.core.budgets import Budget, Unit, pico_of
from n4n.runtime.control_client import ControlClient
from n4n.runtime.settings import Settings
from tests.integration.test_discovery_client import router, until
from tests.support.answers import completion, hang_after, hang_before_headers, usage
from tests.support.catalogs import FULL
from tests.support.control_plane import TOKEN
from tests.support.router import SECRET, RunningRouter, catalog, running_router
from tests.support.script import Sleep
from tests.support.store import open_store
from tests.support.upstream import ScriptedUpstream


async def status(house: RunningRouter, key: str | None = None) -> int:
    """What a request for the list of models gets."""
    headers = house.headers() if key is None else {"authorization": f"Bearer {key}"}
    async with house.http.get(f"{house.base_url}/models", headers=headers) as answer:
        return answer.status


@pytest.mark.parametrize("how", ["revoked", "expired", "rotated away"])
async def test_use_does_not_keep_a_key_alive(how: str) -> None:
    """LiteLLM #9820 (case 24): a cached key was kept by being used."""
    digest = hashlib.sha256(SECRET.encode()).digest()
    after = {
        "revoked": {},
        "expired": {"testtesttest": Key("testtesttest", "acme", digest, expires_at=1.0)},
        "rotated away": {"testtesttest": Key("testtesttest", "acme", bytes(32), previous_sha256=digest, previous_expires_at=1.0)},
    }[how]
    async with ScriptedUpstream() as upstream:
        async with running_router(catalog(upstream.base_url)) as one, running_router(catalog(upstream.base_url)) as two:
            for _ in range(100):
                assert (await status(one), await status(two)) == (200, 200)
            for house in (one, two):
                house.state.access = AccessSnapshot(2, "a2", after)
            for _ in range(20):
                assert (await status(one), await status(two)) == (401, 401)


async def test_a_revoked_key_is_refused_by_every_router_within_a_second(postgres_url: str, redis_url: str, tmp_path: Path) -> None:
    """LiteLLM #9820 (case 24): on the other pods a blocked key went on working."""
    admin = secrets.token_hex(8)
    settings = Settings(database_url=postgres_url, redis_url=redis_url, admin_port=0, metrics_port=0, admin_token=admin, node_token=TOKEN)
    async with ScriptedUpstream() as upstream, control_plane(settings, heartbeat_s=0.2) as running:
        target = f"127.0.0.1:{running.port}"
        async with (
            ControlClient([target], admin) as operator,
            router(target, path=tmp_path / "one") as (first, _),
            router(target, path=tmp_path / "two") as (second, _),
            running_router(catalog(upstream.base_url)) as one,
            running_router(catalog(upstream.base_url)) as two,
        ):
            await operator.apply(json.dumps(FULL), author="a")
            made = await operator.create_key("acme", {}, author="a")
            one.router._follower, two.router._follower = first, second
            await until(lambda: all(f.state.access is not None and f.state.access.keys for f in (first, second)))
            for _ in range(50):
                assert (await status(one, made.secret), await status(two, made.secret)) == (200, 200)

            await operator.revoke_key(made.key.public_id, author="a")

            async with asyncio.timeout(1):
                while (await status(one, made.secret), await status(two, made.secret)) != (401, 401):
                    pass


async def _streams(house: RunningRouter, path: str = "chat/completions") -> str:
    """All that a client sees of an endless stream."""
    asks = {"messages": [{"role": "user", "content": "ping"}], "max_tokens": 1000}
    if path == "responses":
        asks = {"input": "ping"}
    async with house.http.post(f"{house.base_url}/{path}", json={"model": "m", "stream": True, **asks}, headers=house.headers()) as answer:
        assert answer.status == 200
        return await answer.text()


@pytest.mark.parametrize("path", ["chat/completions", "messages", "responses"])
async def test_a_stream_of_a_revoked_key_ends_with_one_error_event(path: str) -> None:
    async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url)) as house:
        upstream.script(then=hang_after(*"abcdefgh"))
        endings = Endings(house.router, house.web)
        streams = [asyncio.create_task(_streams(house, path)) for _ in range(3)]
        await upstream.arrived(3)
        await until(lambda: sum(record.ttft_s is not None for record in house.web.running.values()) == 3)
        before = house.state.access
        house.state.access = AccessSnapshot(2, "a2", {})
        endings.changed(before, house.state.access)
        async with asyncio.timeout(1):
            texts = await asyncio.gather(*streams)
        for text in texts:
            assert text.count("key_revoked") == (2 if path == "responses" else 1) and "[DONE]" not in text  # response.failed, then error
        lines = await house.logged(3)
        assert {(line["outcome"], line["error"], line["status"]) for line in lines} == {("cancelled", "key_revoked", 200)}
        assert not house.web.running and not house.web._ended
        assert await status(house) == 401, "the connection goes on being read"


async def test_a_request_that_saw_no_output_yet_gets_the_error_itself_and_an_expired_key_finishes() -> None:
    async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url)) as house:
        endings = Endings(house.router, house.web)
        upstream.script(hang_before_headers(), (Sleep(0.3), *completion()))

        async def ask() -> tuple[int, str]:
            async with house.chat() as answer:  # type: ignore[attr-defined]
                return answer.status, await answer.text()

        asking = asyncio.create_task(ask())
        await upstream.arrived()
        endings.changed(house.state.access, AccessSnapshot(2, "a2", {}))
        assert (await asking)[0] == 401
        asking = asyncio.create_task(ask())
        await upstream.arrived(2)
        (key,) = house.state.access.keys.values()
        endings.changed(AccessSnapshot(1, "a1", {key.public_id: replace(key, expires_at=1.0)}), AccessSnapshot(2, "a2", {}))
        assert (await asking)[0] == 200


async def test_a_stream_whose_budget_was_lowered_below_what_is_spent_ends(redis_url: str) -> None:
    def budget(amount: str) -> tuple[Budget, ...]:
        return (Budget(Unit.USD, pico_of(amount), "day", False, since),)

    since = round(time.time() * 1000)
    async with (
        ScriptedUpstream() as upstream,
        open_store(redis_url, deadline_s=0.5) as store,
        running_router(catalog(upstream.base_url), key={"budgets": budget("5")}, store=store) as house,
    ):
        upstream.script(completion(usage=usage(4000, 4000)), then=hang_after(*"abcdefgh"))
        endings = Endings(house.router, house.web)
        keeping = asyncio.create_task(endings.keep())
        async with house.chat(max_tokens=5000) as answer:  # type: ignore[attr-defined]
            assert answer.status == 200
        streaming = asyncio.create_task(_streams(house))
        await upstream.arrived(2)
        await until(lambda: any(record.ttft_s is not None for record in house.web.running.values()))
        for amount, ends in (("0.051", False), ("0.05", True)):
            before = house.state.access
            house.use_key(budgets=budget(amount))
            endings.changed(before, house.state.access)
            if not ends:
                await asyncio.sleep(0.1)
                assert not streaming.done()
        async with asyncio.timeout(1):
            text = await streaming
        assert text.count("budget_exceeded") == 1 and "0.05 USD are spent" in text
        async with house.chat() as answer:  # type: ignore[attr-defined]
            assert answer.status == 402
        keeping.cancel()
