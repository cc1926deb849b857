"""Limits keep their promise on one server, on a cluster of three, and in this process; and the three count alike."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Protocol

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from n4n.core.limits.levels import Grant, Ledger, Refusal, Settlement, reserve
from n4n.core.limits.subjects import RESERVES, Draw, Priority, Subject, Took, key_subject, tenant_subject
from n4n.runtime.limits import Party, scripts
from n4n.runtime.stores import Store
from tests.support.store import open_store
from tests.support.valkey_cluster import ValkeyCluster, running_cluster

LEASE_MS = 30_000.0


def _id(name: str) -> bytes:
    """A reservation by name."""
    return name.encode().ljust(12)


_numbers = iter(range(10**9))


def subject_of(**limits: int) -> Subject:
    """A key that nobody used before."""
    found = key_subject(f"tenant-{next(_numbers)}", "k", limits)
    assert found is not None
    return found


def key_and_tenant(key: dict[str, int], tenant: dict[str, int]) -> tuple[Subject, Subject]:
    """Both, that nobody used before."""
    name = f"tenant-{next(_numbers)}"
    both = key_subject(name, "k", key), tenant_subject(name, tenant)
    assert both[0] is not None and both[1] is not None
    return both[0], both[1]


class Buckets(Protocol):
    """What every store does. Answers come with the time they were given at, in ms."""

    async def reserve(self, id: str, draw: Draw, *subjects: Subject, lease_ms: float = LEASE_MS) -> tuple[Grant | Refusal, float]: ...

    async def settle(self, id: str, draw: Draw, told: Settlement, *subjects: Subject) -> tuple[bool, float]: ...

    async def renew(
        self, held: Mapping[str, bool], added: Sequence[float], subject: Subject, *, lease_ms: float = LEASE_MS, whole: Sequence[float] = ()
    ) -> float: ...


class InRedis:
    """The scripts."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def reserve(self, id: str, draw: Draw, *subjects: Subject, lease_ms: float = LEASE_MS) -> tuple[Grant | Refusal, float]:
        party = Party(subjects)
        numbers = party.read(await self._store.command(party.reserve(_id(id), draw, lease_ms)), _id(id))
        return party.refusal(numbers) if numbers[0] else Grant(party.levels(numbers)), numbers[3]

    async def settle(self, id: str, draw: Draw, told: Settlement, *subjects: Subject) -> tuple[bool, float]:
        return scripts.was_open(_id(id), await self._store.command(Party(subjects).settle(_id(id), draw, told)))

    async def renew(
        self, held: Mapping[str, bool], added: Sequence[float], subject: Subject, *, lease_ms: float = LEASE_MS, whole: Sequence[float] = ()
    ) -> float:
        ids = {_id(id): stream for id, stream in held.items()}
        reply = await self._store.command(scripts.renew(Party([subject]), ids, added, lease_ms, whole))
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
        return self._ledgers.setdefault(subject.keys[0], Ledger())

    async def reserve(self, id: str, draw: Draw, *subjects: Subject, lease_ms: float = LEASE_MS) -> tuple[Grant | Refusal, float]:
        now = self._time()
        return reserve([self.ledger(subject) for subject in subjects], _id(id), subjects, draw, now, lease_ms), now

    async def settle(self, id: str, draw: Draw, told: Settlement, *subjects: Subject) -> tuple[bool, float]:
        now = self._time()
        for other in subjects[1:]:
            self.ledger(other).settle(_id(id), other, draw, Settlement(told.took), now)
        return self.ledger(subjects[0]).settle(_id(id), subjects[0], draw, told, now), now

    async def renew(
        self, held: Mapping[str, bool], added: Sequence[float], subject: Subject, *, lease_ms: float = LEASE_MS, whole: Sequence[float] = ()
    ) -> float:
        now = self._time()
        self.ledger(subject).renew(subject, {_id(id): stream for id, stream in held.items()}, added, now, lease_ms, whole)
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
    granted, _ = await buckets.reserve("a", Draw(900.0), subject)
    assert isinstance(granted, Grant) and granted.levels[0].running == 1
    refused, _ = await buckets.reserve("b", Draw(500.0), subject)
    assert isinstance(refused, Refusal) and refused.bucket == "tokens"
    assert 20_000 < refused.wait_ms <= 24_000
    assert refused.levels[0].used[0] <= 1.0 and refused.levels[0].running == 1


async def test_a_key_and_its_tenant_are_reserved_together_or_not_at_all(buckets: Buckets) -> None:
    key, tenant = key_and_tenant({"rpm": 60, "tpm": 5000}, {"rpm": 2, "concurrency": 10})
    other = Subject(key.name, tuple(name.replace(":k:", ":other:") for name in key.keys), key.buckets)  # type: ignore[arg-type]
    assert isinstance((await buckets.reserve("a", Draw(100.0), key, tenant))[0], Grant)
    assert isinstance((await buckets.reserve("b", Draw(100.0), other, tenant))[0], Grant)
    refused, _ = await buckets.reserve("c", Draw(100.0), key, tenant)
    assert isinstance(refused, Refusal) and (refused.whose, refused.bucket) == (1, "requests")
    assert [level.running for level in refused.levels] == [1, 2]
    assert refused.levels[0].used[1] <= 100.0  # nothing was taken of the key's
    assert (await buckets.settle("a", Draw(100.0), Settlement(Took(1.0, 30.0)), key, tenant))[0]
    assert (await buckets.settle("b", Draw(100.0), Settlement(), other, tenant))[0]
    again, _ = await buckets.reserve("c", Draw(100.0), key, tenant)
    assert isinstance(again, Grant) and [level.running for level in again.levels] == [1, 1]
    assert 100.0 < again.levels[0].used[1] <= 130.0  # less what drained meanwhile, 83 a second; 200 if nothing had been settled


async def test_settling_twice_is_settling_once_and_never_below_zero(buckets: Buckets) -> None:
    subject = subject_of(tpm=1000)
    await buckets.reserve("a", Draw(900.0), subject)
    assert (await buckets.settle("a", Draw(5000.0), Settlement(), subject))[0]
    assert not (await buckets.settle("a", Draw(), Settlement(Took(1.0, 5000.0)), subject))[0]
    after, _ = await buckets.reserve("b", Draw(1000.0), subject)
    assert isinstance(after, Grant) and 999 <= after.levels[0].used[0] <= 1000


async def test_more_is_owed_than_was_reserved(buckets: Buckets) -> None:
    subject = subject_of(tpm=1000)
    await buckets.reserve("a", Draw(100.0), subject)
    await buckets.settle("a", Draw(100.0), Settlement(Took(1.0, 2000.0)), subject)
    refused, _ = await buckets.reserve("b", Draw(1.0), subject)
    assert isinstance(refused, Refusal) and 59_000 < refused.wait_ms <= 61_000


async def test_never_more_run_at_once_than_the_limit_says(buckets: Buckets) -> None:
    subject = subject_of(concurrency=10, streams=2)
    answers = await asyncio.gather(*(buckets.reserve(f"r{n}", Draw(stream=n < 4), subject) for n in range(30)))
    granted = [n for n, (answer, _) in enumerate(answers) if isinstance(answer, Grant)]
    assert len(granted) == 10 and len([n for n in granted if n < 4]) == 2
    assert {answer.bucket for answer, _ in answers if isinstance(answer, Refusal)} == {"concurrency", "streams"}
    for n in granted:
        await buckets.settle(f"r{n}", Draw(stream=n < 4), Settlement(), subject)
    again, _ = await buckets.reserve("next", Draw(stream=True), subject)
    assert isinstance(again, Grant) and (again.levels[0].running, again.levels[0].streams) == (1, 1)


async def test_a_lease_that_nobody_renews_expires_and_one_that_is_renewed_does_not(buckets: Buckets) -> None:
    subject = subject_of(concurrency=1)
    _, begun = await buckets.reserve("a", Draw(stream=True), subject, lease_ms=60.0)
    await buckets.renew({"a": True}, (), subject, lease_ms=400.0)
    while True:
        answer, now = await buckets.reserve("b", Draw(), subject)
        if isinstance(answer, Grant):
            break
        await asyncio.sleep(0.01)
    assert 390 < now - begun < 2000


async def test_a_provider_s_word_lowers_a_bucket_and_closes_it_for_a_time(buckets: Buckets) -> None:
    subject = subject_of(rpm=100)
    await buckets.reserve("a", Draw(), subject)
    await buckets.settle("a", Draw(), Settlement(Took(1.0), floors={"requests": 99.0}, until_ms=5000.0), subject)
    await buckets.settle("x", Draw(), Settlement(floors={"requests": 5.0}, until_ms=100.0), subject)
    refused, _ = await buckets.reserve("b", Draw(), subject)
    assert isinstance(refused, Refusal) and refused.bucket == "cooldown" and 4000 < refused.wait_ms <= 5000
    assert 90 < refused.levels[0].used[0] <= 99


async def test_a_refusal_without_a_word_leaves_less_of_the_limit_for_everybody(buckets: Buckets) -> None:
    subject = subject_of(rpm=10, concurrency=100)
    await buckets.settle("a", Draw(), Settlement(refused=True), subject)
    await buckets.settle("b", Draw(), Settlement(refused=True), subject)  # together with the other
    answers = [(await buckets.reserve(f"r{n}", Draw(), subject))[0] for n in range(9)]
    assert [isinstance(answer, Grant) for answer in answers] == [True] * 7 + [False] * 2
    refused = answers[-1]
    assert isinstance(refused, Refusal) and 8_000 < refused.wait_ms <= 6_000 / 0.7


async def test_what_was_used_elsewhere_counts(buckets: Buckets) -> None:
    subject = subject_of(rpm=60)
    await buckets.renew({"a": False}, (60.0,), subject)
    refused, _ = await buckets.reserve("b", Draw(), subject)
    assert isinstance(refused, Refusal) and refused.levels[0].running == 1
    assert (await buckets.settle("a", Draw(), Settlement(Took(1.0)), subject))[0]


async def test_what_a_restarted_server_lost_is_brought_back_by_every_router(buckets: Buckets) -> None:
    subject = subject_of(rpm=60)
    for _ in range(3):
        await buckets.renew({}, (1.0,), subject, whole=(15.0,))
    answer, _ = await buckets.reserve("a", Draw(), subject)
    assert isinstance(answer, Grant) and 45.0 < answer.levels[0].used[0] <= 46.0


async def test_what_is_known_is_not_brought_back(buckets: Buckets) -> None:
    subject = subject_of(rpm=60)
    await buckets.reserve("a", Draw(), subject)
    await buckets.renew({}, (1.0,), subject, whole=(15.0,))
    answer, _ = await buckets.reserve("b", Draw(), subject)
    assert isinstance(answer, Grant) and 2.0 < answer.levels[0].used[0] <= 3.0


async def test_an_edited_limit_applies_at_once_and_resets_nothing(buckets: Buckets) -> None:
    three = subject_of(rpm=3)
    four = Subject(three.name, three.keys, subject_of(rpm=4).buckets)
    tokens = Subject(three.name, three.keys, subject_of(tpm=1000).buckets)
    for id in "abc":
        assert isinstance((await buckets.reserve(id, Draw(), three))[0], Grant)
    assert isinstance((await buckets.reserve("d", Draw(), three))[0], Refusal)
    assert isinstance((await buckets.reserve("x", Draw(), tokens))[0], Grant)  # for a moment its requests are not limited
    assert isinstance((await buckets.reserve("d", Draw(), four))[0], Grant)
    assert isinstance((await buckets.reserve("e", Draw(), four))[0], Refusal)


_ids = st.sampled_from(["a", "b", "c", "d", "e"])
_steps = st.one_of(
    st.tuples(st.just("reserve"), _ids, st.floats(0, 1500), st.booleans(), st.sampled_from(list(Priority))),
    st.tuples(st.just("settle"), _ids, st.floats(0, 1500), st.sampled_from([0.0, 0.0, 3.0]), st.sampled_from([0.0, 400.0])),
    st.tuples(st.just("renew"), _ids, st.floats(0, 300), st.booleans(), st.just(None)),
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(steps=st.lists(_steps, max_size=25))
def test_redis_and_the_core_count_alike(redis_server: str, steps: list[tuple[object, ...]]) -> None:
    asyncio.run(_compared(redis_server, steps))


async def _compared(url: str, steps: list[tuple[object, ...]]) -> None:
    key, tenant = key_and_tenant(
        {"rpm": 60_000, "burst": 8, "tpm": 600_000, "concurrency": 3, "streams": 1}, {"rpm": 90_000, "burst": 12, "tpd": 9_000_000}
    )
    tenant = Subject(tenant.name, tenant.keys, tenant.buckets, concurrency=4)
    here, drawn = Here(), dict[str, Draw]()
    async with open_store(url) as store:
        there = InRedis(store)
        for kind, id, number, flag, last in steps:
            assert isinstance(id, str) and isinstance(number, float)
            if kind == "reserve":
                draw = drawn[id] = Draw(number, bool(flag), RESERVES[Priority(str(last))])
                answer, here.now = await there.reserve(id, draw, key, tenant, lease_ms=50.0)
                assert _rounded(answer) == _rounded((await here.reserve(id, draw, key, tenant, lease_ms=50.0))[0])
            elif kind == "settle":
                assert isinstance(flag, float) and isinstance(last, float)
                told = Settlement(Took(1.0, number), {"requests": flag}, last / 100, refused=last > 0 and number > 700)
                draw = drawn.get(id, Draw(stream=True))
                was_open, here.now = await there.settle(id, draw, told, key, tenant)
                assert was_open == (await here.settle(id, draw, told, key, tenant))[0]
            else:
                for subject in (key, tenant):
                    added = [number] * len(subject.buckets)
                    here.now = await there.renew({id: bool(flag)}, added, subject, lease_ms=50.0)
                    await here.renew({id: bool(flag)}, added, subject, lease_ms=50.0)


def _rounded(answer: Grant | Refusal) -> object:
    told = [([round(level, 3) for level in one.used], one.running) for one in answer.levels]
    return told if isinstance(answer, Grant) else (answer.whose, answer.bucket, round(answer.wait_ms, 3), told)
