"""What the control plane knows when it looks: from the ledger, from routers and probers, from budgets and nodes. Plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Traffic:
    """Attempts of one (provider, model) in a window. Latencies in seconds at the 95th percentile; None: too few to tell."""

    provider: str
    model: str
    attempts: int
    first_attempts: int = 0
    unpriced: int = 0
    p95_latency_s: float | None = None
    p95_ttft_s: float | None = None


@dataclass(frozen=True, slots=True)
class Compared:
    """Tokens of one endpoint in one direction that were both reported and counted exactly, in an hour.

    `usual`: reported for each counted, as it should be; None: nobody knows.
    """

    endpoint: str
    direction: str
    reported: int
    counted: int
    usual: float | None = None


@dataclass(frozen=True, slots=True)
class Requests:
    """Whole requests in a window. `changes`: how often they changed endpoints, all together."""

    ended: int = 0
    failed: int = 0
    fell_back: int = 0
    changes: int = 0


@dataclass(frozen=True, slots=True)
class Quota:
    """How much of a limit is used, 0 to 1 and above."""

    provider: str
    account: str
    limit_type: str
    used: float


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What one node said last. Of interactive requests that wait: how many on average, in the last minute and in the ten before."""

    node: str
    connected: bool = True  # a control plane holds its stream
    lag_s: float = 0.0
    refuses: bool = False
    store_up: bool = True
    usage_waiting_bytes: int = 0
    interactive_waiting: float = 0.0
    interactive_waiting_before: float = 0.0


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """How many of a model's endpoints can be used now, on the router that sees fewest. A model that is switched off is none.

    `weights`: what each provider's weight makes its share, in [0, 1]; none where something else than weights decides.
    """

    model: str
    candidates: int
    endpoints: int
    weights: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything at one moment. Windows are named by their length in minutes."""

    requests_5: Requests = field(default_factory=Requests)
    requests_10: Requests = field(default_factory=Requests)
    requests_30: Requests = field(default_factory=Requests)
    requests_60: Requests = field(default_factory=Requests)
    requests_360: Requests = field(default_factory=Requests)
    requests_hour_before: Requests = field(default_factory=Requests)  # the ten minutes
    traffic_15: tuple[Traffic, ...] = ()
    traffic_60: tuple[Traffic, ...] = ()
    traffic_week_ago: tuple[Traffic, ...] = ()  # the same hour, a week ago
    baseline: Mapping[tuple[str, str], Traffic] = field(default_factory=dict)  # 7 days, by (provider, model)
    compared_60: tuple[Compared, ...] = ()
    quotas: tuple[Quota, ...] = ()
    low_balances: tuple[str, ...] = ()  # accounts
    accounts_out: tuple[tuple[str, str, str], ...] = ()  # provider, account, why
    budgets: tuple[tuple[str, str, int], ...] = ()  # tenant, budget, percent level reached
    nodes: tuple[NodeFacts, ...] = ()
    inversions: int = 0  # lower-class requests served while interactive ones waited, in 5 minutes
    models: tuple[ModelFacts, ...] = ()
