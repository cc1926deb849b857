"""A control plane stops, whatever its database does meanwhile."""

from __future__ import annotations

import asyncio

from control_plane.app import _ended


async def test_a_loop_that_turned_its_cancellation_into_an_error_is_cancelled_again() -> None:
    deaf = 0

    async def loop() -> None:
        nonlocal deaf
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                if deaf:
                    raise
                deaf += 1  # as a driver that says that the server is gone, and is tried again

    tasks = [asyncio.create_task(loop()), asyncio.create_task(asyncio.sleep(60))]
    await asyncio.sleep(0)
    async with asyncio.timeout(10):
        await _ended(tasks)  # type: ignore[arg-type]
    assert deaf == 1
    assert all(task.cancelled() for task in tasks)
