"""`Limits`: what requests reserve and settle, in Redis or, while that is away, in this router's share of every limit.

One round trip for all that an attempt needs; a settlement is sent and not waited for. Whatever Redis does, a caller has its answer within
the store's deadline and no request fails for want of it. When Redis is back, it first learns what was used and who runs, in the same write
as the next reservation, so that nobody sees buckets that are emptier than they are.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from weakref import WeakValueDictionary

import msgspec

from n4n.core.breaker import Breaker
from n4n.core.errors import StoreUnavailable
from n4n.core.limits.levels import LEASE_MS, Ledger, Levels, Refusal, Settlement, reserve
from n4n.core.limits.shares import share_of, used_at_start, used_meanwhile
from n4n.core.limits.subjects import Draw, Subject
from n4n.runtime.limits import scripts
from n4n.runtime.limits.away import PursesAway
from n4n.runtime.limits.budgets import KnownSpending, Owner, SpendingParty
from n4n.runtime.limits.packed import Known, Party
from n4n.runtime.stores import Command, Outcome, Reply, Store

RENEW_MS = LEASE_MS / 3
LOOK_S = 0.25  # how far behind a router may be on what others know to be cooling
ALIVE_MS = 5_000.0  # a router that said nothing for so long is not counted
LINGER_S = 0.003  # a settlement waits so long for a reservation to go along with: two writes and two replies in one
_NOTHING_TAKEN = Settlement()


class Reservation(msgspec.Struct, eq=False):
    """What one attempt holds of a party until it is settled. `numbers`: what it was answered; `renewed_ms` on the router's clock."""

    id: bytes
    party: Party
    draw: Draw
    numbers: tuple[float, ...]
    renewed_ms: float
    is_open: bool = True

    def used(self, at: int = 0) -> tuple[float, ...]:
        """Of each bucket of one of the subjects, with this reservation."""
        return self.party.used(self.numbers, at)

    def levels(self) -> tuple[Levels, ...]:
        """The subjects as they were with it."""
        return self.party.levels(self.numbers)


class Sight(msgspec.Struct, frozen=True):
    """One cooldown that another router knows of, by the name it was announced with."""

    name: str
    seconds: float


class _Away(msgspec.Struct):
    """One subject while Redis is away."""

    subject: Subject
    share: Subject
    ledger: Ledger
    start: tuple[float, ...]
    since_ms: float
    routers: int
    is_told: bool  # what it started from was Redis' word, not a guess


class Limits:
    """One per worker. `clock`: monotonic seconds; `router`: this worker's name in the fleet; `others`: hears of cooldowns."""

    def __init__(
        self,
        store: Store,
        *,
        router: str,
        clock: Callable[[], float],
        others: Callable[[Sight], None] = lambda _: None,
        routers: int = 1,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._store, self._router, self._clock, self._others = store, router, clock, others
        self._epoch_ms = (wall() - clock()) * 1000  # windows begin and end in Unix time
        self.routers = routers  # that live, as Redis knew last, or the control plane while it is away
        self.fleet: Callable[[], int] = lambda: 0  # how many the control plane knows of; 0: it never said
        self._knowns: WeakValueDictionary[str, Known] = WeakValueDictionary()
        self._spending: WeakValueDictionary[str, KnownSpending] = WeakValueDictionary()
        self._away: dict[str, _Away] = {}
        self._purses = PursesAway()
        self._held: dict[Reservation, None] = {}  # those renewed longest ago come first
        self._announced: dict[str, float] = {}
        self._seen: dict[str, float] = {}
        self._wake = asyncio.Event()
        self._lingering: list[Command] = []
        self._timer: asyncio.TimerHandle | None = None
        self.fallbacks = 0  # reservations that were decided without Redis

    def __repr__(self) -> str:
        return f"<Limits {len(self._held)} held, {len(self._away)} subjects away, {self.routers} routers>"

    @property
    def held(self) -> int:
        """Reservations that are not settled."""
        return len(self._held)

    def party(self, *subjects: Subject) -> Party:
        """Subjects of one hash tag that are asked together. Worth keeping for as long as their numbers stand."""
        return Party(subjects, [self._known(subject) for subject in subjects])

    def spending_party(self, subjects: Sequence[Subject], owners: Sequence[Owner]) -> SpendingParty:
        """The same where some of them have budgets."""
        spending = [self._spending.setdefault(owner.keys[0], KnownSpending()) for owner in owners]
        return SpendingParty(subjects, [self._known(subject) for subject in subjects], owners, spending, self._now)

    def used_now(self, party: Party, at: int = 0) -> list[float]:
        """What is used of each bucket of one subject, as far as this router knows: what was told last, drained since."""
        known, subject = party.knowns[at], party.subjects[at]
        if known.used is None:
            return [0.0] * len(subject.buckets)
        past, levels = self._now() - known.at_ms, zip(subject.buckets, known.used, strict=False)
        return [max(0.0, used - past * bucket.per_ms) for bucket, used in levels]

    def used_shares(self, party: Party) -> dict[str, float]:
        """How much of each limit of the first subject is used, by bucket, and of the places among the running."""
        subject = party.subjects[0]
        used = zip(subject.buckets, self.used_now(party), strict=False)
        return {bucket.name: level / bucket.capacity for bucket, level in used}

    def left(self, party: Party) -> float:
        """The share of the first subject's tightest bucket that is left, as far as this router knows; 1: it knows nothing."""
        return min(1.0, max(0.0, 1.0 - max(self.used_shares(party).values(), default=0.0)))

    async def reserve(self, id: bytes, asks: Sequence[tuple[Party, Draw]]) -> list[Reservation | Refusal]:
        """Each party by itself: everything it needs or nothing. In the order of `asks`; a grant beside a refusal is still held."""
        if self._store.state is not Breaker.CLOSED:
            return [self._reserved_here(id, party, draw) for party, draw in asks]
        if self._away or self._purses:
            self._return()
        if self._lingering:
            self._send()
        waits = [self._asked(party.reserve(id, draw, LEASE_MS)) for party, draw in asks]  # all leave in one write
        outcomes: list[Outcome] = []
        try:
            for wait in waits:
                try:
                    outcomes.append(await wait)
                except StoreUnavailable as error:
                    outcomes.append(error)
        except asyncio.CancelledError:
            for wait, (party, draw) in zip(waits, asks, strict=True):  # nobody is left to hold what Redis granted
                wait.cancel()
                self._linger(party.settle(id, draw, _NOTHING_TAKEN))
            raise
        now = self._now()
        return [self._answered(id, party, draw, outcome, now) for (party, draw), outcome in zip(asks, outcomes, strict=True)]

    def _asked(self, command: Command) -> asyncio.Future[Reply]:
        try:
            return self._store.ask(command)
        except StoreUnavailable as error:
            failed = asyncio.get_running_loop().create_future()
            failed.set_exception(error)
            return failed

    def settle(self, reservation: Reservation, told: Settlement) -> None:
        """Once; not waited for. What is lost on the way expires."""
        if not reservation.is_open:
            return
        reservation.is_open = False
        del self._held[reservation]
        party = reservation.party
        is_away = bool(self._away) and any(subject.keys[0] in self._away for subject in party.subjects)
        if isinstance(party, SpendingParty) and (is_away or self._store.state is not Breaker.CLOSED):
            windows = party.spent(reservation.numbers)
            self._purses.settle(reservation.id, party, windows, told.billed, self._now(), self.routers)
        if is_away:
            self._settled_here(reservation, told)
        else:
            self._linger(party.settle(reservation.id, reservation.draw, told, reservation.numbers))

    def give_back(self, reservation: Reservation) -> None:
        """It was not used at all."""
        self.settle(reservation, _NOTHING_TAKEN)

    def announce(self, name: str, seconds: float) -> None:
        """All routers learn of a cooldown; of several the longest wins."""
        self._announced[name] = max(self._announced.get(name, 0.0), seconds * 1000)
        self._wake.set()

    async def keep(self) -> None:
        """Renews leases, counts routers and hears of cooldowns, until it is cancelled."""
        while True:
            self.renew()
            await self.look()
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()

    def close(self) -> None:
        """What was settled last is sent; call it while the store is open."""
        if self._timer is not None:
            self._timer.cancel()
        self._rang()

    def renew(self) -> None:
        """Leases that would expire before long are made to last."""
        if self._store.state is not Breaker.CLOSED:
            return
        if self._away or self._purses:
            self._return()
        now, due = self._now(), dict[Party, list[Reservation]]()
        for reservation in self._held:
            if now - reservation.renewed_ms < RENEW_MS:
                break
            due.setdefault(reservation.party, []).append(reservation)
        for party, group in due.items():
            self._renewed(party, group, (), now)

    async def look(self) -> None:
        """Tells the others what is new here and hears what is new there. While Redis is away nothing is heard and nothing forgotten."""
        bring, self._announced = self._announced, {}
        try:
            reply = await self._store.command(scripts.sight(self._router, ALIVE_MS, bring))
            self.routers, cooling = scripts.seen(reply)
        except StoreUnavailable:
            self._announced = bring | self._announced
            self.routers = self.fleet() or self.routers
            return
        for name, (until, ms) in cooling.items():
            if self._seen.get(name, 0.0) < until and ms > bring.get(name, 0.0) + 1.0:
                self._others(Sight(name, ms / 1000))
        self._seen = {name: until for name, (until, _) in cooling.items()}

    def _answered(self, id: bytes, party: Party, draw: Draw, outcome: Outcome, now: float) -> Reservation | Refusal:
        try:
            numbers = party.read(outcome, id)
        except StoreUnavailable:
            self._store.post(party.settle(id, draw, _NOTHING_TAKEN))  # it may have run
            return self._reserved_here(id, party, draw)
        party.note(numbers, now)
        if numbers[0]:
            return party.refusal(numbers)
        held = Reservation(id, party, draw, numbers, now)
        self._held[held] = None
        return held

    # --- here, while Redis is away ---

    def _reserved_here(self, id: bytes, party: Party, draw: Draw) -> Reservation | Refusal:
        self.fallbacks += 1
        now = self._now()
        if isinstance(party, SpendingParty):
            over = self._purses.short(party, now, self.routers, self._spenders())
            if over is not None:
                return over
        aways = [self._away_of(subject, now) for subject in party.subjects]
        answer = reserve([one.ledger for one in aways], id, [one.share for one in aways], draw, now)
        levels = tuple([_whole(level, away.routers) for level, away in zip(answer.levels, aways, strict=True)])
        if isinstance(answer, Refusal):
            return Refusal(answer.bucket, answer.whose, answer.wait_ms, levels)
        numbers = _numbers(levels, now)
        if isinstance(party, SpendingParty):
            numbers += self._purses.take(id, party, draw, now)
        held = Reservation(id, party, draw, numbers, now)
        self._held[held] = None
        return held

    def _settled_here(self, reservation: Reservation, told: Settlement) -> None:
        now, first = self._now(), True
        for subject in reservation.party.subjects:
            away = self._away_of(subject, now)
            part = _part_of(told, away.routers) if first else Settlement(told.took)
            away.ledger.settle(reservation.id, away.share, reservation.draw, part, now)
            first = False

    def _away_of(self, subject: Subject, now: float) -> _Away:
        away = self._away.get(subject.keys[0])
        if away is None:
            away = self._away[subject.keys[0]] = self._left(subject, now)
        elif away.subject is not subject:
            if away.subject.buckets != subject.buckets:
                away.start = _matched(away, subject)
            away.subject, away.share = subject, share_of(subject, away.routers)
        return away

    def _left(self, subject: Subject, now: float) -> _Away:
        known, routers = self._knowns.get(subject.keys[0]), self.routers
        share, ledger = share_of(subject, routers), Ledger()
        told = None if known is None or known.used is None or len(known.used) != len(share.buckets) else known.used
        start = used_at_start(share, told, 0.0 if known is None else now - known.at_ms, routers)
        ledger.start_at(share, start, now)
        ledger.renew(share, {one.id: one.draw.stream for one in self._holders(subject)}, (), now)
        return _Away(subject, share, ledger, start, now, routers, told is not None)

    def _return(self) -> None:
        """Redis is back: it learns what happened, before anything else is asked of it."""
        self._send()
        now, back, self._away = self._now(), self._away, {}
        for away in back.values():
            used = away.ledger.levels(away.share, now).used
            added = used_meanwhile(away.share, used, away.start, now - away.since_ms)
            self._renewed(self.party(away.subject), self._holders(away.subject), added, now, used if away.is_told else ())
        parties: dict[SpendingParty, dict[bytes, Draw]] = {party: {} for party in self._purses.returned(now)}
        for id, party, draw in self._spenders():
            parties.setdefault(party, {})[id] = draw
        for party, held in parties.items():
            self._store.post(party.renew_budgets(held))

    def _spenders(self) -> list[tuple[bytes, SpendingParty, Draw]]:
        """What is held of budgets."""
        return [(one.id, one.party, one.draw) for one in self._held if isinstance(one.party, SpendingParty)]

    def _holders(self, subject: Subject) -> list[Reservation]:
        """Those whose leases are kept with this subject."""
        key, counts = subject.keys[0], subject.concurrency is not None or subject.streams is not None
        return [
            one for one in self._held if one.party.name == key or (counts and any(key == other.keys[0] for other in one.party.subjects))
        ]

    def _renewed(self, party: Party, group: Sequence[Reservation], added: Sequence[float], now: float, whole: Sequence[float] = ()) -> None:
        self._store.post(scripts.renew(party, {one.id: one.draw.stream for one in group}, added, whole=whole))
        if group and isinstance(party, SpendingParty):
            self._store.post(party.renew_budgets({one.id: one.draw for one in group}))
        for one in group:
            one.renewed_ms = now
            del self._held[one]
            self._held[one] = None

    # --- what is sent and not waited for ---

    def _linger(self, command: Command) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LINGER_S, self._rang)
        self._lingering.append(command)

    def _rang(self) -> None:
        self._timer = None
        self._send()

    def _send(self) -> None:
        lingering, self._lingering = self._lingering, []
        for command in lingering:
            self._store.post(command)

    # --- what is remembered ---

    def _known(self, subject: Subject) -> Known:
        known = self._knowns.get(subject.keys[0])
        if known is None:
            known = self._knowns[subject.keys[0]] = Known()
        return known

    def _now(self) -> float:
        """Unix time in ms, from the monotonic clock."""
        return self._clock() * 1000 + self._epoch_ms


def _whole(level: Levels, routers: int) -> Levels:
    """What is used of this router's part, as of the whole: all parts are as full as this one, for all that is known."""
    return Levels(tuple([used * routers for used in level.used]), level.running, level.streams)


def _numbers(levels: Sequence[Levels], now: float) -> tuple[float, ...]:
    """A grant as Redis would have told it."""
    return (0.0, 0.0, 0.0, now, *[number for one in levels for number in (one.running, one.streams, *one.used)])


def _part_of(told: Settlement, routers: int) -> Settlement:
    """What a provider says of the whole, as this router's part of it."""
    return Settlement(told.took, {name: floor / routers for name, floor in told.floors.items()}, told.until_ms, refused=told.refused)


def _matched(away: _Away, subject: Subject) -> tuple[float, ...]:
    """What a subject with other buckets than before began with, as far as it had them then."""
    before = dict(zip([bucket.name for bucket in away.subject.buckets], away.start, strict=True))
    return tuple([before.get(bucket.name, 0.0) for bucket in subject.buckets])
