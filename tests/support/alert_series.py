"""Faults as series that Prometheus scrapes, one for each rule, and a calm fleet to set them in. Minute by minute.

A fault is given by how far beyond its threshold it is: 1.05 is beyond, 0.95 is not yet. Thresholds are those of the one table of rules.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from prometheus_client.utils import floatToGoString

from n4n.core.alerts import rules
from n4n.runtime.telemetry import Instruments

COUNTER, GAUGE = "counter", "gauge"
Series = Mapping[str, list[float]]  # values at each minute, from 0 on
R1, R2 = 'instance="r1:8080"', 'instance="r2:8080"'
ROUTES = ('provider="p1",model="m",tier=""', 'provider="p2",model="m",tier=""')


def histogram(name: str, labels: str, bounds: Sequence[float], values: Mapping[float, float]) -> dict[str, float]:
    """What one minute adds to a histogram: so many observations of each value."""
    added = {
        f'{name}_bucket{{{labels},le="{floatToGoString(bound)}"}}': sum(many for value, many in values.items() if value <= bound)
        for bound in bounds
    }
    count = sum(values.values())
    total = sum(value * many for value, many in values.items())
    return {**added, f'{name}_bucket{{{labels},le="+Inf"}}': count, f"{name}_count{{{labels}}}": count, f"{name}_sum{{{labels}}}": total}


def requests(shares: Sequence[float], *, each_min: float = 200.0, failing: float = 0.0) -> dict[str, float]:
    """Requests of one minute, by provider; a part of them fails."""
    counts = {f'llm_requests_total{{{R1},{route},status="success"}}': each_min * share for route, share in zip(ROUTES, shares, strict=True)}
    return {**counts, f'llm_requests_total{{{R1},provider="",model="m",tier="",status="error"}}': each_min * failing}


def latencies(seconds: float, ttft_s: float) -> dict[str, float]:
    """100 answers of a minute, at the first provider."""
    labels = f"{R1},{ROUTES[0]}"
    spread = {math.exp(0.4 * NormalDist().inv_cdf((at + 0.5) / 50)): 2.0 for at in range(50)}
    latency = histogram("llm_request_latency_seconds", labels, Instruments.LATENCY, {v * seconds: n for v, n in spread.items()})
    return latency | histogram("llm_ttft_seconds", labels, Instruments.TTFT, {v * ttft_s: n for v, n in spread.items()})


def fallbacks(share: float, *, each_min: float = 200.0) -> dict[str, float]:
    """A part of a minute's requests changes endpoints once."""
    return histogram("llm_fallback_depth", f'{R1},tier=""', Instruments.DEPTHS, {0: each_min * (1 - share), 1: each_min * share})


def compared(ratio: float, vocabulary: str, *, counted: float = 1000.0) -> dict[str, float]:
    """Tokens of a minute, reported and counted."""
    labels = f'{R1},endpoint="{vocabulary}",direction="output",vocabulary="{vocabulary}"'
    return {
        f'n4n_compared_tokens_total{{{labels},by="reported"}}': counted * ratio,
        f'n4n_compared_tokens_total{{{labels},by="counted"}}': counted,
    }


QUOTA = f'llm_quota_utilization_ratio{{{R1},provider="p1",account="a1",limit_type="tokens"}}'
QUEUE = f'llm_queue_depth{{{R1},priority="interactive"}}'
CANDIDATES = 'n4n_model_candidates{instance="c1",model="m"}'
INVERSIONS, UNPRICED = f"n4n_priority_inversions_total{{{R1}}}", f'n4n_unpriced_attempts_total{{{R1},provider="p1",model="m"}}'
LAG, REFUSES = 'n4n_node_lag_seconds{instance="c1",node="r1"}', 'n4n_node_refuses{instance="c1",node="r1"}'
WAITING, STORE = f"n4n_usage_waiting_bytes{{{R1}}}", f"n4n_store_up{{{R2}}}"
OUT = 'n4n_account_out{instance="c1",provider="p1",account="a1",reason="auth"}'
FINDING = 'n4n_probe_finding{instance="p1:9402",kind="low_balance",about="account a1"}'
LEVEL = 'n4n_budget_level_reached{instance="c1",tenant="acme",budget="k usd/month",level="80"}'

COUNTERS: Mapping[str, float] = {  # what a calm minute adds
    **requests((0.55, 0.45)), **latencies(0.8, 0.3), **fallbacks(0.01), **compared(1.01, "own"), **compared(1.3, "other"),
    INVERSIONS: 0.0, UNPRICED: 0.0,
}  # fmt: skip
GAUGES: Mapping[str, float] = {
    QUOTA: 0.5, QUEUE: 1.0, CANDIDATES: 2.0, 'n4n_model_endpoints{instance="c1",model="m"}': 2.0, LAG: 0.0, REFUSES: 0.0, WAITING: 1000.0,
    STORE: 1.0, f"n4n_store_up{{{R1}}}": 1.0, OUT: 0.0, FINDING: 0.0, LEVEL: 0.0,
    **{f'n4n_provider_weight_share{{instance="c1",provider="p{number}",model="m"}}': 0.5 for number in (1, 2)},
}  # fmt: skip
Overrides = dict[str, float]


@dataclass(frozen=True)
class Fault:
    """`at`: what it makes of a minute, so far beyond the threshold. `ill_min`: for how long; `also`: its fair consequences."""

    at: Callable[[float], Overrides]
    ill_min: int = 21
    also: frozenset[str] = frozenset()
    by_degrees: bool = True  # else it is there or not
    calm_min: int = 81
    step_min: int = 3  # between two values, and between two looks


def there(overrides: Overrides) -> Callable[[float], Overrides]:
    """Beyond 1, and nothing below."""
    return lambda beyond: overrides if beyond > 1 else {}


def _shares_beyond(beyond: float) -> Overrides:
    first = 0.55 + rules.SHARE_MOVES * beyond
    return requests((first, 1 - first))


_DEEP = rules.DEPTH_LEAST
FAULTS: Mapping[str, Fault] = {
    "N4nQuotaNearlyUsed": Fault(lambda beyond: {QUOTA: rules.QUOTA_USED * beyond}),
    "N4nFallbackDepthRising": Fault(lambda beyond: fallbacks(_DEEP * beyond), ill_min=30),
    "N4nManyFallbacks": Fault(lambda beyond: fallbacks(rules.FALLING_BACK * beyond), ill_min=12),
    "N4nInteractiveQueueGrows": Fault(lambda beyond: {QUEUE: max(rules.LEAST_WAITING, rules.QUEUE_GROWS) * beyond}, ill_min=6),
    "N4nModelAway": Fault(there({CANDIDATES: 0.0}), by_degrees=False),
    "N4nNoRedundancy": Fault(there({CANDIDATES: 1.0}), by_degrees=False),
    "N4nWeightCollapse": Fault(lambda beyond: requests((1 - 0.1 / beyond**2, 0.1 / beyond**2)), ill_min=90),
    "N4nSharesMoved": Fault(_shares_beyond, ill_min=180, calm_min=7 * 24 * 60 + 90, step_min=30),
    "N4nPriorityInversion": Fault(there({INVERSIONS: 1.0}), by_degrees=False),
    "N4nLatencyWorse": Fault(lambda beyond: latencies(0.8 * rules.SLOWER * beyond**4, 0.3), ill_min=60, calm_min=20 * 60, step_min=10),
    "N4nTtftWorse": Fault(lambda beyond: latencies(0.8, 0.3 * rules.SLOWER * beyond**4), ill_min=60, calm_min=20 * 60, step_min=10),
    "N4nErrorBudgetBurnsFast": Fault(
        lambda beyond: requests((0.55, 0.45), failing=rules.BURNS_FAST * rules.ERROR_BUDGET * beyond**2), ill_min=75,
        also=frozenset({"N4nErrorBudgetBurns"}),
    ),
    "N4nErrorBudgetBurns": Fault(
        lambda beyond: requests((0.55, 0.45), failing=rules.BURNS_SLOW * rules.ERROR_BUDGET * beyond**2), ill_min=420,
        calm_min=80, step_min=10,
    ),
    "N4nAccountOut": Fault(there({OUT: 1.0}), by_degrees=False),
    "N4nBalanceLow": Fault(there({FINDING: 1.0}), by_degrees=False),
    "N4nBudget": Fault(there({LEVEL: 1.0}), by_degrees=False),
    "N4nCatalogRefused": Fault(there({REFUSES: 1.0, LAG: 99.0}), by_degrees=False),
    "N4nCatalogLag": Fault(lambda beyond: {LAG: rules.LAG_S * beyond}),
    "N4nUnpricedTraffic": Fault(there({UNPRICED: 1.0}), by_degrees=False),
    "N4nCountsDisagree": Fault(lambda beyond: compared(1 + rules.COUNTS_DIFFER * beyond**3, "own"), ill_min=81),
    "N4nLedgerBacklog": Fault(lambda beyond: {WAITING: rules.BACKLOG_BYTES * beyond}),
    "N4nStoreAway": Fault(there({STORE: 0.0}), by_degrees=False),
}  # fmt: skip


def replay(name: str, beyond: float) -> tuple[dict[str, list[float]], int, int]:
    """The series of a fault, a value for each step of it, the minute when it begins and the one when it ends.

    Below its threshold only those that its rule asks for: no other will be looked at. Latencies, of which a look costs most, only where
    they are the fault.
    """
    fault, asked = FAULTS[name], rules.BY_NAME[name].promql

    def wanted(series: str) -> bool:
        metric = series.partition("{")[0]
        timed = metric.startswith(("llm_request_latency", "llm_ttft"))
        return metric in asked or (beyond > 1 and not timed)

    begins, ends = fault.calm_min, fault.calm_min + fault.ill_min
    changed = fault.at(beyond)
    steps = range(0, ends + (max(90, fault.ill_min) if beyond > 1 else 0) + 1, fault.step_min)
    calm = {one: value for one, value in {**COUNTERS, **GAUGES}.items() if wanted(one)}
    values = {one: [changed.get(one, value) if begins <= at < ends else value for at in steps] for one, value in calm.items()}
    for one in COUNTERS.keys() & values.keys():
        values[one] = _summed([added * fault.step_min for added in values[one]])
    return values, begins, ends


def calm_hours(seed: int, minutes: int) -> dict[str, list[float]]:
    """Traffic that grows and falls within hours, with failures now and then, short troubles and a restart; a value for each minute."""
    chance = random.Random(seed)
    factors = [0.4 + 0.6 * (1 - abs(1 - at / minutes * 2)) * chance.uniform(0.7, 1.3) for at in range(minutes)]
    series = {}
    for one, calm in COUNTERS.items():
        series[one] = _summed([calm * factor for factor in factors])
    noisy = requests((0.0, 0.0), failing=1.0)
    for one, whole in noisy.items():
        if whole:
            series[one] = _summed([float(chance.random() < 0.05) for _ in factors])
    for one, calm in GAUGES.items():
        series[one] = [calm] * minutes
    for at in range(minutes):
        series[QUOTA][at] = 0.95 if at % 40 < 3 else chance.uniform(0.2, 0.8)
        series[QUEUE][at] = chance.choice((0, 0, 1, 3))
        series[CANDIDATES][at] = 1.0 if at % 55 == 20 else 2.0
        series[LAG][at] = 40.0 if at % 300 == 100 else 0.4
        series[WAITING][at] = chance.uniform(0, 5_000_000)
    for one, values in series.items():
        if one in COUNTERS and R1 in one:  # its router was started anew at half time
            half = minutes // 2
            values[half:] = [value - values[half] for value in values[half:]]
    return series


def _summed(added: Sequence[float]) -> list[float]:
    total, found = 0.0, []
    for one in added:
        found.append(total)
        total += one
    return found
