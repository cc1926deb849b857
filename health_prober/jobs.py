"""What a prober does for one task: asks, judges, tells. What it costs is known afterwards."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import assert_never

from health_prober import tracing
from health_prober.calls import Calls, Heard
from health_prober.instruments import Instruments
from health_prober.ledger import Ledger
from health_prober.notes import Notes
from health_prober.stalls import Stalls
from n4n.core.catalog import PICO, Account, Endpoint, Model
from n4n.core.chat import ChatRequest
from n4n.core.errors import Failure, FailureClass
from n4n.core.health.signals import Signal, Source
from n4n.core.probes import balances
from n4n.core.probes.checks import passes, scored
from n4n.core.probes.findings import Kind
from n4n.core.probes.rows import Came, Sent
from n4n.core.probes.verdict import AccountOut, Gone, Ill, Limited, Misconfigured, Unclear, Verdict, Well, judge
from n4n.core.probes.work import BALANCE_S, BalanceLook, Checks, Job, Probe, check_timeout_s, first_token_s
from n4n.core.verdicts import class_of, reaction
from n4n.runtime.health import SharedHealth
from n4n.runtime.labels import new_attempt_id
from n4n.runtime.logs import fields

_JITTER = 0.1  # of a cooldown
_LASTING = 3  # intervals for which a finding is believed
_LEAST_LASTING_S = 120.0
_WHOLE_SCORE = 0.9  # of a capability, from which on nothing is said
log = logging.getLogger("n4n.prober")


class Jobs:
    """`usable`: accounts whose key is there now; `version`: of the catalog in use."""

    def __init__(
        self,
        calls: Calls,
        health: SharedHealth,
        notes: Notes,
        ledger: Ledger,
        instruments: Instruments,
        stalls: Stalls,
        *,
        usable: Callable[[], Iterable[str]],
        version: Callable[[], int],
        clock: Callable[[], float],
        wall: Callable[[], float],
        draw: Callable[[], float],
    ) -> None:
        self._calls, self._health, self._notes, self._ledger = calls, health, notes, ledger
        self._instruments, self._stalls = instruments, stalls
        self._usable, self._version, self._clock, self._wall, self._draw = usable, version, clock, wall, draw
        self._turns: dict[str, int] = {}  # whose account's turn it is, of endpoints that have several
        self._out: dict[str, float] = {}  # accounts that are out, until when

    def back_at(self, job: Job) -> float:
        """When it makes sense to ask again, on the clock: later than now only where every account is known to be out."""
        if isinstance(job, BalanceLook):
            return 0.0
        return min((self._out.get(account.name, 0.0) for account in job.endpoint.accounts), default=0.0)

    async def run(self, job: Job) -> int | None:
        """Carries it out; what it cost in pico-USD, None: nobody knows. Never raises for anything a provider can do."""
        match job:
            case Probe():
                return await self._probe(job)
            case Checks():
                return await self._check(job)
            case BalanceLook():
                await self._look(job)
                return 0
            case never:
                assert_never(never)

    # --- probes ---

    async def _probe(self, job: Probe) -> int | None:
        endpoint, policy = job.endpoint, job.model.probe
        account = self._account(endpoint)
        if account is None:
            self._instruments.probes.labels(endpoint.provider.name, "no_credential").inc()
            tracing.came_to("no_credential")
            message = "this prober has no key for its accounts: give it those that routers have"
            self._notes.stand(Kind.NO_CREDENTIAL, f"endpoint {endpoint.id}", message, self._lasting_s(job.task.interval_s))
            return 0
        begun, timeout_s = self._clock(), policy.timeout_ms / 1000
        heard, cost = await self._asked(job.request, endpoint, account, timeout_s, policy.max_tokens, first_token_s(job.model))
        allowed_s = first_token_s(job.model) if job.request.stream and heard.ttft_s is None else timeout_s
        verdict = judge(heard.failure, policy.param, self._clock() - begun, allowed_s, self._stalls.longest_since(begun))
        self._tell(verdict, heard, job, account)
        return cost

    async def _asked(
        self, request: ChatRequest, endpoint: Endpoint, account: Account, timeout_s: float, most_output: int, first_s: float
    ) -> tuple[Heard, int | None]:
        attempt_id = new_attempt_id()
        request_id = f"prb_{attempt_id[4:]}"
        sent = Sent(
            attempt_id, request_id, self._wall(), endpoint, account, self._version(), request.stream, request.body_bytes, most_output
        )
        self._ledger.begin(sent)
        begun = self._clock()
        with tracing.attempt(request, endpoint, account, (request_id, attempt_id)) as work:
            try:
                heard = await self._calls.ask(request, endpoint, account, timeout_s, request_id, first_s, tracing.header_line(work))
            except asyncio.CancelledError:
                self._ledger.settle(sent, Came(None, self._clock() - begun, cancelled=True))
                raise
            cost = self._ledger.settle(sent, Came(heard.failure, heard.latency_s, heard.ttft_s, heard.usage, heard.output_bytes))
            tracing.heard_back(work, heard, cost)
        if cost:
            self._instruments.cost.labels(endpoint.provider.name).inc(cost / PICO)
        if heard.failure is not None and heard.failure.failure_class is FailureClass.TIMEOUT and heard.failure.may_have_run:
            return heard, None  # what ran may be billed
        return heard, cost

    def _account(self, endpoint: Endpoint) -> Account | None:
        """Of a pool, one after the other; those that are out come last. None: there is a key for none of them."""
        usable = set(self._usable())
        found = [account for account in endpoint.accounts if account.name in usable]
        now = self._clock()
        found = [account for account in found if self._out.get(account.name, 0.0) <= now] or found
        if not found:
            return None
        turn = self._turns[endpoint.id] = self._turns.get(endpoint.id, -1) + 1
        return found[turn % len(found)]

    def _tell(self, verdict: Verdict, heard: Heard, job: Probe, account: Account) -> None:
        endpoint, about = job.endpoint, f"endpoint {job.endpoint.id}"
        outcome = _OUTCOMES[type(verdict)]
        self._instruments.probes.labels(endpoint.provider.name, outcome).inc()
        tracing.came_to(outcome, account.name)
        up = self._instruments.up.labels(endpoint.id, endpoint.model)
        if not isinstance(verdict, Well):
            self._say(verdict, heard, job, account, outcome)
        match verdict:
            case Well():
                up.set(1)
                self._instruments.latency.labels(endpoint.provider.name).observe(heard.latency_s)
                latency_s = heard.latency_s if heard.ttft_s is None else heard.ttft_s
                self._health.tell([Signal(endpoint.id, Source.PROBE, None, latency_s, heard.ttft_s, None, self._clock())])
                self._out.pop(account.name, None)
                for kind in (Kind.MISCONFIGURED, Kind.GONE, Kind.NO_CREDENTIAL):
                    self._notes.clear(kind, about)
                self._notes.clear(Kind.ACCOUNT_OUT, f"account {account.name}")
            case Ill(failure=failure):
                up.set(0)
                self._health.tell([Signal(endpoint.id, Source.PROBE, class_of(failure), at=self._clock())])
                self._cool(endpoint, account, failure)
            case Limited(failure=failure):
                self._cool(endpoint, account, failure)
            case AccountOut(failure=failure):
                up.set(0)
                self._account_out(account, failure, self._cool(endpoint, account, failure))
            case Gone(failure=failure):
                up.set(0)
                lasting_s = max(self._cool(endpoint, account, failure), self._lasting_s(job.task.interval_s))
                self._notes.stand(Kind.GONE, about, f"{failure.message}: take it out of the catalog, or change upstream_model", lasting_s)
            case Misconfigured(failure=failure, remedy=remedy):
                message = f"the probe is refused ({failure.message}): {remedy}"
                self._notes.stand(Kind.MISCONFIGURED, about, message, self._lasting_s(job.task.interval_s))
            case Unclear():
                pass
            case never:
                assert_never(never)

    def _say(self, verdict: Verdict, heard: Heard, job: Probe, account: Account, outcome: str) -> None:
        failure = heard.failure
        told = fields(
            event="probe",
            endpoint=job.endpoint.id,
            model=job.endpoint.model,
            account=account.name,
            outcome=outcome,
            error_class=None if failure is None else failure.failure_class.value,
            status=None if failure is None else failure.status,
            ms=round(heard.latency_s * 1000),
            **({"injected": heard.injected} if heard.injected else {}),
        )
        words = verdict.why if isinstance(verdict, Unclear) else "" if failure is None else failure.message
        log.info("probe of %s: %s", job.endpoint.id, words, extra=told)

    def _lasting_s(self, interval_s: float) -> float:
        return max(_LASTING * interval_s, _LEAST_LASTING_S)

    def _cool(self, endpoint: Endpoint, account: Account, failure: Failure) -> float:
        """Announces what a failure takes out, as a router does; for how many seconds, 0: nothing."""
        charge, failure_class = reaction(failure), class_of(failure)
        if charge.cool_s is None or charge.soft:
            return 0.0
        seconds = charge.cool_s * (1 + _JITTER * self._draw())
        pooled = failure_class is FailureClass.RATE_LIMITED and len(endpoint.accounts) > 1
        whose = f"account {account.name}" if charge.cool_account or pooled else f"endpoint {endpoint.id}"
        self._health.announce({f"{whose} {failure_class}": seconds})
        return seconds

    def _account_out(self, account: Account, failure: Failure, seconds: float) -> None:
        self._out[account.name] = self._clock() + seconds
        self._notes.stand(Kind.ACCOUNT_OUT, f"account {account.name}", failure.message, seconds + _LEAST_LASTING_S)

    # --- deeper checks ---

    async def _check(self, job: Checks) -> int | None:
        total: int | None = 0
        for check in job.checks:
            account = self._account(job.endpoint)
            if account is None:
                return total
            timeout_s = check_timeout_s(job.model)
            most_output = job.model.probe.checks_max_tokens
            heard, cost = await self._asked(check.request, job.endpoint, account, timeout_s, most_output, timeout_s)
            total = None if total is None or cost is None else total + cost
            if heard.failure is not None:
                return total  # a probe says what that means
            await self._judge_check(job.endpoint, job.model, check.capability, heard)
        return total

    async def _judge_check(self, endpoint: Endpoint, model: Model, capability: str, heard: Heard) -> None:
        passed = passes(capability, heard.answer)
        if passed is None:
            return
        tracing.checked(capability, passed=passed)
        about = f"endpoint {endpoint.id}"
        before = await self._notes.score(about, capability)
        score = scored(1.0 if before is None else before, passed)
        self._instruments.capability.labels(endpoint.id, capability).set(score)
        if score >= _WHOLE_SCORE:
            self._notes.clear(Kind.CHECK_FAILED, about, capability)
            return
        message = f"does not obey a {capability.replace('_', ' ')} (score {score:.2f})"
        lasting_s = self._lasting_s(model.probe.checks_interval_sec)
        self._notes.stand(Kind.CHECK_FAILED, about, message, lasting_s, capability=capability, score=score)

    # --- balances ---

    async def _look(self, job: BalanceLook) -> None:
        account, about = job.account, f"account {job.account.name}"
        if account.name not in set(self._usable()):
            return
        request_id = f"prb_{new_attempt_id()[4:]}"
        with tracing.asked_balance(job.provider, account) as work:
            told = await self._calls.balance(job.api, job.provider, account, BALANCE_S, request_id, tracing.header_line(work))
            tracing.failed(work, told if isinstance(told, Failure) else None)
        lasting_s = self._lasting_s(job.task.interval_s)
        if isinstance(told, Failure):
            log.info("the balance of %s is not known: %s", about, told.message, extra=fields(event="balance", account=account.name))
            if class_of(told) is FailureClass.QUOTA_EXHAUSTED:
                self._broke(account)
            return
        if told.pico is not None:
            self._instruments.balance.labels(account.name).set(told.pico / PICO)
        if told.usable and self._out.pop(account.name, None) is not None:  # it was topped up: probes tell the rest
            self._notes.clear(Kind.ACCOUNT_OUT, about)
        if not balances.is_low(told, account):
            self._notes.clear(Kind.LOW_BALANCE, about)
            return
        left = "nothing is left on it" if not told.usable else f"{(told.pico or 0) / PICO:.2f} USD are left on it"
        self._notes.stand(Kind.LOW_BALANCE, about, f"{left}: top it up", lasting_s)
        if not told.usable:
            self._broke(account)

    def _broke(self, account: Account) -> None:
        """Without money it serves nobody: routers go on to accounts that are billed apart."""
        self._health.announce({f"account {account.name} {FailureClass.QUOTA_EXHAUSTED}": balances.OUT_S})
        self._account_out(account, Failure(FailureClass.QUOTA_EXHAUSTED, "the provider has no quota left for this account"), balances.OUT_S)


_OUTCOMES: dict[type[Verdict], str] = {
    Well: "ok", Ill: "ill", Limited: "limited", AccountOut: "account_out", Gone: "gone", Misconfigured: "misconfigured", Unclear: "unclear",
}  # fmt: skip
