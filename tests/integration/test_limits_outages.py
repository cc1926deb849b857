"""`Limits` over a Redis that is well, that goes, and that comes back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from n4n.core.breaker import Breaker
from n4n.core.limits.levels import Refusal, Settlement
from n4n.core.limits.subjects import Draw, Subject, Took, key_subject
from n4n.runtime.limits import Limits, Reservation, Sight
from n4n.runtime.limits.packed import RENEW, RESERVE, SETTLE, SIGHT
from tests.support.store import Changes, open_store
from tests.support.valkey import ValkeyServer, running_valkey


def subject_of(**limits: int) -> Subject:
    found = key_subject("acme", "k", limits)
    assert found is not None
    return found


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ValkeyServer]:
    """A Redis of this test alone."""
    with running_valkey(tmp_path) as running:
        with running.client() as client:
            for script in (RESERVE, SETTLE, RENEW, SIGHT):
                client.script_load(script.source.decode())
        yield running


@asynccontextmanager
async def limits_of(server: ValkeyServer, router: str = "r1", heard: list[Sight] | None = None) -> AsyncIterator[tuple[Limits, Changes]]:
    """One router's limits."""
    changes = Changes()
    async with open_store(server.url, changes, deadline_s=0.05) as store:
        yield Limits(store, router=router, clock=time.monotonic, others=(heard if heard is not None else []).append), changes


async def admitted(limits: Limits, subject: Subject, tries: int, tag: str = "") -> int:
    """How many of so many requests get in, none of which ends."""
    answers = [(await limits.reserve(f"{tag}{n}".encode().ljust(12), [(limits.party(subject), Draw())]))[0] for n in range(tries)]
    return sum(isinstance(answer, Reservation) for answer in answers)


async def test_two_routers_share_one_limit(server: ValkeyServer) -> None:
    subject = subject_of(rpm=6, burst=20)
    async with limits_of(server) as (one, _), limits_of(server, "r2") as (two, _):
        assert await admitted(one, subject, 15, "a") + await admitted(two, subject, 15, "b") == 20
        for limits in (one, two):
            await limits.look()
        assert two.routers == 2


async def test_while_redis_is_away_each_router_admits_its_share_and_nobody_fails(server: ValkeyServer) -> None:
    subject = subject_of(rpm=60, burst=20)
    async with limits_of(server) as (one, changes), limits_of(server, "r2") as (two, more):
        for limits in (one, two, one):
            await limits.look()
        assert await admitted(one, subject, 4, "a") + await admitted(two, subject, 4, "b") == 8
        server.kill()
        await changes.until(lambda: changes[-1][0] is Breaker.OPEN)
        await more.until(lambda: more[-1][0] is Breaker.OPEN)
        late = await admitted(one, subject, 30, "c") + await admitted(two, subject, 30, "d")
        assert 10 <= late <= 16  # 20 less 8, of which one router knew 4 and the other all
        assert one.fallbacks == 30


async def test_a_share_is_told_as_the_part_of_the_whole_that_it_is(server: ValkeyServer) -> None:
    subject = subject_of(rpm=60)
    async with limits_of(server) as (limits, changes):
        await admitted(limits, subject, 10)
        server.kill()
        await changes.until(lambda: changes[-1][0] is Breaker.OPEN)
        limits.routers = 3
        late = (await limits.reserve(b"late........", [(limits.party(subject), Draw())]))[0]
        assert isinstance(late, Reservation) and 10 < late.used()[0] <= 13  # ten, of which a third is ours, and three thirds of one


async def test_when_redis_is_back_nobody_gets_a_second_burst_and_running_requests_keep_their_places(server: ValkeyServer) -> None:
    subject = subject_of(rpm=60, burst=20, concurrency=15)
    async with limits_of(server) as (limits, changes):
        before = (await limits.reserve(b"before......", [(limits.party(subject), Draw())]))[0]
        assert isinstance(before, Reservation)
        server.kill()
        await changes.until(lambda: changes[-1][0] is Breaker.OPEN)
        assert await admitted(limits, subject, 30, "away") == 14  # and the one that ran before
        server.start()
        await changes.until(lambda: changes[-1][0] is Breaker.CLOSED)
        refused = (await limits.reserve(b"late........", [(limits.party(subject), Draw())]))[0]
        assert isinstance(refused, Refusal) and refused.bucket == "concurrency"
        assert refused.levels[0].running == 15
        assert refused.levels[0].used[0] > 10
        limits.settle(before, Settlement(Took(1.0)))
        limits.close()
        await limits.look()  # a server that was started anew is taught a script with its first call
        after = (await limits.reserve(b"after.......", [(limits.party(subject), Draw())]))[0]
        assert isinstance(after, Reservation) and after.levels()[0].running == 15


async def test_a_server_that_stands_still_costs_one_deadline_and_then_nothing(server: ValkeyServer) -> None:
    subject = subject_of(rpm=600)
    async with limits_of(server) as (limits, changes):
        await limits.reserve(b"known.......", [(limits.party(subject), Draw())])
        server.freeze()
        try:
            begun = time.monotonic()
            answers = await asyncio.gather(*(limits.reserve(b"%12d" % n, [(limits.party(subject), Draw())]) for n in range(20)))
            assert time.monotonic() - begun < 0.5
            assert all(isinstance(answer, Reservation) for [answer] in answers)
            await changes.until(lambda: changes[-1][0] is Breaker.OPEN)
        finally:
            server.thaw()


async def test_what_ran_out_of_time_but_was_carried_out_leaves_no_lease(server: ValkeyServer) -> None:
    subject = subject_of(concurrency=5, rpm=600)
    async with limits_of(server) as (limits, changes):
        server.freeze()
        answer = (await limits.reserve(b"slow........", [(limits.party(subject), Draw())]))[0]
        assert isinstance(answer, Reservation)
        server.thaw()
        limits.give_back(answer)
        if changes[-1][0] is not Breaker.CLOSED:
            await changes.until(lambda: changes[-1][0] is Breaker.CLOSED)
        after = (await limits.reserve(b"next........", [(limits.party(subject), Draw())]))[0]
        assert isinstance(after, Reservation) and after.levels()[0].running == 1
        assert limits.held == 1


async def test_who_leaves_while_redis_is_asked_holds_nothing_afterwards(server: ValkeyServer) -> None:
    subject = subject_of(concurrency=5, rpm=600)
    async with limits_of(server) as (limits, _):
        for n in range(20):
            asking = asyncio.create_task(limits.reserve(b"gone%8d" % n, [(limits.party(subject), Draw())]))
            await asyncio.sleep(0)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        after = (await limits.reserve(b"next........", [(limits.party(subject), Draw())]))[0]
        assert isinstance(after, Reservation) and after.levels()[0].running == 1
        assert after.used()[0] < 1.1


async def test_all_routers_hear_of_a_cooldown_and_the_longest_wins(server: ValkeyServer) -> None:
    heard: list[Sight] = []
    async with limits_of(server) as (one, _), limits_of(server, "r2", heard) as (two, _):
        one.announce("a main rate_limited", 30.0)
        one.announce("a main rate_limited", 10.0)
        await one.look()
        await two.look()
        await two.look()
        one.announce("a main rate_limited", 5.0)
        await one.look()
        await two.look()
        assert [(sight.name, round(sight.seconds)) for sight in heard] == [("a main rate_limited", 30)]


async def test_leases_are_renewed_while_their_requests_run(server: ValkeyServer) -> None:
    subject, now = subject_of(concurrency=1), [0.0]
    async with open_store(server.url, deadline_s=0.5) as store:
        limits = Limits(store, router="r1", clock=lambda: now[0])
        await limits.reserve(b"long........", [(limits.party(subject), Draw(stream=True))])
        with server.client() as client:
            client.zadd(subject.keys[1], {"long........": 1})  # as good as expired
            now[0] += 11.0
            limits.renew()
            await limits.look()
            assert client.zscore(subject.keys[1], "long........") > 1e12
            assert client.zscore(subject.keys[2], "long........") > 1e12
