"""Directives: what a client may require and prefer, what is refused, and how two sets bind together."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from n4n.core.catalog import Price, PriceList, PriceTier
from n4n.core.constraints import Offer
from n4n.core.directives import KEYS, NONE, Directives, check_names, combine, from_provider_object, parse, parse_simple
from n4n.core.errors import InvalidDirective
from tests.fuzz import directives as fuzz
from tests.support.endpoints import endpoint, model, priced, snapshot


def offer(text: str, *, input_bytes: int = 0, of: dict[str, object] | None = None, **fields: object) -> bool:
    """Whether one endpoint with these fields satisfies every constraint of a text."""
    one = endpoint("e1", **fields)  # type: ignore[arg-type]
    seen = Offer(one, one.accounts[0], model("m", **(of or {})), input_bytes)
    return all(constraint.admits(seen) for constraint in parse(text).constraints)


def refused(text: str) -> str:
    """The message with which a text is refused."""
    with pytest.raises(InvalidDirective) as caught:
        parse(text)
    assert caught.value.status == 400 and caught.value.code == "invalid_directive"
    return caught.value.message


@pytest.mark.parametrize("text", ["", "  ", ",", " , ,"])
def test_an_empty_text_means_none(text: str) -> None:
    assert parse(text) is NONE and NONE.applied == ()


def test_every_directive_has_one_canonical_spelling() -> None:
    text = (
        " region = EU|us-east-1 , only=provider:acme,exclude=region:CN|model:a/b, require=e1,capability=tools|vision,data=no_training,"
        "max_cost_per_1k=0.0150,max_input_cost_per_1k=1,max_output_cost_per_1k=0,min_context=128K,min_reasoning=0.70,prefer=a|b|a,"
        "sort=cost,fallback=off,max_attempts=2,consistency=available"
    )

    assert parse(text).applied == (
        "region=eu|us-east-1", "only=provider:acme", "exclude=region:cn|model:a/b", "require=e1", "capability=tools|vision",
        "data=no_training", "max_cost_per_1k=0.015", "max_input_cost_per_1k=1", "max_output_cost_per_1k=0", "min_context=128000",
        "min_reasoning=0.7", "prefer=a|b", "sort=cost", "fallback=off", "max_attempts=2", "consistency=available",
    )  # fmt: skip
    assert parse("fallback=on").applied == ("fallback=on",)


def test_the_canonical_spelling_reads_back_as_the_same_directives() -> None:
    found = parse("region=EU,max_cost_per_1k=00.50,prefer=b|a,prefer=c,sort=health")

    assert parse(",".join(found.applied)) == found


@pytest.mark.parametrize(
    ("region", "asked", "fits"),
    [
        ("eu", "eu", True), ("eu-west-1", "eu", True), ("EU-central", "Eu", True), ("europe", "eu", False), ("", "eu", False),
        ("us-east-1", "eu|us-east", True), ("us-east-1", "us-east-1", True), ("us-east-10", "us-east-1", False), ("us", "us-east", False),
    ],
)  # fmt: skip
def test_a_region_matches_whole_or_up_to_a_hyphen(region: str, asked: str, fits: bool) -> None:
    assert offer(f"region={asked}", region=region) is fits


@pytest.mark.parametrize(
    ("selector", "fits"),
    [
        ("provider:acme", True), ("provider:other", False), ("endpoint:e1", True), ("endpoint:e2", False), ("account:a1", True),
        ("account:a2", False), ("region:eu", True), ("region:us", False), ("model:m", True), ("model:alias/m", True), ("model:x", False),
        ("provider:other|endpoint:e1", True),
    ],
)  # fmt: skip
def test_only_keeps_and_exclude_removes_what_is_selected(selector: str, fits: bool) -> None:
    seen = {"accounts": ["a1"], "region": "eu-west-1", "of": {"aliases": ("alias/m",)}}

    assert offer(f"only={selector}", **seen) is fits  # type: ignore[arg-type]
    assert offer(f"exclude={selector}", **seen) is not fits  # type: ignore[arg-type]


def test_a_repeated_hard_key_must_hold_each_time() -> None:
    assert offer("region=eu,region=eu-west", region="eu-west-1")
    assert not offer("region=eu,region=us", region="eu-west-1")
    assert parse("region=eu,region=EU").applied == ("region=eu",)


def test_require_names_a_provider_or_an_endpoint() -> None:
    assert offer("require=acme") and offer("require=e1") and not offer("require=e2")


@pytest.mark.parametrize(
    ("limit", "fits"),
    [
        ("max_cost_per_1k=0.01", True), ("max_cost_per_1k=0.009999", False), ("max_input_cost_per_1k=0.0025", True),
        ("max_input_cost_per_1k=0.002499999999999", False), ("max_output_cost_per_1k=0.01", True), ("max_output_cost_per_1k=0", False),
    ],
)  # fmt: skip
def test_a_cost_limit_is_compared_exactly(limit: str, fits: bool) -> None:
    assert offer(limit, price=priced(2.50, 10.00)) is fits


def test_an_unpriced_endpoint_satisfies_no_cost_limit() -> None:
    assert not offer("max_cost_per_1k=1000")
    assert not offer("max_cost_per_1k=1000", price=PriceList(Price(input=1)))
    assert offer("max_input_cost_per_1k=1000", price=PriceList(Price(input=1)))


def test_a_cost_limit_counts_the_dearer_tier_that_the_input_may_reach() -> None:
    price = PriceList(Price(1_000_000, 1_000_000), (PriceTier(200_000, Price(input=2_000_000)),))

    assert offer("max_cost_per_1k=0.001", price=price, input_bytes=200_000)
    assert not offer("max_cost_per_1k=0.001", price=price, input_bytes=200_001)


def test_a_context_window_that_is_not_known_is_not_large_enough() -> None:
    assert offer("min_context=128k", context_window=128_000)
    assert not offer("min_context=128001", context_window=128_000)
    assert not offer("min_context=1")


def test_a_capability_needs_the_model_and_the_endpoint() -> None:
    tools: dict[str, object] = {"capabilities": frozenset({"tools"})}

    assert offer("capability=tools", of=tools)
    assert offer("capability=vision|tools", of=tools, supports=frozenset({"tools"}))
    assert not offer("capability=tools", of=tools, supports=frozenset())
    assert not offer("capability=tools", supports=frozenset({"tools"}))


def test_a_score_that_is_not_known_is_not_high_enough() -> None:
    assert offer("min_coding=0.7", of={"scores": {"coding": 0.7}})
    assert not offer("min_coding=0.71", of={"scores": {"coding": 0.7}})
    assert not offer("min_coding=0")


def test_an_unknown_data_policy_satisfies_nothing() -> None:
    assert offer("data=no_training", trains_on_data=False) and not offer("data=no_training", trains_on_data=True)
    assert offer("data=zero_retention", retention_days=0) and not offer("data=zero_retention", retention_days=30)
    assert not offer("data=no_training|zero_retention")
    assert offer("data=no_training|zero_retention", retention_days=0)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("regoin=eu", "(did you mean region?)"),
        ("region", "is not key=value"),
        ("region=", "empty value"),
        ("region=eu|", "empty value"),
        ("region=e_u", "must be a region such as"),
        ("region=eu-", "must be a region such as"),
        ("only=acme", "provider:NAME"),
        ("only=provdier:acme", "(did you mean provider?)"),
        ("only=provider:", "provider:NAME"),
        ("exclude=provider:a b", "no catalog can have"),
        ("only=region:_", "must be a region such as"),
        ("require=a b", "must name a provider or an endpoint"),
        ("prefer=é", "must name a provider or an endpoint"),
        ("max_cost_per_1k=cheap", "plain decimal such as 0.015"),
        ("max_cost_per_1k=-1", "plain decimal"),
        ("max_cost_per_1k=1e-3", "plain decimal"),
        ("max_cost_per_1k=NaN", "plain decimal"),
        ("max_cost_per_1k=1|2", "takes one value"),
        ("min_context=0", "128k"),
        ("min_context=lots", "128k"),
        ("capability=tool", "(did you mean tools?)"),
        ("min_reasoning=1.1", "from 0 to 1"),
        ("data=no_trainning", "(did you mean no_training?)"),
        ("sort=costs", "(did you mean cost?)"),
        ("sort=cost|health", "takes one value"),
        ("sort=cost,sort=health", "contradicts sort=cost"),
        ("consistency=strict,consistency=available", "contradicts consistency=strict"),
        ("consistency=loose", "must be one of strict, available"),
        ("fallback=no", "must be one of on, off"),
        ("max_attempts=0", "from 1 to 999"),
        ("max_attempts=two", "from 1 to 999"),
        ("max_ttft_ms=0", "whole number of milliseconds above 0"),
        ("max_ttft_ms=1.5", "whole number of milliseconds above 0"),
        ("max_ttft_ms=1s", "whole number of milliseconds above 0"),
        ("min_tokens_per_s=0", "tokens per second above 0"),
        ("min_tokens_per_s=0.000", "tokens per second above 0"),
        ("min_tokens_per_s=-1", "tokens per second above 0"),
        ("min_tokens_per_s=1|2", "takes one value"),
        ("region=eu\x00", "control characters"),
        ("region=" + "e" * 5000, "longer than 4096"),
        (",".join(["region=eu"] * 65), "more than 64 directives"),
        ("region=" + "|".join(["eu"] * 65), "more than 64 alternatives"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_with_the_remedy(text: str, says: str) -> None:
    message = refused(text)

    assert message.startswith("x-n4n-routing: ") and says in message and len(message) < 1000 and message.isprintable()


def test_a_refusal_names_where_the_directive_came_from() -> None:
    with pytest.raises(InvalidDirective, match="the key's directives: 'sort=x'"):
        parse("sort=x", source="the key's directives")


@given(st.text(max_size=60) | st.lists(st.sampled_from([*KEYS, "=", ",", "|", ":", "eu", "1", "\x7f", "\ud800"])).map("".join))
def test_any_text_is_read_or_refused_in_one_printable_line(text: str) -> None:
    try:
        said = ",".join(parse(text).applied)
    except InvalidDirective as refusal:
        said = refusal.message
    else:
        assert parse(said) == parse(text)

    assert said.isprintable()


def test_the_simple_header_says_prefer_and_require() -> None:
    assert parse_simple("prefer:acme") == parse("prefer=acme")
    assert parse_simple("require:e1, prefer: acme") == parse("require=e1,prefer=acme")
    assert parse_simple("") is NONE


@pytest.mark.parametrize("text", ["acme", "avoid:acme", "prefer:", "require:a b", "prefer=acme"])
def test_the_simple_header_refuses_the_rest(text: str) -> None:
    with pytest.raises(InvalidDirective, match="x-routing-directive: "):
        parse_simple(text)


def test_of_two_sets_hard_ones_add_up_and_the_inner_likings_win() -> None:
    outer = parse("region=eu,prefer=a,sort=cost,fallback=off,max_attempts=3,consistency=strict")
    inner = parse("region=eu-west,prefer=b,sort=health,fallback=on,max_attempts=5,consistency=available")

    assert combine(outer, inner).applied == (
        "region=eu", "region=eu-west", "prefer=b", "sort=health", "fallback=off", "max_attempts=3", "consistency=strict",
    )  # fmt: skip


def test_what_only_one_of_two_sets_says_holds() -> None:
    one = parse("region=eu,prefer=a,sort=cost,fallback=on,max_attempts=3,consistency=available")

    for both in (combine(one, parse("region=eu")), combine(parse("region=eu"), one)):
        assert both == one
    assert combine(NONE, one) is one and combine(one, NONE) is one


def test_a_set_knows_which_keys_were_given() -> None:
    found = parse("region=eu,sort=cost")

    assert found.names_key("region") and found.names_key("sort") and not found.names_key("only")


HELD = snapshot([endpoint("e1", provider="acme", accounts=["main"])], [model("m", aliases=("alias/m",))])


@pytest.mark.parametrize(
    "text",
    [
        "require=e1|acme",
        "prefer=acme",
        "only=provider:acme|endpoint:e1|account:main|model:m|model:alias/m|region:xx",
        "region=xx,exclude=endpoint:e1",
    ],
)
def test_names_that_the_catalog_holds_pass(text: str) -> None:
    check_names(parse(text), HELD)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("require=acmee", "(did you mean acme?)"), ("prefer=e11", "(did you mean e1?)"), ("only=provider:acne", "(did you mean acme?)"),
        ("exclude=endpoint:e11", "(did you mean e1?)"), ("only=account:mian", "(did you mean main?)"), ("exclude=model:x", "no model"),
    ],
)  # fmt: skip
def test_a_name_that_the_catalog_does_not_hold_is_refused_with_the_nearest(text: str, says: str) -> None:
    with pytest.raises(InvalidDirective) as caught:
        check_names(parse(text), HELD)

    assert says in caught.value.message and caught.value.param == "x-n4n-routing"


def test_the_provider_object_means_the_same_things() -> None:
    found = from_provider_object(
        {
            "order": ["a", "b"], "only": ["a", "b", "c"], "ignore": ["c"], "allow_fallbacks": True, "data_collection": "deny",
            "sort": "price", "max_price": {"prompt": 1, "completion": "2.5"},
            "quantizations": ["FP8", "unknown"], "require_parameters": True,
        }
    )  # fmt: skip

    assert found.applied == (
        "only=provider:a|provider:b|provider:c", "exclude=provider:c", "data=no_training", "max_input_cost_per_1k=0.001",
        "max_output_cost_per_1k=0.0025", "quantization=fp8|unknown", "prefer=a", "prefer=b", "sort=cost", "fallback=on",
        "require_parameters=on",
    )  # fmt: skip


@pytest.mark.parametrize("raw", [None, {}, {"order": None}, {"data_collection": "allow"}, {"require_parameters": False}])
def test_a_provider_object_that_asks_nothing_is_none(raw: object) -> None:
    assert from_provider_object(raw) == NONE


def test_without_fallbacks_only_the_ordered_ones_may_serve() -> None:
    ordered = from_provider_object({"order": ["a", "b"], "allow_fallbacks": False})

    assert ordered.applied == ("require=a|b", "prefer=a", "prefer=b")
    assert from_provider_object({"allow_fallbacks": False}) == Directives(fallback=False)


def test_a_quantization_is_compared_without_case_and_may_be_unknown() -> None:
    constraint = from_provider_object({"quantizations": ["fp8", "unknown"]}).constraints[0]
    offers = [endpoint("e1", quantization=quantization) for quantization in ("FP8", None, "int4")]

    assert [constraint.admits(Offer(one, one.accounts[0], model())) for one in offers] == [True, True, False]


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        ([], "must be an object, not a list"),
        ({"olny": ["a"]}, "(did you mean only?)"),
        ({"only": "a"}, "list of 1 to 64 names"),
        ({"only": []}, "list of 1 to 64 names"),
        ({"only": [1]}, "list of 1 to 64 names"),
        ({"ignore": ["a"] * 65}, "list of 1 to 64 names"),
        ({"only": ["a" * 4000, "b" * 97]}, "longer than 4096 characters"),
        ({"order": ["a b"]}, "must name"),
        ({"allow_fallbacks": "no"}, "true or false"),
        ({"require_parameters": 1}, "true or false"),
        ({"data_collection": ["deny"]}, "allow or deny"),
        ({"sort": {"by": "price"}}, "one word"),
        ({"sort": "prices"}, "must be one of"),
        ({"max_price": 1}, "must be an object with prompt and completion"),
        ({"max_price": {}}, "must be an object with prompt and completion"),
        ({"max_price": {"image": 1}}, "may hold only prompt and completion, not image"),
        ({"max_price": {"prompt": -1}}, "0 or more"),
        ({"max_price": {"prompt": "x"}}, "0 or more"),
        ({"max_price": {"prompt": "1e-20"}}, "plain decimal"),
        ({"quantizations": ["f p"]}, "must name"),
    ],
)
def test_a_provider_object_that_cannot_be_read_is_refused(raw: object, says: str) -> None:
    with pytest.raises(InvalidDirective) as caught:
        from_provider_object(raw)

    assert caught.value.message.startswith("provider: ") and says in caught.value.message


@given(st.decimals(0, 1000, places=6), st.integers(0, 10**9))
def test_a_cost_limit_holds_exactly_when_the_price_is_not_above_it(limit: Decimal, pico: int) -> None:
    price = PriceList(Price(pico, pico))

    assert offer(f"max_cost_per_1k={limit:f}", price=price) is (Decimal(pico) * 1000 / 10**12 <= limit)


def test_what_is_measured_has_a_canonical_spelling_and_the_stricter_of_two_holds() -> None:
    key, asked = parse("max_ttft_ms=800,min_tokens_per_s=40.50"), parse("max_ttft_ms=900,min_tokens_per_s=50,region=eu")

    assert key.applied == key.measured == ("max_ttft_ms=800", "min_tokens_per_s=40.5")
    assert combine(key, asked).applied == ("region=eu", "max_ttft_ms=800", "min_tokens_per_s=50")
    assert parse("min_tokens_per_s=1").measured == ("min_tokens_per_s=1",)


# The grammar, whatever is put together of it.

PAIRS = {
    "region": ["eu", "us-east-1"], "only": ["provider:a", "region:eu", "model:m"], "exclude": ["endpoint:e", "account:x"],
    "require": ["a", "e1"], "capability": ["tools", "vision"], "data": ["no_training", "zero_retention"], "prefer": ["a", "b"],
    "max_cost_per_1k": ["0.015", "1"], "max_input_cost_per_1k": ["0.1"], "max_output_cost_per_1k": ["2"], "min_context": ["128k", "1"],
    "min_reasoning": ["0.7"], "min_coding": ["1"], "min_multilingual": ["0"], "sort": ["cost", "health"], "fallback": ["on", "off"],
    "max_attempts": ["1", "9"], "consistency": ["strict", "available"], "max_ttft_ms": ["1", "800"], "min_tokens_per_s": ["1", "40.5"],
}  # fmt: skip
MANY = frozenset(("region", "only", "exclude", "require", "capability", "data", "prefer"))  # these take alternatives
SPACE = st.sampled_from(["", " ", "  "])


@st.composite
def texts(draw: st.DrawFn) -> str:
    """A well-formed header, spaced as people do; what can only be one thing is given once."""
    keys = draw(st.lists(st.sampled_from(sorted(PAIRS)), max_size=8, unique=True))
    keys += draw(st.lists(st.sampled_from(sorted(MANY)), max_size=3))
    parts = []
    for key in keys:
        words = draw(st.lists(st.sampled_from(PAIRS[key]), min_size=1, max_size=3 if key in MANY else 1))
        parts.append(f"{draw(SPACE)}{key}{draw(SPACE)}={draw(SPACE)}{'|'.join(words)}{draw(SPACE)}")
    return ",".join(parts)


def test_every_directive_of_the_grammar_is_in_its_table() -> None:
    assert PAIRS.keys() == set(KEYS)


@given(texts())
def test_every_well_formed_text_is_read_and_its_canonical_spelling_means_the_same(text: str) -> None:
    found = parse(text)

    assert parse(",".join(found.applied)) == found
    assert all(found.names_key(part.partition("=")[0].strip()) for part in text.split(",") if part)


@given(texts(), texts(), texts())
def test_whoever_adds_directives_only_narrows(first: str, second: str, third: str) -> None:
    one, two, three = parse(first), parse(second), parse(third)
    both = combine(one, two)

    assert set(both.constraints) == {*one.constraints, *two.constraints}
    assert both.fallback is not True or False not in (one.fallback, two.fallback)
    assert both.max_attempts == min((n for n in (one.max_attempts, two.max_attempts) if n is not None), default=None)
    assert both.consistency != "available" or "strict" not in (one.consistency, two.consistency)
    assert combine(both, three).constraints == combine(one, combine(two, three)).constraints


@given(texts(), st.data())
def test_one_wrong_character_in_a_key_is_refused_and_never_ignored(text: str, data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(sorted(PAIRS)))
    at = data.draw(st.integers(0, len(key) - 1))
    misspelt = key[:at] + key[at + 1 :]
    wrong = f"{misspelt}={PAIRS[key][0]}"

    for whole in (f"{text},{wrong}", f"{wrong},{text}"):
        with pytest.raises(InvalidDirective):
            parse(whole)


@given(
    st.binary(max_size=80)
    | st.sampled_from(fuzz.SEEDS).flatmap(lambda seed: st.integers(0, len(seed)).map(lambda at: seed[:at] + seed[at + 1 :]))
)
def test_the_fuzz_target_holds(raw: bytes) -> None:
    fuzz.one_input(raw)
