"""What is spent and reserved of the budgets of one key or tenant: what the Lua of n4n/runtime/limits does for them, in Python.

    reserve   while something is left of every hard budget; so the last reservation may go beyond it, and no other
    settle    what was reserved is free again, what was spent counts in the window in which it was reserved. By whoever reserved, once
    renew     reservations last on; a store that lost them learns them again
    seed      what is known elsewhere to be spent: at least so much is. Again and in any order it comes to the same

A reservation that nobody renews is free when it expires. A window whose spending nobody told of (`seed`) and that did not begin lately
lets a tenth of its budget through, so that a store that lost everything is no new window. Times are Unix ms on the store's clock.

Amounts of money are pico-USD. Redis reckons with doubles, so beyond 9,007 USD they are exact to 15 digits there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from n4n.core.budgets import Budget, Unit
from n4n.core.limits.levels import Refusal

UNKNOWN_SHARE = 0.1  # of a budget, until its spending is known
YOUNG_MS = 10_000  # a window that began so lately needs no seed: whoever keeps budgets sees its first request


class Term(msgspec.Struct, frozen=True):
    """One budget as a store has to know it: a calendar window and the ones beside it, or slots. `name`: under which it is kept."""

    name: str
    unit: Unit
    amount: int
    soft: bool = False
    previous: int = 0
    begins: int = 0
    ends: int = 0
    slot_ms: int = 0  # 0: of the calendar
    slots: int = 0
    since: int = 0

    def window(self, now: float) -> int:
        """Which window an instant is in by the store's clock: when it begins; of slots the number of the one that fills."""
        if self.slot_ms:
            return int(now // self.slot_ms)
        return self.ends if now >= self.ends else self.begins if now >= self.begins else self.previous


class Spent(msgspec.Struct, frozen=True):
    """How one stands. `window` as `Term.window`; `known`: its spending was told, or it began lately; `wait_ms`: until more is left."""

    spent: int
    reserved: int
    window: int
    known: bool
    wait_ms: float = 0.0


class Overspent(Refusal, frozen=True):
    """A hard budget has nothing left: `budget` of the `owner` (API key, tenant), of which so much is spent and reserved."""

    budget: Budget
    owner: str
    spent: int
    reserved: int


def term_of(budget: Budget, now_ms: int) -> Term:
    """The budget now."""
    slots = budget.slots
    if slots is not None:
        name = f"{budget.name}@{budget.since_ms}"
        return Term(name, budget.unit, budget.amount, budget.soft, slot_ms=slots.slot_ms, slots=slots.count, since=budget.since_ms)
    span = budget.span(now_ms)
    return Term(budget.name, budget.unit, budget.amount, budget.soft, span.previous, span.begins, span.ends, since=budget.since_ms)


class _Kept:
    __slots__ = ("known", "slots", "spent", "unseeded", "window")

    def __init__(self) -> None:
        self.window, self.spent, self.unseeded, self.known = -1, 0, 0, False
        self.slots: dict[int, int] = {}


class Purse:
    """The budgets of one key or tenant."""

    __slots__ = ("_kept", "_open")

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}
        self._open: dict[str, tuple[float, int, int]] = {}  # reservation -> when it expires, pico-USD, tokens

    def __repr__(self) -> str:
        return f"<Purse { ({name: one.spent or one.slots for name, one in self._kept.items()}) } {len(self._open)} open>"

    def levels(self, terms: Sequence[Term], now: float, floors: Sequence[int] = ()) -> tuple[Spent, ...]:
        """How they stand; `floors`: of each calendar budget what its present window has spent at least, 0: nothing is known."""
        for id in [id for id, (until, _, _) in self._open.items() if until <= now]:
            del self._open[id]
        for term, floor in zip(terms, floors, strict=False):
            kept = self._at(term, now)
            if floor and not term.slot_ms and term.begins == kept.window:
                kept.spent = max(kept.spent, floor)
        return tuple([self._level(term, now) for term in terms])

    def short(self, terms: Sequence[Term], levels: Sequence[Spent]) -> int:
        """Which budget has nothing left, the one that is short for longest; -1: none is."""
        short, longest = -1, -1.0
        for at, (term, level) in enumerate(zip(terms, levels, strict=True)):
            if term.soft:
                continue
            left = term.amount - level.spent - level.reserved
            if not level.known:
                left = min(left, int(term.amount * UNKNOWN_SHARE) - self._kept[term.name].unseeded - level.reserved)
            if left <= 0 and level.wait_ms > longest:
                short, longest = at, level.wait_ms
        return short

    def take(self, id: str, usd: int, tokens: int, now: float, lease_ms: float) -> None:
        """What was found not to be short."""
        self._open[id] = (now + lease_ms, usd, tokens)

    def settle(self, id: str, terms: Sequence[Term], windows: Sequence[int], usd: int, tokens: int, now: float) -> bool:
        """`windows`: in which each was reserved. True: the reservation was still open; what was spent counts in any case."""
        was_open = self._open.pop(id, None) is not None
        for term, window in zip(terms, windows, strict=True):
            kept, spent = self._at(term, now), usd if term.unit is Unit.USD else tokens
            if not spent:
                continue
            if term.slot_ms:
                kept.slots[window] = kept.slots.get(window, 0) + spent
            elif window == kept.window:
                kept.spent += spent
            else:
                continue
            if not kept.known:
                kept.unseeded += spent
        return was_open

    def renew(self, held: Mapping[str, tuple[int, int]], now: float, lease_ms: float) -> None:
        """`held`: reservations, and the pico-USD and tokens of each."""
        for id, (usd, tokens) in held.items():
            self._open[id] = (now + lease_ms, usd, tokens)

    def seed(self, term: Term, window: int, spent: int, slots: Iterable[tuple[int, int]], now: float) -> None:
        """What its window has spent at least, or each of its slots; a window that is over, or has not begun, is nobody's business."""
        kept = self._at(term, now)
        if not term.slot_ms and window == kept.window:
            kept.spent = max(kept.spent, spent)
        elif not term.slot_ms:
            return
        for slot, amount in slots:
            if slot >= kept.window - term.slots and amount > kept.slots.get(slot, 0):
                kept.slots[slot] = amount
        kept.known, kept.unseeded = True, 0

    def _level(self, term: Term, now: float) -> Spent:
        kept = self._at(term, now)
        reserved = sum(usd if term.unit is Unit.USD else tokens for _, usd, tokens in self._open.values())
        if not term.slot_ms:
            return Spent(kept.spent, reserved, kept.window, kept.known, (term.ends if kept.window < term.ends else now) - now)
        spent = sum(kept.slots.values())
        return Spent(spent, reserved, kept.window, kept.known, _frees(term, kept.slots, spent, now))

    def _at(self, term: Term, now: float) -> _Kept:
        """What is kept of it, moved on to the window that the instant is in."""
        kept = self._kept.get(term.name)
        if kept is None:
            kept = self._kept[term.name] = _Kept()
        window = term.window(now)
        if term.slot_ms:
            kept.window = window
            for slot in [slot for slot in kept.slots if slot < window - term.slots]:
                del kept.slots[slot]
        elif window > kept.window:
            kept.window, kept.spent, kept.unseeded = window, 0, 0
        kept.known = kept.known or now - (term.since if term.slot_ms else kept.window) < YOUNG_MS
        return kept


def _frees(term: Term, slots: Mapping[int, int], spent: int, now: float) -> float:
    """How long until enough slots are old that something is left."""
    for slot in sorted(slots):
        spent -= slots[slot]
        if spent < term.amount:
            return (slot + term.slots + 1) * term.slot_ms - now
    return 0.0
