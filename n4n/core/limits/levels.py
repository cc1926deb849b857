"""How full the buckets of one subject are, and who holds its leases: what the Lua scripts of n4n/runtime/limits do, in Python.

    reserve   all that the draw needs, or nothing; a refusal names the bucket that was short longest, and the wait
    settle    by reservation, once: the second time nothing happens. Never below zero
    renew     leases last on; a store that lost them learns them again
    correct   the provider knows better: at least so much is used, and nothing before an instant

Times are milliseconds on one clock; amounts are requests or tokens. A reservation is a lease: who never settles loses the place when it
expires, and what was estimated stays used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from n4n.core.limits.subjects import Draw, Rate, Subject

COOLDOWN, CONCURRENCY, STREAMS = "cooldown", "concurrency", "streams"
LEASE_MS = 30_000.0
PLACE_WAIT_MS = 100.0  # nobody knows when a place among the running is free
EPSILON = 1e-6  # of rounding


class Levels(msgspec.Struct, frozen=True):
    """The state after a step: what is used of each bucket, and how many run."""

    used: Mapping[str, float]
    running: int
    streams: int


class Grant(msgspec.Struct, frozen=True):
    """All of it is reserved. `levels` include it."""

    id: str
    levels: Levels


class Refusal(msgspec.Struct, frozen=True):
    """Nothing is reserved: `bucket` is short for `wait_ms` at least."""

    bucket: str
    wait_ms: float
    levels: Levels


class Settlement(msgspec.Struct, frozen=True):
    """What is given back of each bucket (less than 0: more was used than reserved), and what the provider said.

    `floors`: so much is used at least. `until_ms`: nothing may be taken for so long from now.
    """

    refunds: Mapping[str, float] = {}  # a struct makes its own
    floors: Mapping[str, float] = {}
    until_ms: float = 0.0


class Ledger:
    """The buckets and leases of one subject. The subject is named with every step: its numbers may change between two."""

    __slots__ = ("_at", "_leases", "_streams", "_until", "_used")

    def __init__(self, now: float) -> None:
        self._used: dict[str, float] = {}
        self._at, self._until = now, 0.0
        self._leases: dict[str, float] = {}  # reservation -> when it expires
        self._streams: dict[str, float] = {}

    def __repr__(self) -> str:
        return f"<Ledger {self._used} {len(self._leases)} running>"

    def levels(self, subject: Subject, now: float) -> Levels:
        """As they are now."""
        self._pass(subject.rates, now)
        return Levels(dict(self._used), len(self._leases), len(self._streams))

    def reserve(self, id: str, subject: Subject, draw: Draw, now: float, lease_ms: float = LEASE_MS) -> Grant | Refusal:
        """Everything or nothing."""
        self._pass(subject.rates, now)
        bucket, wait = self._short(subject, draw, now)
        if bucket:
            return Refusal(bucket, wait, Levels(dict(self._used), len(self._leases), len(self._streams)))
        for rate in subject.rates:
            self._used[rate.name] = self._used.get(rate.name, 0.0) + draw.amount(rate)
        self._leases[id] = now + lease_ms
        if draw.stream:
            self._streams[id] = now + lease_ms
        return Grant(id, Levels(dict(self._used), len(self._leases), len(self._streams)))

    def settle(self, id: str, subject: Subject, told: Settlement, now: float) -> bool:
        """True: the reservation was open. Corrections hold in any case."""
        self._pass(subject.rates, now)
        was_open = self._leases.pop(id, None) is not None
        self._streams.pop(id, None)
        for rate in subject.rates:
            used = self._used.get(rate.name, 0.0)
            if was_open:
                used = max(0.0, used - told.refunds.get(rate.name, 0.0))
            self._used[rate.name] = max(used, told.floors.get(rate.name, 0.0))
        if told.until_ms:
            self._until = max(self._until, now + told.until_ms)
        return was_open

    def renew(self, subject: Subject, held: Mapping[str, bool], added: Mapping[str, float], now: float, lease_ms: float = LEASE_MS) -> None:
        """`held`: reservations, and whether each is a stream. `added`: what was used elsewhere meanwhile."""
        self._pass(subject.rates, now)
        for id, stream in held.items():
            self._leases[id] = now + lease_ms
            if stream:
                self._streams[id] = now + lease_ms
        for rate in subject.rates:
            self._used[rate.name] = self._used.get(rate.name, 0.0) + added.get(rate.name, 0.0)

    def start_at(self, used: Mapping[str, float]) -> None:
        """What is known of a subject that was kept elsewhere until now."""
        self._used = dict(used)

    def is_idle(self, subject: Subject, now: float) -> bool:
        """Nothing is used and nobody runs: it may be forgotten."""
        self._pass(subject.rates, now)
        return not self._leases and self._until <= now and not any(self._used.get(rate.name, 0.0) for rate in subject.rates)

    def _pass(self, rates: Sequence[Rate], now: float) -> None:
        past = max(0.0, now - self._at)
        self._at = max(self._at, now)
        for rate in rates:
            self._used[rate.name] = max(0.0, self._used.get(rate.name, 0.0) - past * rate.per_ms)
        for leases in (self._leases, self._streams):
            for id in [id for id, until in leases.items() if until <= now]:
                del leases[id]

    def _short(self, subject: Subject, draw: Draw, now: float) -> tuple[str, float]:
        """The bucket that is short for longest, and how long; '' and 0: none is."""
        short = (COOLDOWN, self._until - now) if self._until > now else ("", 0.0)
        for rate in subject.rates:
            excess = self._used.get(rate.name, 0.0) + draw.amount(rate) - draw.room(rate)
            if excess > EPSILON and excess / rate.per_ms > short[1]:
                short = (rate.name, excess / rate.per_ms)
        if short[0]:
            return short
        if subject.concurrency is not None and len(self._leases) >= subject.concurrency:
            return CONCURRENCY, PLACE_WAIT_MS
        if draw.stream and subject.streams is not None and len(self._streams) >= subject.streams:
            return STREAMS, PLACE_WAIT_MS
        return "", 0.0
