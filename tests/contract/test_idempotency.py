"""Records of idempotency keys keep their promise on one server and on a cluster of three."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator

import pytest
import redis

from n4n.core.errors import StoreUnavailable
from n4n.core.idempotency import KEPT_MS, MOST_SEALED, Different, Done, Kept, Known, Mine, Running
from n4n.runtime.idempotency import Owned, Records
from tests.support.store import open_store
from tests.support.valkey_cluster import ValkeyCluster, running_cluster

ANSWER = Kept(False, b"x-n4n-endpoint: e1\r\n", b'{"text": "an answer"}')


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyCluster]:
    """Three masters."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(params=["one server", "three nodes"])
async def two(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Records, Records]]:
    """Those of two routers, whose leases last 0.3 s."""
    url = request.getfixturevalue("redis_url") if request.param == "one server" else request.getfixturevalue("cluster").url
    async with open_store(url) as store, open_store(url) as other:
        yield Records(store, b"a secret", 300.0), Records(other, b"a secret", 300.0)


def asked(records: Records, owner: str, key: str | None = None, body: bytes = b"{}") -> Owned:
    """One request; without `key` with one that nobody used."""
    return Owned(records.known("acme", key or secrets.token_hex(8), "/v1/messages", body), owner)


def again(owned: Owned, owner: str) -> Owned:
    """The same request from somebody else."""
    return Owned(owned.known, owner)


async def until_free(records: Records, owned: Owned) -> None:
    """Claims until it is granted."""
    async with asyncio.timeout(5):
        while not isinstance(await records.claim(owned), Mine):  # noqa: ASYNC110  # Redis changes it
            await asyncio.sleep(0.01)


async def test_one_executes_and_all_others_wait(two: tuple[Records, Records]) -> None:
    here, there = two
    first = asked(here, "a")
    claims = await asyncio.gather(*([here.claim(first)] + [there.claim(again(first, f"b{n}")) for n in range(20)]))
    assert claims.count(Mine()) == 1 and claims.count(Running()) == 20
    winner = (["a"] + [f"b{n}" for n in range(20)])[claims.index(Mine())]
    assert await here.claim(again(first, winner)) == Mine()  # asked once more, because its answer was lost on the way


async def test_who_asks_later_has_the_answer_for_a_day(two: tuple[Records, Records]) -> None:
    here, there = two
    first = asked(here, "a")
    assert await here.claim(first) == Mine()
    assert await here.complete(first, ANSWER)
    done = await there.claim(again(first, "b"))
    assert isinstance(done, Done) and there.answer(first.known, done) == ANSWER
    assert b"an answer" not in done.sealed
    assert isinstance(await here.claim(first), Done)  # the one that executed it too


async def test_the_key_of_another_request_is_in_use_while_it_runs_and_after(two: tuple[Records, Records]) -> None:
    here, there = two
    key = secrets.token_hex(8)
    first, other = asked(here, "a", key), asked(there, "b", key, b'{"other": 1}')
    assert await here.claim(first) == Mine()
    assert await there.claim(other) == Different()
    assert await here.complete(first, ANSWER)
    assert await there.claim(other) == Different()


async def test_what_was_released_is_executed_by_the_next_whatever_it_asks(two: tuple[Records, Records]) -> None:
    here, there = two
    key = secrets.token_hex(8)
    first, other = asked(here, "a", key), asked(there, "b", key, b'{"other": 1}')
    assert await here.claim(first) == Mine()
    here.release(first)
    await until_free(there, other)


async def test_nobody_releases_or_answers_what_is_another_one_s(two: tuple[Records, Records]) -> None:
    here, there = two
    first = asked(here, "a")
    late = again(first, "late")
    assert await here.claim(first) == Mine()
    there.release(late)
    assert not await there.complete(late, ANSWER)
    assert await there.claim(late) == Running()
    assert await here.complete(first, ANSWER)
    here.release(first)
    assert isinstance(await there.claim(late), Done)


async def test_the_lease_of_a_router_that_died_ends_and_of_one_that_lives_does_not(two: tuple[Records, Records]) -> None:
    here, there = two
    lives, dead = asked(here, "a"), asked(here, "a")
    assert await here.claim(lives) == await here.claim(dead) == Mine()
    here.hold(lives)
    await until_free(there, again(dead, "b"))
    assert await there.claim(again(lives, "b")) == Running()
    assert not await here.complete(dead, ANSWER)  # it stood still, and somebody took over
    assert await here.complete(lives, ANSWER)


async def test_a_record_that_redis_lost_is_there_again_while_it_runs(two: tuple[Records, Records]) -> None:
    here, there = two
    first = asked(here, "a")
    here.hold(first)  # as if the claim had been lost with the server
    async with asyncio.timeout(5):
        while await there.claim(again(first, "b")) != Running():
            there.release(again(first, "b"))
            await asyncio.sleep(0.02)
    assert await here.complete(first, ANSWER)


async def test_a_claim_that_nobody_waits_for_holds_nothing(two: tuple[Records, Records]) -> None:
    here, _ = two
    first = asked(here, "a")
    claim = asyncio.create_task(here.claim(first))
    await asyncio.sleep(0)
    claim.cancel()
    with pytest.raises(asyncio.CancelledError):
        await claim
    assert await here.claim(again(first, "next")) == Mine()


async def test_an_answer_that_is_too_large_is_not_kept(two: tuple[Records, Records]) -> None:
    here, _ = two
    first = asked(here, "a")
    assert await here.claim(first) == Mine()
    assert not await here.complete(first, Kept(False, b"", secrets.token_bytes(MOST_SEALED)))
    words = Kept(True, b"", b"data: a word\n\n" * 100_000)
    assert await here.complete(first, words)
    done = await here.claim(first)
    assert isinstance(done, Done) and here.answer(first.known, done) == words


async def test_a_router_with_another_secret_has_records_of_its_own(redis_url: str) -> None:
    async with open_store(redis_url) as store:
        ours, theirs = Records(store, b"a secret"), Records(store, b"another secret")
        assert await ours.claim(asked(ours, "a", "k")) == Mine()
        assert await theirs.claim(asked(theirs, "b", "k")) == Mine()


async def test_redis_holds_an_answer_for_a_day_and_a_lease_for_its_time(redis_url: str) -> None:
    async with open_store(redis_url) as store:
        records = Records(store, b"a secret")
        first, second = asked(records, "a"), asked(records, "a")
        await records.claim(first)
        await records.claim(second)
        await records.complete(second, ANSWER)
    with redis.Redis.from_url(redis_url) as client:
        assert 14_000 < client.pttl(first.known.name) <= 15_000
        assert KEPT_MS - 10_000 < client.pttl(second.known.name) <= KEPT_MS


async def test_what_was_changed_in_redis_is_no_answer(redis_url: str) -> None:
    async with open_store(redis_url) as store:
        records = Records(store, b"a secret")
        first, other = asked(records, "a"), asked(records, "a")
        await records.claim(first)
        await records.complete(first, ANSWER)
        done = await records.claim(first)
        assert isinstance(done, Done)
        for known, sealed in [
            (first.known, done.sealed[:-1] + bytes([done.sealed[-1] ^ 1])),
            (first.known, b""),
            (Known(first.known.name, other.known.fingerprint[::-1]), done.sealed),
        ]:
            with pytest.raises(StoreUnavailable, match="unsealed"):
                records.answer(known, Done(sealed))


async def test_without_a_store_nobody_is_told_to_wait() -> None:
    records = Records(None, b"a secret")
    first = asked(records, "a")
    with pytest.raises(StoreUnavailable):
        await records.claim(first)
    records.hold(first)
    assert not await records.complete(first, ANSWER)
    records.release(first)
