"""The plan: who may serve, in which order, why the others may not, and what is said when nobody may."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from n4n.core.breaker import Breaker, BreakerState
from n4n.core.candidates import Cooldown, EndpointView, Plan, World
from n4n.core.catalog import Endpoint, Price, PriceList, RetryPolicy, Snapshot
from n4n.core.chat import ChatRequest, Native
from n4n.core.dialects.table import DIALECTS
from n4n.core.directives import NONE, Directives, from_provider_object, parse
from n4n.core.errors import (
    AllCooling,
    FailureClass,
    InputTooLong,
    InvalidDirective,
    ModelNotAllowed,
    ModelNotFound,
    NoEligibleEndpoint,
    NoEndpointNow,
)
from n4n.core.plan import ExplainRow, cooling_error, explain, plan
from tests.support.endpoints import NOW, chat, endpoint, model, priced, scripted, snapshot, world

OPEN = EndpointView(breaker=BreakerState(Breaker.OPEN, until=NOW + 10))
HALF_OPEN = EndpointView(breaker=BreakerState(Breaker.OPEN, until=NOW - 1))
TRIAL_TAKEN = EndpointView(breaker=BreakerState(Breaker.HALF_OPEN, until=NOW + 5))
RATE, AUTH, QUOTA, GONE = FailureClass.RATE_LIMITED, FailureClass.AUTH, FailureClass.QUOTA_EXHAUSTED, FailureClass.MODEL_NOT_FOUND


def cooling(seconds: float, failure_class: FailureClass | None = RATE) -> EndpointView:
    """An endpoint that is out for so long."""
    return EndpointView(cooldown_until=NOW + seconds, cooldown_class=failure_class)


def make(
    held: Snapshot | World,
    text: str = "",
    request: ChatRequest | None = None,
    *,
    views: dict[str, EndpointView] | None = None,
    draws: tuple[float, ...] = (),
    allowed: frozenset[str] = frozenset(),
    directives: Directives | None = None,
) -> Plan:
    """A plan for model m under directives."""
    within = held if isinstance(held, World) else world(held, views)
    binding = parse(text) if directives is None else directives
    return plan(request or chat(), binding, within, allowed_models=allowed, now=NOW, draw=scripted(*draws))


def names(made: Plan) -> list[str]:
    """The candidates in order."""
    return [one.endpoint.id for one in made.candidates]


def reasons(made: Plan) -> dict[str, str]:
    """Why each of the others is out."""
    return {one.endpoint.id: one.reason for one in made.eliminated}


def test_a_plan_tells_the_candidates_and_why_the_others_are_out() -> None:
    held = snapshot(
        [
            endpoint("good", region="eu"), endpoint("off", state="disabled"), endpoint("leaving", state="draining"),
            endpoint("foreign", dialect="bedrock"), endpoint("keyless"), endpoint("abroad", region="us"), endpoint("limited", region="eu"),
            endpoint("broken", region="eu"),
        ]
    )  # fmt: skip
    within = world(held, {"limited": cooling(30), "broken": OPEN}, unusable=["keyless-account"])

    made = make(within, "region=eu")

    assert names(made) == ["good"] and made.candidates[0].account.name == "good-account"
    assert reasons(made) == {
        "off": "disabled", "leaving": "draining", "foreign": "dialect", "keyless": "credential", "abroad": "region=eu",
        "limited": "cooldown", "broken": "breaker",
    }  # fmt: skip
    assert (made.considered, made.catalog_version, made.fallback, made.wait_s, made.preferred_overridden) == (8, 7, True, None, None)


def test_what_the_operator_decides_is_told_before_what_the_client_asks() -> None:
    held = snapshot([endpoint("eu", region="eu"), endpoint("us", region="us", state="disabled")])

    assert reasons(make(held, "region=eu")) == {"us": "disabled"}


def test_the_policy_is_that_of_the_model_asked_and_a_directive_lowers_it() -> None:
    held = snapshot([endpoint("e1")], [model(retry=RetryPolicy(max_retries=3))])

    assert make(held).max_attempts == 4
    assert make(held, "max_attempts=2").max_attempts == 2
    assert make(held, "max_attempts=9").max_attempts == 4
    assert make(held, "fallback=off").fallback is False and make(held, "fallback=on").fallback is True


def test_a_name_in_a_directive_must_be_in_the_catalog() -> None:
    with pytest.raises(InvalidDirective, match="did you mean acme"):
        make(snapshot([endpoint("e1")]), "only=provider:acne")


def test_a_request_for_an_unknown_model_is_told_so() -> None:
    with pytest.raises(ModelNotFound):
        make(snapshot([endpoint("e1")]), request=chat("nope"))


# Order.


def test_balanced_takes_the_heavier_more_often_and_weight_nought_last() -> None:
    held = snapshot([endpoint("a", weight=3.0), endpoint("b", weight=1.0), endpoint("c", weight=0.0)])

    firsts = Counter(names(make(held, draws=(a / 20, b / 20)))[0] for a in range(20) for b in range(20))
    orders = {tuple(names(make(held, draws=(a / 20, b / 20)))) for a in range(20) for b in range(20)}

    assert 0.72 <= firsts["a"] / 400 <= 0.78
    assert orders == {("a", "b", "c"), ("b", "a", "c")}


def test_a_low_score_lightens_an_endpoint_without_removing_it() -> None:
    held = snapshot([endpoint("a"), endpoint("b", weight=2.0)])

    made = make(held, views={"a": EndpointView(score=0.1)}, draws=(0.5, 0.5))

    assert [(one.endpoint.id, one.weight) for one in made.candidates] == [("b", 2.0), ("a", 0.1)]


def test_an_endpoint_whose_account_has_less_left_is_lighter_and_one_with_nothing_left_goes_last() -> None:
    held = snapshot([endpoint("a", weight=4.0), endpoint("b"), endpoint("c")])
    left = {(held.endpoints["a"].accounts[0].name, held.endpoints["a"].upstream_model): 0.25}
    within = replace(world(held), left=left, factors={held.endpoints["c"].accounts[0].name: 0.0})

    made = make(within, draws=(0.5, 0.4, 0.1))

    assert [(one.endpoint.id, one.weight) for one in made.candidates] == [("b", 1.0), ("a", 1.0), ("c", 0.0)]


def test_the_other_sorts_are_deterministic() -> None:
    held = snapshot(
        [
            endpoint("dear", price=priced(1, 9)),
            endpoint("cheap", price=priced(2, 4)),
            endpoint("free"),
            endpoint("half", price=PriceList(Price(1))),
        ]
    )
    views = {
        "dear": EndpointView(latency_ms=100, score=0.5),
        "cheap": EndpointView(latency_ms=300, score=0.9),
        "half": EndpointView(latency_ms=200, score=0.7),
    }

    assert names(make(held, "sort=cost", views=views)) == ["cheap", "dear", "half", "free"]
    assert names(make(held, "sort=latency", views=views)) == ["dear", "half", "cheap", "free"]
    assert names(make(held, "sort=throughput", views=views)) == ["dear", "half", "cheap", "free"]
    assert names(make(held, "sort=health", views=views)) == ["free", "cheap", "half", "dear"]


def test_ties_go_by_latency_then_cost_then_name() -> None:
    held = snapshot([endpoint("d"), endpoint("c"), endpoint("b", price=priced(1, 1)), endpoint("a")])

    assert names(make(held, "sort=health", views={"d": EndpointView(latency_ms=1)})) == ["d", "b", "a", "c"]


def test_a_model_may_have_a_strategy_of_its_own() -> None:
    held = snapshot([endpoint("dear", price=priced(9, 9)), endpoint("cheap", price=priced(1, 1))], [model(strategy="cost")])

    assert names(make(held, draws=(0.0, 0.9))) == ["cheap", "dear"]
    assert names(make(held, "sort=balanced", draws=(0.0, 0.9))) == ["dear", "cheap"]


TIERED = snapshot(
    [
        endpoint("a1", "a", price=priced(5, 5)),
        endpoint("b1", "b", price=priced(1, 1)),
        endpoint("b2", "b", price=priced(9, 9), provider="other"),
    ],
    [model("a", substitutes=("c",)), model("b"), model("c", substitutes=("a",))],
    {"best": ["a", "b"]},
)


def test_a_tier_serves_its_first_model_before_the_next() -> None:
    made = make(TIERED, request=chat("tier/best"), draws=(0.99, 0.0, 0.1))

    assert names(made) == ["a1", "b1", "b2"] and made.model.id == "a" and made.target.tier == "best"


def test_a_sort_that_the_client_asks_for_reaches_across_a_tier() -> None:
    assert names(make(TIERED, "sort=cost", chat("tier/best"))) == ["b1", "a1", "b2"]


def test_the_models_of_the_body_follow_in_their_order() -> None:
    assert names(make(TIERED, request=chat("b", models=("a",)), draws=(0.1, 0.2, 0.0))) == ["b1", "b2", "a1"]
    assert names(make(TIERED, request=chat("other/b", models=("acme/b", "b", "b")))) == ["b2", "b1"]
    with pytest.raises(ModelNotFound):
        make(TIERED, request=chat("a", models=("nope",)))


def test_a_model_named_with_its_provider_stays_there() -> None:
    made = make(TIERED, request=chat("other/b"))

    assert names(made) == ["b2"] and made.considered == 1


def test_another_model_stands_in_only_when_the_client_allows_it_and_after_the_asked_one() -> None:
    held = snapshot(
        [endpoint("a1", "a"), endpoint("b1", "b", price=priced(1, 1)), endpoint("c1", "c")],
        [model("a", substitutes=("b", "c")), model("b"), model("c")],
    )

    assert names(make(held, request=chat("a"))) == ["a1"]
    assert names(make(held, "consistency=strict", chat("a"))) == ["a1"]
    assert names(make(held, "consistency=available", chat("a"))) == ["a1", "b1", "c1"]
    assert names(make(held, "consistency=available,sort=cost,prefer=b1", chat("a"))) == ["a1", "b1", "c1"]
    assert names(make(held, "consistency=available", chat("a", models=("c",)))) == ["a1", "c1", "b1"]


PREFERRING = snapshot([endpoint("a"), endpoint("b", provider="other"), endpoint("c", provider="third")])


def test_a_healthy_preference_goes_first() -> None:
    made = make(PREFERRING, "prefer=other", draws=(0.0, 0.9, 0.1))

    assert names(made) == ["b", "a", "c"] and made.preferred_overridden is None


def test_preferences_rank_in_their_order() -> None:
    assert names(make(PREFERRING, "prefer=c,prefer=b", draws=(0.0, 0.1, 0.2))) == ["c", "b", "a"]
    assert names(make(PREFERRING, "prefer=c|b", draws=(0.0, 0.1, 0.2))) == ["b", "c", "a"]


@pytest.mark.parametrize(
    ("view", "told"),
    [(OPEN, "prefer=other: b: breaker"), (HALF_OPEN, "prefer=other: b: breaker"), (cooling(30), "prefer=other: b: cooldown")],
)
def test_a_preference_that_is_not_healthy_is_overridden_and_told(view: EndpointView, told: str) -> None:
    made = make(PREFERRING, "prefer=other", views={"b": view}, draws=(0.0, 0.9, 0.1))

    assert names(made)[0] == "a" and made.preferred_overridden == told


def test_a_preference_that_serves_none_of_the_models_is_told() -> None:
    made = make(TIERED, "prefer=other", chat("a"))

    assert names(made) == ["a1"] and made.preferred_overridden == "prefer=other: serves none of the models asked"


def test_require_pins() -> None:
    made = make(PREFERRING, "require=other")

    assert names(made) == ["b"] and reasons(made) == {"a": "require=other", "c": "require=other"}


# Accounts.


POOLED = snapshot([endpoint("e1", accounts=["a", "b", "c"])])


def test_one_account_of_a_pool_is_drawn_and_the_others_are_spare() -> None:
    chosen = [make(POOLED, draws=(0.5, drawn)).candidates[0] for drawn in (0.0, 0.34, 0.99)]

    assert [one.account.name for one in chosen] == ["a", "b", "c"]
    assert [[spare.name for spare in one.spare_accounts] for one in chosen] == [["b", "c"], ["c", "a"], ["a", "b"]]


def test_of_a_pool_the_account_with_more_left_is_drawn_more_often_and_counts_for_the_endpoint() -> None:
    within = replace(world(POOLED), factors={"a": 0.0, "b": 0.25, "c": 0.75})

    chosen = [make(within, draws=(0.5, drawn)).candidates[0] for drawn in (0.0, 0.24, 0.26, 0.999)]

    assert [one.account.name for one in chosen] == ["b", "b", "c", "c"]
    assert {one.weight for one in chosen} == {0.75}
    none = make(replace(within, factors=dict.fromkeys("abc", 0.0)), draws=(0.5, 0.34)).candidates[0]
    assert (none.account.name, none.weight) == ("b", 0.0)


def test_an_account_that_may_not_be_used_leaves_the_pool() -> None:
    within = world(POOLED, unusable=["a"], cooling_accounts={"c": Cooldown(NOW + 5, AUTH)})

    assert [one.account.name for one in make(within, draws=(0.5, 0.99)).candidates] == ["b"]
    assert [one.account.name for one in make(within, "exclude=account:c").candidates] == ["b"]


def test_a_directive_about_an_account_narrows_the_pool() -> None:
    made = make(POOLED, "only=account:c")

    assert made.candidates[0].account.name == "c" and made.candidates[0].spare_accounts == ()


def test_a_pool_is_cooling_when_all_its_accounts_are_and_back_with_the_first() -> None:
    within = world(POOLED, cooling_accounts={"a": Cooldown(NOW + 9, QUOTA), "b": Cooldown(NOW + 3, RATE), "c": Cooldown(NOW + 9, AUTH)})

    made = make(within)

    assert made.wait_s == 3.0 and [one.account.name for one in made.candidates] == ["b"]


def test_of_two_cooldowns_the_longer_binds() -> None:
    within = world(POOLED, {"e1": cooling(4)}, cooling_accounts={"a": Cooldown(NOW + 2), "b": Cooldown(NOW + 9), "c": Cooldown(NOW + 3)})

    made = make(within, draws=(0.5, 0.99))

    assert made.wait_s == 4.0 and made.candidates[0].account.name == "c"


# What the request uses.


def test_a_feature_that_an_endpoint_lacks_does_not_remove_it_unless_asked() -> None:
    held = snapshot([endpoint("plain", supports=frozenset({"tools"})), endpoint("rich")])
    uses = chat(features=frozenset({"tools", "seed", "logprobs"}))

    assert len(make(held, request=uses).candidates) == 2
    for made in (
        make(held, request=chat(features=uses.features, unsupported_params="route_away")),
        make(held, request=chat(features=uses.features, unsupported_params="reject")),
        make(held, request=uses, directives=from_provider_object({"require_parameters": True})),
        make(snapshot(held.endpoints.values(), [model(unsupported_params="route_away")]), request=uses),
    ):
        assert names(made) == ["rich"] and reasons(made) == {"plain": "supports=logprobs|seed"}


def test_the_request_says_more_than_its_model_about_what_may_be_dropped() -> None:
    held = snapshot([endpoint("plain", supports=frozenset())], [model(unsupported_params="reject")])

    assert names(make(held, request=chat(features=frozenset({"seed"}), unsupported_params="drop"))) == ["plain"]


def test_what_an_endpoint_cannot_be_told_counts_as_lacking() -> None:
    held = snapshot([endpoint("claude", dialect="anthropic"), endpoint("gpt")])
    within = World(held, frozenset(DIALECTS), {"claude-account", "gpt-account"}, speakers=DIALECTS)
    uses = frozenset({"tools", "seed"})

    assert reasons(make(within, request=chat(features=uses, unsupported_params="route_away"))) == {"claude": "supports=seed"}
    native = chat(features=uses, unsupported_params="route_away", native=Native("anthropic", {}))
    assert names(make(within, request=native)) == ["claude", "gpt"]


def test_what_is_part_of_the_question_is_never_left_out() -> None:
    held = snapshot([endpoint("blind", supports=frozenset({"tools"})), endpoint("seeing")])
    uses = chat(features=frozenset({"vision", "seed"}))

    assert names(make(held, request=uses)) == ["seeing"] and reasons(make(held, request=uses)) == {"blind": "supports=vision"}
    with pytest.raises(NoEligibleEndpoint, match="supports=vision removed 1"):
        make(snapshot([held.endpoints["blind"]]), request=uses)


def test_a_prompt_goes_only_where_it_may_fit() -> None:
    small, large = endpoint("small", context_window=4_000), endpoint("large", context_window=100_000)
    held = snapshot([small, large, endpoint("unknown")])

    assert len(make(held, request=chat(body_bytes=32_000)).candidates) == 3
    made = make(held, request=chat(body_bytes=40_000))
    assert sorted(names(made)) == ["large", "unknown"] and reasons(made) == {"small": "context_window"}
    with pytest.raises(InputTooLong, match="more than 100000 tokens") as caught:
        make(snapshot([small, large, endpoint("off", state="disabled")]), request=chat(body_bytes=1_000_000))
    assert (caught.value.status, caught.value.code) == (400, "context_length_exceeded")
    assert caught.value.eliminated == {"context_window": 2, "disabled": 1}


def test_a_prompt_that_is_too_long_for_what_a_constraint_leaves_is_told_of_the_constraint() -> None:
    held = snapshot([endpoint("small", context_window=4_000, region="eu"), endpoint("large", region="us")])

    with pytest.raises(NoEligibleEndpoint, match="region=eu removed 1") as caught:
        make(held, "region=eu", chat(body_bytes=40_000))
    assert caught.value.code == "no_eligible_endpoint"


# Rights.


def test_a_key_may_use_only_its_models_by_any_of_their_names() -> None:
    held = snapshot([endpoint("a1", "a"), endpoint("b1", "b")], [model("a", aliases=("v/a",)), model("b")], {"best": ["a", "b"]})

    assert reasons(make(held, request=chat("tier/best"), allowed=frozenset({"a"}))) == {"b1": "model_not_allowed"}
    assert names(make(held, request=chat("a"), allowed=frozenset({"v/a"}))) == ["a1"]
    assert names(make(held, request=chat("tier/best"), allowed=frozenset({"tier/best"}))) == ["a1", "b1"]
    with pytest.raises(ModelNotAllowed, match="'b'") as caught:
        make(held, request=chat("b"), allowed=frozenset({"a"}))
    assert caught.value.status == 403


# Breakers.


def test_a_half_open_breaker_lets_its_one_trial_go() -> None:
    held = snapshot([endpoint("a"), endpoint("b"), endpoint("c")])

    made = make(held, views={"a": HALF_OPEN, "b": TRIAL_TAKEN}, draws=(0.0, 0.5))

    assert [(one.endpoint.id, one.trial) for one in made.candidates] == [("a", True), ("c", False)]
    assert reasons(made) == {"b": "breaker"}


def test_when_breakers_have_removed_all_that_is_left_all_are_used() -> None:
    held = snapshot([endpoint("a"), endpoint("b", provider="other"), endpoint("c")])

    made = make(held, "prefer=other", views={"a": OPEN, "b": TRIAL_TAKEN, "c": cooling(1)}, draws=(0.1, 0.5))

    assert names(made) == ["a", "b"] and not any(one.trial for one in made.candidates)
    assert reasons(made) == {"c": "cooldown"} and made.preferred_overridden == "prefer=other: b: breaker"


# Nobody is left.


def test_a_cooldown_that_ends_soon_is_waited_for() -> None:
    held = snapshot([endpoint("a"), endpoint("b"), endpoint("c")])

    made = make(held, views={"a": cooling(4), "b": cooling(2), "c": cooling(6)}, draws=(0.0, 0.5))

    assert made.wait_s == 2.0
    assert [(one.endpoint.id, one.ready_at) for one in made.candidates] == [("a", NOW + 4), ("b", NOW + 2)]
    assert reasons(made) == {"c": "cooldown"}
    assert [one.until - NOW for one in made.cooling] == [4, 2, 6]


@pytest.mark.parametrize(
    ("views", "status", "code", "retry_after"),
    [
        ([cooling(30), cooling(12.5)], 429, "rate_limited", 12.5),
        ([cooling(30, None), cooling(12, AUTH)], 429, "rate_limited", 12),
        ([cooling(300, AUTH), cooling(200, AUTH)], 502, "upstream_denied", None),
        ([cooling(900, QUOTA), cooling(200, AUTH)], 503, "quota_exhausted", 200),
        ([cooling(300, GONE), cooling(200, GONE)], 404, "model_not_found", None),
        ([cooling(300, GONE), cooling(200, AUTH)], 502, "upstream_denied", None),
        ([cooling(30, FailureClass.OVERLOADED), cooling(200, AUTH)], 503, "overloaded", 30),
    ],
)
def test_when_all_are_cooling_for_long_the_answer_says_why_and_until_when(
    views: list[EndpointView], status: int, code: str, retry_after: float | None
) -> None:
    held = snapshot([endpoint("a", region="eu"), endpoint("b", region="eu"), endpoint("c", region="us")])

    with pytest.raises(AllCooling) as caught:
        make(held, "region=eu", views=dict(zip("ab", views, strict=True)))

    error = caught.value
    assert (error.status, error.code, error.retry_after_s) == (status, code, retry_after)
    assert (error.candidates, error.eliminated, error.attempts) == (3, {"region=eu": 1, "cooldown": 2}, ())


def test_when_constraints_leave_nobody_each_is_named_with_its_count() -> None:
    held = snapshot([endpoint("a", region="us"), endpoint("b", region="us"), endpoint("c", region="eu"), endpoint("d", dialect="gemini")])

    with pytest.raises(NoEligibleEndpoint, match="of 4, region=eu removed 2, max_cost") as caught:
        make(held, "region=eu,max_cost_per_1k=0.01")

    error = caught.value
    assert (error.status, error.code, error.candidates) == (400, "no_eligible_endpoint", 4)
    assert error.eliminated == {"region=eu": 2, "max_cost_per_1k=0.01": 1, "dialect": 1}


def test_when_only_the_operator_can_help_it_is_not_the_requests_fault() -> None:
    held = snapshot([endpoint("a", state="disabled"), endpoint("b")], tiers={"t": ["m"]})

    with pytest.raises(NoEndpointNow) as caught:
        make(world(held, unusable=["b-account"]), "region=eu")

    error = caught.value
    assert (error.status, error.code, error.retry_after_s) == (503, "no_eligible_endpoint", 30.0)
    assert (error.candidates, error.eliminated) == (2, {"disabled": 1, "credential": 1})


def test_a_model_without_endpoints_is_unavailable() -> None:
    with pytest.raises(NoEndpointNow, match="of 0, it has none"):
        make(TIERED, request=chat("c"))


# The dry run.


def test_explain_gives_every_endpoint_kept_or_not() -> None:
    held = snapshot([endpoint("a", weight=2.0), endpoint("b"), endpoint("c", region="eu"), endpoint("d", state="draining")])

    rows = explain(chat(), parse("exclude=region:eu"), world(held, {"b": HALF_OPEN}), now=NOW, draw=scripted(0.0, 0.5))

    assert rows == [
        ExplainRow(held.endpoints["a"], True, None, 1, 2.0), ExplainRow(held.endpoints["b"], True, "trial", 2, 1.0),
        ExplainRow(held.endpoints["c"], False, "exclude=region:eu", None, None),
        ExplainRow(held.endpoints["d"], False, "draining", None, None),
    ]  # fmt: skip


def test_explain_says_what_a_plan_would_refuse_to() -> None:
    held = snapshot([endpoint("a"), endpoint("b")])

    def told(views: dict[str, EndpointView], text: str = "", allowed: frozenset[str] = frozenset()) -> list[tuple[bool, str | None]]:
        rows = explain(chat(), parse(text), world(held, views), allowed_models=allowed, now=NOW, draw=scripted())
        return [(row.kept, row.reason) for row in rows]

    assert told({"a": OPEN, "b": OPEN}) == [(True, "panic")] * 2
    assert told({"a": cooling(3), "b": cooling(30)}) == [(True, "wait"), (False, "cooldown")]
    assert told({"a": cooling(30), "b": cooling(30)}) == [(False, "cooldown")] * 2
    assert told({}, "region=eu") == [(False, "region=eu")] * 2
    assert told({}, allowed=frozenset({"x"})) == [(False, "model_not_allowed")] * 2


# Whatever the world looks like.


def assert_all_told(counted: tuple[int, int], endpoints: int) -> None:
    """A refusal speaks of every endpoint, each once."""
    assert counted == (endpoints, endpoints)


VIEWS = st.builds(
    EndpointView,
    breaker=st.builds(BreakerState, st.sampled_from(Breaker), until=st.floats(NOW - 50, NOW + 50)),
    cooldown_until=st.floats(NOW - 50, NOW + 20),
    cooldown_class=st.none() | st.sampled_from(FailureClass),
    score=st.floats(0, 1),
    latency_ms=st.none() | st.floats(0, 10_000),
)
ENDPOINTS = st.builds(
    lambda at, region, weight, provider, pool, state: endpoint(
        f"e{at}", provider=provider, region=region, weight=weight, accounts=[f"{provider}-{n}" for n in range(pool)], state=state
    ),
    st.integers(0, 9), st.sampled_from(["", "eu", "eu-west-1", "us"]), st.floats(0, 10), st.sampled_from(["acme", "other"]),
    st.integers(1, 3), st.sampled_from(["active", "active", "active", "disabled"]),
)  # fmt: skip
TEXTS = st.lists(
    st.sampled_from(["region=eu", "exclude=region:us", "sort=cost", "sort=latency", "max_attempts=1", "fallback=off"]), max_size=3
).filter(lambda words: not {"sort=cost", "sort=latency"} <= set(words))


@given(st.lists(ENDPOINTS, min_size=1, max_size=6, unique_by=lambda one: one.id), st.data(), TEXTS, st.floats(0, 1, exclude_max=True))
def test_no_endpoint_that_a_directive_or_a_cooldown_rules_out_is_ever_a_candidate(
    endpoints: list[Endpoint], data: st.DataObject, words: list[str], drawn: float
) -> None:
    held = snapshot(endpoints)
    views = {str(one.id): data.draw(VIEWS) for one in endpoints}
    directives = parse(",".join(words)) if words else NONE
    try:
        made = plan(chat(), directives, world(held, views), now=NOW, draw=lambda: drawn)
    except (NoEligibleEndpoint, NoEndpointNow, AllCooling) as refusal:
        counted = refusal.candidates, sum(refusal.eliminated.values())
        assert_all_told(counted, len(endpoints))
        return
    for one in made.candidates:
        region = one.endpoint.region
        assert "region=eu" not in words or region.startswith("eu")
        assert "exclude=region:us" not in words or region != "us"
        assert one.endpoint.state == "active" and one.account in one.endpoint.accounts
        assert max(NOW, one.ready_at) >= views[one.endpoint.id].cooldown_until
    assert sorted([*names(made), *reasons(made)]) == sorted(one.id for one in endpoints) and made.considered == len(endpoints)


# What was measured.


def measured(ttft_ms: float | None = None, tokens_per_s: float | None = None) -> EndpointView:
    """An endpoint that was measured so."""
    return EndpointView(ttft_ms=ttft_ms, tokens_per_s=tokens_per_s)


@pytest.mark.parametrize(
    ("text", "views", "order"),
    [
        ("max_ttft_ms=500", {"a": measured(501)}, ["b", "c", "a"]),
        ("max_ttft_ms=500", {"a": measured(500)}, ["a", "b", "c"]),
        ("max_ttft_ms=500", {"a": measured(900), "b": measured(100)}, ["b", "c", "a"]),
        ("min_tokens_per_s=40", {"a": measured(tokens_per_s=39.9)}, ["b", "c", "a"]),
        ("min_tokens_per_s=40", {"a": measured(tokens_per_s=40)}, ["a", "b", "c"]),
        ("min_tokens_per_s=40,max_ttft_ms=500", {"a": measured(100, 10), "b": measured(900, 100)}, ["c", "a", "b"]),
        ("max_ttft_ms=500", {"a": measured(tokens_per_s=1)}, ["a", "b", "c"]),
        ("max_ttft_ms=1", {"a": measured(9), "b": measured(9), "c": measured(9)}, ["a", "b", "c"]),
        ("prefer=a,max_ttft_ms=500", {"a": measured(900)}, ["b", "c", "a"]),
        ("sort=cost,max_ttft_ms=500", {"a": measured(900)}, ["b", "c", "a"]),
    ],
)
def test_who_was_measured_worse_goes_last_and_nobody_is_removed(text: str, views: dict[str, EndpointView], order: list[str]) -> None:
    held = snapshot([endpoint(name) for name in "abc"])

    made = make(held, text, views=views, draws=(0.1, 0.2, 0.3))

    assert names(made) == order and made.eliminated == ()


def test_a_preference_that_was_measured_too_slow_is_overridden_and_told() -> None:
    made = make(snapshot([endpoint("a"), endpoint("b")]), "prefer=a,max_ttft_ms=500,min_tokens_per_s=1.50", views={"a": measured(900)})

    assert made.preferred_overridden == "prefer=a: a: max_ttft_ms=500,min_tokens_per_s=1.5"


def test_explain_says_who_goes_last_for_being_slow() -> None:
    within = world(snapshot([endpoint("a"), endpoint("b")]), {"a": measured(900)})

    rows = explain(chat(), parse("max_ttft_ms=500"), within, now=NOW, draw=scripted())

    assert [(row.endpoint.id, row.kept, row.reason) for row in rows] == [("b", True, None), ("a", True, "slow")]


def test_the_fastest_goes_first_where_throughput_is_asked() -> None:
    views = {"a": measured(tokens_per_s=10), "b": measured(tokens_per_s=99)}

    assert names(make(snapshot([endpoint("c"), endpoint("a"), endpoint("b")]), "sort=throughput", views=views)) == ["b", "a", "c"]


# Never another model than the one asked.


def test_strict_consistency_removes_the_other_models_of_the_body() -> None:
    held = snapshot([endpoint("a", "x"), endpoint("b", "y")], [model("x", aliases=("ex",)), model("y")])

    made = make(held, "consistency=strict", chat("x", models=("y", "ex")))

    assert names(made) == ["a"] and reasons(made) == {"b": "consistency=strict"}
    assert names(make(held, "", chat("x", models=("y",)))) == ["a", "b"]


# An overload without a hint is our own caution.


def overloaded(seconds: float, **fields: object) -> EndpointView:
    """An endpoint that was overloaded and is left alone for so long."""
    return EndpointView(overloaded_until=NOW + seconds, **fields)  # type: ignore[arg-type]


def test_an_overloaded_endpoint_is_left_alone_while_another_can_serve() -> None:
    made = make(snapshot([endpoint("a"), endpoint("b")]), views={"a": overloaded(4)})

    assert names(made) == ["b"] and reasons(made) == {"a": "cooldown"}


def test_overloaded_endpoints_are_asked_all_the_same_when_nobody_else_is_left() -> None:
    held = snapshot([endpoint("a", weight=9), endpoint("b"), endpoint("c")], [model(strategy="cost")])

    made = make(held, views={"a": overloaded(4), "b": overloaded(60), "c": cooling(1)}, draws=(0.5, 0.5))

    assert names(made) == ["a", "b"] and reasons(made) == {"c": "cooldown"}
    assert made.wait_s is None and {one.ready_at for one in made.candidates} == {0.0}


def test_what_a_provider_ordered_binds_beside_an_overload() -> None:
    held = snapshot([endpoint("a", accounts=["x", "y"])])
    within = world(held, {"a": overloaded(60)}, cooling_accounts={"x": Cooldown(NOW + 3, RATE)})

    assert [one.account.name for one in make(within).candidates] == ["y"]
    ordered = make(held, views={"a": overloaded(60, cooldown_until=NOW + 3, cooldown_class=RATE)})
    assert ordered.wait_s == 3.0
    pooled = world(held, {"a": overloaded(60)}, cooling_accounts={name: Cooldown(NOW + 2, RATE) for name in "xy"})
    assert make(pooled).wait_s == 2.0


def test_an_apis_own_tools_are_out_where_they_cannot_be_said_and_the_error_names_them() -> None:
    asked = chat(native=Native("anthropic", {}), native_tools=("bash", "web_search"))
    within = world(snapshot([endpoint("e1"), endpoint("e2", supports=frozenset(("web_search",)))]))

    with pytest.raises(NoEligibleEndpoint, match="say unsupported_params: drop") as refused:
        make(within, request=asked)
    assert refused.value.eliminated == {"tools=bash|web_search": 1, "tools=bash": 1}
    assert names(make(within, request=replace(asked, unsupported_params="drop"))) == ["e1", "e2"]
    searching = snapshot([endpoint("e3", supports=frozenset(("web_search",)))])
    assert names(make(searching, request=replace(asked, native_tools=("web_search",)))) == ["e3"]


def test_a_model_that_makes_embeddings_alone_is_asked_for_nothing_else_and_no_other_for_these() -> None:
    vectors, chats = snapshot([endpoint("e1", supports=frozenset(("embeddings",)))]), snapshot([endpoint("e1")])
    embeds = chat(features=frozenset(("embeddings",)))

    assert names(make(vectors, request=embeds)) == names(make(chats)) == ["e1"]
    for held, request, reason in ((vectors, chat(), "supports=chat"), (chats, embeds, "supports=embeddings")):
        with pytest.raises(NoEligibleEndpoint) as refused:
            make(held, request=request, directives=NONE)
        assert refused.value.eliminated == {reason: 1}


def test_an_account_that_used_up_its_own_limits_is_no_fault_of_its_provider() -> None:
    ours = Cooldown(110.0, FailureClass.RATE_LIMITED, ours=True)
    error = cooling_error([ours, ours, ours], 100.0, name="m", candidates=2)
    assert (error.status, error.retry_after_s, error.eliminated) == (429, 10.0, {"quota": 2})
    assert "what the catalog allows its accounts is used up" in error.message
    mixed = cooling_error([ours, Cooldown(105.0, FailureClass.RATE_LIMITED)], 100.0, name="m", candidates=2)
    assert "rate limited" in mixed.message
    assert (mixed.retry_after_s, mixed.eliminated) == (5.0, {"quota": 1})
