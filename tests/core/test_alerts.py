"""Alerts: each fires on its own fault and on nothing else, is told once, and once more when it is over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import n4n
from n4n.core.alerts import rules
from n4n.core.alerts.conditions import violations
from n4n.core.alerts.facts import Compared, Facts, ModelFacts, NodeFacts, Quota, Requests, Traffic
from n4n.core.alerts.rules import BY_NAME, LEAST_REQUESTS, RULES
from n4n.core.alerts.watch import CALM_S, Board, Notice, Violation, watch
from tests.support.alert_rules import FILE, text

WELL = Requests(1000, 0, 10, 10)
TRAFFIC = Traffic("openai", "gpt", 500, 480, 0, 0.9, 0.3)
OTHER = Traffic("azure", "gpt", 500, 480, 0, 0.9, 0.3)
CALM = Facts(
    requests_5=WELL,
    requests_10=WELL,
    requests_30=WELL,
    requests_60=WELL,
    requests_hour_before=WELL,
    requests_360=WELL,
    traffic_15=(TRAFFIC, OTHER),
    traffic_60=(TRAFFIC, OTHER),
    traffic_week_ago=(TRAFFIC, OTHER),
    baseline={("openai", "gpt"): TRAFFIC, ("azure", "gpt"): OTHER},
    quotas=(Quota("openai", "main", "requests", 0.5),),
    nodes=(NodeFacts("r1", interactive_waiting=9, interactive_waiting_before=5),),
    models=(ModelFacts("gpt", 2, 2, {"openai": 0.5, "azure": 0.5}), ModelFacts("single", 1, 1, {"openai": 1.0})),
    compared_60=(Compared("e", "output", 10_300, 10_000, 1.0), Compared("claude", "output", 15_000, 10_000, 1.5)),
)
FAILING = Requests(1000, 200, 10, 10)
FAULTS: dict[str, Facts] = {
    "N4nQuotaNearlyUsed": replace(CALM, quotas=(Quota("openai", "main", "tokens", 0.9),)),
    "N4nFallbackDepthRising": replace(CALM, requests_10=Requests(1000, 0, 90, 90)),
    "N4nManyFallbacks": replace(CALM, requests_5=Requests(1000, 0, 110, 110)),
    "N4nInteractiveQueueGrows": replace(CALM, nodes=(NodeFacts("r1", interactive_waiting=11, interactive_waiting_before=5),)),
    "N4nModelAway": replace(CALM, models=(ModelFacts("single", 0, 1),)),
    "N4nNoRedundancy": replace(CALM, models=(ModelFacts("gpt", 1, 2),)),
    "N4nWeightCollapse": replace(
        CALM,
        traffic_60=(replace(TRAFFIC, first_attempts=950), replace(OTHER, first_attempts=50)),
        traffic_week_ago=(replace(TRAFFIC, first_attempts=900), replace(OTHER, first_attempts=100)),
    ),
    "N4nSharesMoved": replace(CALM, traffic_60=(replace(TRAFFIC, first_attempts=850), replace(OTHER, first_attempts=150))),
    "N4nPriorityInversion": replace(CALM, inversions=3),
    "N4nLatencyWorse": replace(CALM, traffic_15=(replace(TRAFFIC, p95_latency_s=1.5),)),
    "N4nTtftWorse": replace(CALM, traffic_15=(replace(TRAFFIC, p95_ttft_s=0.6),)),
    "N4nErrorBudgetBurnsFast": replace(CALM, requests_5=FAILING, requests_60=FAILING),
    "N4nErrorBudgetBurns": replace(CALM, requests_30=FAILING, requests_360=FAILING),
    "N4nAccountOut": replace(CALM, accounts_out=(("openai", "main", "auth"),)),
    "N4nBalanceLow": replace(CALM, low_balances=("or",)),
    "N4nBudget": replace(CALM, budgets=(("acme", "month", 80),)),
    "N4nCatalogRefused": replace(CALM, nodes=(NodeFacts("r1", refuses=True),)),
    "N4nCatalogLag": replace(CALM, nodes=(NodeFacts("r1", lag_s=31.0),)),
    "N4nUnpricedTraffic": replace(CALM, traffic_15=(replace(TRAFFIC, unpriced=1),)),
    "N4nCountsDisagree": replace(CALM, compared_60=(Compared("e", "output", 10_600, 10_000, 1.0),)),
    "N4nLedgerBacklog": replace(CALM, nodes=(NodeFacts("r1", usage_waiting_bytes=1 << 30),)),
    "N4nStoreAway": replace(CALM, nodes=(NodeFacts("r1", store_up=False),)),
}
FEW = LEAST_REQUESTS - 1


def test_nothing_is_wrong_on_a_calm_day_nor_when_nothing_is_known() -> None:
    assert violations(CALM) == []
    assert violations(Facts()) == []


def test_every_rule_has_a_fault_here() -> None:
    assert list(FAULTS) == [rule.name for rule in RULES]


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_breaks_its_own_rule_and_no_other(name: str) -> None:
    found = violations(FAULTS[name])
    assert {one.rule for one in found} == {name}
    for one in found:
        assert tuple(label for label, _ in one.labels) == BY_NAME[name].by
        assert one.summary
        assert one.severity is BY_NAME[name].severity
        assert "{" not in one.summary


@pytest.mark.parametrize(
    "facts",
    [
        replace(CALM, requests_5=Requests(FEW, FEW, FEW, FEW), requests_10=Requests(FEW, 0, FEW, FEW)),
        replace(CALM, requests_5=Requests(20, 0, 4, 4), requests_10=Requests(30, 0, 9, 9)),
        replace(CALM, nodes=(NodeFacts("r1", interactive_waiting=4, interactive_waiting_before=0),)),
        replace(CALM, traffic_15=(replace(TRAFFIC, attempts=99, p95_latency_s=99.0),)),
        replace(CALM, traffic_15=(replace(TRAFFIC, p95_latency_s=9.0),), baseline={("openai", "gpt"): replace(TRAFFIC, attempts=199)}),
        replace(CALM, traffic_15=(replace(TRAFFIC, p95_latency_s=None, p95_ttft_s=None),)),
        replace(CALM, traffic_15=(replace(TRAFFIC, provider="new"),)),
        replace(CALM, traffic_60=(replace(TRAFFIC, first_attempts=99),)),
        replace(CALM, compared_60=(Compared("e", "output", 12_000, 9_999, 1.0), Compared("new", "output", 20_000, 10_000))),
        replace(CALM, traffic_week_ago=()),
        replace(CALM, traffic_60=(Traffic("openai", "other", 500, 480), TRAFFIC, OTHER)),
        replace(
            CALM,  # which is what its weights say, or who serves it is not decided by weights
            traffic_60=(replace(TRAFFIC, first_attempts=950), replace(OTHER, first_attempts=50)),
            traffic_week_ago=(),
            models=(ModelFacts("gpt", 2, 2, {"openai": 0.9, "azure": 0.1}),),
        ),
        replace(CALM, traffic_60=(TRAFFIC,), traffic_week_ago=(TRAFFIC,), models=(ModelFacts("gpt", 2, 2),)),
        replace(
            CALM,  # many times as slow, and still quick
            baseline={("openai", "gpt"): replace(TRAFFIC, p95_latency_s=0.01, p95_ttft_s=0.01)},
            traffic_15=(replace(TRAFFIC, p95_latency_s=0.1, p95_ttft_s=0.1),),
        ),
        replace(CALM, requests_60=FAILING),
        replace(CALM, requests_5=Requests(199, 40, 0, 0), requests_60=FAILING),
    ],
)
def test_too_little_is_known_to_say_that_something_is_wrong(facts: Facts) -> None:
    assert violations(facts) == []


EDGES: dict[str, Callable[[float], Facts]] = {  # so far beyond its threshold, as tests/support/alert_series.py does it for Prometheus' form
    "N4nQuotaNearlyUsed": lambda at: replace(CALM, quotas=(Quota("openai", "main", "tokens", rules.QUOTA_USED * at),)),
    "N4nFallbackDepthRising": lambda at: replace(CALM, requests_10=Requests(1000, 0, 0, round(1000 * rules.DEPTH_LEAST * at))),
    "N4nManyFallbacks": lambda at: replace(CALM, requests_5=Requests(1000, 0, round(1000 * rules.FALLING_BACK * at), 0)),
    "N4nInteractiveQueueGrows": lambda at: replace(CALM, nodes=(NodeFacts("r1", interactive_waiting=rules.LEAST_WAITING * at),)),
    "N4nWeightCollapse": lambda at: shared(1 - (1 - rules.ONE_TAKES) / at**2, week_ago=1.0),
    "N4nSharesMoved": lambda at: shared(0.5 + rules.SHARE_MOVES * at, week_ago=0.5),
    "N4nLatencyWorse": lambda at: replace(CALM, traffic_15=(replace(TRAFFIC, p95_latency_s=0.9 * rules.SLOWER * at),)),
    "N4nTtftWorse": lambda at: replace(CALM, traffic_15=(replace(TRAFFIC, p95_ttft_s=0.3 * rules.SLOWER * at),)),
    "N4nErrorBudgetBurnsFast": lambda at: replace(
        CALM, requests_5=burning(rules.BURNS_FAST * at), requests_60=burning(rules.BURNS_FAST * at)
    ),
    "N4nErrorBudgetBurns": lambda at: replace(
        CALM, requests_30=burning(rules.BURNS_SLOW * at), requests_360=burning(rules.BURNS_SLOW * at)
    ),
    "N4nCatalogLag": lambda at: replace(CALM, nodes=(NodeFacts("r1", lag_s=rules.LAG_S * at),)),
    "N4nCountsDisagree": lambda at: replace(
        CALM, compared_60=(Compared("e", "input", round(100_000 * (1 + rules.COUNTS_DIFFER * at)), 100_000, 1.0),)
    ),
    "N4nLedgerBacklog": lambda at: replace(CALM, nodes=(NodeFacts("r1", usage_waiting_bytes=round(rules.BACKLOG_BYTES * at)),)),
}


def shared(first: float, week_ago: float) -> Facts:
    """So much of 1,000 requests goes to the first of two providers."""

    def split(share: float) -> tuple[Traffic, Traffic]:
        return replace(TRAFFIC, first_attempts=round(1000 * share)), replace(OTHER, first_attempts=round(1000 * (1 - share)))

    return replace(CALM, traffic_60=split(first), traffic_week_ago=split(week_ago))


def burning(times: float) -> Requests:
    return Requests(1_000_000, round(1_000_000 * rules.ERROR_BUDGET * times))


@pytest.mark.parametrize("name", EDGES)
def test_a_rule_is_broken_just_beyond_its_threshold_and_not_just_below(name: str) -> None:
    assert {one.rule for one in violations(EDGES[name](1.05))} == {name}
    assert violations(EDGES[name](0.95)) == []


def test_a_node_that_refused_is_behind_for_that_reason() -> None:
    facts = replace(CALM, nodes=(NodeFacts("r1", refuses=True, lag_s=99.0),))
    assert [one.rule for one in violations(facts)] == ["N4nCatalogRefused"]


def test_an_endpoint_that_reports_too_little_is_told_of_too_and_so_is_one_that_changes() -> None:
    few = (Compared("e", "input", 9_000, 10_000, 1.0), Compared("claude", "output", 11_000, 10_000, 1.5))
    found = violations(replace(CALM, compared_60=few))
    assert [(one.rule, dict(one.labels)["endpoint"], one.value) for one in found] == [
        ("N4nCountsDisagree", "e", 0.9),
        ("N4nCountsDisagree", "claude", 1.1),
    ]


def told(board: Board, wrong: list[Violation], now: float) -> tuple[Board, list[Notice]]:
    return watch(board, wrong, now)


def test_an_alert_is_told_when_it_lasts_and_once_more_when_it_is_over() -> None:
    [wrong] = violations(FAULTS["N4nQuotaNearlyUsed"])
    board: Board = {}
    for now in (0.0, 100.0, 299.0):
        board, notices = told(board, [wrong], now)
        assert notices == []
    board, notices = told(board, [wrong], 300.0)
    assert [(one.resolved, one.since, one.rule.name) for one in notices] == [(False, 0.0, "N4nQuotaNearlyUsed")]
    board, notices = told(board, [replace(wrong, value=0.99)], 400.0)
    assert notices == []
    board, notices = told(board, [], 400.0 + CALM_S - 1)  # a pause is not its end
    assert notices == []
    board, notices = told(board, [], 400.0 + CALM_S)
    assert [(one.resolved, one.violation.value) for one in notices] == [(True, 0.99)]
    assert board == {}


def test_what_ends_before_it_was_told_is_never_told() -> None:
    [wrong] = violations(FAULTS["N4nManyFallbacks"])
    board, _ = told({}, [wrong], 0.0)
    board, notices = told(board, [], 10.0)
    assert (board, notices) == ({}, [])
    _, notices = told(board, [wrong], 310.0)
    assert notices == []


def test_subjects_are_told_apart() -> None:
    nodes = (NodeFacts("r1", refuses=True), NodeFacts("r2", refuses=True))
    board, notices = watch({}, violations(replace(CALM, nodes=nodes)), 0.0)
    assert [one.violation.key for one in notices] == ["N4nCatalogRefused/node=r1", "N4nCatalogRefused/node=r2"]
    _, notices = watch(board, violations(replace(CALM, nodes=nodes[:1])), CALM_S)
    assert [(one.violation.key, one.resolved) for one in notices] == [("N4nCatalogRefused/node=r2", True)]


@given(st.lists(st.sets(st.sampled_from(sorted(FAULTS))), max_size=40))
def test_every_alert_that_was_told_is_ended_once(looks: list[set[str]]) -> None:
    board: Board = {}
    open_now: set[str] = set()
    for number, names in enumerate([*looks, set(), set()]):
        wrong = [one for name in sorted(names) for one in violations(FAULTS[name])]
        board, notices = watch(board, wrong, number * 600.0)
        for notice in notices:
            assert (notice.violation.key in open_now) is notice.resolved
            (open_now.discard if notice.resolved else open_now.add)(notice.violation.key)
    assert not open_now


def test_the_rule_file_is_what_the_table_says() -> None:
    assert FILE.read_text() == text(), "run python -m tests.support.alert_rules"


def test_prometheus_writes_no_thousandths_of_a_share() -> None:
    assert '{{ else }}{{ printf "%.3g" $value }}{{ end }} of all requests needed more than one endpoint' in text()
    assert "$value | humanize" not in text(), "which makes 77.7m of 0.0777"


def test_every_alert_has_a_paragraph_for_whoever_is_woken() -> None:
    page = (Path(n4n.__file__).parent.parent / "docs" / "operations.md").read_text()
    assert [rule.name for rule in RULES if f"### {rule.name}\n" not in page] == []
