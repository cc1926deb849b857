"""Health is one arithmetic: on one server, on a cluster of three and in this process the same news make the same standing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Protocol

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from n4n.core.breaker import Breaker
from n4n.core.catalog import BreakerPolicy
from n4n.core.health.news import News
from n4n.core.health.policy import HealthPolicy
from n4n.core.health.seen import Seen, seen_of, standing_of
from n4n.core.health.standing import Policies, Standing, fold, share
from n4n.runtime.health import scripts
from n4n.runtime.stores import Store, command
from tests.support.store import open_store
from tests.support.valkey_cluster import ValkeyCluster, running_cluster

POLICIES = Policies(HealthPolicy(half_life_sec=2.0, step_sec=0.0), BreakerPolicy(3, 20.0, 0.2))
_numbers = iter(range(10**9))


def news_of(runs: str, ttft_ms: tuple[float, ...] = (), latency_ms: tuple[float, ...] = ()) -> News:
    """`"g3 b1"` as news."""
    news = News([(run[0], int(run[1:])) for run in runs.split()])
    for value in ttft_ms:
        news.ttft.add(value)
        news.speed.add(value)
    news.latency_count, news.latency_ms = len(latency_ms), sum(latency_ms)
    return news


class Memory(Protocol):
    """What every store of health does; answers are what is known after it, and when, on the clock of its times."""

    async def tell(self, name: str, news: News, policies: Policies = POLICIES, jitter: float = 0.5) -> tuple[Seen, float]: ...


class InRedis:
    """The scripts; times are Redis' own."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def tell(self, name: str, news: News, policies: Policies = POLICIES, jitter: float = 0.5) -> tuple[Seen, float]:
        reply = await self._store.command(scripts.tell({name: (news, policies)}, jitter))
        now = _time_of(reply)
        return scripts.answered(reply, now).seen[name], now

    async def take_trial(self, name: str) -> tuple[Seen, bool]:
        reply = await self._store.command(scripts.take_trial(name, POLICIES))
        answer = scripts.answered(reply, _time_of(reply))
        return answer.seen[name], answer.free


def _time_of(reply: object) -> float:
    assert isinstance(reply, list) and isinstance(reply[2], bytes)
    return float(reply[2])


class Here:
    """The core's arithmetic, on the loop's clock or the time it is told."""

    def __init__(self) -> None:
        self._standings: dict[str, Standing] = {}
        self.now: float | None = None

    def _time(self) -> float:
        return asyncio.get_running_loop().time() if self.now is None else self.now

    async def tell(self, name: str, news: News, policies: Policies = POLICIES, jitter: float = 0.5) -> tuple[Seen, float]:
        now = self._time()
        before = self._standings.get(name) or Standing(policies.health.neutral, at=now)
        self._standings[name] = fold(before, news, now, policies, jitter)
        return seen_of(self._standings[name]), now


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyCluster]:
    """Three masters."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


def _url_of(kind: str, request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue("redis_url") if kind == "one server" else request.getfixturevalue("cluster").url)


@pytest.fixture(params=["one server", "three nodes"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    """Each kind of Redis in turn."""
    async with open_store(_url_of(request.param, request)) as opened:
        yield opened


@pytest.fixture(params=["one server", "three nodes", "here"])
async def memory(request: pytest.FixtureRequest) -> AsyncIterator[Memory]:
    """Each of the stores in turn."""
    if request.param == "here":
        yield Here()
        return
    async with open_store(_url_of(request.param, request)) as opened:
        yield InRedis(opened)


def fresh() -> str:
    """An endpoint that nobody has told of."""
    return f"endpoint-{next(_numbers)}"


async def test_one_failure_drops_a_score_and_excludes_nobody(memory: Memory) -> None:
    live, _ = await memory.tell(fresh(), news_of("b1"))
    probe, _ = await memory.tell(fresh(), news_of("B1"))

    assert live.score == pytest.approx(0.95**2) and probe.score == pytest.approx(0.7**2)
    assert live.breaker.kept is probe.breaker.kept is Breaker.CLOSED


async def test_failures_open_the_breaker_and_the_score_starts_at_the_first_step(memory: Memory) -> None:
    seen, now = await memory.tell(fresh(), news_of("g5 b3"))

    assert seen.breaker.kept is Breaker.OPEN and seen.breaker.until == pytest.approx(now + 0.2 * 1.1)
    assert share(seen, now, POLICIES.health) == pytest.approx(0.05)


async def test_it_comes_back_by_steps(memory: Memory) -> None:
    name, steady = fresh(), Policies(HealthPolicy(half_life_sec=1e4, step_sec=0.0), BreakerPolicy(3, 20.0, 0.001))
    await memory.tell(name, news_of("b3"), steady)
    await asyncio.sleep(0.01)
    told = []
    for _ in range(7):
        seen, now = await memory.tell(name, news_of("g1"), steady)
        told.append(share(seen, now, steady.health))

    assert seen.breaker.kept is Breaker.CLOSED
    assert told[:5] == pytest.approx([0.05, 0.05, 0.25, 0.25, 0.25], rel=1e-3) and told[5] > 0.8


async def test_what_was_measured_is_averaged_and_spread(memory: Memory) -> None:
    seen, _ = await memory.tell(name := fresh(), news_of("g4", ttft_ms=(100, 110, 120, 1000), latency_ms=(100, 300)))
    again, _ = await memory.tell(name, news_of("g1", ttft_ms=(100,), latency_ms=(700,)))

    assert seen.latency_ms == pytest.approx(200) and again.latency_ms == pytest.approx(300)
    assert seen.ttft_ms == pytest.approx(332.5) and seen.tokens_per_s == seen.ttft_ms
    assert seen.ttft_p50_ms == pytest.approx(112, rel=0.1) and seen.ttft_p95_ms == pytest.approx(1000, rel=0.12)
    assert again.tokens_per_s_p95 is not None and again.good_at is not None


async def test_one_trial_at_a_time_is_given_out(store: Store) -> None:
    memory, name = InRedis(store), fresh()
    await memory.tell(name, news_of("b3"))
    assert not (await memory.take_trial(name))[1], "it is open"
    await asyncio.sleep(0.25)

    given = [free for _, free in await asyncio.gather(*(memory.take_trial(name) for _ in range(20)))]
    seen, _ = await memory.tell(name, news_of("a1"))
    after = await memory.take_trial(name)

    assert sum(given) == 1
    assert seen.breaker.kept is Breaker.OPEN and after[1] and after[0].breaker.kept is Breaker.HALF_OPEN


LAZY = ("ttft_p50_ms", "ttft_p95_ms", "tokens_per_s_p50", "tokens_per_s_p95")  # Redis reads them off when it tells all
RUNS = st.lists(st.tuples(st.sampled_from("gbhaGBH"), st.integers(1, 9)), max_size=4)
STEP = st.tuples(RUNS, st.lists(st.floats(0.5, 60_000), max_size=4), st.lists(st.floats(1, 1000), max_size=3))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(STEP, min_size=1, max_size=8),
    breaker=st.builds(BreakerPolicy, st.integers(1, 6), st.floats(0.001, 30), st.floats(0.0005, 0.01), st.booleans()),
    health=st.builds(
        HealthPolicy, st.floats(0.001, 600), st.floats(0.2, 1), st.floats(0.01, 0.3), st.floats(0.01, 0.5), st.floats(0.01, 0.5),
        st.sampled_from([0.0, 0.002, 10.0]), st.integers(1, 5),
    ),
    jitter=st.floats(0, 0.999),
)  # fmt: skip
async def test_the_script_counts_as_the_core_does(
    redis_url: str, steps: list[tuple[list[tuple[str, int]], list[float], list[float]]], breaker: BreakerPolicy, health: HealthPolicy,
    jitter: float,
) -> None:  # fmt: skip
    name, policies, here = fresh(), Policies(health, breaker), Here()
    async with open_store(redis_url) as store:
        for number, (runs, ttft_ms, latency_ms) in enumerate(steps):
            news = news_of(" ".join(f"{letter}{count}" for letter, count in runs), tuple(ttft_ms), tuple(latency_ms))
            told, here.now = await InRedis(store).tell(name, news, policies, jitter)
            mine, _ = await here.tell(name, news, policies, jitter)
            least = () if number == 0 else LAZY
            assert _numbers_of(told, least) == pytest.approx(_numbers_of(mine, least), rel=1e-6, abs=1e-6)
            assert (told.breaker.kept, told.breaker.opened_count) == (mine.breaker.kept, mine.breaker.opened_count)


def _numbers_of(seen: Seen, but: tuple[str, ...]) -> list[float]:
    found = [getattr(seen, name) for name in seen.__struct_fields__ if name != "breaker" and name not in but]
    return [seen.breaker.until, *(-1.0 if one is None else one for one in found)]


@pytest.mark.parametrize(
    "fields",
    [
        [1.0, 1.0, 0.0, "c", 0.0, 0, 0.0, False, False, False, False, False, False, False],  # of a version before
        [1.0, 1.0, 0.0, "z", 0.0, 0, 0.0, False, False, False, False, False, False, False, 0.0],
        ["good", 1.0, 0.0, "c", 0.0, 0, 0.0, False, False, False, False, False, False, False, 0.0],
        {"score": 1.0},
        [],
    ],
)
async def test_what_another_version_left_in_redis_is_as_good_as_nothing(store: Store, fields: object) -> None:
    odd, well = fresh(), fresh()
    await InRedis(store).tell(well, news_of("g1"))
    packed = msgspec.msgpack.encode(fields)
    await store.command(command(b"SET", scripts.ENTRY + odd, len(packed).to_bytes(2, "big") + packed))
    await store.command(command(b"ZADD", scripts.CHANGES, "1", odd))

    reply = await store.command(scripts.look(0))

    seen = scripts.answered(reply, _time_of(reply)).seen
    assert well in seen
    assert odd not in seen


def test_what_was_seen_is_enough_to_go_on_alone() -> None:
    standing = fold(Standing(), news_of("g9 b1", ttft_ms=(100.0,)), 10.0, POLICIES, 0.0)

    again = standing_of(seen_of(standing))

    assert (again.score, again.ceiling, again.at, again.ttft.mean) == (standing.score, standing.ceiling, standing.at, 100.0)
