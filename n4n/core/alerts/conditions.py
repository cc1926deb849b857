"""What is wrong at one look, by the thresholds of the rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from n4n.core.alerts import rules
from n4n.core.alerts.facts import Facts, Requests, Traffic
from n4n.core.alerts.rules import LEAST_REQUESTS
from n4n.core.alerts.watch import Violation


def violations(facts: Facts) -> list[Violation]:
    """Every rule that is broken now, once per subject."""
    return [found for condition in _CONDITIONS for found in condition(facts)]


def _one(rule: str, value: float, **labels: str) -> Violation:
    return Violation(rule, tuple(labels.items()), value)


def _quota(facts: Facts) -> Iterator[Violation]:
    for quota in facts.quotas:
        if quota.used > rules.QUOTA_USED:
            yield _one("N4nQuotaNearlyUsed", quota.used, provider=quota.provider, account=quota.account, limit_type=quota.limit_type)


def _depth(facts: Facts) -> Iterator[Violation]:
    now, before = _changes(facts.requests_10), _changes(facts.requests_hour_before)
    if facts.requests_10.changes >= rules.LEAST_CHANGES and now > max(rules.DEPTH_GROWS * before, rules.DEPTH_LEAST):
        yield _one("N4nFallbackDepthRising", now)


def _changes(requests: Requests) -> float:
    return requests.changes / requests.ended if requests.ended >= LEAST_REQUESTS else 0.0


def _fallbacks(facts: Facts) -> Iterator[Violation]:
    share = _share(facts.requests_5.fell_back, facts.requests_5.ended)
    if facts.requests_5.fell_back >= rules.LEAST_FELL_BACK and share > rules.FALLING_BACK:
        yield _one("N4nManyFallbacks", share)


def _queue(facts: Facts) -> Iterator[Violation]:
    waiting, before = (sum(getattr(node, name) for node in facts.nodes) for name in ("interactive_waiting", "interactive_waiting_before"))
    if waiting >= rules.LEAST_WAITING and waiting > rules.QUEUE_GROWS * before:
        yield _one("N4nInteractiveQueueGrows", waiting)


def _redundancy(facts: Facts) -> Iterator[Violation]:
    for model in facts.models:
        if not model.candidates:
            yield _one("N4nModelAway", model.candidates, model=model.model)
        elif model.candidates == 1 < model.endpoints:
            yield _one("N4nNoRedundancy", model.candidates, model=model.model)


def _collapse(facts: Facts) -> Iterator[Violation]:
    meant = {(provider, model.model): share for model in facts.models for provider, share in model.weights.items()}
    for (provider, model), share in _shares(facts.traffic_60).items():
        if share > rules.ONE_TAKES and rules.REST_LOSES * (1 - share) < 1 - meant.get((provider, model), 1.0):
            yield _one("N4nWeightCollapse", share, provider=provider, model=model)


def _moved(facts: Facts) -> Iterator[Violation]:
    now, before = _shares(facts.traffic_60), _shares(facts.traffic_week_ago)
    known = {model for _, model in before}
    for provider, model in {**now, **before}:
        if model not in known or not any(one == model for _, one in now):
            continue  # nothing to compare with
        moved = abs(now.get((provider, model), 0.0) - before.get((provider, model), 0.0))
        if moved > rules.SHARE_MOVES:
            yield _one("N4nSharesMoved", moved, provider=provider, model=model)


def _shares(traffic: Iterable[Traffic]) -> dict[tuple[str, str], float]:
    """Of a model's first attempts, by provider; models with too few are left out."""
    of_model: dict[str, int] = {}
    for one in (traffic := tuple(traffic)):
        of_model[one.model] = of_model.get(one.model, 0) + one.first_attempts
    return {
        (one.provider, one.model): one.first_attempts / of_model[one.model] for one in traffic if of_model[one.model] >= rules.LEAST_SHARED
    }


def _inversion(facts: Facts) -> Iterator[Violation]:
    if facts.inversions:
        yield _one("N4nPriorityInversion", facts.inversions)


def _slower(facts: Facts) -> Iterator[Violation]:
    for now in facts.traffic_15:
        usual = facts.baseline.get((now.provider, now.model))
        if usual is None or now.attempts < rules.LEAST_TIMED or usual.attempts < rules.LEAST_USUAL:
            continue
        for rule, value, base in (
            ("N4nLatencyWorse", now.p95_latency_s, usual.p95_latency_s),
            ("N4nTtftWorse", now.p95_ttft_s, usual.p95_ttft_s),
        ):
            if value is not None and base is not None and value > max(rules.SLOWER * base, base + rules.SLOWER_BY_S):
                yield _one(rule, value, provider=now.provider, model=now.model)


def _burns(facts: Facts) -> Iterator[Violation]:
    for rule, short, long, times in (
        ("N4nErrorBudgetBurnsFast", facts.requests_5, facts.requests_60, rules.BURNS_FAST),
        ("N4nErrorBudgetBurns", facts.requests_30, facts.requests_360, rules.BURNS_SLOW),
    ):
        least = times * rules.ERROR_BUDGET
        failing = _share(short.failed, short.ended)
        if short.ended >= rules.LEAST_TO_BURN and failing > least and _share(long.failed, long.ended) > least:
            yield _one(rule, failing)


def _share(part: int, whole: int) -> float:
    return part / whole if whole >= LEAST_REQUESTS else 0.0


def _accounts(facts: Facts) -> Iterator[Violation]:
    for provider, account, reason in facts.accounts_out:
        yield _one("N4nAccountOut", 1, provider=provider, account=account, reason=reason)
    for account in facts.low_balances:
        yield _one("N4nBalanceLow", 1, account=account)


def _budgets(facts: Facts) -> Iterator[Violation]:
    for tenant, budget, level in facts.budgets:
        yield _one("N4nBudget", level, tenant=tenant, budget=budget, level=str(level))


def _nodes(facts: Facts) -> Iterator[Violation]:
    for node in facts.nodes:
        if node.refuses:
            yield _one("N4nCatalogRefused", 1, node=node.node)
        elif node.lag_s > rules.LAG_S:
            yield _one("N4nCatalogLag", node.lag_s, node=node.node)
        if node.usage_waiting_bytes > rules.BACKLOG_BYTES:
            yield _one("N4nLedgerBacklog", node.usage_waiting_bytes, node=node.node)
        if not node.store_up:
            yield _one("N4nStoreAway", 0, node=node.node)


def _unpriced(facts: Facts) -> Iterator[Violation]:
    for one in facts.traffic_15:
        if one.unpriced:
            yield _one("N4nUnpricedTraffic", one.unpriced, provider=one.provider, model=one.model)


def _counts(facts: Facts) -> Iterator[Violation]:
    for one in facts.compared_60:
        if one.usual and one.counted >= rules.LEAST_COUNTED:
            ratio = one.reported / one.counted
            if abs(ratio / one.usual - 1) > rules.COUNTS_DIFFER:
                yield _one("N4nCountsDisagree", ratio, endpoint=one.endpoint, direction=one.direction)


_CONDITIONS: tuple[Callable[[Facts], Iterator[Violation]], ...] = (
    _quota, _depth, _fallbacks, _queue, _redundancy, _collapse, _moved, _inversion, _slower, _burns, _accounts, _budgets, _nodes,
    _unpriced, _counts,
)  # fmt: skip
