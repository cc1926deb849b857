"""One request among its limits: `reserve` before an attempt, `attempted` after it, `wait` where all are short, `close` in the end."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from data_plane.quota import Caller, Quotas, told_caller
from data_plane.record import Record
from data_plane.waiting import WaitingLine
from n4n.core.access import Key
from n4n.core.candidates import MAX_WAIT_S, Candidate, Cooldown, Plan
from n4n.core.catalog import Account, Endpoint
from n4n.core.chat import ChatRequest, Usage
from n4n.core.errors import Failure, FailureClass, GatewayError, LimitTooSmall
from n4n.core.limits.charges import Charges, taken
from n4n.core.limits.estimates import MARGIN
from n4n.core.limits.headers import floors
from n4n.core.limits.levels import Refusal, Settlement
from n4n.core.limits.line import LineFull, Place
from n4n.core.limits.subjects import NOTHING, TOKENS, Draw, Priority, Took, too_large
from n4n.core.plan import cooling_error
from n4n.core.pricing import cost_pico
from n4n.core.quota_headers import Quota, read_quotas
from n4n.core.usage import estimate
from n4n.core.verdicts import RATE_S, class_of, hint_s
from n4n.runtime.labels import new_reservation_id
from n4n.runtime.limits import Party, Reservation

_PRIORITIES: Mapping[str, Priority] = {one.value: one for one in Priority}
_OVERTAKING_S = 0.01  # a newcomer looks at the line again after so long
_KEPT_ABOVE = 0.2  # what has to be left of an account's quota for a conversation to keep to it


def begin(quotas: Quotas, key: Key, chat: ChatRequest, priority: str, made: Plan, record: Record) -> Spending | None:
    """What this request will spend; None: it and its accounts have no limits. LimitTooSmall: no limit could ever hold it."""
    caller = quotas.caller(key)
    if caller is None and not made.candidates[0].account.limits and not _any_limited(made):
        return None
    return Spending(quotas, key, caller, chat, _PRIORITIES[priority], made, record)


def _any_limited(made: Plan) -> bool:
    return any(account.limits for one in made.candidates for account in one.endpoint.accounts)


class Spending:
    """One request's."""

    __slots__ = ("_account", "_caller", "_charged_by", "_chat", "_draw", "_held", "_line", "_made", "_place", "_priority", "_quotas",
                 "_quotas_told", "_record", "_short", "_spent", "_tenant", "_tokens", "_until")  # fmt: skip

    def __init__(
        self, quotas: Quotas, key: Key, caller: Caller | None, chat: ChatRequest, priority: Priority, made: Plan, record: Record
    ) -> None:
        self._quotas, self._priority, self._made, self._record, self._chat = quotas, priority, made, record, chat
        self._tenant, self._caller = key.tenant, caller
        model = made.model
        given, made_up = quotas.estimates(model.id).expected(chat.body_bytes, chat.max_output_tokens, model.max_output_tokens, chat.n)
        tokens = self._tokens = given + made_up
        if caller is not None and tokens > caller.most_tokens:
            raise _too_large(caller, tokens)
        first = made.candidates[0]
        if not self._fits(first.account, first.endpoint) and not self._fits_any(made):
            raise LimitTooSmall(f"the request needs about {tokens:.0f} tokens, more than any account of the model ever has")
        spend, most_tokens = _most(made, chat, given, made_up) if caller is not None and caller.spends else (0.0, 0.0)
        self._draw = Draw(tokens * MARGIN, chat.stream, quotas.reserves[priority], spend, most_tokens)
        self._held: Reservation | None = None  # of the caller's
        self._account: Reservation | None = None
        self._spent = NOTHING
        self._quotas_told: Mapping[str, Quota] = {}
        self._charged_by = ("", "")  # the provider and its model that is asked
        self._short: Party | None = None  # for which quota it would wait
        self._line: WaitingLine | None = None
        self._place: Place | None = None
        self._until = 0.0

    async def reserve(self, candidate: Candidate, usable: Callable[[Candidate], bool]) -> Candidate | Cooldown | None:
        """The candidate, through the account of its pool that has quota; a Cooldown: none has; None: none ever will for this request.

        CallerLimited, BudgetExceeded: the caller has none.
        """
        self._charged_by = (candidate.account.provider, candidate.endpoint.upstream_model)
        if not candidate.spare_accounts and self._fits(candidate.account, candidate.endpoint):
            party = self._quotas.account(candidate.account, candidate.endpoint)
            short_until = await self._reserved(party)
            if short_until is not None:
                return Cooldown(short_until, FailureClass.RATE_LIMITED)
            self._served(party)
            return candidate
        soonest: float | None = None
        for one in self._by_what_is_left(candidate):
            if not self._fits(one.account, one.endpoint) or (one is not candidate and not usable(one)):
                continue
            party = self._quotas.account(one.account, one.endpoint)
            short_until = await self._reserved(party)
            if short_until is None:
                self._served(party)
                return one
            soonest = short_until if soonest is None else min(soonest, short_until)
        return None if soonest is None else Cooldown(soonest, FailureClass.RATE_LIMITED, ours=True)

    async def wait(self, seconds: float, deadline: float) -> None:
        """Waits in line for quota, or just waits where it is not quota that is waited for. AllCooling: too many wait, or for too long."""
        quotas, begun = self._quotas, self._quotas.clock()
        assert self._short is not None
        if self._place is None or self._line is None:
            self._line, self._until = quotas.line(self._short), min(deadline, begun + MAX_WAIT_S)
            try:
                self._place = self._line.join(self._priority, self._tenant)
            except LineFull:
                raise self._refused(begun + seconds) from None
            quotas.waiting[self._priority] += 1
        try:
            in_time = await self._line.turn(self._place, begun + seconds, self._until)
        finally:
            self._record.queued_s += quotas.clock() - begun
        if not in_time:
            raise self._refused(quotas.clock() + 1.0)

    @property
    def waits_for_quota(self) -> bool:
        """Whether it was quota that the last candidate lacked."""
        return self._short is not None

    @property
    def holds_account(self) -> bool:
        """Whether an account's limits wait for what its provider says."""
        return self._account is not None

    def told(self, headers: Mapping[str, str], wall: float) -> None:
        """The provider's answer bore these headers."""
        self._quotas_told = read_quotas(headers, wall)

    def attempted(self, failure: Failure | None, usage: Usage | None) -> None:
        """The attempt ended: the account is settled. `usage` None: the provider told none."""
        chat = self._chat
        if usage is not None:
            self._spent = Took(1.0, self._spent.tokens + usage.prompt_tokens + usage.completion_tokens)
            if not usage.estimated:
                self._quotas.estimates(self._made.model.id).learn(chat.body_bytes, usage.prompt_tokens, usage.completion_tokens // chat.n)
        elif failure is None:
            self._spent = Took(1.0, self._draw.tokens)  # the client left, and nobody knows what it cost
        account, self._account = self._account, None
        if account is not None:
            settlement = _settlement(account, failure, usage, self._quotas_told)
            if self._quotas.charges or (failure is not None and TOKENS in self._quotas_told):
                settlement = self._charged(account, failure, settlement)
            self._quotas.limits.settle(account, settlement)
        self._quotas_told = {}

    def close(self) -> None:
        """The request is over: what it holds is given back or settled."""
        limits = self._quotas.limits
        self._left_line(served=False)
        if self._account is not None:
            limits.give_back(self._account)
        if self._held is None:
            return
        if not self._record.attempts:
            limits.give_back(self._held)
            return
        charged = billed(self._record) if self._caller is not None and self._caller.spends else NOTHING
        limits.settle(self._held, Settlement(Took(1.0, self._spent.tokens), billed=charged))

    # --- steps ---

    def _charged(self, account: Reservation, failure: Failure | None, settlement: Settlement) -> Settlement:
        """What the provider took of its tokens is learned, and stays taken here."""
        known, told = self._quotas.charges, self._quotas_told.get(TOKENS)
        charges, left = known.get(self._charged_by), None if told is None else told.remaining
        if failure is not None:
            if left is not None and class_of(failure) is FailureClass.RATE_LIMITED:
                if charges is None:
                    charges = known[self._charged_by] = Charges()
                charges.refused(account.draw.tokens, left)
            return settlement
        if charges is None:
            return settlement
        charges.admitted()
        ahead = 0.0 if left is None else _ahead(account, left)
        return replace(settlement, took=replace(settlement.took, tokens=max(settlement.took.tokens, taken(account.draw.tokens, ahead))))

    async def _reserved(self, party: Party | None) -> float | None:
        """None: it is reserved; else until when there is no use in asking again."""
        quotas, caller = self._quotas, self._caller
        if self._account is not None:  # of a candidate that was not called after all
            quotas.limits.give_back(self._account)
            self._account = None
        if party is not None and (until := self._known_short(party, now := quotas.clock())) > now:
            self._short = party
            return until
        asks = []
        if caller is not None and self._held is None:
            draw = self._draw  # what a caller was promised, it has whatever the priority
            asks.append((caller.party, draw if not draw.reserve else Draw(draw.tokens, draw.stream, 0.0, draw.spend, draw.most_tokens)))
        if party is not None:
            charges = quotas.charges.get(self._charged_by) if quotas.charges else None
            asks.append((party, self._draw if charges is None else replace(self._draw, tokens=self._draw.tokens * charges.factor)))
        if not asks:
            return None
        answers = await quotas.limits.reserve(new_reservation_id(), asks)
        last = answers[-1]
        if party is not None and isinstance(last, Reservation):
            self._account = last
        if caller is not None and self._held is None:
            first = answers[0]
            if isinstance(first, Reservation):
                self._held = first
            told_caller(caller, first, self._record)
        if party is None or not isinstance(last, Refusal):
            return None
        self._short = party
        until = quotas.clock() + last.wait_ms / 1000
        quotas.was_short(party, self._priority, until)
        return until

    def _known_short(self, party: Party, now: float) -> float:
        """Until when it is known that nothing is left, or that others come first; not later than now: it is not known."""
        if self._place is not None:
            return 0.0  # it is its turn
        until, line = self._quotas.short_until(party, self._priority, now), self._quotas.lines.get(party.name)
        if line is not None and line.must_wait(self._priority):
            return max(now + _OVERTAKING_S, until)
        return until if until - now > _OVERTAKING_S else 0.0

    def _by_what_is_left(self, candidate: Candidate) -> Iterable[Candidate]:
        """Through each account of the pool: the more is left, the sooner it is likely to be its turn. One that the conversation keeps to
        goes first while something is left."""
        if not candidate.spare_accounts:
            return (candidate,)
        pool = (candidate.account, *candidate.spare_accounts)
        kept = candidate.account if candidate.kept and self._left(candidate.account, candidate.endpoint) > _KEPT_ABOVE else None
        ordered = sorted(pool, key=lambda account: (account is not kept, -self._luck(account, candidate.endpoint)))
        return [
            candidate
            if account is candidate.account and at == 0
            else replace(candidate, account=account, spare_accounts=tuple(one for one in pool if one is not account))
            for at, account in enumerate(ordered)
        ]

    def _left(self, account: Account, endpoint: Endpoint) -> float:
        party = self._quotas.account(account, endpoint)
        return 1.0 if party is None else self._quotas.limits.left(party)

    def _luck(self, account: Account, endpoint: Endpoint) -> float:
        left = self._left(account, endpoint)
        return float(self._quotas.draw() ** (1 / left)) if left > 0 else -1.0

    def _fits(self, account: Account, endpoint: Endpoint) -> bool:
        if not account.limits:
            return True
        party = self._quotas.account(account, endpoint)
        return party is None or too_large(party.subjects[0], self._tokens) is None

    def _fits_any(self, made: Plan) -> bool:
        return any(self._fits(account, one.endpoint) for one in made.candidates for account in one.endpoint.accounts)

    def _served(self, party: Party | None) -> None:
        self._short = None
        if self._place is not None:
            self._left_line(served=True)
        if party is not None and self._priority is not Priority.INTERACTIVE and self._quotas.waiting[Priority.INTERACTIVE]:
            self._quotas.check_order(party)

    def _left_line(self, *, served: bool) -> None:
        if self._place is not None and self._line is not None:
            self._line.gone(self._place, served=served)
            self._quotas.waiting[self._priority] -= 1
            self._place = None

    def _refused(self, back_at: float) -> GatewayError:
        cooling = [Cooldown(back_at, FailureClass.RATE_LIMITED, ours=True)]
        return cooling_error(cooling, self._quotas.clock(), name=self._made.target.name[:200], candidates=self._made.considered)


def _settlement(account: Reservation, failure: Failure | None, usage: Usage | None, told: Mapping[str, Quota]) -> Settlement:
    """What an attempt leaves with its account."""
    corrected = floors(account.party.subjects[0], told, account.used()) if told else {}
    drawn = account.draw.tokens
    if failure is None or usage is not None:
        return Settlement(Took(1.0, drawn if usage is None else usage.prompt_tokens + usage.completion_tokens), corrected)
    if not failure.may_have_run:
        return Settlement(NOTHING, corrected)
    until_ms, limited = 0.0, class_of(failure) is FailureClass.RATE_LIMITED
    if limited:
        hint = hint_s(failure)
        until_ms = 1000 * (RATE_S if hint is None else hint)
    took = Took(1.0, drawn if failure.status is None else 0.0)
    return Settlement(took, corrected, until_ms, refused=limited and not any(quota.remaining is not None for quota in told.values()))


def _ahead(account: Reservation, left: int) -> float:
    """How many tokens more count as used here than at the account's provider, which has so many left."""
    for bucket, used in zip(account.party.subjects[0].buckets, account.used(), strict=True):
        if bucket.name == TOKENS:
            return used - (bucket.capacity - left)
    return 0.0


def _too_large(caller: Caller, tokens: float) -> LimitTooSmall:
    """A bucket of the caller's could not hold the request even if it were empty."""
    found = ((subject, too_large(subject, tokens)) for subject in caller.party.subjects)
    whose, rate = next((subject.whose, rate) for subject, rate in found if rate is not None)
    told = f"this {whose} has {rate.capacity:.0f} a {'day' if rate.is_daily else 'minute'}"
    return LimitTooSmall(f"the request needs about {tokens:.0f} tokens, and {told}; shorten it, or have the limit raised")


def _most(made: Plan, chat: ChatRequest, given: float, made_up: float) -> tuple[float, float]:
    """What the request may cost at the dearest candidate, and the tokens it may take, for budgets: as much output as may come.

    Where neither the request nor the catalog bounds the output, it is what nine in ten answers stay below.
    """
    prompt, spend, most_tokens = math.ceil(given * MARGIN), 0, 0
    for one in made.candidates:
        bounds = [bound for bound in (chat.max_output_tokens, one.endpoint.max_output_tokens, made.model.max_output_tokens) if bound]
        output = min(bounds) * chat.n if bounds else math.ceil(made_up * MARGIN)
        most_tokens = max(most_tokens, prompt + output)
        price = one.endpoint.price
        cost = cost_pico(Usage(prompt_tokens=prompt, completion_tokens=output), price)
        if cost is None:  # vectors have a price of input alone
            cost = cost_pico(Usage(prompt_tokens=prompt), price)
        spend = max(spend, cost or 0)
    return float(spend), float(most_tokens)


def billed(record: Record) -> Took:
    """What the request comes to in the ledger; what has no price costs nothing here."""
    last, usage = record.attempts[-1], record.usage
    if usage is None:
        if last.ended is not None:
            return NOTHING
        usage = estimate(record.body_bytes, 0)  # the client left; the provider may have read the prompt
    return Took(1.0, float(usage.prompt_tokens + usage.completion_tokens), float(cost_pico(usage, last.endpoint.price) or 0))
