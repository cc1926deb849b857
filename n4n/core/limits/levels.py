"""How full buckets are, and who holds leases: what the Lua scripts of n4n/runtime/limits do, in Python.

    reserve   all that the draw needs of all subjects, or nothing; a refusal names the bucket that was short longest, whose, and the wait
    settle    by reservation, once: the second time nothing happens. Never below zero
    renew     leases last on; a store that lost them learns them again
    correct   the provider knows better: at least so much is used, and nothing before an instant

Times are milliseconds on one clock. A reservation is a lease: who never settles loses the place when it
expires, and what was estimated stays used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from n4n.core.limits.caution import Caution
from n4n.core.limits.subjects import NOTHING, Draw, Rate, Subject, Took

COOLDOWN, CONCURRENCY, STREAMS = "cooldown", "concurrency", "streams"
LEASE_MS = 30_000.0
ANEW_MS = 10_000.0  # routers that bring back what a restarted server lost do so within this
PLACE_WAIT_MS = 100.0  # nobody knows when a place among the running is free
EPSILON = 1e-6  # of rounding


class Levels(msgspec.Struct, frozen=True):
    """One subject after a step: what is used of each bucket, in their order, and how many run."""

    used: tuple[float, ...]
    running: int
    streams: int


class Grant(msgspec.Struct, frozen=True):
    """All of it is reserved. `levels` of each subject include it."""

    levels: tuple[Levels, ...]


class Refusal(msgspec.Struct, frozen=True):
    """Nothing is reserved: `bucket` of the subject at `whose` is short for `wait_ms` at least."""

    bucket: str
    whose: int
    wait_ms: float
    levels: tuple[Levels, ...]


class Settlement(msgspec.Struct, frozen=True, gc=False):
    """What was taken in the end, and what the provider said: `floors`, so much is used at least of a bucket of the first subject;

    `until_ms`, nothing may be taken for so long from now; `refused`: it did so without a word of its limits (`caution`).
    `billed`: what budgets are charged with, as it stands in the ledger.
    """

    took: Took = NOTHING
    floors: Mapping[str, float] = {}  # a struct makes its own
    until_ms: float = 0.0
    billed: Took = NOTHING
    refused: bool = False


class Ledger:
    """The buckets and leases of one subject. The subject is named with every step: its numbers may change between two."""

    __slots__ = ("_anew", "_caution", "_kept", "_leases", "_streams", "_until")

    def __init__(self) -> None:
        self._kept: dict[str, tuple[float, float]] = {}  # of each bucket what is used, and as of when
        self._until, self._caution = 0.0, Caution()
        self._anew: float | None = None  # since when it is there again after it was lost
        self._leases: dict[bytes, float] = {}  # reservation -> when it expires
        self._streams: dict[bytes, float] = {}

    def __repr__(self) -> str:
        return f"<Ledger { ({name: used for name, (used, _) in self._kept.items()}) } {len(self._leases)} running>"

    def used(self, bucket: Rate, now: float) -> float:
        """What is used of it now."""
        used, mark = self._kept.get(bucket.name, (0.0, now))
        return max(0.0, used - max(0.0, now - mark) * bucket.per_ms * self._caution.at(now))

    def levels(self, subject: Subject, now: float) -> Levels:
        """As they are now."""
        for leases in (self._leases, self._streams):
            for id in [id for id, until in leases.items() if until <= now]:
                del leases[id]
        return Levels(tuple(self.used(bucket, now) for bucket in subject.buckets), len(self._leases), len(self._streams))

    def settle(self, id: bytes, subject: Subject, drawn: Draw, told: Settlement, now: float) -> bool:
        """True: the reservation was open. Corrections hold in any case."""
        was_open = self._leases.pop(id, None) is not None
        self._streams.pop(id, None)
        for bucket in subject.buckets:
            used = self.used(bucket, now)
            if was_open:
                used = max(0.0, used - drawn.amount(bucket) + told.took.of(bucket.unit))
            self._keep(bucket, max(used, told.floors.get(bucket.name, 0.0)), now)
        if told.until_ms:
            self._until = max(self._until, now + told.until_ms)
        if told.refused:
            self._caution = self._caution.refused(now)
        return was_open

    def renew(
        self,
        subject: Subject,
        held: Mapping[bytes, bool],
        added: Sequence[float],
        now: float,
        lease_ms: float = LEASE_MS,
        whole: Sequence[float] = (),
    ) -> None:
        """`held`: reservations, and whether each is a stream. `added`: what was used elsewhere meanwhile, by bucket; empty: nothing.

        `whole`: what is added instead where nothing is known here, with what others bring within ANEW_MS; empty: the same.
        """
        if added and whole and (not self._kept or (self._anew is not None and now - self._anew < ANEW_MS)):
            self._anew, added = now if self._anew is None else self._anew, whole
        for id, stream in held.items():
            self._leases[id] = now + lease_ms
            if stream:
                self._streams[id] = now + lease_ms
        for bucket, more in zip(subject.buckets, added, strict=False):
            self._keep(bucket, self.used(bucket, now) + more, now)

    def start_at(self, subject: Subject, used: Sequence[float], now: float) -> None:
        """What is known of a subject that was kept elsewhere until now."""
        for bucket, level in zip(subject.buckets, used, strict=True):
            self._keep(bucket, level, now)

    # --- the two halves of `reserve` ---

    def short(self, subject: Subject, draw: Draw, now: float) -> tuple[str, float]:
        """The bucket that is short for longest, and how long; '' and 0: none is."""
        short = (COOLDOWN, self._until - now) if self._until > now else ("", 0.0)
        part = self._caution.at(now)
        for bucket in subject.buckets:
            excess = self.used(bucket, now) + draw.amount(bucket) - draw.room(bucket, part)
            if excess > EPSILON:
                wait = excess / bucket.per_ms / part
                short = (bucket.name, wait) if wait > short[1] else short
        if short[1] >= PLACE_WAIT_MS:
            return short
        if subject.concurrency is not None and len(self._leases) >= subject.concurrency:
            return CONCURRENCY, PLACE_WAIT_MS
        if draw.stream and subject.streams is not None and len(self._streams) >= subject.streams:
            return STREAMS, PLACE_WAIT_MS
        return short

    def take(self, id: bytes, subject: Subject, draw: Draw, now: float, lease_ms: float) -> None:
        """What was found not to be short."""
        for bucket in subject.buckets:
            self._keep(bucket, self.used(bucket, now) + draw.amount(bucket), now)
        self._leases[id] = now + lease_ms
        if draw.stream:
            self._streams[id] = now + lease_ms

    def _keep(self, bucket: Rate, used: float, now: float) -> None:
        self._kept[bucket.name] = (used, max(self._kept.get(bucket.name, (0.0, 0.0))[1], now))


def reserve(
    ledgers: Sequence[Ledger], id: bytes, subjects: Sequence[Subject], draw: Draw, now: float, lease_ms: float = LEASE_MS
) -> Grant | Refusal:
    """Of each subject everything, or of none anything."""
    bucket, whose, wait_ms = "", 0, 0.0
    before = tuple([ledger.levels(subject, now) for ledger, subject in zip(ledgers, subjects, strict=True)])
    for at, (ledger, subject) in enumerate(zip(ledgers, subjects, strict=True)):
        short, wait = ledger.short(subject, draw, now)
        if wait > wait_ms:
            bucket, whose, wait_ms = short, at, wait
    if bucket:
        return Refusal(bucket, whose, wait_ms, before)
    for ledger, subject in zip(ledgers, subjects, strict=True):
        ledger.take(id, subject, draw, now, lease_ms)
    return Grant(tuple([ledger.levels(subject, now) for ledger, subject in zip(ledgers, subjects, strict=True)]))
