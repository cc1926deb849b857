"""How long a router's event loop stands still while a new version is taken over: the real follower beside a clock that should tick."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import uvloop

from bench.catalogs import PROVIDERS, Document, large_catalog, with_changes
from control_plane.lines import NONE, Held, Line
from n4n.core.discovery import Part
from n4n.core.document import parse_document
from n4n.runtime import wire
from n4n.runtime.control_link import Ack
from n4n.runtime.credentials import Credentials
from n4n.runtime.follower import Follower, Pace

TICK_S = 0.001
KEYS = {f"P{n}_KEY": "none" for n in range(PROVIDERS)}
Change = Callable[[Document, int], Document]


@dataclass(frozen=True, slots=True)
class Stall:
    """One kind of version: how long taking it over took, and how late a tick came meanwhile; milliseconds, the worst of all times."""

    kind: str
    swap_ms: float
    stall_ms: float


class _Clock:
    """Ticks every millisecond and remembers the longest delay."""

    def __init__(self) -> None:
        self.latest_s = 0.0

    async def run(self) -> None:
        while True:
            due = time.perf_counter() + TICK_S
            await asyncio.sleep(TICK_S)
            self.latest_s = max(self.latest_s, time.perf_counter() - due)


def measure(folder: Path, *, endpoints: int, models: int, times: int) -> list[Stall]:
    """Each kind of version so many times."""
    return uvloop.run(_measure(folder, large_catalog(endpoints, models), times))


async def _measure(folder: Path, document: Document, times: int) -> list[Stall]:
    kinds: Sequence[tuple[str, Change, bool]] = (
        ("10 entries changed", lambda old, number: with_changes(old, number, 10), False),
        ("every endpoint changed", _all_changed, False),
        ("the whole, to a router that held nothing", lambda old, number: old, True),
    )
    return [await _stall(folder, document, kind, change, anew, times) for kind, change, anew in kinds]


async def _stall(folder: Path, document: Document, kind: str, change: Change, anew: bool, times: int) -> Stall:
    line, held = Line(wire.CATALOG), NONE
    follower = Follower(folder / "catalog.snapshot", Credentials(KEYS), pace=Pace())
    swap_s = stall_s = 0.0
    if not anew:
        line.publish(1, _resources(document), 1)
        held, _ = await _take_over(follower, line, NONE)
    for number in range(2, times + 2):
        line.publish(number, _resources(change(document, number)), number)
        parts = [wire.decode_watch(encoded) for encoded in line.updates_from(held)]
        assert parts
        clock = _Clock()
        ticking = asyncio.create_task(clock.run())
        await asyncio.sleep(0.05)
        clock.latest_s = 0.0
        after, took = await _take_over(follower, line, held)
        swap_s, stall_s = max(swap_s, took), max(stall_s, clock.latest_s)
        ticking.cancel()
        with suppress(asyncio.CancelledError):
            await ticking
        held = NONE if anew else after
        if anew:
            follower = Follower(folder / "catalog.snapshot", Credentials(KEYS), pace=Pace())
    return Stall(kind, swap_s * 1000, stall_s * 1000)


async def _take_over(follower: Follower, line: Line, held: Held) -> tuple[Held, float]:
    began = time.perf_counter()
    for encoded in line.updates_from(held):
        part = wire.decode_watch(encoded)
        assert isinstance(part, Part)
        answers = await follower.receive(part)
    took = time.perf_counter() - began
    (answer,) = answers
    assert isinstance(answer, Ack), answer
    return (answer.held.version, answer.held.checksum), took


def _resources(document: Document) -> wire.Resources:
    normal, problems = parse_document(document)
    assert not problems, problems[0]
    return wire.catalog_resources(normal, {})


def _all_changed(document: Document, number: int) -> Document:
    return {**document, "endpoints": {name: {**endpoint, "weight": number} for name, endpoint in document["endpoints"].items()}}
