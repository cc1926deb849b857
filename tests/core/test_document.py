"""The catalog document: every fault at once, each by its field's path; and a normal form that reading again does not change."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from n4n.core import schema
from n4n.core.document import canonical_json, differences, parse_document, removed_too_much
from n4n.core.errors import CatalogRefused, Problem
from tests.support.catalogs import FULL, SMALL, changed, documents


def problems_of(raw: object) -> list[str]:
    return [str(problem) for problem in parse_document(raw)[1]]


def nested(levels: int) -> dict[str, object]:
    value: dict[str, object] = {}
    for _ in range(levels):
        value = {"a": value}
    return value


def test_a_document_that_uses_every_field_is_good() -> None:
    document, problems = parse_document(FULL)

    assert problems == []
    assert document["models"]["large"]["context_window"] == 128_000
    assert document["endpoints"]["acme-large"]["price"] == {
        "input_per_1m": "2.5",
        "output_per_1m": "10",
        "cached_input_per_1m": "1.25",
        "cache_write_per_1m": "3.75",
        "cache_write_1h_per_1m": "6",
        "tiers": [{"above_input_tokens": 400_000, "input_per_1m": "9"}, {"above_input_tokens": 200_000, "input_per_1m": "5"}],
    }


def test_sections_and_fields_may_be_absent_or_empty() -> None:
    assert parse_document({}) == ({"providers": {}, "accounts": {}, "models": {}, "endpoints": {}, "tiers": {}}, [])
    assert problems_of({"models": None, "tiers": {}}) == []
    assert problems_of(changed(SMALL, "models", "small", "context_window", to=None)) == []


@settings(max_examples=50)
@given(documents())
def test_reading_a_normal_form_again_changes_nothing(raw: object) -> None:
    document, problems = parse_document(raw)

    assert problems == []
    assert parse_document(document) == (document, [])
    assert canonical_json(parse_document(document)[0]) == canonical_json(document)


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6) | st.binary(max_size=3) | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6) | st.integers() | st.none(), inner, max_size=3),
    max_leaves=10,
)


@given(
    section=st.sampled_from(["providers", "accounts", "models", "endpoints", "tiers"]),
    field=st.sampled_from(
        ["base_url", "headers", "vars", "limits", "credential", "capabilities", "retry", "aliases", "price", "supports", "body", "data"]
    ),
    value=json_like,
)
def test_whatever_stands_in_a_document_becomes_problems_and_never_an_exception(section: str, field: str, value: object) -> None:
    for raw in (value, {section: value}, {section: {"x": value}}, {section: {"x": {field: value}}}):
        document, problems = parse_document(raw)
        assert problems or parse_document(document) == (document, [])
        assert all("\n" not in str(problem) for problem in problems)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (None, "the catalog must be a map with providers, accounts, models, endpoints, tiers, not nothing"),
        ([], "the catalog must be a map with providers, accounts, models, endpoints, tiers, not a list"),
        ({"modles": {}}, "modles: unknown section (did you mean models?); known: providers, accounts, models, endpoints, tiers"),
        ({"models": []}, "models: must be a map from names, not a list"),
        ({"models": {"a b": {}}}, "models.a b: is not a name; use letters, digits, dot, underscore and hyphen"),
        ({"models": {"a": 1}}, "models.a: must be a map of fields, not a number"),
        ({"models": {"a": {"contxt_window": 1}}}, "models.a.contxt_window: unknown field (did you mean context_window?)"),
        ({"models": {"a": {"context_window": 0}}}, "models.a.context_window: must be a whole number of tokens from 1 to 1000000000, not 0"),
        ({"models": {"a": {"capabilities": {"reasoning": 2}}}}, "models.a.capabilities.reasoning: must be a number from 0 to 1, not 2"),
        ({"models": {"a": {"capabilities": {"tols": True}}}}, "models.a.capabilities.tols: unknown field (did you mean tools?)"),
        ({"models": {"a": {"capabilities": [1]}}}, "models.a.capabilities: must be a map of capabilities, not a list"),
        ({"models": {"a": {"retry": {"retry_on": ["4xx"]}}}}, "models.a.retry.retry_on[0]: must be one of rate_limited"),
        (
            {"models": {"a": {"retry": {"by_class": {"timeout": {"max_retries": -1}}}}}},
            "models.a.retry.by_class.timeout.max_retries: must be a whole number",
        ),
        ({"models": {"a": {"substitutes": ["a"]}}}, "models.a.substitutes[0]: a model cannot stand in for itself"),
        ({"models": {"a": {"substitutes": ["b"]}}}, "models.a.substitutes[0]: there is no model named b"),
        ({"models": {"a": {"aliases": ["tier/x"]}}}, "models.a.aliases[0]: must not begin with tier/, which names tiers"),
        ({"models": {"a": {"aliases": ["b"]}, "b": {}}}, "models.a.aliases[0]: b is already taken by models.b"),
        ({"models": {"a": {"aliases": ["c"]}, "b": {"aliases": ["c"]}}}, "models.b.aliases[0]: c is already taken by models.a.aliases[0]"),
        ({"models": {"a": {"aliases": ["c d"]}}}, "models.a.aliases[0]: must be an alias"),
        (
            {"models": {"a": {"timeouts": {"total_ms": float("nan")}}}},
            "models.a.timeouts.total_ms: must be a whole number of milliseconds from 1 to 86400000, not nan",
        ),
        ({"tiers": {"t": {}}}, "tiers.t.chain: is missing; it is required"),
        ({"tiers": {"t": {"chain": []}}}, "tiers.t.chain: must name at least 1"),
        ({"tiers": {"t": {"chain": ["m"]}}}, "tiers.t.chain[0]: there is no model named m"),
        ({"tiers": {"t": {"chain": ["tier/u"]}}}, "tiers.t.chain[0]: there is no tier named u"),
        ({"tiers": {"t": {"chain": ["tier/t"]}}}, "tiers.t.chain: is a cycle: it leads back to tier/t"),
        ({"providers": {"p": {"dialect": "openay", "base_url": "https://a.example"}}}, "providers.p.dialect: must be one of openai"),
        ({"providers": {"p": {"dialect": "openai"}}}, "providers.p.base_url: is missing; it is required"),
        ({"accounts": {"a": {"provider": "p"}}}, "accounts.a.provider: there is no provider named p"),
    ],
)
def test_a_bad_document_is_refused_by_the_path_of_the_field(raw: object, said: str) -> None:
    assert [problem for problem in problems_of(raw) if problem.startswith(said)], problems_of(raw)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (
            ("providers", "acme", "base_url"),
            "http://127.0.0.1",
            "is a loopback, link-local or private address; set allow_private: true on the provider to allow it",
        ),
        (("providers", "acme", "base_url"), "https://{location}.acme.example", "holds {location} but vars has no location"),
        (("providers", "acme", "base_url"), 5, "must be text, not a number"),
        (("providers", "acme", "vars"), {"location": "a/b"}, None),
        (("accounts", "acme-main", "limits"), {"rpm": 0}, None),
        (("endpoints", "acme-small", "account"), "acme-mian", "there is no account named acme-mian (did you mean acme-main?)"),
        (("endpoints", "acme-small", "account"), 5, "must be a name (letters, digits, dot, underscore, hyphen), not 5"),
        (("endpoints", "acme-small", "account"), ..., "is missing; name an account, or several in accounts"),
        (("endpoints", "acme-small", "accounts"), ["acme-main"], "give account or accounts, not both"),
        (("endpoints", "acme-small", "model"), "smal", "there is no model named smal (did you mean small?)"),
        (("endpoints", "acme-small", "region"), "EU", "must be lower-case letters, digits and hyphens, not 'EU'"),
        (("endpoints", "acme-small", "weight"), -1, "must be a number from 0 to 1e+06, not -1"),
        (("endpoints", "acme-small", "data"), {"retention": "٣d"}, None),
        (("endpoints", "acme-small", "body"), [], "must be a map merged into requests, not a list"),
        (("endpoints", "acme-small", "body"), {"a": float("nan")}, "must hold only what JSON can say (no dates, no NaN)"),
        (("endpoints", "acme-small", "body"), {"a": {1, 2}}, "must hold only what JSON can say (no dates, no NaN)"),
        (("endpoints", "acme-small", "body"), {"a": "\ud800"}, "must hold only what JSON can say (no dates, no NaN)"),
        (("endpoints", "acme-small", "body"), nested(65), "must not nest deeper than 64 levels"),
        (("endpoints", "acme-small", "body"), nested(5_000), "must hold only what JSON can say (no dates, no NaN)"),
        (("endpoints", "acme-small", "body"), nested(100_000), "must not hold more than 10000 values, aliases written out"),
        (("endpoints", "acme-small", "price"), {"input_per_1m": -1}, None),
    ],
)
def test_a_bad_field_yields_one_problem_with_its_path(path: tuple[str, ...], value: object, said: str | None) -> None:
    problems = parse_document(changed(SMALL, *path, to=value))[1]

    assert len(problems) == 1 and problems[0].field.startswith(".".join(path))
    assert said is None or problems[0].message == said


def test_a_tier_of_prices_begins_where_no_other_does() -> None:
    price = {"tiers": [{"above_input_tokens": 1000, "input_per_1m": 1}, {"above_input_tokens": "1k", "input_per_1m": 2}]}

    problems = parse_document(changed(SMALL, "endpoints", "acme-small", "price", to=price))[1]

    assert problems == [Problem("endpoints.acme-small.price.tiers[1].above_input_tokens", "two tiers begin above 1000 tokens")]


def test_the_accounts_of_a_pool_are_of_one_provider() -> None:
    raw = changed(FULL, "endpoints", "acme-large", "accounts", to=["acme-main", "house", "nobody"])

    assert problems_of(raw) == [
        "endpoints.acme-large.accounts[2]: there is no account named nobody",
        "endpoints.acme-large.accounts: must all be of one provider",
    ]


def test_an_unreadable_pool_is_one_problem_and_not_a_missing_account_too() -> None:
    raw = changed(changed(SMALL, "endpoints", "acme-small", "account", to=...), "endpoints", "acme-small", "accounts", to=[])

    assert problems_of(raw) == ["endpoints.acme-small.accounts: must name at least 1"]


def test_providers_and_endpoints_share_one_namespace() -> None:
    raw = changed(SMALL, "endpoints", "acme", to=SMALL["endpoints"]["acme-small"])

    assert problems_of(raw) == ["endpoints.acme: a provider has this name; providers and endpoints share one namespace"]


def test_cycles_are_found_by_way_of_other_tiers_and_deep_nesting_is_no_cycle() -> None:
    circle = {"a": {"chain": ["tier/b"]}, "b": {"chain": ["small", "tier/c"]}, "c": {"chain": ["tier/a"]}, "d": {"chain": ["tier/a"]}}
    deep = {f"t{n}": {"chain": [f"tier/t{n + 1}"]} for n in range(300)} | {"t300": {"chain": ["small"]}}

    assert [problem.field for problem in parse_document({**SMALL, "tiers": circle})[1]] == [
        "tiers.a.chain",
        "tiers.b.chain",
        "tiers.c.chain",
    ]
    assert problems_of({**SMALL, "tiers": deep}) == []


@pytest.mark.parametrize(
    "credential", ["sk-live-canary", "env:", "env:1A", "env:A-B", "file:", "file:/a\nb", "file:/a\ud800", "Stored", 5, ["env:A"]]
)
def test_a_credential_says_where_the_key_is_and_a_key_itself_is_never_repeated(credential: object) -> None:
    problems = problems_of(changed(SMALL, "accounts", "acme-main", "credential", to=credential))

    assert problems == ["accounts.acme-main.credential: must be env:NAME, file:PATH or stored; a key itself never stands in the catalog"]


@pytest.mark.parametrize("credential", ["env:A_KEY", "file:/run/secrets/a key", "file:keys/é", "stored"])
def test_a_credential_is_a_variable_a_file_or_stored(credential: str) -> None:
    assert problems_of(changed(SMALL, "accounts", "acme-main", "credential", to=credential)) == []


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({"Authorization": "Bearer x"}, ["Authorization: is not a header that a provider entry may set"]),
        (
            {"x-api-key": "x", "bad header": "y"},
            ["x-api-key: is not a header that a provider entry may set", "bad header: is not a header that a provider entry may set"],
        ),
        ({"x-a": "é"}, ["x-a: must be ASCII text"]),
        ({"x-a": "1", "X-A": "2"}, ["X-A: stands twice; header names do not tell capitals apart"]),
        ({"x-a": "a\r\nb: c"}, ["x-a: must not hold control characters"]),
    ],
)
def test_a_providers_headers_carry_no_key_and_break_no_request(headers: object, said: list[str]) -> None:
    assert problems_of(changed(SMALL, "providers", "acme", "headers", to=headers)) == [f"providers.acme.headers.{text}" for text in said]


def test_every_problem_is_told_at_once_in_the_documents_order() -> None:
    raw = changed(changed(SMALL, "providers", "acme", "dialect", to="x"), "endpoints", "acme-small", "model", to="y")

    refused = CatalogRefused(parse_document(changed(raw, "models", "small", "strategy", to="z"))[1])

    assert [problem.field for problem in refused.problems] == [
        "providers.acme.dialect",
        "models.small.strategy",
        "endpoints.acme-small.model",
    ]
    assert str(refused).count("; ") >= 2


def test_the_shrink_guard_names_what_would_go() -> None:
    before = parse_document(FULL)[0]

    assert removed_too_much(before, before) == []
    assert removed_too_much(before, parse_document(SMALL)[0]) == [
        Problem("endpoints", "would remove 2 of 2 endpoints; if that is meant, pass --allow-shrink"),
        Problem("models.large", "would lose its last endpoint; if that is meant, pass --allow-shrink"),
    ]
    one_of_four = {**before, "endpoints": {f"e{n}": {"model": "large"} for n in range(4)}}
    assert removed_too_much(one_of_four, {**before, "endpoints": {f"e{n}": {"model": "large"} for n in range(2)}}) == []


def test_a_difference_is_told_per_leaf_by_its_path() -> None:
    before = parse_document(FULL)[0]
    after = parse_document(changed(changed(FULL, "endpoints", "acme-large", "price", "input_per_1m", to=3), "models", "new", to={}))[0]

    assert list(differences(before, after)) == [("endpoints.acme-large.price.input_per_1m", '"2.5"', '"3"'), ("models.new", "", "{}")]
    assert list(differences(after, before)) == [("endpoints.acme-large.price.input_per_1m", '"3"', '"2.5"'), ("models.new", "{}", "")]
    assert list(differences(before, before)) == []


def test_true_one_and_one_point_zero_are_three_values_in_a_body() -> None:
    assert list(differences({"body": {"a": 1}}, {"body": {"a": True}})) == [("body.a", "1", "true")]
    assert list(differences({"body": {"a": 1}}, {"body": {"a": 1.0}})) == [("body.a", "1", "1.0")]
    assert list(differences({"body": {"a": [1]}}, {"body": [1]})) == [("body", '{"a":[1]}', "[1]")]


def test_a_body_of_aliases_upon_aliases_is_refused_before_it_is_written_out():
    bomb: object = "x"
    for _ in range(12):
        bomb = [bomb] * 12
    document = copy.deepcopy(SMALL)
    document["endpoints"]["acme-small"]["body"] = {"bomb": bomb}
    _, problems = parse_document(document)
    assert [str(problem) for problem in problems] == [
        "endpoints.acme-small.body: must not hold more than 10000 values, aliases written out"
    ]


@pytest.mark.parametrize(
    ("told", "read"), [(0, 0.0), (0.0, 0.0), (1, 1.0), (604_800, 604_800.0), (0.5, None), (-1, None), (False, None), ("0", None)]
)
def test_deeper_checks_are_a_second_apart_or_there_are_none(told: object, read: float | None) -> None:
    document, problems = parse_document({"models": {"m": {"probe": {"checks_interval_sec": told}}}})

    assert [problem.message for problem in problems] == (
        [] if read is not None else [f"must be a number of seconds, or 0 for none, from 1 to 604800, not {schema.shown(told)}"]
    )
    if read is not None:
        assert document["models"]["m"]["probe"] == {"checks_interval_sec": read}
