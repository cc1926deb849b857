"""`SharedHealth`: tells others what was seen of endpoints here, and keeps a copy of what all of them have seen.

A failure counts here at once, and is told in the same moment unless something was told just before; successes of an endpoint that comes
back go along four times a second, those that change nothing every two seconds. Redis answers with what it knows now, so who tells knows it
too; what others told is asked for four times a second. While Redis is away, or where there is none, the same arithmetic goes on here, from
the last copy, and what Redis says takes its place when it is back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import islice

from msgspec.structs import replace

from n4n.core.breaker import Breaker, BreakerEvent, allows
from n4n.core.breaker import fold as fold_breaker
from n4n.core.errors import StoreUnavailable
from n4n.core.health.news import News
from n4n.core.health.policy import HealthPolicy
from n4n.core.health.seen import Seen, seen_of, standing_of
from n4n.core.health.signals import Signal, Source
from n4n.core.health.standing import Policies, Standing, fold, share
from n4n.runtime.health import scripts
from n4n.runtime.stores import Store

TICK_S = 0.1  # for as long successes are added up where they are folded here
CALM_S = 2.0  # for as long those are that change nothing but measures: Redis takes 40 µs for each endpoint that is told
SPACING_S = 0.25  # between two steps, but for the end of a trial
LOOK_S = 0.25
Changed = Callable[[str], None]
_FRESH = Seen()


class SharedHealth:
    """One per process. `policies_of` says what rules an endpoint, None: it is not in the catalog, and nothing of it is kept.

    `clock`: monotonic seconds; `draw`: numbers in [0, 1); `changed` hears of every endpoint of which something else is known now.
    Without a store it decides alone. Nothing here grows with traffic: it holds one entry for each endpoint of the catalog.
    """

    def __init__(
        self,
        store: Store | None,
        *,
        policies_of: Callable[[str], Policies | None],
        clock: Callable[[], float],
        draw: Callable[[], float],
        changed: Changed = lambda _: None,
    ) -> None:
        self._store, self._policies_of, self._clock, self._draw, self._changed = store, policies_of, clock, draw, changed
        self._seen: dict[str, Seen] = {}
        self._alone: dict[str, Standing] = {}  # folded here, while Redis is away
        self._news: dict[str, tuple[News, Policies]] = {}
        self._folded_at = -TICK_S
        self._hot: dict[str, None] = {}  # whose news others should not wait for, in order
        self._due, self._urgent = asyncio.Event(), asyncio.Event()
        self._generation, self._number = b"", 0
        self._unsettled: set[str] = set()  # their score changes by itself
        self.told = self.lost = 0  # steps that Redis took, and those it did not

    def __repr__(self) -> str:
        return f"<SharedHealth {len(self._seen)} endpoints, {len(self._alone)} alone>"

    def attach(self, store: Store) -> None:
        """From now on what is seen is shared there."""
        self._store = store

    # --- what is known ---

    @property
    def seen(self) -> Mapping[str, Seen]:
        """By endpoint; one without an entry is fresh. Times are of `clock`."""
        return self._seen

    @property
    def is_shared(self) -> bool:
        """Whether Redis decides now."""
        return self._store is not None and self._store.state is Breaker.CLOSED

    def score(self, endpoint: str) -> float:
        """As of now, in [floor, 1]; of one that is fresh, or not in the catalog, neutral."""
        seen, policies = self._seen.get(endpoint), self._policies_of(endpoint)
        health = HealthPolicy() if policies is None else policies.health
        return health.neutral if seen is None else share(seen, self._clock(), health)

    def keep_only(self, endpoints: Collection[str]) -> None:
        """Forgets what left the catalog, and asks anew what is known of those that came."""
        for held in (self._seen, self._alone, self._news, self._hot):
            for name in [name for name in held if name not in endpoints]:
                del held[name]
        self._unsettled.intersection_update(endpoints)
        self._number = 0

    # --- what is told ---

    def tell(self, signals: Iterable[Signal]) -> None:
        """Not waited for; never fails."""
        for signal in signals:
            self.tell_one(signal)

    def tell_one(self, signal: Signal) -> None:
        """The same for one."""
        entry = self._entry(signal.endpoint)
        if entry is None:
            return
        urgent = entry[0].add(signal)
        if self.is_shared:
            if urgent:
                self._notice(signal, entry[1])
            if urgent or signal.endpoint in self._unsettled or signal.source is Source.PROBE:
                self._wake(signal.endpoint, signal.trial)
        elif urgent or signal.trial or self._clock() - self._folded_at >= TICK_S or signal.endpoint in self._unsettled:
            self._fold_here()

    def tell_good(self, endpoint: str, latency_s: float | None, ttft_s: float | None, tokens_per_s: float | None) -> None:
        """The same for a success of live traffic that was no trial; `Signal` says what is what."""
        entry = self._news.get(endpoint) or self._entry(endpoint)
        if entry is None:
            return
        entry[0].went_well(latency_s, ttft_s, tokens_per_s)
        store = self._store
        if store is not None and store.state is Breaker.CLOSED:
            if self._unsettled and endpoint in self._unsettled:
                self._wake(endpoint, False)
        elif self._clock() - self._folded_at >= TICK_S or endpoint in self._unsettled:
            self._fold_here()

    def trial_abandoned(self, endpoint: str) -> None:
        """The trial ended without a verdict; it is free again."""
        entry = self._entry(endpoint)
        if entry is None:
            return
        entry[0].happened("a")
        if self.is_shared:
            self._wake(endpoint, True)
        else:
            self._fold_here()

    def announce(self, cooldowns: Mapping[str, float]) -> None:
        """Every router learns of cooldowns, in seconds from now: `account NAME CLASS` or `endpoint NAME CLASS`, CLASS a FailureClass."""
        if self._store is not None and cooldowns:
            self._store.post(scripts.cool(cooldowns))

    async def take_trial(self, endpoint: str) -> bool:
        """Whether the one trial of a half-open breaker is ours; by Redis' word where it can be had."""
        policies = self._policies_of(endpoint)
        if policies is None:
            return False
        if self.is_shared:
            assert self._store is not None
            try:
                answer = scripts.answered(await self._store.command(scripts.take_trial(endpoint, policies)), self._clock())
            except StoreUnavailable:
                pass
            else:
                self._learn(answer)
                return answer.free
        standing = self._standing(endpoint, policies)
        if not allows(standing.breaker, self._clock()):
            return False
        breaker = fold_breaker(standing.breaker, BreakerEvent.TRIAL_STARTED, self._clock(), policies.breaker, self._draw())
        self._keep_here(endpoint, replace(standing, breaker=breaker), policies)
        return True

    # --- the background ---

    async def keep(self) -> None:
        """Tells and looks until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._tell_on(), name="health is told")
            group.create_task(self._look_on(), name="health is looked at")

    async def flush(self) -> None:
        """What was told so far is with Redis, or folded here, after this."""
        while self._news:
            await self._send(list(islice(self._news, scripts.MOST_TOLD)))

    async def look(self) -> None:
        """What others told. StoreUnavailable: it cannot be asked."""
        if self._store is None:
            return
        while True:
            since = self._number
            answer = scripts.answered(await self._store.command(scripts.look(since)), self._clock())
            if answer.generation != self._generation:
                self._generation, self._number = answer.generation, 0
                if since:
                    continue
            self._learn(answer)
            self._number = answer.number
            if len(answer.seen) < scripts.MOST_READ:
                return

    async def _tell_on(self) -> None:
        sent = flushed = self._clock()
        while True:
            await _set_within(self._due, flushed + CALM_S - self._clock())
            await _set_within(self._urgent, sent + SPACING_S - self._clock())
            self._due.clear()
            self._urgent.clear()
            sent = self._clock()
            while self._hot:
                await self._send(list(islice(self._hot, scripts.MOST_TOLD)))
            if self._clock() - flushed >= CALM_S:
                flushed = self._clock()
                await self.flush()

    async def _look_on(self) -> None:
        was_shared = False
        while True:
            if self.is_shared:
                try:
                    if not was_shared:
                        self._return()
                    await self.look()
                except StoreUnavailable:
                    pass
            was_shared = self.is_shared
            self._settle()
            await asyncio.sleep(LOOK_S)

    def _return(self) -> None:
        """Redis is back: what it knows of an endpoint is more than what is known here."""
        self._alone.clear()
        self._number = 0

    async def _send(self, names: Iterable[str]) -> None:
        batch: dict[str, tuple[News, Policies]] = {}
        for name in names:
            self._hot.pop(name, None)
            if (entry := self._news.pop(name, None)) is not None:
                batch[name] = entry
        if not batch:
            return
        if self.is_shared:
            assert self._store is not None
            try:
                self._learn(scripts.answered(await self._store.command(scripts.tell(batch, self._draw())), self._clock()))
                self.told += 1
                return
            except StoreUnavailable:
                self.lost += 1
        self._fold(batch)

    def _settle(self) -> None:
        """Scores that drift by themselves."""
        for name in tuple(self._unsettled):
            if self.score(name) == 1.0:
                self._unsettled.discard(name)
            self._changed(name)

    # --- the steps ---

    def _entry(self, endpoint: str) -> tuple[News, Policies] | None:
        entry = self._news.get(endpoint)
        if entry is None:
            policies = self._policies_of(endpoint)
            if policies is None:
                return None
            entry = self._news[endpoint] = (News(), policies)
        return entry

    def _notice(self, signal: Signal, policies: Policies) -> None:
        """Our own failure counts before Redis was told of it; its answer takes the place of what we make of it."""
        news, name = News(), signal.endpoint
        news.add(signal)
        standing = fold(self._standing(name, policies), news, self._clock(), policies, self._draw())
        self._alone[name] = standing
        seen = self._seen.get(name, _FRESH)
        self._remember(
            name,
            replace(seen, score=standing.score, ceiling=standing.ceiling, at=standing.at, breaker=standing.breaker, usual=standing.usual),
            policies,
        )

    def _wake(self, endpoint: str, urgent: bool) -> None:
        self._hot[endpoint] = None
        self._due.set()
        if urgent:
            self._urgent.set()

    def _learn(self, answer: scripts.Answer) -> None:
        for name, seen in answer.seen.items():
            policies = self._policies_of(name)
            if policies is not None:
                self._alone.pop(name, None)
                self._remember(name, seen, policies)

    def _fold_here(self) -> None:
        news, self._news = self._news, {}
        self._folded_at = self._clock()
        self._fold(news)

    def _fold(self, news: Mapping[str, tuple[News, Policies]]) -> None:
        for name, (one, policies) in news.items():
            self._keep_here(name, fold(self._standing(name, policies), one, self._clock(), policies, self._draw()), policies)

    def _standing(self, endpoint: str, policies: Policies) -> Standing:
        known = self._alone.get(endpoint)
        if known is not None:
            return known
        seen = self._seen.get(endpoint)
        return Standing(policies.health.neutral, at=self._clock()) if seen is None else standing_of(seen)

    def _keep_here(self, endpoint: str, standing: Standing, policies: Policies) -> None:
        self._alone[endpoint] = standing
        self._remember(endpoint, seen_of(standing), policies)

    def _remember(self, endpoint: str, seen: Seen, policies: Policies) -> None:
        self._seen[endpoint] = seen
        if share(seen, self._clock(), policies.health) != 1.0 or seen.breaker.kept is not Breaker.CLOSED:
            self._unsettled.add(endpoint)
        else:
            self._unsettled.discard(endpoint)
        self._changed(endpoint)


async def _set_within(event: asyncio.Event, seconds: float) -> None:
    """Waits for it, so long at most."""
    if seconds <= 0 or event.is_set():
        return
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
