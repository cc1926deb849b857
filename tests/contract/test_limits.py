"""Limits keep their promise on one server, on a cluster of three, and in this process; and the three count alike."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Protocol

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from n4n.core.limits.levels import Grant, Ledger, Refusal, Settlement
from n4n.core.limits.subjects import Draw, Priority, Subject, caller_subject
from n4n.runtime.limits import scripts
from n4n.runtime.stores import Store
from tests.support.store import open_store
from tests.support.valkey_cluster import ValkeyCluster, running_cluster

_numbers = iter(range(10**9))


def subject_of(**limits: int) -> Subject:
    """A key that nobody used before."""
    found = caller_subject(f"tenant-{next(_numbers)}", "k", limits)
    assert found is not None
    return found


class Buckets(Protocol):
    """What every store does. Answers come with the time they were given at, in ms."""

    async def reserve(self, id: str, subject: Subject, draw: Draw, lease_ms: float = 30_000.0) -> tuple[Grant | Refusal, float]: ...

    async def settle(self, id: str, subject: Subject, told: Settlement) -> tuple[bool, float]: ...

    async def renew(self, subject: Subject, held: dict[str, bool], added: dict[str, float], lease_ms: float = 30_000.0) -> float: ...


class InRedis:
    """The scripts."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def reserve(self, id: str, subject: Subject, draw: Draw, lease_ms: float = 30_000.0) -> tuple[Grant | Refusal, float]:
        reply = await self._store.command(scripts.reserve(id, subject, draw, lease_ms))
        return scripts.reserved(id, subject, reply), scripts.time_of(reply)

    async def settle(self, id: str, subject: Subject, told: Settlement) -> tuple[bool, float]:
        reply = await self._store.command(scripts.settle(id, subject, told))
        assert isinstance(reply, list) and reply[0] == id.encode()
        return reply[1] == 1, scripts.time_of(reply)

    async def renew(self, subject: Subject, held: dict[str, bool], added: dict[str, float], lease_ms: float = 30_000.0) -> float:
        reply = await self._store.command(scripts.renew(subject, held, added, lease_ms))
        assert isinstance(reply, bytes)
        return float(reply)


class Here:
    """The core's arithmetic, on the loop's clock or the time it is told."""

    def __init__(self) -> None:
        self._ledgers: dict[str, Ledger] = {}
        self.now: float | None = None

    def _time(self) -> float:
        return asyncio.get_running_loop().time() * 1000 if self.now is None else self.now

    def ledger(self, subject: Subject) -> Ledger:
        """Of this subject."""
        return self._ledgers.setdefault(subject.keys[0], Ledger(self._time()))

    async def reserve(self, id: str, subject: Subject, draw: Draw, lease_ms: float = 30_000.0) -> tuple[Grant | Refusal, float]:
        now = self._time()
        return self.ledger(subject).reserve(id, subject, draw, now, lease_ms), now

    async def settle(self, id: str, subject: Subject, told: Settlement) -> tuple[bool, float]:
        now = self._time()
        return self.ledger(subject).settle(id, subject, told, now), now

    async def renew(self, subject: Subject, held: dict[str, bool], added: dict[str, float], lease_ms: float = 30_000.0) -> float:
        now = self._time()
        self.ledger(subject).renew(subject, held, added, now, lease_ms)
        return now


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyCluster]:
    """Three masters."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(params=["one server", "three nodes", "here"])
async def buckets(request: pytest.FixtureRequest) -> AsyncIterator[Buckets]:
    """Each of the stores in turn."""
    if request.param == "here":
        yield Here()
        return
    url = request.getfixturevalue("redis_url") if request.param == "one server" else request.getfixturevalue("cluster").url
    async with open_store(url) as store:
        yield InRedis(store)


async def test_everything_is_reserved_or_nothing(buckets: Buckets) -> None:
    subject = subject_of(rpm=60, tpm=1000)
    granted, _ = await buckets.reserve("a", subject, Draw(900.0))
    assert isinstance(granted, Grant) and granted.levels.running == 1
    refused, _ = await buckets.reserve("b", subject, Draw(500.0))
    assert isinstance(refused, Refusal) and refused.bucket == "tokens"
    assert 20_000 < refused.wait_ms <= 24_000
    assert refused.levels.used["requests"] <= 1.0 and refused.levels.running == 1


async def test_settling_twice_is_settling_once_and_never_below_zero(buckets: Buckets) -> None:
    subject = subject_of(tpm=1000)
    await buckets.reserve("a", subject, Draw(900.0))
    assert (await buckets.settle("a", subject, Settlement(refunds={"tokens": 5000.0})))[0]
    assert not (await buckets.settle("a", subject, Settlement(refunds={"tokens": -5000.0})))[0]
    after, _ = await buckets.reserve("b", subject, Draw(1000.0))
    assert isinstance(after, Grant) and 999 <= after.levels.used["tokens"] <= 1000


async def test_more_is_owed_than_was_reserved(buckets: Buckets) -> None:
    subject = subject_of(tpm=1000)
    await buckets.reserve("a", subject, Draw(100.0))
    await buckets.settle("a", subject, Settlement(refunds={"tokens": -1900.0}))
    refused, _ = await buckets.reserve("b", subject, Draw(1.0))
    assert isinstance(refused, Refusal) and 59_000 < refused.wait_ms <= 61_000


async def test_never_more_run_at_once_than_the_limit_says(buckets: Buckets) -> None:
    subject = subject_of(concurrency=10, streams=2)
    answers = await asyncio.gather(*(buckets.reserve(f"r{n}", subject, Draw(stream=n < 4)) for n in range(30)))
    granted = [n for n, (answer, _) in enumerate(answers) if isinstance(answer, Grant)]
    assert len(granted) == 10 and len([n for n in granted if n < 4]) == 2
    assert {answer.bucket for answer, _ in answers if isinstance(answer, Refusal)} == {"concurrency", "streams"}
    for n in granted:
        await buckets.settle(f"r{n}", subject, Settlement())
    again, _ = await buckets.reserve("next", subject, Draw(stream=True))
    assert isinstance(again, Grant) and (again.levels.running, again.levels.streams) == (1, 1)


async def test_a_lease_that_nobody_renews_expires_and_one_that_is_renewed_does_not(buckets: Buckets) -> None:
    subject = subject_of(concurrency=1)
    _, begun = await buckets.reserve("a", subject, Draw(stream=True), lease_ms=60.0)
    await buckets.renew(subject, {"a": True}, {}, lease_ms=400.0)
    while True:
        answer, now = await buckets.reserve("b", subject, Draw())
        if isinstance(answer, Grant):
            break
        await asyncio.sleep(0.01)
    assert 390 < now - begun < 2000


async def test_a_provider_s_word_lowers_a_bucket_and_closes_it_for_a_time(buckets: Buckets) -> None:
    subject = subject_of(rpm=100)
    await buckets.reserve("a", subject, Draw())
    await buckets.settle("a", subject, Settlement(floors={"requests": 99.0}, until_ms=5000.0))
    await buckets.settle("x", subject, Settlement(floors={"requests": 5.0}, until_ms=100.0))
    refused, _ = await buckets.reserve("b", subject, Draw())
    assert isinstance(refused, Refusal) and refused.bucket == "cooldown" and 4000 < refused.wait_ms <= 5000
    assert 90 < refused.levels.used["requests"] <= 99


async def test_what_was_used_elsewhere_counts(buckets: Buckets) -> None:
    subject = subject_of(rpm=60)
    await buckets.renew(subject, {"a": False}, {"requests": 60.0})
    refused, _ = await buckets.reserve("b", subject, Draw())
    assert isinstance(refused, Refusal) and refused.levels.running == 1
    assert (await buckets.settle("a", subject, Settlement()))[0]


async def test_an_edited_limit_applies_at_once_and_resets_nothing(buckets: Buckets) -> None:
    three = subject_of(rpm=3)
    four = Subject(three.name, three.keys, subject_of(rpm=4).rates)
    for id in "abc":
        assert isinstance((await buckets.reserve(id, three, Draw()))[0], Grant)
    assert isinstance((await buckets.reserve("d", three, Draw()))[0], Refusal)
    assert isinstance((await buckets.reserve("d", four, Draw()))[0], Grant)
    assert isinstance((await buckets.reserve("e", four, Draw()))[0], Refusal)


_ids = st.sampled_from(["a", "b", "c", "d", "e"])
_steps = st.one_of(
    st.tuples(st.just("reserve"), _ids, st.floats(0, 1500), st.booleans(), st.sampled_from(list(Priority))),
    st.tuples(st.just("settle"), _ids, st.floats(-500, 1500), st.sampled_from([0.0, 0.0, 3.0]), st.sampled_from([0.0, 400.0])),
    st.tuples(st.just("renew"), _ids, st.floats(0, 300), st.booleans(), st.just(None)),
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(steps=st.lists(_steps, max_size=25))
def test_redis_and_the_core_count_alike(redis_server: str, steps: list[tuple[object, ...]]) -> None:
    asyncio.run(_compared(redis_server, steps))


async def _compared(url: str, steps: list[tuple[object, ...]]) -> None:
    subject, here = subject_of(rpm=60_000, burst=8, tpm=600_000, concurrency=3, streams=1), Here()
    async with open_store(url) as store:
        there = InRedis(store)
        for kind, id, number, flag, last in steps:
            assert isinstance(id, str) and isinstance(number, float)
            if kind == "reserve":
                draw = Draw(number, bool(flag), Priority(str(last)))
                answer, here.now = await there.reserve(id, subject, draw, 50.0)
                assert _rounded(answer) == _rounded((await here.reserve(id, subject, draw, 50.0))[0])
            elif kind == "settle":
                assert isinstance(flag, float) and isinstance(last, float)
                told = Settlement({"tokens": number, "requests": 1.0}, {"requests": flag}, last / 100)
                was_open, here.now = await there.settle(id, subject, told)
                assert was_open == (await here.settle(id, subject, told))[0]
            else:
                here.now = await there.renew(subject, {id: bool(flag)}, {"tokens": number}, 50.0)
                await here.renew(subject, {id: bool(flag)}, {"tokens": number}, 50.0)


def _rounded(answer: Grant | Refusal) -> object:
    used = {name: round(level, 3) for name, level in answer.levels.used.items()}
    if isinstance(answer, Grant):
        return used, answer.levels.running
    return answer.bucket, round(answer.wait_ms, 3), used, answer.levels.running
