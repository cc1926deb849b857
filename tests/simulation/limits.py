"""A hundred routers, a thousand accounts, skewed traffic, dying routers and Redis: `python -m tests.simulation.limits` draws the picture.

Every account may have so many requests a minute. Its traffic follows Zipf's law, so a few have many times what they may and most have
little; so does the routers' share of it; of each account's callers one asks for most.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bench.plot import Panel, svg
from n4n.core.candidates import Candidate
from n4n.core.limits.subjects import account_subject
from tests.simulation.clock import VirtualLoop
from tests.simulation.limits_world import Redis, SimulatedRouter, plan_of
from tests.support.endpoints import endpoint

RPM = 60
TENANTS, FLOOD = 5, 0.8  # of each account's traffic one tenant has so much
PICTURE = Path(__file__).parents[2] / "docs" / "limits-simulation.svg"
OVER_S = 60.0  # over which admission is compared
LEAST_ASKED = 10  # of a router, to say anything of it


@dataclass(frozen=True)
class Plot:
    """What happens, in seconds from the beginning: `deaths` routers die in turn, Redis is away, half of the routers cannot reach it."""

    seconds: float = 420.0
    routers: int = 100
    accounts: int = 1000
    rate: float = 300.0
    deaths: int = 30
    dying: tuple[float, float] = (120.0, 180.0)
    away: tuple[float, float] = (200.0, 260.0)
    parted: tuple[float, float] = (330.0, 360.0)
    seed: int = 7


Event = tuple[float, int, int, int]  # when, account, tenant, router


@dataclass
class Seen:
    """What was asked and what of it admitted. `hot`: accounts that are asked for more than they may; `held` at rest, by all routers."""

    plot: Plot
    asked: list[Event] = field(default_factory=list)
    admitted: list[Event] = field(default_factory=list)
    held: int = 0
    hot: Sequence[int] = ()

    def of_limits(self, at: float) -> float:
        """What hot accounts were admitted in the time before, as a share of what their limits give in it, full buckets not counted."""
        return len(self._hot(self.admitted, at)) / (len(self.hot) * RPM / 60 * OVER_S)

    def beyond(self, step_s: float) -> list[tuple[float, float]]:
        """By time, the most that any account was admitted beyond what a bucket kept in one place would have let through, in buckets."""
        level, since, found = [0.0] * self.plot.accounts, [0.0] * self.plot.accounts, [0.0] * (int(self.plot.seconds / step_s) + 1)
        for when, account, _, _ in sorted(self.admitted):
            level[account] = max(0.0, level[account] - (when - since[account]) * RPM / 60) + 1
            since[account] = when
            at = min(len(found) - 1, int(when / step_s))
            found[at] = max(found[at], level[account] / RPM - 1)
        return [(at * step_s, most) for at, most in enumerate(found)]

    def between_tenants(self, at: float) -> float:
        """Jain's index of what the tenants of hot accounts were admitted: 1 where all had the same, 1 / TENANTS where one had all."""
        count = {account: [0] * TENANTS for account in self.hot}
        for _, account, tenant, _ in self._hot(self.admitted, at):
            count[account][tenant] += 1
        return _mean([_jain(one) for one in count.values() if sum(one)])

    def between_routers(self, at: float) -> float:
        """The same of the share that each router was admitted of what it was asked, for hot accounts."""
        asked, admitted = [0] * self.plot.routers, [0] * self.plot.routers
        for count, events in ((asked, self.asked), (admitted, self.admitted)):
            for _, _, _, router in self._hot(events, at):
                count[router] += 1
        return _jain([had / of for had, of in zip(admitted, asked, strict=True) if of >= LEAST_ASKED])

    def _hot(self, events: Sequence[Event], at: float) -> list[Event]:
        hot = set(self.hot)
        return [one for one in events if at - OVER_S < one[0] <= at and one[1] in hot]


def _jain(values: Sequence[float]) -> float:
    return sum(values) ** 2 / (len(values) * sum(one * one for one in values)) if any(values) else 1.0


def _mean(values: Sequence[float]) -> float:
    return sum(values) / max(1, len(values))


def simulated(plot: Plot) -> Seen:
    """The whole of it."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(_Fleet(plot).live())


class _Fleet:
    def __init__(self, plot: Plot) -> None:
        self._plot, self._dice, self._seen = plot, random.Random(plot.seed), Seen(plot)
        ends = [endpoint(f"e{number}", accounts=[f"a{number}"]) for number in range(plot.accounts)]
        limits = {"rpm": RPM}
        self._plans, subjects = [], []
        for one in ends:
            (account,) = one.accounts
            object.__setattr__(account, "limits", limits)
            self._plans.append(plan_of(Candidate(one, account, 1.0)))
            subject = account_subject(account.name, one.upstream_model, limits)
            assert subject is not None
            subjects.append(subject)
        self._subjects = {subject.keys[0]: subject for subject in subjects}
        self._weights = [1 / (number + 1) for number in range(plot.accounts)]
        total = sum(self._weights)
        self._seen.hot = [at for at, weight in enumerate(self._weights) if plot.rate * weight / total > 1.2 * RPM / 60]
        self._routers: list[SimulatedRouter] = []
        self._born = 0

    async def live(self) -> Seen:
        """From the first request to the last."""
        loop, plot = asyncio.get_running_loop(), self._plot
        self._zero = loop.time()
        self._redis = Redis(loop.time, self._subjects)
        self._routers = [self._new_router() for _ in range(plot.routers)]
        await asyncio.sleep(1.0)
        self._zero = loop.time()
        async with asyncio.TaskGroup() as group:
            for work in (self._deaths(), self._outage(), self._partition()):
                group.create_task(work)
            await self._traffic()
        await asyncio.sleep(12.0)  # those that wait, then what runs
        self._seen.held = sum(router.limits.held for router in self._routers)
        for router in self._routers:
            await router.die()
            if router.failed:
                raise router.failed[0]
        return self._seen

    def _new_router(self) -> SimulatedRouter:
        self._born += 1
        return SimulatedRouter(f"r{self._born}", self._redis, asyncio.get_running_loop().time, self._dice)

    async def _traffic(self) -> None:
        loop, plot, dice, seen = asyncio.get_running_loop(), self._plot, self._dice, self._seen
        accounts, places = range(plot.accounts), range(plot.routers)
        shares = [(number + 1) ** -0.5 for number in places]
        while loop.time() - self._zero < plot.seconds:
            (account,), (at,) = dice.choices(accounts, self._weights), dice.choices(places, shares)
            tenant = 0 if dice.random() < FLOOD else 1 + dice.randrange(TENANTS - 1)
            seen.asked.append((loop.time() - self._zero, account, tenant, at))
            self._routers[at].ask(f"t{tenant}", self._plans[account], partial(self._told, account, tenant, at))
            await asyncio.sleep(dice.expovariate(plot.rate))

    def _told(self, account: int, tenant: int, router: int, admitted: bool) -> None:
        if admitted:
            self._seen.admitted.append((asyncio.get_running_loop().time() - self._zero, account, tenant, router))

    async def _at(self, when: float) -> None:
        await asyncio.sleep(max(0.0, self._zero + when - asyncio.get_running_loop().time()))

    async def _deaths(self) -> None:
        begin, end = self._plot.dying
        for number in range(self._plot.deaths):
            await self._at(begin + (end - begin) * number / self._plot.deaths)
            at = self._dice.randrange(self._plot.routers)
            await self._routers[at].die()
            self._routers[at] = self._new_router()

    async def _outage(self) -> None:
        begin, end = self._plot.away
        await self._at(begin)
        self._redis.is_away = True
        await self._at(end)
        self._redis.lose()
        self._redis.is_away = False

    async def _partition(self) -> None:
        begin, end = self._plot.parted
        await self._at(begin)
        parted = self._routers[::2]
        for router in parted:
            router.way.is_cut = True
        await self._at(end)
        for router in parted:
            router.way.is_cut = False


def picture(seen: Seen) -> str:
    """SVG: admission, over-admission and fairness over time."""
    plot = seen.plot
    times = [float(at) for at in range(int(OVER_S), int(plot.seconds) + 1, 5)]
    marks = [
        (plot.dying[0], f"{plot.deaths} routers die in a minute"),
        (plot.away[0], "Redis is away"),
        (plot.away[1], "Redis is back, empty"),
        (plot.parted[0], "half of the routers cannot reach Redis"),
        (plot.parted[1], "they can again"),
    ]
    panels = [
        Panel(
            f"What the {len(seen.hot)} accounts that are asked for more than they may were admitted in a minute, of their limits, %",
            [(at, 100 * seen.of_limits(at)) for at in times],
        ),
        Panel(
            "The most that one account was admitted beyond its bucket, % of the bucket",
            [(at, max(0.0, 100 * most)) for at, most in seen.beyond(5)],
        ),
        Panel(
            "Evenness between routers: of what each is asked, the share that is admitted (Jain's index)",
            [(at, seen.between_routers(at)) for at in times],
        ),
        Panel(
            f"Evenness between {TENANTS} tenants, one of which asks for {FLOOD:.0%} (Jain's index; as they ask: 0.31)",
            [(at, seen.between_tenants(at)) for at in times],
        ),
    ]
    return svg(panels, marks)


def main() -> None:
    """Draws it, and tells the figures."""
    seen = simulated(Plot())
    PICTURE.write_text(picture(seen))
    plot = seen.plot
    beyond = seen.beyond(1)
    for what, begin, end in [
        ("calm", OVER_S, plot.dying[0]),
        ("routers die", *plot.dying),
        ("Redis away", *plot.away),
        ("Redis back", plot.away[1], plot.parted[0]),
        ("half parted", *plot.parted),
        ("whole again", plot.parted[1], plot.seconds),
    ]:
        most = max(share for at, share in beyond if begin <= at < end)
        even = f"evenness of routers {seen.between_routers(end):.2f}, of tenants {seen.between_tenants(end):.2f}"
        print(f"{what:12} of limits {100 * seen.of_limits(end):6.1f} %, most beyond a bucket {100 * most:6.1f} %, {even}")
    print(f"{len(seen.asked)} requests, {len(seen.admitted)} admitted, {seen.held} held at rest")


if __name__ == "__main__":
    main()
