"""What a router says of its Redis."""

from __future__ import annotations

import asyncio

import pytest

from data_plane.limiting import Limiting
from n4n.runtime.telemetry import Instruments
from tests.support.router import catalog, running_router


async def test_a_router_that_stops_says_nothing_of_redis(redis_url: str, caplog: pytest.LogCaptureFixture) -> None:
    async with running_router(catalog("http://127.0.0.1:1")) as house:
        limiting = Limiting(redis_url, house.router, Instruments(1), name="r1", workers=1, draw=lambda: 0.5)
        keeping = asyncio.create_task(limiting.keep())
        assert await limiting.store.ready(10)
        keeping.cancel()
        await asyncio.wait([keeping])
        await limiting.close()

    assert [record.message for record in caplog.records if "limits" in record.message] == []
