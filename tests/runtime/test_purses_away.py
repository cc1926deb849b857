"""Budgets while Redis is away: a router spends its share of what was left, and tells what it knows when Redis is back."""

from __future__ import annotations

from n4n.core.budgets import DAY_MS, HOUR_MS, Budget, Unit
from n4n.core.limits.purse import Spent
from n4n.core.limits.subjects import Draw, Took, plain_subject
from n4n.runtime.limits.away import PursesAway
from n4n.runtime.limits.budgets import KnownSpending, SpendingParty, owner_of
from n4n.runtime.limits.packed import Known

NOON = 20_000 * DAY_MS + 12 * HOUR_MS
MIDNIGHT = 20_000 * DAY_MS


class House:
    """One caller on a clock of its own."""

    def __init__(self, *budgets: Budget, spent: dict[str, tuple[int, int]] | None = None, routers: int = 1) -> None:
        self.now, self.routers = float(NOON), routers
        subject = plain_subject("acme", "k")
        self.known = KnownSpending(spent or {})
        self.party = SpendingParty([subject], [Known()], [owner_of(subject, budgets)], [self.known], lambda: self.now)
        self.away = PursesAway()
        self.numbers: dict[bytes, tuple[float, ...]] = {}

    def reserve(self, id: bytes, usd: float, tokens: float = 0.0) -> bool:
        draw = Draw(spend=usd, most_tokens=tokens)
        if self.away.short(self.party, self.now, self.routers, ()) is not None:
            return False
        self.numbers[id] = (0.0, 0.0, 0.0, self.now, 1.0, 0.0, *self.away.take(id, self.party, draw, self.now))
        return True

    def settle(self, id: bytes, usd: float, tokens: float = 0.0) -> None:
        windows = self.party.spent(self.numbers[id])
        self.away.settle(id, self.party, windows, Took(1.0, tokens, usd), self.now, self.routers)


def usd(amount: int, window: str = "day", since: int = 1) -> Budget:
    return Budget(Unit.USD, amount, window, False, since)


def test_each_router_spends_its_share_of_what_was_left() -> None:
    house = House(usd(1000), spent={"usd/day": (MIDNIGHT, 400)}, routers=3)
    spent = 0
    for n in range(100):
        if not house.reserve(b"%12d" % n, 50):
            break
        house.settle(b"%12d" % n, 50)
        spent += 50
    assert spent == 200
    over = house.away.short(house.party, house.now, 3, ())
    assert over is not None and (over.spent, over.owner, over.bucket) == (600, "API key", "usd/day")
    assert over.wait_ms == 12 * HOUR_MS


def test_of_a_budget_that_nobody_told_of_a_tenth_is_spent_and_of_one_that_is_new_all() -> None:
    stranger = House(usd(1000), routers=2)
    assert [stranger.reserve(b"%12d" % n, 30) for n in range(3)] == [True, True, False]
    new = House(usd(1000, since=NOON - 5000))
    assert all(new.reserve(b"%12d" % n, 90) for n in range(12)) and not new.reserve(b"late        ", 90)


def test_what_was_reserved_before_counts_and_is_free_when_it_ends() -> None:
    house = House(usd(1000), spent={"usd/day": (MIDNIGHT, 900)})
    before = Draw(spend=100.0)
    assert house.away.short(house.party, house.now, 1, [(b"before      ", house.party, before)]) is not None
    house.away.settle(b"before      ", house.party, [[Spent(900, 100, MIDNIGHT, True)]], Took(1.0, 0.0, 10.0), house.now, 1)
    assert house.reserve(b"next        ", 50)


def test_a_window_that_begins_meanwhile_is_a_new_one() -> None:
    house = House(usd(1000), spent={"usd/day": (MIDNIGHT, 1000)})
    assert not house.reserve(b"today       ", 1)
    house.now = float(MIDNIGHT + DAY_MS)
    assert house.reserve(b"tomorrow    ", 1)


def test_what_is_known_to_be_spent_is_told_when_redis_is_back() -> None:
    rolling = f"usd/24h@{1}"
    house = House(usd(1000), usd(900, "24h"), spent={"usd/day": (MIDNIGHT, 400), rolling: (NOON // HOUR_MS, 300)})
    assert house.reserve(b"a           ", 50)
    house.settle(b"a           ", 70)
    assert bool(house.away) and "1 owners" in repr(house.away)
    assert house.away.returned(house.now) == [house.party]
    assert house.known.spent == {"usd/day": (MIDNIGHT, 470), rolling: (NOON // HOUR_MS, 300)}
    assert not house.away and house.away.returned(house.now) == []


def test_an_edited_budget_holds_at_once() -> None:
    house = House(usd(1000), spent={"usd/day": (MIDNIGHT, 400)})
    assert house.reserve(b"a           ", 50)
    house.settle(b"a           ", 50)
    lowered = owner_of(plain_subject("acme", "k"), [usd(450)])
    house.party = SpendingParty(house.party.subjects, house.party.knowns, [lowered], [house.known], lambda: house.now)
    assert not house.reserve(b"b           ", 1)
