"""A real control plane and a real follower: what an operator applies is what a router serves, within a second."""

from __future__ import annotations

import asyncio
import json
import secrets
from dataclasses import replace
from pathlib import Path

import pytest

from control_plane.app import control_plane
from n4n.runtime.control_client import ControlClient, ControlRefused
from n4n.runtime.settings import Settings
from tests.integration.test_discovery_client import router, until
from tests.support.catalogs import FULL, SMALL, changed
from tests.support.control_plane import TOKEN


@pytest.fixture
def settings(postgres_url: str, redis_url: str) -> Settings:
    return Settings(
        database_url=postgres_url, redis_url=redis_url, admin_port=0, metrics_port=0, admin_token=secrets.token_hex(8), node_token=TOKEN
    )


async def test_what_is_applied_rolled_back_and_revoked_is_served_within_a_second(settings: Settings, tmp_path: Path) -> None:
    async with control_plane(settings, heartbeat_s=0.2) as running:
        target = f"127.0.0.1:{running.port}"
        async with (
            ControlClient([target], settings.admin_token) as operator,
            router(target, path=tmp_path / "catalog.snapshot") as (follower, _),
        ):
            for raw in (FULL, changed(FULL, "endpoints", "acme-large", "weight", to=9)):
                version = (await operator.apply(json.dumps(raw), author="a")).version
                await until(lambda version=version: follower.version == version.version, within_s=1)  # type: ignore[misc]
                assert follower.checksum == version.checksum
            assert follower.state.catalog is not None and follower.state.catalog.endpoints["acme-large"].weight == 9

            await operator.rollback(1, author="a")
            await until(lambda: follower.version == 3, within_s=1)
            assert follower.state.catalog.endpoints["acme-large"].weight == 5
            await operator.set_endpoint_state("acme-large", "draining", author="a")
            await until(lambda: follower.version == 4, within_s=1)
            assert follower.state.catalog.endpoints["acme-large"].state == "draining"

            made = await operator.create_key("acme", {"limits": {"rpm": 5}, "models": ["small"]}, author="a")
            await until(lambda: follower.state.access is not None and made.key.public_id in follower.state.access.keys, within_s=1)
            access = follower.state.access
            assert access is not None and access.authenticate(made.secret, 0).limits == {"rpm": 5}
            await operator.revoke_key(made.key.public_id, author="a")
            await until(lambda: follower.state.access is not None and not follower.state.access.keys, within_s=1)

            with pytest.raises(ControlRefused) as refused:
                await operator.apply(json.dumps(SMALL), author="a")
            assert refused.value.code == "shrink" and "--allow-shrink" in refused.value.message
            await until(lambda: follower.age_s < 0.2)
            await asyncio.sleep(0.3)
            (node,) = await operator.nodes()

    assert (node.node, node.connected, node.applied_version, node.access_version, node.last_nack) == ("router-1", True, 4, 2, "")


async def test_a_control_plane_that_returns_finds_the_router_again_and_the_router_starts_without_it(
    settings: Settings, tmp_path: Path
) -> None:
    path = tmp_path / "catalog.snapshot"
    async with control_plane(settings, heartbeat_s=0.2) as running:
        target = f"127.0.0.1:{running.port}"
        async with ControlClient([target], settings.admin_token) as operator, router(target, path=path) as (follower, _):
            await operator.apply(json.dumps(FULL), author="a")
            await until(lambda: follower.version == 1, within_s=2)

    async with router(target, path=path) as (follower, link):
        assert follower.version == 1
        again = replace(settings, admin_port=running.port)
        async with control_plane(again, heartbeat_s=0.2), ControlClient([target], settings.admin_token) as operator:
            await operator.apply(json.dumps(changed(FULL, "endpoints", "acme-large", "weight", to=9)), author="a")
            await until(lambda: follower.version == 2, within_s=2)
            assert follower.nacks == 0 and link.problem == ""
