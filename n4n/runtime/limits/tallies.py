"""What all routers together have spent of what nobody is refused for: caps of tenants at providers, and daily tokens of accounts.

A router adds up by itself, brings it about once a second and hears what the others brought: weights need no more. It says what it was told
before, so that a Redis that lost everything learns it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, cast

from n4n.core.budgets import Budget, Unit, calendar_span
from n4n.core.errors import StoreRefused
from n4n.runtime.limits.packed import script_of
from n4n.runtime.stores import Command, Reply, Word

TALLY = script_of("tally")
_KEPT_MS = 3_600_000  # after the window's end, for clocks that are behind


class Counter(NamedTuple):
    """One counter: when its window ends, which tells where it is kept, and its name there."""

    ends_ms: int
    name: str


def of_cap(tenant: str, provider: str, cap: Budget, now_ms: int) -> Counter:
    """A tenant's spending at a provider in the present window, in the cap's unit."""
    span = cap.span(now_ms)
    return Counter(span.ends, f"t {tenant} {provider} {cap.unit} {span.begins}")


def of_account(account: str, now_ms: int) -> Counter:
    """An account's tokens today (UTC)."""
    span = calendar_span("day", now_ms)
    return Counter(span.ends, f"a {account} {Unit.TOKENS} {span.begins}")


def tally(ends_ms: int, counters: Iterable[tuple[str, float, float]]) -> Command:
    """Of counters that end at one instant: name, what is added, what there is at least."""
    args: list[Word] = [ends_ms + _KEPT_MS]
    for name, added, floor in counters:
        args += (name, repr(float(added)), repr(float(floor)))
    return TALLY.call((f"n4n:{{caps}}:{ends_ms}",), args)


def tallied(reply: Reply) -> list[float]:
    """The counters. StoreRefused: it is no answer to this."""
    if not isinstance(reply, list) or not all(isinstance(one, bytes) for one in reply):
        raise StoreRefused("CROSSED", "tally")
    return [float(cast(bytes, one)) for one in reply]


class Tallies:
    """What one router knows of counters."""

    def __init__(self) -> None:
        self._added: dict[Counter, float] = {}
        self._told: dict[Counter, float] = {}

    def __repr__(self) -> str:
        return f"<Tallies {len(self._told)} counters>"

    def add(self, counter: Counter, amount: float) -> None:
        """This router spent so much."""
        self._added[counter] = self._added.get(counter, 0.0) + amount

    def total(self, counter: Counter) -> float:
        """What all are known to have spent."""
        return self._told.get(counter, 0.0) + self._added.get(counter, 0.0)

    def asks(self, watched: Iterable[Counter]) -> Mapping[int, list[Counter]]:
        """Whose counters to bring and to hear, by when they end; windows that are neither watched nor added to are forgotten."""
        counters = {*watched, *self._added}
        self._told = {counter: told for counter, told in self._told.items() if counter in counters}
        by_end: dict[int, list[Counter]] = {}
        for counter in counters:
            by_end.setdefault(counter.ends_ms, []).append(counter)
        return by_end

    def command(self, ends_ms: int, counters: Iterable[Counter]) -> tuple[Command, dict[Counter, float]]:
        """What to send, and what it brings: to be put back where it did not arrive."""
        brought = {counter: self._added.pop(counter, 0.0) for counter in counters}
        return tally(ends_ms, [(one.name, added, self._told.get(one, 0.0)) for one, added in brought.items()]), brought

    def heard(self, brought: Mapping[Counter, float], totals: Iterable[float]) -> None:
        """It arrived, and this is how they stand."""
        for counter, total in zip(brought, totals, strict=True):
            self._told[counter] = total

    def lost(self, brought: Mapping[Counter, float]) -> None:
        """It did not arrive."""
        for counter, amount in brought.items():
            if amount:
                self.add(counter, amount)
