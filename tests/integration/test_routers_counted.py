"""How many routers share a limit, told by control planes: so that each keeps its part where Redis was never there."""

from __future__ import annotations

import secrets
import time
from contextlib import AsyncExitStack
from pathlib import Path

from control_plane.app import control_plane
from n4n.core.limits.subjects import Draw, key_subject
from n4n.runtime.limits import Limits, Reservation
from n4n.runtime.settings import Settings
from tests.integration.test_discovery_client import router, until
from tests.support.control_plane import TOKEN
from tests.support.house import free_port
from tests.support.store import starting_store


async def test_every_router_is_told_how_many_there_are_at_all_control_planes(postgres_url: str, tmp_path: Path) -> None:
    settings = Settings(database_url=postgres_url, admin_port=0, metrics_port=0, admin_token=secrets.token_hex(8), node_token=TOKEN)
    async with AsyncExitStack() as stack:
        planes = [await stack.enter_async_context(control_plane(settings, heartbeat_s=0.2)) for _ in range(2)]
        followers = []
        for number in range(3):
            target, path = f"127.0.0.1:{planes[number % 2].port}", tmp_path / f"{number}" / "catalog.snapshot"
            follower, _ = await stack.enter_async_context(router(target, path=path, name=f"router-{number}"))
            followers.append(follower)
        await until(lambda: [follower.routers for follower in followers] == [3, 3, 3], within_s=10)


async def test_a_router_that_never_reached_redis_keeps_its_part_of_a_limit() -> None:
    subject = key_subject("acme", "k", {"rpm": 6, "burst": 100})
    assert subject is not None
    async with starting_store(f"redis://127.0.0.1:{free_port()}") as store:
        limits = Limits(store, router="r1", clock=time.monotonic)
        limits.fleet = lambda: 4
        await limits.look()
        assert limits.routers == 4
        party = limits.party(subject)
        answers = [(await limits.reserve(b"%012d" % number, ((party, Draw()),)))[0] for number in range(30)]
        assert 4 <= sum(isinstance(answer, Reservation) for answer in answers) <= 6  # a fifth of a quarter
