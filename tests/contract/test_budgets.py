"""Budgets keep their promise on one server, on a cluster of three, and in this process; and the three count alike."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from n4n.core.budgets import DAY_MS, HOUR_MS, Budget, Unit
from n4n.core.limits.levels import Refusal, Settlement
from n4n.core.limits.purse import Overspent, Purse, Spent, Term, term_of
from n4n.core.limits.subjects import Draw, Took, key_subject, tenant_subject
from n4n.runtime.limits.budgets import KnownSpending, SpendingParty, owner_of, seed, told_text
from n4n.runtime.limits.packed import Known
from n4n.runtime.stores import Store
from tests.support.store import open_store
from tests.support.valkey_cluster import ValkeyCluster, running_cluster

LEASE_MS = 30_000.0
_numbers = iter(range(10**9))


def _id(name: str) -> bytes:
    return name.encode().ljust(12)


def party_of(*key: Budget, tenant: Sequence[Budget] = (), **limits: int) -> SpendingParty:
    """A key that nobody used before, and its tenant."""
    name = f"tenant-{next(_numbers)}"
    subjects = [key_subject(name, "k", limits or {"concurrency": 10**6}), tenant_subject(name, {"concurrency": 10**6})]
    found = [one for one in subjects if one is not None]
    owners = [owner_of(one, budgets) for one, budgets in zip(found, (key, tenant), strict=True) if budgets]
    return SpendingParty(found, [Known() for _ in found], owners, [KnownSpending() for _ in owners], lambda: time.time() * 1000)


def now_ms() -> int:
    return round(time.time() * 1000)


def usd(amount: int, window: str = "day", *, age_ms: int = 0, soft: bool = False) -> Budget:
    """Of pico-USD, given so long ago."""
    return Budget(Unit.USD, amount, window, soft, now_ms() - age_ms)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyCluster]:
    """Three masters."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(params=["one server", "three nodes"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    """Each of the stores in turn."""
    url = request.getfixturevalue("redis_url") if request.param == "one server" else request.getfixturevalue("cluster").url
    async with open_store(url, deadline_s=2.0) as opened:
        yield opened


async def reserve(store: Store, id: str, party: SpendingParty, draw: Draw, lease_ms: float = LEASE_MS) -> tuple[float, ...]:
    numbers = party.read(await store.command(party.reserve(_id(id), draw, lease_ms)), _id(id))
    party.note(numbers, 0.0)
    return numbers


async def settle(store: Store, id: str, party: SpendingParty, draw: Draw, numbers: tuple[float, ...], spend: int, tokens: int = 0) -> None:
    await store.command(party.settle(_id(id), draw, Settlement(billed=Took(1.0, tokens, spend)), numbers))


def refused(party: SpendingParty, numbers: tuple[float, ...]) -> Refusal | None:
    return party.refusal(numbers) if numbers[0] else None


async def test_something_must_be_left_of_every_hard_budget(store: Store) -> None:
    party = party_of(usd(100), tenant=[usd(60, "week"), usd(1, "month", soft=True)])
    draw = Draw(spend=30.0)
    answers = [await reserve(store, f"r{n}", party, draw) for n in range(3)]
    assert [refused(party, one) is None for one in answers] == [True, True, False]
    short = refused(party, answers[2])
    assert isinstance(short, Overspent)
    assert (short.owner, short.bucket, short.spent, short.reserved) == ("tenant", "usd/week", 0, 60)
    assert 0 < short.wait_ms <= 7 * DAY_MS
    await settle(store, "r0", party, draw, answers[0], 60)
    await settle(store, "r1", party, draw, answers[1], 0)
    ((key,), (tenant, soft)) = party.spent(await reserve(store, "late", party, draw))
    assert [(one.spent, one.reserved) for one in (key, tenant, soft)] == [(60, 0), (60, 0), (60, 0)]


async def test_two_hundred_at_once_spend_no_more_than_one_reservation_too_much(store: Store) -> None:
    cents = 10**10
    party = party_of(usd(100 * cents))
    draw = Draw(spend=5.0 * cents)
    answers = await asyncio.gather(*(reserve(store, f"r{n}", party, draw) for n in range(200)))
    granted = [n for n, one in enumerate(answers) if refused(party, one) is None]
    assert len(granted) == 20
    for n in granted:
        await settle(store, f"r{n}", party, draw, answers[n], 5 * cents)
    assert party.spent(await reserve(store, "late", party, draw))[0][0].spent == 100 * cents


async def test_a_limit_that_is_short_takes_nothing_of_a_budget_and_the_other_way_round(store: Store) -> None:
    party = party_of(usd(100), concurrency=1)
    first = await reserve(store, "a", party, Draw(spend=10.0))
    short = refused(party, await reserve(store, "b", party, Draw(spend=10.0)))
    assert short is not None and short.bucket == "concurrency"
    await settle(store, "a", party, Draw(spend=10.0), first, 100)
    for n in range(3):
        spent = refused(party, await reserve(store, f"c{n}", party, Draw(spend=10.0)))
        assert isinstance(spent, Overspent) and spent.reserved == 0
    richer = SpendingParty(party.subjects, party.knowns, [owner_of(party.subjects[0], [usd(500)])], [KnownSpending()], party._wall_ms)
    again = await reserve(store, "d", richer, Draw(spend=10.0))
    assert refused(richer, again) is None, "no place was taken, and an edited budget holds at once"


async def test_a_reservation_of_a_dead_router_is_free_when_it_expires(store: Store) -> None:
    party = party_of(usd(100))
    await reserve(store, "dead", party, Draw(spend=100.0), lease_ms=80.0)
    assert refused(party, await reserve(store, "b", party, Draw(spend=1.0))) is not None
    async with asyncio.timeout(5):
        while refused(party, await reserve(store, "b", party, Draw(spend=1.0))):  # noqa: ASYNC110  # Redis' clock
            await asyncio.sleep(0.01)


async def test_renewed_reservations_last_on_and_are_learned_anew_by_a_store_that_lost_them(store: Store) -> None:
    party = party_of(usd(100))
    draw = Draw(spend=40.0, most_tokens=5.0)
    for _ in range(2):
        await store.command(party.renew_budgets({_id("a"): draw, _id("b"): draw}))
    (level,) = party.spent(await reserve(store, "c", party, Draw(spend=0.0)))[0]
    assert (level.spent, level.reserved) == (0, 80)


async def test_a_server_that_lost_everything_is_no_new_window_and_what_routers_know_is_spent(store: Store) -> None:
    party = party_of(usd(1000, age_ms=2 * DAY_MS), usd(1000, "24h", age_ms=2 * DAY_MS))
    draw = Draw(spend=100.0)
    assert refused(party, await reserve(store, "a", party, draw)) is None
    assert isinstance(refused(party, await reserve(store, "b", party, draw)), Overspent), "a tenth is the most until it is known"
    day, slot = now_ms() // DAY_MS * DAY_MS, now_ms() // HOUR_MS
    told = {"usd/day": (day, 700, ()), "usd/24h": (0, 0, [(slot, 100), (slot - 5, 500), (slot - 30, 10_000)])}
    for _ in range(2):
        await store.command(seed(party.owners[0], now_ms(), told))
    again = await reserve(store, "b", party, draw)
    assert refused(party, again) is None
    assert [(one.spent, one.known) for one in party.spent(again)[0]] == [(700, True), (600, True)]

    other = SpendingParty(party.subjects, party.knowns, party.owners, [KnownSpending()], party._wall_ms)
    other.spending[0].spent["usd/day"] = (day, 950)
    (level, _) = other.spent(await reserve(store, "c", other, draw))[0]
    assert level.spent == 950


async def test_what_is_told_of_a_window_that_is_over_changes_nothing(store: Store) -> None:
    party = party_of(usd(1000, age_ms=40 * DAY_MS))
    before = now_ms() - DAY_MS
    await store.command(seed(party.owners[0], before, {"usd/day": (before // DAY_MS * DAY_MS, 900, ())}))
    (level,) = party.spent(await reserve(store, "a", party, Draw(spend=1.0)))[0]
    assert (level.spent, level.known, level.window) == (0, False, now_ms() // DAY_MS * DAY_MS)


_ids = st.sampled_from(["a", "b", "c", "d"])
_amounts = st.integers(0, 40)
_steps = st.one_of(
    st.tuples(st.just("reserve"), _ids, _amounts, _amounts),
    st.tuples(st.just("settle"), _ids, _amounts, _amounts),
    st.tuples(st.just("renew"), _ids, _amounts, _amounts),
    st.tuples(st.just("seed"), _ids, _amounts, st.integers(-30, 0)),
    st.tuples(st.just("later"), _ids, _amounts, st.integers(-2, 3)),
)


class Shifted(SpendingParty):
    """Thinks that its calendar windows ended at another time, as a router's clock or the turn of a window would have it."""

    shift_ms = 0

    @property
    def terms(self) -> tuple[tuple[Term, ...], ...]:
        found = tuple(tuple(self._shifted(one) for one in terms) for terms in super().terms)
        self._texts = tuple(map(told_text, found))
        return found

    def _shifted(self, one: Term) -> Term:
        by = 0 if one.slot_ms else self.shift_ms
        return replace(one, previous=one.previous + by, begins=one.begins + by, ends=one.ends + by)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@given(steps=st.lists(_steps, max_size=20), known=st.booleans())
def test_redis_and_the_core_count_alike(redis_server: str, steps: list[tuple[str, str, int, int]], known: bool) -> None:
    asyncio.run(_compared(redis_server, steps, known))


async def _compared(url: str, steps: list[tuple[str, str, int, int]], known: bool) -> None:
    age = 0 if known else 50 * DAY_MS
    budgets = (usd(100, age_ms=age), usd(90, "24h", age_ms=age), Budget(Unit.TOKENS, 80, "month", False, now_ms() - age))
    plain = party_of(*budgets)
    party = Shifted(plain.subjects, plain.knowns, plain.owners, plain.spending, plain._wall_ms)
    purse, held = Purse(), dict[str, tuple[Draw, tuple[float, ...]]]()
    async with open_store(url, deadline_s=2.0) as store:
        for kind, id, one, two in steps:
            floors = [party.spending[0].floor(term) for term in party.terms[0]]
            if kind == "reserve" and id not in held:
                draw = Draw(spend=float(one), most_tokens=float(two))
                numbers = await reserve(store, id, party, draw)
                now = numbers[3]
                levels = purse.levels(party.terms[0], now, floors)
                short = purse.short(party.terms[0], levels)
                refusal = refused(party, numbers)
                assert (refusal.bucket if refusal else "") == (budgets[short].name if short >= 0 else "")
                if refusal is None:
                    purse.take(id, one, two, now, LEASE_MS)
                    held[id] = draw, numbers
                else:
                    assert abs(refusal.wait_ms - levels[short].wait_ms) < 5
                assert party.spent(numbers)[0] == [_plain(level) for level in purse.levels(party.terms[0], now)]
            elif kind == "settle" and id in held:
                draw, numbers = held.pop(id)
                await settle(store, id, party, draw, numbers, one, two)
                windows = [level.window for level in party.spent(numbers)[0]]
                purse.levels(party.terms[0], numbers[3], floors)
                purse.settle(id, party.terms[0], windows, one, two, numbers[3] + 1)
            elif kind == "renew" and id not in held:
                draw = Draw(spend=float(one), most_tokens=float(two))
                await store.command(party.renew_budgets({_id(id): draw}))
                purse.levels(party.terms[0], time.time() * 1000, floors)
                purse.renew({id: (one, two)}, time.time() * 1000, LEASE_MS)
                held[id] = draw, (0.0,) * 4
                del held[id]
                await store.command(party.settle(_id(id), draw, Settlement()))
                purse.settle(id, party.terms[0], [0] * 3, 0, 0, time.time() * 1000)
            elif kind == "seed" and not party.shift_ms:
                now = time.time() * 1000
                slots = [(int(now // HOUR_MS) + two, one)]
                told = {
                    name: (term_of(b, int(now)).window(now), one, slots)
                    for b, name in zip(budgets, ("usd/day", "usd/24h", ""), strict=True)
                    if name
                }
                await store.command(seed(party.owners[0], int(now), told))
                for budget in budgets[:2]:
                    purse.seed(term_of(budget, int(now)), told[budget.name][0], one, slots, now)
            elif kind == "later":
                party.shift_ms = two * HOUR_MS


def _plain(level: Spent) -> Spent:
    return replace(level, wait_ms=0.0)
