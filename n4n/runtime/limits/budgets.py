"""A party that has budgets: the steps of its limits and of its budgets in one call each, and what Redis answers.

The scripts are those of limits, run inside those of budgets: where no budget is short they decide, and both are settled together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.resources import files
from struct import Struct

import msgspec

from n4n.core.budgets import Budget, Unit
from n4n.core.errors import StoreRefused
from n4n.core.limits.levels import LEASE_MS, Refusal, Settlement
from n4n.core.limits.purse import Overspent, Spent, Term, term_of
from n4n.core.limits.subjects import Draw, Subject
from n4n.runtime.limits.packed import Known, Party, flags_of
from n4n.runtime.stores import Command, Script, Word

_DRAWN, _ENDED = Struct("<5d"), Struct("<6d")
_FIRST_BUDGET = -10  # how the script tells which budget is short: this, and one less for each before it


def _source(name: str) -> str:
    return files("n4n.runtime.limits").joinpath("lua", f"{name}.lua").read_text()


def _script(name: str, inner: str = "") -> Script:
    around = f"local function limits(KEYS, ARGV)\n{_source(inner)}\nend\n" if inner else ""
    return Script(name, f"{_source('budgets')}\n{around}{_source(name)}")


RESERVE_BUDGETS, SETTLE_BUDGETS = _script("reserve_budgets", "reserve"), _script("settle_budgets", "settle")
RENEW_BUDGETS, SEED_BUDGETS = _script("renew_budgets"), _script("seed_budgets")


class Owner(msgspec.Struct, frozen=True):
    """Who has budgets, a key or a tenant: `whose` in words, and the two keys of Redis where its purse is."""

    whose: str
    keys: tuple[str, str]
    budgets: tuple[Budget, ...]


def owner_of(subject: Subject, budgets: Sequence[Budget]) -> Owner:
    """The budgets of one that may have limits too."""
    prefix = subject.keys[0].rpartition(":")[0]
    return Owner(subject.whose, (f"{prefix}:m", f"{prefix}:o"), tuple(budgets))


class KnownSpending(msgspec.Struct, weakref=True):
    """What is known of one owner's budgets, by name: the window, and what is spent in it at least."""

    spent: dict[str, tuple[int, int]] = {}  # a struct makes its own

    def floor(self, term: Term) -> int:
        """What the present window of a calendar budget has spent at least."""
        window, spent = self.spent.get(term.name, (-1, 0))
        return spent if window == term.begins and not term.slot_ms else 0


class SpendingParty(Party):
    """`wall_ms`: Unix time; `spending`: where what is told of each owner is noted. One of its reservations holds their budgets too."""

    __slots__ = ("_count", "_levels", "_names", "_terms", "_texts", "_until_ms", "_wall_ms", "all_keys", "owners", "spending")

    def __init__(
        self,
        subjects: Sequence[Subject],
        knowns: Sequence[Known],
        owners: Sequence[Owner],
        spending: Sequence[KnownSpending],
        wall_ms: Callable[[], float],
    ) -> None:
        super().__init__(subjects, knowns)
        self.owners, self.spending, self._wall_ms = tuple(owners), tuple(spending), wall_ms
        self.all_keys = [*self.keys, *(key for owner in owners for key in owner.keys)]
        self._count = sum(len(owner.budgets) for owner in owners)
        self._levels = Struct(f"<{4 * self._count}d")
        self._names = [(known.spent, kept_name(one)) for owner, known in zip(owners, spending, strict=True) for one in owner.budgets]
        self._terms: tuple[tuple[Term, ...], ...] = ()
        self._texts: tuple[str, ...] = ()  # of each owner what does not change before a window ends
        self._until_ms = -1.0

    @property
    def terms(self) -> tuple[tuple[Term, ...], ...]:
        """Of each owner its budgets in their present windows."""
        now = self._wall_ms()
        if now >= self._until_ms:
            self._terms = tuple(tuple(term_of(one, int(now)) for one in owner.budgets) for owner in self.owners)
            self._texts = tuple(map(told_text, self._terms))
            self._until_ms = min((term.ends for terms in self._terms for term in terms if not term.slot_ms), default=math.inf)
        return self._terms

    def reserve(self, id: bytes, draw: Draw, lease_ms: float) -> Command:
        """RESERVE_BUDGETS, for one reservation."""
        drawn = _DRAWN.pack(1.0, draw.tokens, draw.reserve, draw.stream, lease_ms)
        args: list[Word] = [self.spec, id, drawn, len(self.owners), *held_by(draw), repr(lease_ms)]
        for text, floors in self._told():
            args += (text, floors)
        return RESERVE_BUDGETS.call(self.all_keys, args)

    def settle(self, id: bytes, draw: Draw, told: Settlement, numbers: tuple[float, ...] = ()) -> Command:
        """SETTLE_BUDGETS, for one reservation; `numbers`: as it was answered, () where it never was, and then nothing was spent."""
        took = told.took
        ended = _ENDED.pack(1.0, draw.tokens, took.requests, took.tokens, told.until_ms, flags_of(draw, told))
        spent = (int(told.billed.spend), int(told.billed.tokens)) if numbers else (0, 0)
        args: list[Word] = [self.spec, id, ended, len(self.owners), *held_by(draw), *spent]
        at = len(numbers) - 4 * self._count + 2
        for owner, (text, floors) in zip(self.owners, self._told(), strict=True):
            end = at + 4 * len(owner.budgets)
            args += (text, floors, " ".join([str(int(window)) for window in numbers[at:end:4]]))
            at = end
        return SETTLE_BUDGETS.call(self.all_keys, args)

    def renew_budgets(self, held: Mapping[bytes, Draw], lease_ms: float = LEASE_MS) -> Command:
        """RENEW_BUDGETS, for reservations that are held; it also tells what this router knows to be spent."""
        args: list[Word] = [len(self.owners), repr(lease_ms)]
        for text, floors in self._told():
            args += (text, floors)
        for id, draw in held.items():
            args += [*held_by(draw), id]
        return RENEW_BUDGETS.call(self.all_keys[len(self.keys) :], args)

    def read(self, reply: object, id: bytes) -> tuple[float, ...]:
        """What limits were answered, and then of each budget four numbers."""
        if not isinstance(reply, bytes) or len(reply) != self._size + self._levels.size:
            raise StoreRefused("CROSSED", "reserve")
        return super().read(reply[: self._size], id) + self._levels.unpack_from(reply, self._size)

    def note(self, numbers: tuple[float, ...], now_ms: float) -> None:
        """Remembers what was told."""
        if numbers[1] > _FIRST_BUDGET:
            super().note(numbers, now_ms)
        at = len(numbers) - 4 * self._count
        for spent, name in self._names:
            spent[name] = int(numbers[at + 2]), int(numbers[at])
            at += 4

    def spent(self, numbers: tuple[float, ...]) -> list[list[Spent]]:
        """How the budgets of each owner stood in an answer."""
        tail = iter(numbers[len(numbers) - 4 * self._count :])
        of_four = zip(tail, tail, tail, tail, strict=True)
        told = [Spent(int(spent), int(reserved), int(window), known == 1.0) for spent, reserved, window, known in of_four]
        found = iter(told)
        return [[next(found) for _ in owner.budgets] for owner in self.owners]

    def refusal(self, numbers: tuple[float, ...]) -> Refusal:
        """Of an answer whose first number is not 0."""
        if numbers[1] > _FIRST_BUDGET:
            return super().refusal(numbers)
        at = _FIRST_BUDGET - int(numbers[1])
        everyone = [(owner, budget) for owner in self.owners for budget in owner.budgets]
        levels = [level for owner in self.spent(numbers) for level in owner]
        owner, budget = everyone[at]
        return Overspent(
            bucket=budget.name,
            whose=0,
            wait_ms=numbers[2],
            levels=self.levels(numbers),
            budget=budget,
            owner=owner.whose,
            spent=levels[at].spent,
            reserved=levels[at].reserved,
        )

    def _told(self) -> list[tuple[str, str]]:
        """Of each owner its budgets as scripts take them, and what they have spent at least."""
        terms = self.terms
        return [
            (text, " ".join([str(known.floor(term)) for term in of_owner]))
            for text, of_owner, known in zip(self._texts, terms, self.spending, strict=True)
        ]


def seed(owner: Owner, now_ms: int, spent: Mapping[str, tuple[int, int, Iterable[tuple[int, int]]]]) -> Command:
    """What budgets of one owner have spent at least: by name the window, what is spent in it, and of a rolling one its slots."""
    terms = [(term_of(one, now_ms), spent[one.name]) for one in owner.budgets if one.name in spent]
    args: list[Word] = [told_text([term for term, _ in terms]), " ".join(str(floor) for _, (_, floor, _) in terms)]
    for term, (window, _, slots) in terms:
        filled = list(slots) if term.slot_ms else []
        args += [window, len(filled), *(number for slot in filled for number in slot)]
    return SEED_BUDGETS.call(owner.keys, args)


def held_by(draw: Draw) -> tuple[int, int]:
    """What a reservation holds of budgets: pico-USD and tokens."""
    return math.ceil(draw.spend), math.ceil(draw.most_tokens)


def kept_name(budget: Budget) -> str:
    """Under which a budget is kept in its purse."""
    return f"{budget.name}@{budget.since_ms}" if budget.slots is not None else budget.name


def told_text(terms: Sequence[Term]) -> str:
    """Budgets as scripts take them: ten words each."""
    return " ".join(
        f"{one.name} {0 if one.unit is Unit.USD else 1} {one.amount} {1 if one.soft else 0} {one.slot_ms} {one.slots}"
        f" {one.previous} {one.begins} {one.ends} {one.since}"
        for one in terms
    )
