"""What is known of endpoints and accounts here: views to plan over, made of shared health and this router's own cooldowns."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
from msgspec.structs import replace

from n4n.core.attempts import RetryBudget, reaction
from n4n.core.breaker import allows
from n4n.core.candidates import Candidate, Cooldown, EndpointView
from n4n.core.catalog import Endpoint, Model, Snapshot
from n4n.core.errors import Failure, FailureClass
from n4n.core.health.signals import Signal, Source
from n4n.core.health.standing import Policies
from n4n.core.verdicts import class_of
from n4n.runtime.health import SharedHealth

_JITTER = 0.1  # of a cooldown, so that routers do not return together
_MOST_DOUBLINGS = {FailureClass.RATE_LIMITED: 6, FailureClass.OVERLOADED: 2}  # of a cooldown where the provider gives no hint
_LEAST_TOKENS = 8  # of an answer whose speed tells anything
_FRESH = EndpointView()


class Measured(msgspec.Struct, frozen=True):
    """What one good answer took, in seconds. `ttft_s`: to the first token, of a stream only; `output_s`: while `tokens` of output came."""

    latency_s: float
    ttft_s: float | None = None
    output_s: float = 0.0
    tokens: int = 0


class Health:
    """One per worker. Views are values; a request plans over the mappings as they stand and never waits for them."""

    def __init__(self, clock: Callable[[], float], draw: Callable[[], float]) -> None:
        self._clock, self._draw = clock, draw
        self.shared = SharedHealth(None, policies_of=self._policies_of, clock=clock, draw=draw, changed=self._refresh)
        self._snapshot: Snapshot | None = None
        self._policies: dict[str, tuple[Model, Policies]] = {}
        self.changed: set[str] = set()  # endpoints of which something else is known since somebody looked
        self._views: dict[str, EndpointView] = {}
        self._accounts: dict[str, Cooldown] = {}
        self._budgets: dict[str, RetryBudget] = {}
        self.announce: Callable[[str, float], None] = lambda name, seconds: None  # tells other routers of a cooldown
        self._unhinted: dict[str, int] = {}  # cooldowns without a hint in a row, per endpoint

    @property
    def views(self) -> Mapping[str, EndpointView]:
        """By endpoint id; an endpoint without an entry is fresh."""
        return self._views

    @property
    def cooling_accounts(self) -> Mapping[str, Cooldown]:
        """By account name; an entry may be over."""
        return self._accounts

    def budget(self, model: str) -> RetryBudget:
        """The retry budget of one model on this router."""
        budget = self._budgets.get(model)
        if budget is None:
            budget = self._budgets[model] = RetryBudget()
        return budget

    def keep_only(self, snapshot: Snapshot) -> None:
        """Forgets what left the catalog, so that nothing here grows without bound."""
        self._snapshot = snapshot
        self._policies = {name: known for name, known in self._policies.items() if snapshot.models.get(name) is known[0]}
        accounts = {account.name for endpoint in snapshot.endpoints.values() for account in endpoint.accounts}
        self._views = {name: view for name, view in self._views.items() if name in snapshot.endpoints}
        self._unhinted = {name: count for name, count in self._unhinted.items() if name in snapshot.endpoints}
        self._budgets = {name: budget for name, budget in self._budgets.items() if name in snapshot.models}
        self._accounts = {name: cooldown for name, cooldown in self._accounts.items() if name in accounts}
        self.shared.keep_only(snapshot.endpoints)
        self.changed.intersection_update(snapshot.endpoints)
        for name, endpoint in snapshot.endpoints.items():
            if name not in self._views and snapshot.models[endpoint.model].health.neutral != 1.0:
                self._refresh(name)

    async def start_trial(self, candidate: Candidate, snapshot: Snapshot) -> bool:
        """A half-open breaker's one trial begins; False when another request, of any router, has taken it since the plan was made."""
        self._snapshot = snapshot
        if not allows(self._views.get(candidate.endpoint.id, _FRESH).breaker, self._clock()):
            return False
        return await self.shared.take_trial(candidate.endpoint.id)

    def trial_abandoned(self, candidate: Candidate, snapshot: Snapshot) -> None:
        """The trial ended without a verdict: the client left."""
        self._snapshot = snapshot
        self.shared.trial_abandoned(candidate.endpoint.id)

    def cooling(self, candidate: Candidate) -> Cooldown | None:
        """The binding cooldown that keeps a candidate from being called now; None: it may be."""
        now = self._clock()
        account = self._accounts.get(candidate.account.name)
        if account is not None and account.until > now:
            return account
        view = self._views.get(candidate.endpoint.id, _FRESH)
        return Cooldown(view.cooldown_until, view.cooldown_class) if view.cooldown_until > now else None

    def succeeded(self, candidate: Candidate, snapshot: Snapshot, measured: Measured) -> None:
        """An attempt ended well."""
        self._snapshot, name = snapshot, candidate.endpoint.id
        if self._unhinted:
            self._unhinted.pop(name, None)
        view = self._views.get(name)
        if view is not None and view.overloaded_until:
            self._views[name] = replace(view, overloaded_until=0.0)  # it serves: what was doubted is over
        speed = measured.tokens / measured.output_s if measured.tokens >= _LEAST_TOKENS and measured.output_s > 0.0 else None
        if candidate.trial:
            self.shared.tell_one(Signal(name, Source.LIVE, None, measured.latency_s, measured.ttft_s, speed, self._clock(), trial=True))
        else:
            self.shared.tell_good(name, measured.latency_s, measured.ttft_s, speed)

    def failed(self, candidate: Candidate, failure: Failure, snapshot: Snapshot) -> None:
        """Charges a failure to what it speaks of: the endpoint, the account, or nobody."""
        self._snapshot, failure_class = snapshot, class_of(failure)
        self.shared.tell_one(Signal(candidate.endpoint.id, Source.LIVE, failure_class, at=self._clock(), trial=candidate.trial))
        charge = reaction(failure)
        if charge.cool_s is None:
            return
        seconds = charge.cool_s * self._growth(candidate.endpoint, failure) * (1 + _JITTER * self._draw())
        cooldown = Cooldown(self._clock() + seconds, failure_class)
        pooled = failure_class is FailureClass.RATE_LIMITED and len(candidate.endpoint.accounts) > 1
        if charge.cool_account or pooled:
            self._cool_account(candidate.account.name, cooldown)
            self.announce(f"account {candidate.account.name} {failure_class}", seconds)
        elif charge.soft:
            view = self._views.get(candidate.endpoint.id, _FRESH)
            self._views[candidate.endpoint.id] = replace(view, overloaded_until=max(view.overloaded_until, cooldown.until))
        else:
            self._cool_endpoint(candidate.endpoint.id, cooldown)
            self.announce(f"endpoint {candidate.endpoint.id} {failure_class}", seconds)

    def heard(self, name: str, seconds: float, snapshot: Snapshot) -> None:
        """Another router announced a cooldown. Each adds its own jitter, so that they do not return together."""
        kind, _, rest = name.partition(" ")
        whose, _, failure_class = rest.partition(" ")
        if failure_class not in FailureClass.__members__.values():
            return  # of a newer version
        cooldown = Cooldown(self._clock() + seconds * (1 + _JITTER * self._draw()), FailureClass(failure_class))
        if kind == "account":
            self._cool_account(whose, cooldown)
        elif whose in snapshot.endpoints:
            self._cool_endpoint(whose, cooldown)

    def _growth(self, endpoint: Endpoint, failure: Failure) -> int:
        """How many times the usual a cooldown without a hint lasts: calls that failed together are one incident."""
        most = _MOST_DOUBLINGS.get(class_of(failure))
        if most is None or failure.retry_after_s is not None:
            return 1
        doublings, view = self._unhinted.get(endpoint.id, 0), self._views.get(endpoint.id, _FRESH)
        if doublings and max(view.cooldown_until, view.overloaded_until) > self._clock():
            return 1 << (doublings - 1)
        self._unhinted[endpoint.id] = min(most, doublings) + 1
        return 1 << min(most, doublings)

    def _cool_account(self, account: str, cooldown: Cooldown) -> None:
        known = self._accounts.get(account)
        if known is None or cooldown.until > known.until:  # the longest signal wins
            self._accounts[account] = cooldown

    def _cool_endpoint(self, endpoint: str, cooldown: Cooldown) -> None:
        view = self._views.get(endpoint, _FRESH)
        if cooldown.until > view.cooldown_until:
            self._views[endpoint] = replace(view, cooldown_until=cooldown.until, cooldown_class=cooldown.failure_class)

    def _refresh(self, endpoint: str) -> None:
        """Something else is known of it: by shared health, beside our own cooldowns."""
        self.changed.add(endpoint)
        seen, view = self.shared.seen.get(endpoint), self._views.get(endpoint, _FRESH)
        if seen is None:
            self._views[endpoint] = replace(view, score=self.shared.score(endpoint))
            return
        self._views[endpoint] = EndpointView(
            seen.breaker,
            view.cooldown_until,
            view.cooldown_class,
            view.overloaded_until,
            self.shared.score(endpoint),
            seen.latency_ms,
            seen.ttft_ms,
            seen.tokens_per_s,
        )

    def _policies_of(self, endpoint: str) -> Policies | None:
        """What rules an endpoint of the catalog."""
        found = None if self._snapshot is None else self._snapshot.endpoints.get(endpoint)
        model = None if found is None or self._snapshot is None else self._snapshot.models.get(found.model)
        if model is None:
            return None
        known = self._policies.get(model.id)
        if known is None or known[0] is not model:
            known = self._policies[model.id] = (model, Policies(model.health, model.breaker))
        return known[1]
