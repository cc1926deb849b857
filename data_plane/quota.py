"""Who has which limits: callers and accounts as parties that are asked, and what this worker knows of how short they are.

A request whose key, tenant and accounts have no limits has no `Spending` and pays nothing. One round trip to Redis for each attempt: the
caller's limits go along with the first. An account that is short is skipped without a call; when all are, requests wait in line.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping

import msgspec
from msgspec.structs import replace

from data_plane.overspent import budget_exceeded
from data_plane.record import Record
from data_plane.waiting import WaitingLine
from n4n.core.access import Key
from n4n.core.catalog import Account, Endpoint, Snapshot
from n4n.core.errors import CallerLimited
from n4n.core.limits.charges import Charges
from n4n.core.limits.estimates import Estimates
from n4n.core.limits.levels import Refusal, Settlement
from n4n.core.limits.purse import Overspent
from n4n.core.limits.subjects import (
    RESERVES,
    Draw,
    Priority,
    Subject,
    Took,
    Unit,
    account_subject,
    key_subject,
    plain_subject,
    tenant_subject,
)
from n4n.runtime.labels import new_reservation_id
from n4n.runtime.limits import Limits, Party, Reservation
from n4n.runtime.limits.budgets import Owner, owner_of
from n4n.runtime.limits.packed import Known

MOST_SUBJECTS = 20_000
LEFT_EVERY_S = 0.25  # how often what is left of accounts is looked at for the plan


class Caller(msgspec.Struct, frozen=True):
    """What a key and its tenant may use, asked for in one step. `told`: whose limits the caller is told of; `spends`: it has budgets."""

    key: Key
    party: Party
    told: int
    spends: bool
    most_tokens: float  # that a bucket of theirs ever holds


class Quotas:
    """One per worker: who has which limits and budgets, what was learned of models, who waits."""

    def __init__(
        self,
        limits: Limits,
        clock: Callable[[], float],
        draw: Callable[[], float],
        *,
        wall: Callable[[], float] = time.time,
        reserves: Mapping[Priority, float] = RESERVES,
    ) -> None:
        self.limits, self.clock, self.draw, self.wall = limits, clock, draw, wall
        self.reserves = reserves
        self._callers: dict[str, tuple[Key, Caller | None]] = {}
        self._accounts: dict[tuple[str, str], tuple[Account, Party | None]] = {}
        self._left: Mapping[tuple[str, str], float] = {}
        self._left_until = 0.0
        self._snapshot: Snapshot | None = None  # the accounts of which are known
        self._estimates: dict[str, Estimates] = {}
        self.charges: dict[tuple[str, str], Charges] = {}  # by provider and model, where more tokens are charged than are used
        self.lines: dict[str, WaitingLine] = {}
        self._short: dict[tuple[str, Priority], tuple[Party, float]] = {}
        self.waiting = dict.fromkeys(Priority, 0)
        self.inversions = 0  # of a lower class, served while interactive ones waited for the same: there should be none

    def caller(self, key: Key) -> Caller | None:
        """What the key and its tenant have of limits and budgets; None: nothing."""
        known = self._callers.get(key.public_id)
        if known is not None and known[0] is key:
            return known[1]
        if len(self._callers) >= MOST_SUBJECTS:
            self._callers.clear()
        caller = self._caller(key)
        self._callers[key.public_id] = (key, caller)
        return caller

    def account(self, account: Account, endpoint: Endpoint) -> Party | None:
        """The account's limits for this endpoint."""
        if not account.limits:
            return None
        name = (account.name, endpoint.upstream_model)
        known = self._accounts.get(name)
        if known is None or (known[0].limits is not account.limits and known[0].limits != account.limits):
            if len(self._accounts) >= MOST_SUBJECTS:
                self._accounts.clear()
            subject = account_subject(account.name, endpoint.upstream_model, account.limits)
            known = self._accounts[name] = (account, None if subject is None else self.limits.party(subject))
        return known[1]

    def left(self) -> Mapping[tuple[str, str], float]:
        """The share of each account's limits, by account and upstream model, that was left a moment ago; 1 where there is none."""
        now = self.clock()
        if now >= self._left_until:
            self._left_until = now + LEFT_EVERY_S
            parties = [(name, party) for name, (_, party) in self._accounts.items() if party is not None]
            left = {name: share for name, party in parties if (share := self.limits.left(party)) < 1.0}
            if left != self._left:
                self._left = left
        return self._left

    def keep_only(self, snapshot: Snapshot) -> None:
        """Forgets accounts that left the catalog."""
        if snapshot is not self._snapshot:
            self._snapshot = snapshot
            known = {(account.name, one.upstream_model) for one in snapshot.endpoints.values() for account in one.accounts}
            self._accounts = {name: account for name, account in self._accounts.items() if name in known}

    def utilization(self) -> Mapping[tuple[str, str, str], float]:
        """How much of each limit is used, in [0, 1] and above, by provider, account and limit; of several models' the most."""
        found: dict[tuple[str, str, str], float] = {}
        for account, party in self._accounts.values():
            for limit, used in self.limits.used_shares(party).items() if party is not None else ():
                name = (account.provider, account.name, limit)
                found[name] = max(used, found.get(name, 0.0))
        return found

    def known_fields(self, key: Key) -> bytes:
        """What the caller has left as header lines, as far as is known without asking."""
        caller = self.caller(key)
        if caller is None:
            return b""
        return caller.party.fields[caller.told](self.limits.used_now(caller.party, caller.told))

    async def one_request(self, key: Key, record: Record) -> None:
        """Takes one request of the caller's and nothing else, whatever it owes or has running. CallerLimited: it has none."""
        known = self.caller(key)
        caller = None if known is None else _requests_of(known)
        if caller is None:
            record.limit_fields = self.known_fields(key)
            return
        answer = (await self.limits.reserve(new_reservation_id(), ((caller.party, Draw()),)))[0]
        told_caller(caller, answer, record)
        if isinstance(answer, Reservation):
            self.limits.settle(answer, Settlement(Took(1.0)))

    def estimates(self, model: str) -> Estimates:
        """What was learned of a model."""
        known = self._estimates.get(model)
        if known is None:
            known = self._estimates[model] = Estimates()
        return known

    def short_until(self, party: Party, priority: Priority, now: float) -> float:
        """Until when there is no use in asking for an account's quota, by its limits as they are now; 0: there may be."""
        known = self._short.get((party.name, priority))
        if known is None:
            return 0.0
        if known[0] is not party or known[1] <= now:
            del self._short[(party.name, priority)]
            return 0.0
        return known[1]

    def was_short(self, party: Party, priority: Priority, until: float) -> None:
        """Redis said so."""
        if len(self._short) >= MOST_SUBJECTS:
            self._short.clear()
        self._short[(party.name, priority)] = (party, until)

    def line(self, party: Party) -> WaitingLine:
        """Those that wait for an account's quota."""
        line = self.lines.get(party.name)
        if line is None:
            line = self.lines[party.name] = WaitingLine(self.clock)
        return line

    def check_order(self, party: Party) -> None:
        """A request of a lower class has its quota: nobody interactive may be waiting for the same."""
        line = self.lines.get(party.name)
        if line is not None and line.must_wait(Priority.INTERACTIVE):
            self.inversions += 1

    def _caller(self, key: Key) -> Caller | None:
        of_both = (key_subject(key.tenant, key.public_id, key.limits), tenant_subject(key.tenant, key.tenant_limits))
        subjects = [subject for subject in of_both if subject is not None]
        owners = _owners(key)
        if not subjects and not owners:
            return None
        if not subjects:  # leases tell which reservations are open
            subjects = [plain_subject(key.tenant, key.public_id)]
        buckets = [bucket for subject in subjects for bucket in subject.buckets]
        return Caller(
            key,
            self.limits.spending_party(subjects, owners) if owners else self.limits.party(*subjects),
            next((at for at, subject in enumerate(subjects) if not all(bucket.is_daily for bucket in subject.buckets)), 0),
            bool(owners),
            min([bucket.capacity for bucket in buckets if bucket.unit is Unit.TOKENS], default=math.inf),
        )


def _owners(key: Key) -> list[Owner]:
    """Who of the two has budgets."""
    owners = []
    if key.budgets:
        owners.append(owner_of(plain_subject(key.tenant, key.public_id), key.budgets))
    if key.tenant_budgets:
        owners.append(owner_of(plain_subject(key.tenant), key.tenant_budgets))
    return owners


def _requests_of(caller: Caller) -> Caller | None:
    """The same with its limits on requests alone; None: there are none."""
    found = [(one, tuple([bucket for bucket in one.buckets if bucket.unit is Unit.REQUESTS])) for one in caller.party.subjects]
    subjects = [replace(one, buckets=buckets, concurrency=None, streams=None) for one, buckets in found if buckets]
    if not subjects:
        return None
    return replace(caller, party=Party(subjects, [Known() for _ in subjects]), told=0, spends=False)


def told_caller(caller: Caller, answer: Reservation | Refusal, record: Record) -> None:
    """Notes for the answer's head what the caller has left. CallerLimited, BudgetExceeded: it has too little, and of what."""
    fields = caller.party.fields[caller.told]
    if isinstance(answer, Overspent):
        raise budget_exceeded(answer, time.time())
    if isinstance(answer, Reservation):
        record.limit_fields = fields(answer.used(caller.told))
        return
    record.limit_fields = fields(answer.levels[caller.told].used)
    raise CallerLimited(_why(caller.party.subjects[answer.whose], answer), retry_after_s=answer.wait_ms / 1000)


def _why(subject: Subject, refusal: Refusal) -> str:
    """Which limit it was, and whose, in words."""
    bucket = subject.bucket(refusal.bucket)
    if bucket is not None:
        wait_s = max(1, math.ceil(refusal.wait_ms / 1000))  # as the header has it
        unit = bucket.unit.name.lower()
        return (
            f"this {subject.whose} may use {bucket.limit:.0f} {unit} per {'day' if bucket.is_daily else 'minute'}; try again in {wait_s} s"
        )
    most = subject.streams if refusal.bucket == "streams" else subject.concurrency
    return f"this {subject.whose} may have {most} {'streams' if refusal.bucket == 'streams' else 'requests'} running at the same time"
