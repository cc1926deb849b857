"""The one table of alerts. Both forms come from it: Prometheus rules in deploy/prometheus, and what the control plane watches itself.

An expression gives one series for each subject in trouble; its labels are the subject's. Thresholds stand here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

QUOTA_USED = 0.85
FALLING_BACK = 0.10
LEAST_FELL_BACK = 5  # requests, whatever share they are
DEPTH_GROWS = 2.0  # times the hour before
DEPTH_LEAST = 0.05  # changes for each request, which is nothing to speak of
LEAST_CHANGES = 10  # of endpoint, whatever depth they make
LEAST_WAITING = 5  # interactive requests in line
QUEUE_GROWS = 2.0  # times the ten minutes before
ONE_TAKES = 0.90
REST_LOSES = 3.0  # by weights it would get so many times what it gets
SHARE_MOVES = 0.30
LEAST_SHARED = 100  # requests of an hour, which are shared between providers
SLOWER = 1.5  # times its own 7 days
SLOWER_BY_S = 0.1  # and by so much: what takes 20 ms takes 30 at times
LEAST_TIMED, LEAST_USUAL = 100, 200  # answers of 15 minutes, and of the 7 days: a 95th percentile of fewer is chance
COUNTS_DIFFER = 0.05  # tokens reported for each that was counted, against what it should be
LEAST_COUNTED = 10_000  # tokens of an hour, counted exactly
ERROR_BUDGET = 0.001  # requests that may fail
BURNS_FAST, BURNS_SLOW = 14.4, 6.0  # times what would use the budget up in 30 days
LEAST_SCORE = 0.25  # of what nobody has heard of: half of the calls fail, or two probes in a row did; less is not to be relied on
LAG_S = 30.0  # behind the catalog
BACKLOG_BYTES = 64 << 20
CALM_S = 60  # for so long all must be well before it is told to be over
LEAST_REQUESTS = 20  # in the window; fewer say nothing
LEAST_TO_BURN = 200  # of an error budget: with fewer, a failure or two would wake somebody


class Severity(StrEnum):
    """Whom it wakes."""

    PAGE = "page"
    TICKET = "ticket"


@dataclass(frozen=True, slots=True)
class Rule:
    """One alert. `for_s`: how long it must be wrong first. `by`: the labels that tell one subject from another."""

    name: str
    severity: Severity
    for_s: int
    by: tuple[str, ...]
    summary: str  # {label} is filled in
    promql: str

    @property
    def runbook(self) -> str:
        """Where to read on, in docs/operations.md."""
        return f"docs/operations.md#{self.name.lower()}"


_MADE = "sum by (provider, model)"
_RATE = 'sum(rate(llm_requests_total{{status!="rejected"}}[{window}]))'
_BAD = 'sum(rate(llm_requests_total{{status="error"}}[{window}]))'


def _burns(short: str, long: str, times: float) -> str:
    parts = [f"{_BAD.format(window=w)} / {_RATE.format(window=w)} > {times * ERROR_BUDGET:g}" for w in (short, long)]
    enough = f'sum(increase(llm_requests_total{{status!="rejected"}}[{short}])) >= {LEAST_TO_BURN}'
    return " and ".join(f"({part})" for part in (*parts, enough))


def _p95(metric: str, window: str) -> str:
    return f"histogram_quantile(0.95, sum by (provider, model, le) (rate({metric}_bucket[{window}])))"


def _slower(metric: str) -> str:
    enough = [f"{_MADE} (increase({metric}_count[{window}])) >= {least}" for window, least in (("15m", LEAST_TIMED), ("7d", LEAST_USUAL))]
    now, usual = _p95(metric, "15m"), _p95(metric, "7d")
    return " and ".join((f"{now} > {SLOWER:g} * {usual}", f"{now} > {SLOWER_BY_S:g} + {usual}", *enough))


def _ratio(window: str, vocabulary: str) -> str:
    both = (
        f'sum by (endpoint, direction) (increase(n4n_compared_tokens_total{{by="{by}",vocabulary="{vocabulary}"}}[{window}]))'
        for by in ("reported", "counted")
    )
    return " / ".join(both)


_SHARE = (
    'sum by (provider, model) (increase(llm_requests_total{{provider!=""}}[{window}]{offset}))'
    ' / on (model) group_left sum by (model) (increase(llm_requests_total{{provider!=""}}[{window}]{offset}))'
)
_SHARE_NOW = _SHARE.format(window="1h", offset="")
_BUSY_MODEL = f'on (model) sum by (model) (increase(llm_requests_total{{provider!=""}}[1h])) >= {LEAST_SHARED}'
_DEPTH_NOW = "sum(rate(llm_fallback_depth_sum[10m])) / sum(rate(llm_fallback_depth_count[10m]))"
_DEPTH_BEFORE = "sum(rate(llm_fallback_depth_sum[1h] offset 10m)) / sum(rate(llm_fallback_depth_count[1h] offset 10m))"
_WAITING = 'llm_queue_depth{priority="interactive"}'

RULES: tuple[Rule, ...] = (
    Rule(
        "N4nQuotaNearlyUsed", Severity.TICKET, 300, ("provider", "account", "limit_type"),
        "account {account} has used {value} of its {limit_type}",
        f"max by (provider, account, limit_type) (llm_quota_utilization_ratio) > {QUOTA_USED}",
    ),
    Rule(
        "N4nFallbackDepthRising", Severity.TICKET, 600, (),
        "requests change endpoints {value} times on average, more than twice as often as in the hour before",
        f"{_DEPTH_NOW} > clamp_min({DEPTH_GROWS:g} * {_DEPTH_BEFORE} >= 0 or vector(0), {DEPTH_LEAST})"
        f" and sum(increase(llm_fallback_depth_sum[10m])) >= {LEAST_CHANGES}"
        f" and sum(increase(llm_fallback_depth_count[10m])) >= {LEAST_REQUESTS}",
    ),
    Rule(
        "N4nManyFallbacks", Severity.PAGE, 300, (),
        "{value} of all requests needed more than one endpoint",
        "1 - sum(rate(llm_fallback_depth_bucket{le=\"0.0\"}[5m])) / sum(rate(llm_fallback_depth_count[5m]))"
        f" > {FALLING_BACK} and sum(increase(llm_fallback_depth_count[5m])) >= {LEAST_REQUESTS}"
        f' and sum(increase(llm_fallback_depth_count[5m])) - sum(increase(llm_fallback_depth_bucket{{le="0.0"}}[5m])) >= {LEAST_FELL_BACK}',
    ),
    Rule(
        "N4nInteractiveQueueGrows", Severity.PAGE, 60, (),
        "{value} interactive requests wait for quota, more than twice as many as in the ten minutes before",
        f"sum(avg_over_time({_WAITING}[1m])) > {QUEUE_GROWS:g} * (sum(avg_over_time({_WAITING}[10m] offset 1m)) or vector(0))"
        f" and sum(avg_over_time({_WAITING}[1m])) >= {LEAST_WAITING}",
    ),
    Rule(
        "N4nModelAway", Severity.PAGE, 60, ("model",),
        "model {model} has no endpoint that can be used: {value}",
        "max by (model) (n4n_model_candidates) == 0",
    ),
    Rule(
        "N4nNoRedundancy", Severity.TICKET, 120, ("model",),
        "model {model} has {value} candidate left of several",
        "max by (model) (n4n_model_candidates) == 1 and max by (model) (n4n_model_endpoints) > 1",
    ),
    Rule(
        "N4nWeightCollapse", Severity.TICKET, 900, ("provider", "model"),
        "provider {provider} takes {value} of model {model}, far more than its weight gives it",
        f"{_SHARE_NOW} > {ONE_TAKES} and {REST_LOSES:g} * (1 - {_SHARE_NOW}) < on (provider, model)"
        f" 1 - max by (provider, model) (n4n_provider_weight_share) and {_BUSY_MODEL}",
    ),
    Rule(
        "N4nSharesMoved", Severity.TICKET, 3600, ("provider", "model"),
        "provider {provider} takes {value} of model {model} more or less than a week ago",
        f"abs({_SHARE_NOW} - {_SHARE.format(window='1h', offset=' offset 1w')}) > {SHARE_MOVES} and {_BUSY_MODEL}"
        f' and on (model) sum by (model) (increase(llm_requests_total{{provider!=""}}[1h] offset 1w)) >= {LEAST_SHARED}',
    ),
    Rule(
        "N4nPriorityInversion", Severity.PAGE, 60, (),
        "{value} requests of a lower class were served while interactive ones waited",
        "sum(increase(n4n_priority_inversions_total[5m])) > 0",
    ),
    Rule(
        "N4nLatencyWorse", Severity.TICKET, 900, ("provider", "model"),
        "p95 latency of {model} at {provider} is {value} s, more than 1.5 times its 7 days",
        _slower("llm_request_latency_seconds"),
    ),
    Rule(
        "N4nTtftWorse", Severity.TICKET, 900, ("provider", "model"),
        "p95 time to first token of {model} at {provider} is {value} s, more than 1.5 times its 7 days",
        _slower("llm_ttft_seconds"),
    ),
    Rule(
        "N4nErrorBudgetBurnsFast", Severity.PAGE, 120, (),
        "{value} of all requests fail: the month's error budget is gone in two days",
        _burns("5m", "1h", BURNS_FAST),
    ),
    Rule(
        "N4nErrorBudgetBurns", Severity.TICKET, 900, (),
        "{value} of all requests fail: the month's error budget is gone in five days",
        _burns("30m", "6h", BURNS_SLOW),
    ),
    Rule(
        "N4nAccountOut", Severity.PAGE, 0, ("provider", "account", "reason"),
        "account {account} is out: {reason}",
        "max by (provider, account, reason) (n4n_account_out{reason=~\"auth|quota_exhausted\"}) > 0",
    ),
    Rule(
        "N4nBalanceLow", Severity.TICKET, 0, ("account",),
        "the balance of account {account} is low",
        'max by (account) (label_replace(n4n_probe_finding{kind="low_balance"}, "account", "$1", "about", "account (.*)")) > 0',
    ),
    Rule(
        "N4nBudget", Severity.TICKET, 0, ("tenant", "budget", "level"),
        "{tenant} has used {level} % of its budget {budget}",
        "max by (tenant, budget, level) (n4n_budget_level_reached) > 0",
    ),
    Rule(
        "N4nCatalogRefused", Severity.PAGE, 0, ("node",),
        "node {node} refused a catalog version",
        "max by (node) (n4n_node_refuses) > 0",
    ),
    Rule(
        "N4nCatalogLag", Severity.PAGE, 15, ("node",),
        "node {node} is {value} s behind the catalog",
        f"max by (node) (n4n_node_lag_seconds) > {LAG_S:g} unless max by (node) (n4n_node_refuses) > 0",
    ),
    Rule(
        "N4nUnpricedTraffic", Severity.TICKET, 300, ("provider", "model"),
        "{value} attempts on {model} at {provider} had no price",
        "sum by (provider, model) (increase(n4n_unpriced_attempts_total[15m])) > 0",
    ),
    Rule(
        "N4nCountsDisagree", Severity.TICKET, 900, ("endpoint", "direction"),
        "endpoint {endpoint} reports {value} {direction} tokens for each that n4n counts",
        f'({_ratio("1h", "own")} > {1 + COUNTS_DIFFER:g} or {_ratio("1h", "own")} < {1 - COUNTS_DIFFER:g}'
        f' or {_ratio("1h", "other")} > {1 + COUNTS_DIFFER:g} * {_ratio("7d", "other")}'
        f' or {_ratio("1h", "other")} < {1 - COUNTS_DIFFER:g} * {_ratio("7d", "other")})'
        f' and sum by (endpoint, direction) (increase(n4n_compared_tokens_total{{by="counted"}}[1h])) >= {LEAST_COUNTED}',
    ),
    Rule(
        "N4nLedgerBacklog", Severity.PAGE, 120, ("node",),
        "{value} bytes of usage wait on node {node}",
        f"sum by (node) (label_replace(n4n_usage_waiting_bytes, \"node\", \"$1\", \"instance\", \"(.*)\")) > {BACKLOG_BYTES}",
    ),
    Rule(
        "N4nStoreAway", Severity.PAGE, 30, ("node",),
        "node {node} keeps limits by itself: Redis cannot be used",
        "min by (node) (label_replace(n4n_store_up, \"node\", \"$1\", \"instance\", \"(.*)\")) == 0",
    ),
)  # fmt: skip
BY_NAME: Mapping[str, Rule] = MappingProxyType({rule.name: rule for rule in RULES})


def prometheus_rules() -> dict[str, object]:
    """The alerts as a rule file of Prometheus."""
    return {
        "groups": [
            {
                "name": "n4n",
                "rules": [
                    {
                        "alert": rule.name,
                        "expr": rule.promql,
                        **({"for": f"{rule.for_s}s"} if rule.for_s else {}),
                        "keep_firing_for": f"{CALM_S}s",
                        "labels": {"severity": rule.severity.value},
                        "annotations": {"summary": _templated(rule), "runbook": rule.runbook},
                    }
                    for rule in RULES
                ],
            }
        ]
    }


_VALUE = '{{ if ge $value 100.0 }}{{ humanize $value }}{{ else }}{{ printf "%.3g" $value }}{{ end }}'  # humanize makes 77.7m of 0.0777


def _templated(rule: Rule) -> str:
    labels = {label: f"{{{{ $labels.{label} }}}}" for label in rule.by}
    return rule.summary.format(value=_VALUE, **labels)
