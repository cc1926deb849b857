"""However often metrics are asked for, they are made at a bounded cost."""

from __future__ import annotations

import asyncio
import threading
import time
from itertools import count

import pytest

from data_plane import scrapes
from data_plane.scrapes import Page


def nothing() -> None:
    """All is told already."""


async def test_who_asks_while_a_page_is_made_shares_it() -> None:
    numbers, gate, told = count(), threading.Event(), []

    def make() -> bytes:
        assert gate.wait(10)
        return b"%d" % next(numbers)

    page = Page(make, lambda: told.append(1), time.monotonic)
    asking = [asyncio.create_task(page.read()) for _ in range(50)]
    await asyncio.sleep(0.01)
    asking[0].cancel()  # who asked first leaves, the others are answered
    gate.set()
    assert set(await asyncio.gather(*asking[1:])) == {b"0"}
    assert await page.read() == b"1"
    assert len(told) == 2


async def test_a_page_that_cannot_be_made_fails_those_who_asked_and_no_others() -> None:
    numbers = count()

    def make() -> bytes:
        if next(numbers) == 0:
            raise RuntimeError("damaged")
        return b"well"

    page = Page(make, nothing, time.monotonic)
    asked = await asyncio.gather(page.read(), page.read(), return_exceptions=True)
    assert [str(one) for one in asked] == ["damaged", "damaged"]
    assert await page.read() == b"well"


async def test_a_dear_page_is_given_again_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrapes, "DEAR_S", -1.0)
    monkeypatch.setattr(scrapes, "RESTS", 1e9)
    numbers, now = count(), [100.0]
    page = Page(lambda: b"%d" % (sum(range(20_000)) and next(numbers)), nothing, lambda: now[0])
    assert [await page.read(), await page.read()] == [b"0", b"0"]
    now[0] += scrapes.LONGEST_REST_S + 0.001
    assert await page.read() == b"1"
