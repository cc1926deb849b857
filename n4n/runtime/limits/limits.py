"""`Limits`: what requests reserve and settle, in Redis or, while that is away, in this router's share of every limit.

One round trip for all subjects of an attempt; a settlement is sent and not waited for. Whatever Redis does, a caller has its answer within
the store's deadline and no request fails for want of it. When Redis is back, it first learns what was used and who runs, in the same write
as the next reservation, so that nobody sees buckets that are emptier than they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from n4n.core.breaker import Breaker
from n4n.core.errors import StoreUnavailable
from n4n.core.limits.levels import LEASE_MS, Grant, Ledger, Levels, Refusal, Settlement
from n4n.core.limits.shares import share_of, used_at_start, used_meanwhile
from n4n.core.limits.subjects import Draw, Rate, Subject
from n4n.runtime.limits import scripts
from n4n.runtime.stores import Command, Outcome, Store

RENEW_MS = LEASE_MS / 3
LOOK_S = 0.25  # how far behind a router may be on what others know to be cooling
ALIVE_MS = 5_000.0  # a router that said nothing for so long is not counted
LINGER_S = 0.003  # a settlement waits so long for a reservation to go along with: two writes and two replies in one
MOST_KNOWN = 20_000  # subjects whose last level is remembered


class Reservation(msgspec.Struct, eq=False):
    """What one attempt holds of one subject until it is settled. `amounts` by bucket; `levels` as they were with it."""

    id: str
    subject: Subject
    stream: bool
    amounts: dict[str, float]
    levels: Levels
    renewed_ms: float
    is_open: bool = True


class Sight(msgspec.Struct, frozen=True):
    """One cooldown that another router knows of, by the name it was announced with."""

    name: str
    seconds: float


class _Away(msgspec.Struct):
    """One subject while Redis is away."""

    subject: Subject
    share: Subject
    ledger: Ledger
    start: dict[str, float]
    since_ms: float
    routers: int


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
    ) -> None:
        self._store, self._router, self._clock, self._others = store, router, clock, others
        self.routers = routers  # that live, as Redis knew last
        self._told: dict[str, tuple[Levels, float]] = {}
        self._away: dict[str, _Away] = {}
        self._held: dict[tuple[str, str], Reservation] = {}  # those renewed longest ago come first
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

    def left(self, subject: Subject) -> float:
        """The share of its tightest bucket that is left, as far as this router knows; 1: it knows nothing."""
        told = self._told.get(subject.keys[0])
        if told is None:
            return 1.0
        levels, at = told
        past = self._now() - at
        return min((_left(rate, levels.used.get(rate.name, 0.0) - past * rate.per_ms) for rate in subject.rates), default=1.0)

    async def reserve(self, id: str, asks: Sequence[tuple[Subject, Draw]]) -> list[Reservation | Refusal]:
        """Each subject by itself: everything it needs or nothing. In the order of `asks`; a grant beside a refusal is still held."""
        if self._store.state is not Breaker.CLOSED:
            return [self._reserved_here(id, subject, draw) for subject, draw in asks]
        if self._away:
            self._return()
        if self._lingering:
            self._send()
        try:
            outcomes = await self._outcomes([scripts.reserve(id, subject, draw) for subject, draw in asks])
        except asyncio.CancelledError:
            for subject, draw in asks:  # nobody is left to hold what Redis granted
                self._linger(scripts.settle(id, subject, _all_of(subject, draw)))
            raise
        now = self._now()
        found: list[Reservation | Refusal] = []
        for (subject, draw), outcome in zip(asks, outcomes, strict=True):
            try:
                if isinstance(outcome, StoreUnavailable):
                    raise outcome
                answer = scripts.reserved(id, subject, outcome)
            except StoreUnavailable:
                self._store.post(scripts.settle(id, subject, _all_of(subject, draw)))  # it may have run
                found.append(self._reserved_here(id, subject, draw))
                continue
            self._remember(subject, answer.levels, now)
            found.append(self._holding(answer, subject, draw, now) if isinstance(answer, Grant) else answer)
        return found

    def settle(self, reservation: Reservation, told: Settlement) -> None:
        """Once; not waited for. What is lost on the way expires."""
        if not reservation.is_open:
            return
        reservation.is_open = False
        subject = reservation.subject
        self._held.pop((subject.keys[0], reservation.id), None)
        away = self._away.get(subject.keys[0])
        if away is not None:
            away.ledger.settle(reservation.id, away.share, _part_of(told, away), self._now())
        else:
            self._linger(scripts.settle(reservation.id, subject, told))

    def give_back(self, reservation: Reservation) -> None:
        """It was not used at all."""
        self.settle(reservation, Settlement(refunds=reservation.amounts))

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
        if self._away:
            self._return()
        now, due = self._now(), dict[str, list[Reservation]]()
        for reservation in self._held.values():
            if now - reservation.renewed_ms < RENEW_MS:
                break
            due.setdefault(reservation.subject.keys[0], []).append(reservation)
        for group in due.values():
            self._renewed(group[0].subject, group, {}, now)

    async def look(self) -> None:
        """Tells the others what is new here and hears what is new there. While Redis is away nothing is heard and nothing forgotten."""
        bring, self._announced = self._announced, {}
        try:
            reply = await self._store.command(scripts.sight(self._router, ALIVE_MS, bring))
            self.routers, cooling = scripts.seen(reply)
        except StoreUnavailable:
            self._announced = bring | self._announced
            return
        for name, (until, ms) in cooling.items():
            if self._seen.get(name, 0.0) < until and ms > bring.get(name, 0.0) + 1.0:
                self._others(Sight(name, ms / 1000))
        self._seen = {name: until for name, (until, _) in cooling.items()}

    async def _outcomes(self, commands: Sequence[Command]) -> list[Outcome]:
        if len(commands) > 1:
            return await self._store.pipeline(commands)
        try:
            return [await self._store.command(commands[0])]  # costs less than a pipeline of one
        except StoreUnavailable as error:
            return [error]

    # --- here, while Redis is away ---

    def _reserved_here(self, id: str, subject: Subject, draw: Draw) -> Reservation | Refusal:
        self.fallbacks += 1
        now = self._now()
        away = self._away.get(subject.keys[0])
        if away is None:
            away = self._away[subject.keys[0]] = self._left(subject, now)
        elif away.subject is not subject:
            away.subject, away.share = subject, share_of(subject, away.routers)
        answer = away.ledger.reserve(id, away.share, draw, now)
        return self._holding(answer, subject, draw, now) if isinstance(answer, Grant) else answer

    def _left(self, subject: Subject, now: float) -> _Away:
        told, routers = self._told.get(subject.keys[0]), self.routers
        share, ledger = share_of(subject, routers), Ledger(now)
        start = used_at_start(share, None if told is None else told[0], 0.0 if told is None else now - told[1], routers)
        ledger.start_at(start)
        running = {one.id: one.stream for (key, _), one in self._held.items() if key == subject.keys[0]}
        ledger.renew(share, running, {}, now)
        return _Away(subject, share, ledger, start, now, routers)

    def _return(self) -> None:
        """Redis is back: it learns what happened, before anything else is asked of it."""
        self._send()
        now, back, self._away = self._now(), self._away, {}
        by_subject: dict[str, list[Reservation]] = {}
        for (key, _), reservation in self._held.items():
            if key in back:
                by_subject.setdefault(key, []).append(reservation)
        for key, away in back.items():
            used = away.ledger.levels(away.share, now).used
            self._renewed(away.subject, by_subject.get(key, []), used_meanwhile(away.share, used, away.start, now - away.since_ms), now)

    def _renewed(self, subject: Subject, group: Sequence[Reservation], added: dict[str, float], now: float) -> None:
        self._store.post(scripts.renew(subject, {one.id: one.stream for one in group}, added))
        for one in group:
            one.renewed_ms = now
            key = (subject.keys[0], one.id)
            self._held[key] = self._held.pop(key)

    # --- what is sent and not waited for ---

    def _linger(self, command: Command) -> None:
        if not self._lingering and self._timer is None:
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

    def _holding(self, grant: Grant, subject: Subject, draw: Draw, now: float) -> Reservation:
        amounts = {rate.name: draw.amount(rate) for rate in subject.rates}
        held = Reservation(grant.id, subject, draw.stream, amounts, grant.levels, now)
        self._held[(subject.keys[0], grant.id)] = held
        return held

    def _remember(self, subject: Subject, levels: Levels, now: float) -> None:
        if len(self._told) >= MOST_KNOWN and subject.keys[0] not in self._told:
            self._told.pop(next(iter(self._told)))
        self._told[subject.keys[0]] = (levels, now)

    def _now(self) -> float:
        return self._clock() * 1000


def _left(rate: Rate, used: float) -> float:
    return min(1.0, max(0.0, 1.0 - used / rate.capacity))


def _all_of(subject: Subject, draw: Draw) -> Settlement:
    return Settlement(refunds={rate.name: draw.amount(rate) for rate in subject.rates})


def _part_of(told: Settlement, away: _Away) -> Settlement:
    """What a provider says of the whole, as this router's part of it."""
    return Settlement(told.refunds, {name: floor / away.routers for name, floor in told.floors.items()}, told.until_ms)
