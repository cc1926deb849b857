"""What is spent and reserved of budgets: the arithmetic, on a clock of its own."""

from __future__ import annotations

from n4n.core.budgets import DAY_MS, HOUR_MS, Budget, Unit
from n4n.core.limits.purse import UNKNOWN_SHARE, YOUNG_MS, Purse, Term, term_of

NOON = 20_000 * DAY_MS + 12 * HOUR_MS
LEASE_MS = 30_000.0


def terms(*budgets: Budget, now: int = NOON) -> tuple[Term, ...]:
    return tuple(term_of(one, now) for one in budgets)


def usd(amount: int, window: str = "day", *, since: int = NOON, soft: bool = False) -> Budget:
    return Budget(Unit.USD, amount, window, soft, since)


def reserve(purse: Purse, id: str, of: tuple[Term, ...], amount: int, now: float = NOON, tokens: int = 0) -> int:
    """-1: it was reserved; else which budget is short."""
    short = purse.short(of, purse.levels(of, now))
    if short < 0:
        purse.take(id, amount, tokens, now, LEASE_MS)
    return short


def test_something_must_be_left_and_the_last_reservation_may_go_beyond() -> None:
    purse, of = Purse(), terms(usd(100))
    assert [reserve(purse, f"r{n}", of, 30) for n in range(6)] == [-1, -1, -1, -1, 0, 0]
    for n in range(4):
        assert purse.settle(f"r{n}", of, [NOON], 25, 7, NOON)
    assert purse.levels(of, NOON)[0].spent == 100
    assert reserve(purse, "late", of, 1) == 0
    assert "100" in repr(purse)


def test_what_was_not_spent_is_free_again_and_settling_twice_books_what_the_second_says_but_frees_nothing() -> None:
    purse, of = Purse(), terms(usd(100))
    reserve(purse, "a", of, 99)
    assert purse.settle("a", of, [NOON], 0, 0, NOON)
    assert not purse.settle("a", of, [NOON], 0, 0, NOON)
    assert (purse.levels(of, NOON)[0].spent, purse.levels(of, NOON)[0].reserved) == (0, 0)


def test_a_reservation_that_nobody_renews_is_free_when_it_expires() -> None:
    purse, of = Purse(), terms(usd(100))
    reserve(purse, "a", of, 100)
    purse.renew({"a": (100, 0)}, NOON + 20_000, LEASE_MS)
    assert reserve(purse, "b", of, 1, NOON + 49_999) == 0
    assert reserve(purse, "b", of, 1, NOON + 50_000) == -1
    purse.settle("a", of, [NOON], 60, 0, NOON + 50_000)
    assert purse.levels(of, NOON + 50_000)[0].spent == 60, "what it cost counts all the same"


def test_a_window_begins_anew_and_what_was_reserved_in_the_old_one_is_spent_there() -> None:
    purse, midnight = Purse(), 20_001 * DAY_MS
    of = terms(usd(100, since=1))
    purse.seed(of[0], 20_000 * DAY_MS, 0, (), NOON)
    assert reserve(purse, "late", of, 50, midnight - 1) == -1
    assert purse.levels(of, midnight - 1)[0].wait_ms == 1
    assert purse.levels(of, midnight)[0].window == midnight, "by the store's clock, whatever the router thinks the time is"
    purse.settle("late", of, [20_000 * DAY_MS], 50, 0, midnight + 5)
    after = terms(usd(100, since=1), now=midnight)
    assert (purse.levels(after, midnight + 5)[0].spent, purse.levels(after, midnight + 5)[0].known) == (0, True)
    behind = terms(usd(100, since=1), now=NOON)
    assert purse.levels(behind, midnight + 5)[0].window == midnight, "and it never goes back"
    assert purse.levels(after, midnight - 60_000)[0].window == midnight


def test_a_store_that_lost_everything_is_no_new_window() -> None:
    purse, of = Purse(), terms(usd(1000, since=1), Budget(Unit.TOKENS, 10**6, "24h", since_ms=1))
    assert not purse.levels(of, NOON)[0].known
    assert reserve(purse, "a", of, int(1000 * UNKNOWN_SHARE)) == -1
    assert reserve(purse, "b", of, 1) == 0
    purse.settle("a", of, [20_000 * DAY_MS, NOON // HOUR_MS], 99, 10, NOON)
    assert reserve(purse, "b", of, 1) == -1
    purse.settle("b", of, [20_000 * DAY_MS, NOON // HOUR_MS], 1, 10**5, NOON)
    assert reserve(purse, "c", of, 1) >= 0
    purse.seed(of[0], 20_000 * DAY_MS, 700, (), NOON)
    purse.seed(of[1], 0, 0, [(NOON // HOUR_MS, 5), (NOON // HOUR_MS - 3, 50), (0, 10**6)], NOON)
    assert [(one.spent, one.known) for one in purse.levels(of, NOON)] == [(700, True), (10**5 + 60, True)]
    assert reserve(purse, "c", of, 300) == -1
    purse.seed(of[0], 20_000 * DAY_MS, 600, (), NOON)
    purse.seed(of[0], 19_999 * DAY_MS, 5000, (), NOON)
    assert purse.levels(of, NOON)[0].spent == 700, "again, or of another day, it comes to the same"


def test_a_budget_that_was_given_just_now_needs_no_seed() -> None:
    purse, of = Purse(), terms(usd(1000), usd(1000, "24h"))
    assert all(one.known for one in purse.levels(of, NOON + YOUNG_MS - 1))
    late = Purse()
    assert not any(one.known for one in late.levels(of, NOON + YOUNG_MS))


def test_what_a_router_knows_to_be_spent_is_spent_at_least() -> None:
    purse, of = Purse(), terms(usd(100))
    assert purse.levels(of, NOON, [80])[0].spent == 80
    assert purse.levels(of, NOON, [70])[0].spent == 80
    tomorrow = terms(usd(100), now=NOON + DAY_MS)
    assert purse.levels(tomorrow, NOON, [99])[0].spent == 80, "of another window it says nothing"


def test_a_rolling_window_lets_go_slot_by_slot() -> None:
    purse, of = Purse(), terms(usd(100, "24h"))
    for hours, spent in ((0, 60), (5, 40)):
        now = NOON + hours * HOUR_MS
        reserve(purse, "a", of, 1, now)
        purse.settle("a", of, [now // HOUR_MS], spent, 0, now)
    at = NOON + 6 * HOUR_MS
    (full,) = purse.levels(of, at)
    assert (full.spent, reserve(purse, "b", of, 1, at)) == (100, 0)
    assert full.wait_ms == 25 * HOUR_MS - 6 * HOUR_MS, "a slot goes when all of it is a day old"
    purse.settle("none", of, [at // HOUR_MS], 300, 0, at)
    assert purse.levels(of, at)[0].wait_ms == 25 * HOUR_MS, "so much was spent that all of it must be old"
    purse = Purse()
    for hours, spent in ((0, 60), (5, 40)):
        purse.settle("none", of, [(NOON + hours * HOUR_MS) // HOUR_MS], spent, 0, NOON + hours * HOUR_MS)
    assert purse.levels(of, NOON + 25 * HOUR_MS - 1)[0].spent == 100
    assert purse.levels(of, NOON + 25 * HOUR_MS)[0].spent == 40
    assert purse.levels(of, NOON + 30 * HOUR_MS)[0].spent == 0


def test_soft_budgets_refuse_nothing_and_of_two_that_are_short_the_longer_is_told() -> None:
    soft = terms(usd(10, soft=True))
    purse = Purse()
    assert [reserve(purse, f"r{n}", soft, 10) for n in range(3)] == [-1, -1, -1]
    two = terms(usd(10), Budget(Unit.TOKENS, 10, "week", since_ms=NOON))
    purse = Purse()
    purse.take("a", 10, 10, NOON, LEASE_MS)
    assert purse.short(two, purse.levels(two, NOON)) == 1
    assert purse.short(two[:1], purse.levels(two[:1], NOON)) == 0


def test_units_are_counted_apart_and_what_cost_nothing_books_nothing() -> None:
    purse, of = Purse(), terms(usd(100), Budget(Unit.TOKENS, 100, "day", since_ms=NOON))
    reserve(purse, "a", of, 5, tokens=50)
    assert [(one.spent, one.reserved) for one in purse.levels(of, NOON)] == [(0, 5), (0, 50)]
    purse.settle("a", of, [NOON, NOON], 0, 99, NOON)
    assert [one.spent for one in purse.levels(of, NOON)] == [0, 99]
