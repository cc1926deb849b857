"""A steady load on a virtual clock, while endpoints limit, fail or come back: how many clients notice, and what it costs upstream."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from n4n.core.catalog import Timeouts
from tests.simulation.clock import VirtualLoop
from tests.simulation.load import GOOD
from tests.simulation.world import Client, Script, World, refusal
from tests.support.endpoints import chat, endpoint, model

Fault = Callable[[str, float, random.Random], Script | None]  # of an endpoint, at an instant of the run; None: it answers
DOWN = (60.0, 120.0)  # the minute of an outage


@dataclass(frozen=True)
class Ended:
    """One request of a run; times in seconds since the run began."""

    began: float
    took: float
    status: int
    retry_after_s: float | None


def run(fault: Fault, *, endpoints: int, rate: float, seconds: float, total_ms: int = 20_000) -> tuple[list[Ended], list[float]]:
    """A load of `rate` requests per second, half of them streams: how each ended, and when calls arrived upstream."""

    async def load() -> tuple[list[Ended], list[float]]:
        dice, loop = random.Random(7), asyncio.get_running_loop()
        zero = loop.time()
        held = [endpoint(f"e{at}", upstream_model=f"e{at}") for at in range(endpoints)]
        policy = model(timeouts=Timeouts(1000, 1000, 1000, total_ms))
        world = World(held, [policy], lambda name, _, stream: fault(name, loop.time() - zero, dice) or GOOD[stream], dice.random)
        clients = []
        async with asyncio.TaskGroup() as group:
            for at in range(int(rate * seconds)):
                clients.append(Client(world, f"r{at}", chat(stream=at % 2 == 0)))
                group.create_task(clients[-1].run())
                await asyncio.sleep(dice.expovariate(rate))
        return [_ended(client, zero) for client in clients], [call.at - zero for call in world.calls]

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(load())


def _ended(client: Client, zero: float) -> Ended:
    error = client.error
    status, back = (200, None) if error is None else (error.status, error.retry_after_s)
    return Ended(client.started - zero, client.ended - client.started, status, back)


@pytest.mark.parametrize("retry_after", [None, 1, 5])
@pytest.mark.parametrize("endpoints", [2, 3])
def test_an_endpoint_that_limits_a_fifth_of_its_calls_is_not_noticed(endpoints: int, retry_after: int | None) -> None:
    def fault(name: str, _: float, dice: random.Random) -> Script | None:
        return refusal(429, retry_after) if name == "e0" and dice.random() < 0.2 else None

    ended, calls = run(fault, endpoints=endpoints, rate=50, seconds=60)

    assert sum(one.status != 200 for one in ended) <= 0.001 * len(ended)
    assert len(calls) <= 1.25 * len(ended)


OUTAGES: dict[str, Script] = {
    "503": refusal(503),
    "500": refusal(500),
    "refused": Script(None),
    "hang": Script(1e9),
    "page": Script(0.01, 200, ((0.0, b"<html>"),)),
}


@pytest.mark.parametrize("kind", OUTAGES)
@pytest.mark.parametrize("endpoints", [1, 3])
def test_an_outage_of_every_endpoint_is_told_in_time_multiplies_nothing_and_ends_when_it_ends(endpoints: int, kind: str) -> None:
    def fault(_: str, at: float, __: random.Random) -> Script | None:
        return OUTAGES[kind] if DOWN[0] <= at < DOWN[1] else None

    ended, calls = run(fault, endpoints=endpoints, rate=20, seconds=150, total_ms=10_000)

    during = [one for one in ended if DOWN[0] <= one.began < DOWN[1]]
    upstream = sum(DOWN[0] <= at < DOWN[1] for at in calls)
    assert upstream <= 1.2 * len(during) + 10, f"{upstream} calls for {len(during)} requests"
    assert {one.status for one in during if one.began + one.took < DOWN[1]} <= {502, 503, 504}
    assert all((one.retry_after_s is not None) == (one.status == 503) for one in during)
    assert all(one.took <= 10.0 for one in ended)
    assert all(one.status == 200 for one in ended if one.began < DOWN[0] - 2 or one.began > DOWN[1] + 5)


def test_what_a_provider_ordered_is_kept_by_all_requests_together() -> None:
    def fault(_: str, at: float, __: random.Random) -> Script | None:
        return refusal(429, 20) if at < 10 else None

    ended, calls = run(fault, endpoints=2, rate=20, seconds=40)

    first = min(calls)
    assert [at for at in calls if first + 1 < at < first + 20] == []
    assert all(one.status == 429 and one.retry_after_s is not None for one in ended if one.began < 10)
    assert all(one.status == 200 for one in ended if one.began > 25)
