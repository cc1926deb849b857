"""Budgets while Redis is away: this router's share of what was left of each, as it was told last.

Of a budget that Redis never told of, and whose window did not begin meanwhile, all routers together spend a tenth. When Redis is back it
learns what its calendar windows have spent at least: what it knew and what was spent here since. What all routers spent, and what rolling
windows did, comes from the ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from n4n.core.limits.levels import LEASE_MS
from n4n.core.limits.purse import UNKNOWN_SHARE, YOUNG_MS, Overspent, Purse, Spent, Term
from n4n.core.limits.subjects import Draw, Took
from n4n.runtime.limits.budgets import KnownSpending, SpendingParty, held_by


class _Share(msgspec.Struct):
    """Of one owner: its purse here, its budgets as they are and as this router's share, and what was spent of each before."""

    purse: Purse
    since_ms: float
    terms: tuple[Term, ...] = ()
    shares: tuple[Term, ...] = ()
    bases: tuple[int, ...] = ()


class PursesAway:
    """Of one worker."""

    def __init__(self) -> None:
        self._shares: dict[str, _Share] = {}
        self.parties: dict[SpendingParty, None] = {}  # that were asked for meanwhile

    def __bool__(self) -> bool:
        return bool(self._shares)

    def __repr__(self) -> str:
        return f"<PursesAway {len(self._shares)} owners>"

    def short(self, party: SpendingParty, now: float, routers: int, held: Iterable[tuple[bytes, SpendingParty, Draw]]) -> Overspent | None:
        """The budget that has nothing left for this router; None: none is short. `held`: reservations that were made before."""
        longest: Overspent | None = None
        for at, owner in enumerate(party.owners):
            share = self._share(party, at, now, routers, held)
            levels = share.purse.levels(share.shares, now)
            short = share.purse.short(share.shares, levels)
            if short >= 0 and (longest is None or levels[short].wait_ms > longest.wait_ms):
                budget, level = owner.budgets[short], levels[short]
                spent = share.bases[short] + level.spent
                longest = Overspent(budget.name, 0, level.wait_ms, (), budget, owner.whose, spent, level.reserved)
        return longest

    def take(self, id: bytes, party: SpendingParty, draw: Draw, now: float) -> tuple[float, ...]:
        """What was found not to be short; as Redis would have told it."""
        numbers: list[float] = []
        for at in range(len(party.owners)):
            share = self._share(party, at, now, 1, ())
            share.purse.take(_name(id), *held_by(draw), now, LEASE_MS)
            for base, level in zip(share.bases, share.purse.levels(share.shares, now), strict=True):
                numbers += (base + level.spent, level.reserved, level.window, 1.0)
        return tuple(numbers)

    def settle(self, id: bytes, party: SpendingParty, windows: Sequence[Sequence[Spent]], billed: Took, now: float, routers: int) -> None:
        """What a request spent that ended here."""
        for at in range(len(party.owners)):
            share = self._share(party, at, now, routers, ())
            then = [level.window for level in windows[at]] if windows else [term.window(now) for term in share.shares]
            share.purse.settle(_name(id), share.shares, then, int(billed.spend), int(billed.tokens), now)

    def returned(self, now: float) -> list[SpendingParty]:
        """Redis is back: what is known to be spent by now is noted, and these are to tell it."""
        for party in self.parties:
            for owner, known in zip(party.owners, party.spending, strict=True):
                share = self._shares.get(owner.keys[0])
                if share is None:
                    continue
                levels = share.purse.levels(share.shares, now)
                for term, base, level in zip(share.shares, share.bases, levels, strict=True):
                    if not term.slot_ms and base >= 0:
                        known.spent[term.name] = level.window, base + level.spent
        parties = list(self.parties)
        self._shares, self.parties = {}, {}
        return parties

    def _share(self, party: SpendingParty, at: int, now: float, routers: int, held: Iterable[tuple[bytes, SpendingParty, Draw]]) -> _Share:
        self.parties[party] = None
        key, terms = party.owners[at].keys[0], party.terms[at]
        share = self._shares.get(key)
        if share is None:
            share = self._shares[key] = _Share(Purse(), now)
            mine = {_name(id): held_by(draw) for id, other, draw in held if any(owner.keys[0] == key for owner in other.owners)}
            share.purse.renew(mine, now, LEASE_MS)
        if share.terms != terms:
            bases = [_base(term, party.spending[at], now, share.since_ms) for term in terms]
            share.terms, share.bases = terms, tuple([base or 0 for base in bases])
            share.shares = tuple([_shared(term, base, max(1, routers)) for term, base in zip(terms, bases, strict=True)])
            for term in share.shares:
                share.purse.seed(term, term.window(now), 0, (), now)
        return share


def _base(term: Term, known: KnownSpending, now: float, since_ms: float) -> int | None:
    """What was spent of it before Redis went; None: nobody knows."""
    window, spent = known.spent.get(term.name, (-1, 0))
    if window >= 0 and (term.slot_ms or window == term.begins):
        return spent
    began = term.since if term.slot_ms else term.begins
    return 0 if began > min(since_ms, now) - YOUNG_MS else None


def _shared(term: Term, base: int | None, routers: int) -> Term:
    left = int(term.amount * UNKNOWN_SHARE) if base is None else term.amount - base
    return replace(term, amount=max(1, left // routers) if left > 0 else 0)


def _name(id: bytes) -> str:
    return id.hex()
