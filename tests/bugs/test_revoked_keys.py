"""A key that was blocked is blocked everywhere, however busy it is."""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
from pathlib import Path

import pytest

from control_plane.app import control_plane
from n4n.core.access import AccessSnapshot, Key
from n4n.runtime.control_client import ControlClient
from n4n.runtime.settings import Settings
from tests.integration.test_discovery_client import router, until
from tests.support.catalogs import FULL
from tests.support.control_plane import TOKEN
from tests.support.router import SECRET, RunningRouter, catalog, running_router
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
