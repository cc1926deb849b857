"""A worker's other threads (traces on their way out, scrapes) and its loop."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Iterator
from statistics import median

import pytest

from data_plane import app
from n4n.runtime.settings import Settings


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = sys.getswitchinterval()
    yield
    sys.setswitchinterval(before)


class Started(Exception):
    """As far as this test goes."""


async def test_a_worker_sees_to_it_that_its_loop_has_its_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    def worker(*_: object) -> object:
        raise Started

    monkeypatch.setattr(app, "worker", worker)
    with pytest.raises(Started):
        await app.run_worker(Settings(max_connections=1))
    assert sys.getswitchinterval() == pytest.approx(app.TURN_S)


async def late_s(interval_s: float) -> float:
    """How late the loop is woken, in the middle of many times, while a thread computes."""
    sys.setswitchinterval(interval_s)
    over, late = threading.Event(), list[float]()
    busy = threading.Thread(target=lambda: [sum(range(1000)) for _ in iter(over.is_set, True)])
    busy.start()
    try:
        for _ in range(60):
            due = time.monotonic() + 0.001
            await asyncio.sleep(0.001)
            late.append(time.monotonic() - due)
    finally:
        over.set()
        busy.join()
    return median(late)


async def test_a_thread_that_computes_holds_the_loop_up_for_a_tenth_of_what_it_would() -> None:
    pairs = []
    for _ in range(5):
        pairs.append((await late_s(0.005), await late_s(app.TURN_S)))
        if pairs[-1][1] < pairs[-1][0] / 2:
            return
    pytest.fail(f"late by {pairs}")
