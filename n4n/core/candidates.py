"""What a plan is made from and what it is: the world at one instant, candidates, and the plan of one request.

Structs, because several are made for every request.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from n4n.core.breaker import CLOSED_STATE, BreakerState
from n4n.core.catalog import Account, Endpoint, Model, Snapshot, Target
from n4n.core.dialects import Dialect, Speech
from n4n.core.directives import Directives
from n4n.core.errors import FailureClass

MAX_WAIT_S = 5.0


class EndpointView(msgspec.Struct, frozen=True):
    """What this router knows of one endpoint now. Times are seconds on its monotonic clock; `score` in [0, 1]."""

    breaker: BreakerState = CLOSED_STATE
    cooldown_until: float = 0.0
    cooldown_class: FailureClass | None = None
    overloaded_until: float = 0.0  # a soft cooldown: our own caution after an overload without a hint
    score: float = 1.0
    latency_ms: float | None = None  # until the first output, or the whole answer where it came at once
    ttft_ms: float | None = None  # of streams, until the first token; None: not measured
    tokens_per_s: float | None = None  # while the output came; None: not measured


@dataclass(frozen=True, slots=True)
class Cooldown:
    """Out until an instant on the router's monotonic clock, and for what. `soft`: our own caution, which yields when nobody is left.

    `ours`: it is a limit that the catalog sets for the account, and no word of the provider's.
    """

    until: float
    failure_class: FailureClass | None = None
    soft: bool = False
    ours: bool = False


class World(msgspec.Struct, frozen=True):
    """What a router serves from at one instant. An endpoint without a view is fresh."""

    snapshot: Snapshot
    dialects: frozenset[str]  # those this build speaks
    usable_accounts: Container[str]  # their credential was found, or they need none
    views: Mapping[str, EndpointView] = msgspec.field(default_factory=dict)
    cooling_accounts: Mapping[str, Cooldown] = msgspec.field(default_factory=dict)
    speakers: Mapping[str, Dialect] = msgspec.field(default_factory=dict)
    factors: Mapping[str, float] = msgspec.field(default_factory=dict)  # in [0, 1], of accounts: what budgets leave; others have 1
    left: Mapping[tuple[str, str], float] = msgspec.field(default_factory=dict)  # of quotas, by account and upstream model
    busy: Mapping[str, int] = msgspec.field(default_factory=dict)  # attempts under way by account, as of whenever it is looked at

    @property
    def weighs_accounts(self) -> bool:
        """Whether one account may count for less than another."""
        return bool(self.factors or self.left)

    def factor(self, endpoint: Endpoint, account: Account) -> float:
        """What is left of an account, in [0, 1]: of its quota for this endpoint, and of its budget."""
        return self.factors.get(account.name, 1.0) * self.left.get((account.name, endpoint.upstream_model), 1.0)

    def factor_of_pool(self, endpoint: Endpoint, pool: Sequence[Account]) -> float:
        """That of the account with most left."""
        return max([self.factor(endpoint, account) for account in pool]) if self.weighs_accounts else 1.0

    def drawn(self, endpoint: Endpoint, pool: tuple[Account, ...], draw: Callable[[], float]) -> tuple[Account, tuple[Account, ...]]:
        """One account of a pool, by lot, more likely one with more left; and the others."""
        if len(pool) == 1:
            return pool[0], ()
        at, drawn = 0, draw()
        shares = [self.factor(endpoint, account) for account in pool] if self.weighs_accounts else []
        if not any(shares):
            at = int(drawn * len(pool))
        else:
            drawn *= sum(shares)
            while drawn >= shares[at] and at + 1 < len(pool):
                drawn -= shares[at]
                at += 1
        return pool[at], pool[at + 1 :] + pool[:at]

    def speech(self, endpoint: Endpoint) -> Speech:
        """How an endpoint is spoken to; where nobody knows, in chat."""
        dialect = self.speakers.get(endpoint.provider.dialect)
        return _CHAT if dialect is None else dialect.speech(endpoint.upstream_model)


_CHAT = Speech()


class Candidate(msgspec.Struct, frozen=True):
    """An endpoint in the running, through one account. `trial`: its breaker is half-open, this is its one call."""

    endpoint: Endpoint
    account: Account
    weight: float
    trial: bool = False
    ready_at: float = 0.0  # not to be called before; later than now only in a plan that waits
    spare_accounts: tuple[Account, ...] = ()  # others of the pool that could serve
    kept: bool = False  # the conversation keeps to this account (n4n.core.affinity)


@dataclass(frozen=True, slots=True)
class Eliminated:
    """An endpoint that is out, and why, in one word or as the canonical directive."""

    endpoint: Endpoint
    reason: str


class Plan(msgspec.Struct, frozen=True):
    """The ordered candidates and the policy of one request. `model` is the first one asked: its policy rules."""

    target: Target
    model: Model
    candidates: tuple[Candidate, ...]
    eliminated: tuple[Eliminated, ...]
    considered: int
    catalog_version: int
    directives: Directives
    max_attempts: int
    fallback: bool
    preferred_overridden: str | None = None
    wait_s: float | None = None  # every candidate is cooling; the first is back after this long
    cooling: tuple[Cooldown, ...] = ()  # of all endpoints that are cooling, waited for or not


def model_barred(allowed: frozenset[str], model: Model, asked_as: str) -> str | None:
    """Why a key that is held to `allowed` (empty: to nothing) may not use a model under this name; None: it may."""
    if not allowed or model.id in allowed or asked_as in allowed or not allowed.isdisjoint(model.aliases):
        return None
    return "model_not_allowed"
