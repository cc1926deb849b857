"""What requests spend of limits: their caller's once, an account's with every attempt; reserved before, settled after.

A request whose key and accounts have no limits has no `Spending` and pays nothing. One round trip to Redis for each attempt: the caller's
limits go along with the first. An account that is short is skipped without a call; when all are, requests wait in line (`waiting`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from data_plane.record import Record
from data_plane.waiting import WaitingLine
from n4n.core.access import Key
from n4n.core.candidates import MAX_WAIT_S, Candidate, Cooldown, Plan
from n4n.core.catalog import Account, Endpoint
from n4n.core.chat import ChatRequest, Usage
from n4n.core.errors import CallerLimited, Failure, FailureClass, GatewayError, LimitTooSmall
from n4n.core.limits.estimates import MARGIN, Estimates
from n4n.core.limits.headers import floors, limit_fields
from n4n.core.limits.levels import Refusal, Settlement
from n4n.core.limits.line import LineFull, Place
from n4n.core.limits.subjects import TOKENS, Draw, Priority, Subject, account_subject, caller_subject, too_large
from n4n.core.plan import cooling_error
from n4n.core.quota_headers import Quota, read_quotas
from n4n.core.verdicts import RATE_S, class_of, hint_s
from n4n.runtime.labels import new_attempt_id
from n4n.runtime.limits import Limits, Reservation

MOST_SUBJECTS = 20_000
_OVERTAKING_S = 0.01  # a newcomer looks at the line again after so long


class Quotas:
    """One per worker: who has which limits, what was learned of models, who waits."""

    def __init__(self, limits: Limits, clock: Callable[[], float], draw: Callable[[], float]) -> None:
        self.limits, self.clock, self.draw = limits, clock, draw
        self._subjects: dict[tuple[str, str], tuple[Mapping[str, object], Subject | None]] = {}
        self._estimates: dict[str, Estimates] = {}
        self.lines: dict[str, WaitingLine] = {}
        self._short: dict[tuple[str, Priority], tuple[Subject, float]] = {}
        self.waiting = dict.fromkeys(Priority, 0)

    def begin(self, key: Key, chat: ChatRequest, priority: str, made: Plan, record: Record) -> Spending | None:
        """What this request will spend; None: it and its accounts have no limits. LimitTooSmall: no limit could ever hold it."""
        if not key.limits and not any(account.limits for one in made.candidates for account in one.endpoint.accounts):
            return None
        return Spending(self, key, chat, Priority(priority), made, record)

    def caller(self, key: Key) -> Subject | None:
        """The key's limits."""
        return self._known(("", key.public_id), key.limits, lambda: caller_subject(key.tenant, key.public_id, key.limits))

    def account(self, account: Account, endpoint: Endpoint) -> Subject | None:
        """The account's limits for this endpoint."""
        if not account.limits:
            return None
        model = endpoint.upstream_model
        return self._known((account.name, model), account.limits, lambda: account_subject(account.name, model, account.limits))

    def estimates(self, model: str) -> Estimates:
        """What was learned of a model."""
        known = self._estimates.get(model)
        if known is None:
            known = self._estimates[model] = Estimates()
        return known

    def short_until(self, subject: Subject, priority: Priority, now: float) -> float:
        """Until when there is no use in asking for an account's quota, by its limits as they are now; 0: there may be."""
        known = self._short.get((subject.keys[0], priority))
        if known is None:
            return 0.0
        if known[0] is not subject or known[1] <= now:
            del self._short[(subject.keys[0], priority)]
            return 0.0
        return known[1]

    def was_short(self, subject: Subject, priority: Priority, until: float) -> None:
        """Redis said so."""
        if len(self._short) >= MOST_SUBJECTS:
            self._short.clear()
        self._short[(subject.keys[0], priority)] = (subject, until)

    def line(self, subject: Subject) -> WaitingLine:
        """Those that wait for an account's quota."""
        line = self.lines.get(subject.keys[0])
        if line is None:
            line = self.lines[subject.keys[0]] = WaitingLine(self.clock)
        return line

    def _known(self, name: tuple[str, str], limits: Mapping[str, object], make: Callable[[], Subject | None]) -> Subject | None:
        known = self._subjects.get(name)
        if known is None or (known[0] is not limits and known[0] != limits):
            if len(self._subjects) >= MOST_SUBJECTS:
                self._subjects.clear()
            known = self._subjects[name] = (limits, make())
        return known[1]


class Spending:
    """One request's. `reserve` before each attempt, `attempted` after it, `wait` where all are short, `close` in the end."""

    def __init__(self, quotas: Quotas, key: Key, chat: ChatRequest, priority: Priority, made: Plan, record: Record) -> None:
        self._quotas, self._priority, self._made, self._record, self._chat = quotas, priority, made, record, chat
        self._tenant = key.tenant
        model = made.model
        tokens = quotas.estimates(model.id).tokens(chat.body_bytes, chat.max_output_tokens, model.max_output_tokens, chat.n)
        self._tokens = tokens
        self._subject = quotas.caller(key)
        if self._subject is not None and (rate := too_large(self._subject, tokens)) is not None:
            raise LimitTooSmall(f"the request needs about {tokens:.0f} tokens, and this API key has {rate.capacity:.0f} a minute")
        if not any(self._fits(account, one.endpoint) for one in made.candidates for account in one.endpoint.accounts):
            raise LimitTooSmall(f"the request needs about {tokens:.0f} tokens, more than any account of the model ever has")
        self._draw = Draw(tokens * MARGIN, chat.stream, priority)
        self._caller: Reservation | None = None
        self._account: Reservation | None = None
        self._spent = 0.0
        self._quotas_told: Mapping[str, Quota] = {}
        self._short: Subject | None = None  # for which quota it would wait
        self._line: WaitingLine | None = None
        self._place: Place | None = None
        self._until = 0.0

    async def reserve(self, candidate: Candidate, usable: Callable[[Candidate], bool]) -> Candidate | Cooldown | None:
        """The candidate, through the account of its pool that has quota; a Cooldown: none has; None: none ever will for this request.

        CallerLimited: the caller has none.
        """
        soonest: float | None = None
        for one in self._by_what_is_left(candidate):
            if not self._fits(one.account, one.endpoint) or (one is not candidate and not usable(one)):
                continue
            short_until = await self._reserved(self._quotas.account(one.account, one.endpoint))
            if short_until is None:
                self._served()
                return one
            soonest = short_until if soonest is None else min(soonest, short_until)
        return None if soonest is None else Cooldown(soonest, FailureClass.RATE_LIMITED)

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

    def told(self, headers: Mapping[str, str], wall: float) -> None:
        """The provider's answer bore these headers."""
        if self._account is not None:
            self._quotas_told = read_quotas(headers, wall)

    def attempted(self, failure: Failure | None, usage: Usage | None) -> None:
        """The attempt ended: the account is settled. `usage` None: the provider told none."""
        chat = self._chat
        if usage is not None:
            self._spent = usage.prompt_tokens + usage.completion_tokens
            if not usage.estimated:
                self._quotas.estimates(self._made.model.id).learn(chat.body_bytes, usage.prompt_tokens, usage.completion_tokens // chat.n)
        elif failure is None:
            self._spent = self._draw.tokens  # the client left, and nobody knows what it cost
        account, self._account = self._account, None
        if account is not None:
            self._quotas.limits.settle(account, _settlement(account, failure, usage, self._quotas_told))
        self._quotas_told = {}

    def close(self) -> None:
        """The request is over: what it holds is given back or settled."""
        limits = self._quotas.limits
        self._left_line(served=False)
        if self._account is not None:
            limits.give_back(self._account)
        if self._caller is None:
            return
        if not self._record.attempts:
            limits.give_back(self._caller)
        else:
            limits.settle(self._caller, Settlement({TOKENS: self._caller.amounts.get(TOKENS, 0.0) - self._spent}))

    # --- steps ---

    async def _reserved(self, subject: Subject | None) -> float | None:
        """None: it is reserved; else until when there is no use in asking again."""
        quotas, now = self._quotas, self._quotas.clock()
        if self._account is not None:  # of a candidate that was not called after all
            quotas.limits.give_back(self._account)
            self._account = None
        if subject is not None and (until := self._known_short(subject, now)) > now:
            self._short = subject
            return until
        asks = [] if self._subject is None or self._caller is not None else [(self._subject, Draw(self._draw.tokens, self._draw.stream))]
        if subject is not None:
            asks.append((subject, self._draw))
        if not asks:
            return None
        answers = await quotas.limits.reserve(new_attempt_id(), asks)
        last = answers[-1]
        if subject is not None and isinstance(last, Reservation):
            self._account = last
        if asks[0][0] is self._subject:
            self._caller_answered(answers[0])
        if subject is None or isinstance(last, Reservation):
            return None
        self._short = subject
        until = quotas.clock() + last.wait_ms / 1000
        quotas.was_short(subject, self._priority, until)
        return until

    def _caller_answered(self, answer: Reservation | Refusal) -> None:
        assert self._subject is not None
        self._record.limit_fields = limit_fields(self._subject, answer.levels)
        if isinstance(answer, Reservation):
            self._caller = answer
            return
        raise CallerLimited(_why(self._subject, answer), retry_after_s=answer.wait_ms / 1000)

    def _known_short(self, subject: Subject, now: float) -> float:
        """Until when it is known that nothing is left, or that others come first; not later than now: it is not known."""
        if self._place is not None:
            return 0.0  # it is its turn
        until, line = self._quotas.short_until(subject, self._priority, now), self._quotas.lines.get(subject.keys[0])
        if line is not None and line.must_wait(self._priority):
            return max(now + _OVERTAKING_S, until)
        return until if until - now > _OVERTAKING_S else 0.0

    def _by_what_is_left(self, candidate: Candidate) -> Iterable[Candidate]:
        """Through each account of the pool: the more is left, the sooner it is likely to be its turn."""
        if not candidate.spare_accounts:
            return (candidate,)
        pool = (candidate.account, *candidate.spare_accounts)
        ordered = sorted(pool, key=lambda account: -self._luck(account, candidate.endpoint))
        return [
            candidate
            if account is candidate.account and at == 0
            else replace(candidate, account=account, spare_accounts=tuple(one for one in pool if one is not account))
            for at, account in enumerate(ordered)
        ]

    def _luck(self, account: Account, endpoint: Endpoint) -> float:
        subject = self._quotas.account(account, endpoint)
        left = 1.0 if subject is None else self._quotas.limits.left(subject)
        return float(self._quotas.draw() ** (1 / left)) if left > 0 else -1.0

    def _fits(self, account: Account, endpoint: Endpoint) -> bool:
        subject = self._quotas.account(account, endpoint)
        return subject is None or too_large(subject, self._tokens) is None

    def _served(self) -> None:
        self._short = None
        self._left_line(served=True)

    def _left_line(self, *, served: bool) -> None:
        if self._place is not None and self._line is not None:
            self._line.gone(self._place, served=served)
            self._quotas.waiting[self._priority] -= 1
            self._place = None

    def _refused(self, back_at: float) -> GatewayError:
        cooling = [Cooldown(back_at, FailureClass.RATE_LIMITED)]
        return cooling_error(cooling, self._quotas.clock(), name=self._made.target.name[:200], candidates=self._made.considered)


def _settlement(account: Reservation, failure: Failure | None, usage: Usage | None, told: Mapping[str, Quota]) -> Settlement:
    """What an attempt leaves with its account."""
    corrected = floors(account.subject, told, account.levels)
    if failure is None or usage is not None:
        if usage is None:
            return Settlement(floors=corrected)
        return Settlement({TOKENS: account.amounts.get(TOKENS, 0.0) - usage.prompt_tokens - usage.completion_tokens}, corrected)
    if not failure.may_have_run:
        return Settlement(account.amounts, corrected)
    until_ms = 0.0
    if class_of(failure) is FailureClass.RATE_LIMITED:
        hint = hint_s(failure)
        until_ms = 1000 * (RATE_S if hint is None else hint)
    refunds = {TOKENS: account.amounts.get(TOKENS, 0.0)} if failure.status is not None else {}
    return Settlement(refunds, corrected, until_ms)


def _why(subject: Subject, refusal: Refusal) -> str:
    """Which limit it was, in words."""
    rate = subject.rate(refusal.bucket)
    if rate is not None:
        wait_s = max(1, round(refusal.wait_ms / 1000))
        wait_s = max(1, round(refusal.wait_ms / 1000))
        return f"this API key may use {rate.per_ms * 60_000:.0f} {rate.name} per minute; try again in {wait_s} s"
    most = subject.streams if refusal.bucket == "streams" else subject.concurrency
    return f"this API key may have {most} {'streams' if refusal.bucket == 'streams' else 'requests'} running at the same time"
