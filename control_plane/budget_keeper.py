"""Keeps Redis in step with the ledger for budgets, and tells when one reaches a level. Routers reserve and book; nobody waits for this.

Every half second: whose spending does Redis not know, because it was restarted or emptied, or because their budget is new? They are seeded
from the ledger at once. Every few seconds: how do all budgets stand? Levels that were reached are told, and what Redis has less of is
raised. A seed says what is spent at least, so it does no harm to seed twice, late, or by two control planes. What is raised to is what the
ledger had at the look before: all of that was booked in Redis long since, where anything was. One control plane at a time does it for all.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text

from control_plane.budget_alerts import Alert, note_levels
from control_plane.cap_seeds import seed_caps, tokens_today
from control_plane.publisher import Publisher
from control_plane.repository import Repository
from control_plane.schema import DatabaseAway
from control_plane.spending import Held, Reading, Standing, standings
from n4n.core.breaker import Breaker
from n4n.core.budgets import LEVELS
from n4n.core.errors import StoreUnavailable
from n4n.core.limits.subjects import plain_subject
from n4n.runtime.limits.budgets import Owner, kept_name, owner_of, seed
from n4n.runtime.stores import Command, Store, command
from n4n.runtime.wire import daily_token_budgets

LOOK_S = 0.5
LEAD_S = 8.0  # less than a transaction may take
AGAIN_S = (1.5, 4.0)  # after Redis lost somebody: what had been spent and was on its way to the ledger then
ACCOUNTS_S = 60.0
STAND_S = 5.0  # between two looks at all budgets; more where one takes long
_MOST_OF_TIME = 0.05  # that is spent on looking at all budgets
_FRESH_S, _KNOWN_S = 15.0, 60.0  # what was seen so long ago is good enough to go by, and to be shown
_CHUNK = 500
_LOCK = 0x6E346E05  # Postgres advisory lock "n4n looks after budgets"
_log = logging.getLogger("n4n.control_plane")
_Whose = tuple[str, str]  # tenant, public id


@dataclass(frozen=True, slots=True)
class Purse:
    """Who has budgets that routers keep, and where in Redis."""

    owner: Owner
    held: tuple[Held, ...]


class BudgetKeeper:
    """`tell` hears of every level once. `seeded`, `alerts`: counts since the start."""

    def __init__(
        self,
        repository: Repository,
        publisher: Publisher,
        reading: Reading,
        store: Store | None,
        *,
        tell: Callable[[Alert], None],
        now: Callable[[], datetime],
        stand_s: float = STAND_S,
    ) -> None:
        self._repository, self._publisher, self._reading, self._store = repository, publisher, reading, store
        self._tell, self._now, self._stand_s, self._stand_at = tell, now, stand_s, 0.0
        self._version = -1  # of access, that `_purses` is of
        self._purses: dict[_Whose, Purse] = {}
        self._held: tuple[Held, ...] = ()
        self._fresh: set[_Whose] = set()  # whose budgets are new or were edited
        self._again: list[tuple[float, _Whose]] = []  # whom to seed once more, and when
        self._late: list[Standing] = []  # what is raised to at the next look
        self._raised: dict[Held, tuple[int, int]] = {}
        self._accounts_at = 0.0
        self._at = 0
        self.seeded = self.alerts = 0
        self.reached: dict[tuple[str, str, int], int] = {}  # tenant, budget, level: how many stand there or above, where it is known here
        self._reached_at = -math.inf

    async def keep(self) -> None:
        """Until cancelled."""
        wake, away = asyncio.Event(), False
        self._publisher.watch(wake)
        try:
            while True:
                try:
                    async with _leading(self._reading) as ours:
                        if ours:
                            await self._lead(wake)
                        elif asyncio.get_running_loop().time() - self._reached_at > _KNOWN_S:
                            self.reached = {}  # others know better
                    away = False
                except (DatabaseAway, StoreUnavailable) as error:
                    if not away:
                        _log.warning("budgets are not looked after for now: %s", error)
                    away = True
                await asyncio.sleep(LOOK_S)
        finally:
            self._publisher.unwatch(wake)

    async def _lead(self, wake: asyncio.Event) -> None:
        """For as long as a transaction may last, which holds the lock."""
        loop = asyncio.get_running_loop()
        until = loop.time() + LEAD_S
        while loop.time() < until:
            await self.look()
            began = loop.time()
            if began >= self._stand_at:
                await self.stand()
                ended = loop.time()
                self._stand_at = ended + max(self._stand_s, (ended - began) / _MOST_OF_TIME)
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await wake.wait()
            wake.clear()

    async def look(self) -> None:
        """Seeds whom Redis does not know. StoreUnavailable, DatabaseAway."""
        await self._read()
        if self._store is None or self._store.state is not Breaker.CLOSED or not self._purses:
            return
        now = asyncio.get_running_loop().time()
        due, self._fresh = self._fresh | {whose for at, whose in self._again if at <= now}, set()
        self._again = [one for one in self._again if one[0] > now]
        due &= self._purses.keys()
        try:
            unknown = await self._unknown()
            due |= unknown
            if due:
                await self._seed(await self._standings([one for whose in due for one in self._purses[whose].held]))
        except (DatabaseAway, StoreUnavailable):
            self._fresh |= due
            raise
        self._again += [(now + later, whose) for later in AGAIN_S for whose in unknown]

    async def stand(self) -> None:
        """Looks at all budgets: tells of levels, raises what Redis has less of. StoreUnavailable, DatabaseAway."""
        found = await self._standings(self._held)
        told = await note_levels(self._reading, found, self._now())
        for alert in told:
            self.alerts += 1
            self._tell(alert)
        self._note_reached(found)
        late, self._late = self._late, [one for one in found if not one.held.provider]
        if self._store is not None and self._store.state is Breaker.CLOSED:
            await self._seed([one for one in late if self._raised.get(one.held) != (one.begins_at_ms, one.spent)])
            self._raised = {one.held: (one.begins_at_ms, one.spent) for one in late}
            await self._seed_caps([one for one in found if one.held.provider])

    async def standing(self) -> Mapping[tuple[str, str, int], int]:
        """`reached` as it is now, whichever control plane looks after budgets. DatabaseAway."""
        if asyncio.get_running_loop().time() - self._reached_at > _FRESH_S:
            await self._read()
            self._note_reached(await self._standings(self._held))
        return self.reached

    def _note_reached(self, found: Iterable[Standing]) -> None:
        self.reached, self._reached_at = _reached(found), asyncio.get_running_loop().time()

    async def _seed_caps(self, caps: Sequence[Standing]) -> None:
        """Caps only weigh, so they are told as they are; the tokens of accounts are added up from single rows, and so less often."""
        assert self._store is not None
        now, now_ms = asyncio.get_running_loop().time(), round(self._now().timestamp() * 1000)
        accounts: Mapping[str, int] = {}
        if now >= self._accounts_at:
            self._accounts_at = now + ACCOUNTS_S
            budgets = daily_token_budgets(self._publisher.catalog.head.resources)
            accounts = await tokens_today(self._reading, list(budgets), now_ms) if budgets else {}
        if caps or accounts:
            await seed_caps(self._store, caps, accounts, now_ms)

    async def _standings(self, held: Sequence[Held]) -> list[Standing]:
        return await standings(self._reading, held, round(self._now().timestamp() * 1000)) if held else []

    async def _read(self) -> None:
        """Who has budgets, where keys or tenants changed."""
        version = self._publisher.access.head.held[0]
        if version == self._version:
            return
        held = tuple(await self._repository.budgeted())
        before = set(self._held)
        by_subject: dict[_Whose, list[Held]] = {}
        for one in held:
            if not one.provider:
                by_subject.setdefault(one.subject, []).append(one)
        self._purses = {whose: Purse(_owner(whose, kept), tuple(kept)) for whose, kept in by_subject.items()}
        if self._version >= 0:
            self._fresh |= {one.subject for one in held if one not in before and not one.provider}
        if self._store is None and self._purses and not self._held:
            _log.warning("there are budgets, and N4N_REDIS_URL is empty here: routers do not learn what is spent, and let through a tenth")
        self._held, self._version = held, version

    async def _unknown(self) -> set[_Whose]:
        """Of the next few thousand, those of whom Redis has no word from us."""
        everyone = list(self._purses)
        start = self._at if self._at < len(everyone) else 0
        chosen = everyone[start : start + 4 * _CHUNK]
        self._at = start + len(chosen)
        asks = [_known(self._purses[whose].owner) for whose in chosen]
        unknown: set[_Whose] = set()
        for at in range(0, len(asks), _CHUNK):
            assert self._store is not None
            outcomes = await self._store.pipeline(asks[at : at + _CHUNK])
            for whose, outcome in zip(chosen[at : at + _CHUNK], outcomes, strict=True):
                if isinstance(outcome, StoreUnavailable):
                    raise outcome
                if not isinstance(outcome, list) or any(told != b"2" for told in outcome):
                    unknown.add(whose)
        return unknown

    async def _seed(self, found: Iterable[Standing]) -> None:
        by_subject: dict[_Whose, list[Standing]] = {}
        for one in found:
            by_subject.setdefault(one.held.subject, []).append(one)
        now_ms = round(self._now().timestamp() * 1000)
        commands = [_seed_of(whose, told, now_ms) for whose, told in by_subject.items()]
        for at in range(0, len(commands), _CHUNK):
            assert self._store is not None
            for outcome in await self._store.pipeline(commands[at : at + _CHUNK]):
                if isinstance(outcome, StoreUnavailable):
                    raise outcome
                self.seeded += 1


@asynccontextmanager
async def _leading(reading: Reading) -> AsyncIterator[bool]:
    """Whether nobody else looks after budgets, while inside."""
    async with reading() as connection:
        yield bool((await connection.execute(text("SELECT pg_try_advisory_xact_lock(:key)"), {"key": _LOCK})).scalar_one())


def _owner(whose: _Whose, held: Sequence[Held]) -> Owner:
    return owner_of(plain_subject(*whose), [one.budget for one in held])


def _known(owner: Owner) -> Command:
    """Asks of each budget whether we told of its spending."""
    return command(b"HMGET", owner.keys[0], *(f"{kept_name(one)}:k" for one in owner.budgets))


def _seed_of(whose: _Whose, told: Sequence[Standing], now_ms: int) -> Command:
    spent: Mapping[str, tuple[int, int, Iterable[tuple[int, int]]]] = {
        one.held.budget.name: (one.begins_at_ms, one.spent, [(slot, amount) for slot, amount in one.slots.items() if amount > 0])
        for one in told
    }
    return seed(_owner(whose, [one.held for one in told]), now_ms, spent)


def _reached(found: Iterable[Standing]) -> dict[tuple[str, str, int], int]:
    reached: dict[tuple[str, str, int], int] = {}
    for one in found:
        for level in LEVELS:
            if one.level >= level:
                name = (one.held.tenant, f"{one.held.public_id or one.held.provider or 'tenant'} {one.held.budget.name}", level)
                reached[name] = reached.get(name, 0) + 1
    return reached
