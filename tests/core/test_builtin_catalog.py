"""The catalogs that come with n4n: valid as a whole and in every part that keys enable, and true to where their data stay."""

from collections.abc import Mapping
from decimal import Decimal

import pytest

from n4n.catalogs import builtin_document, sim_document
from n4n.catalogs.builtin import whole_document
from n4n.core.catalog import PICO, compile_snapshot
from n4n.core.document import DIALECTS, Document, parse_document
from n4n.core.probes.work import work_of

PORTS = {"sim-east": 20101, "sim-west": 20102, "sim-eu": 20103}
EVERYTHING = {str(account["credential"]).removeprefix("env:"): "k" for account in whole_document()["accounts"].values()} | {
    "AZURE_OPENAI_RESOURCE": "one",
    "AZURE_OPENAI_RESOURCE_US": "two",
    "AZURE_OPENAI_RESOURCE_EU": "three",
    "AZURE_FOUNDRY_RESOURCE": "four",
    "AWS_REGION": "us-east-1",
    "VERTEX_LOCATION": "us-east5",
    "VERTEX_PROJECT": "five",
}


def providers_of(document: Document) -> set[object]:
    return {document["accounts"][str(endpoint["account"])]["provider"] for endpoint in document["endpoints"].values()}


def regions_of(document: Document, provider: str) -> set[object]:
    return {endpoint["region"] for endpoint in document["endpoints"].values() if endpoint["account"] == f"{provider}-main"}


# --- the whole of it ---


def test_the_whole_built_in_catalog_is_a_valid_document() -> None:
    document, problems = parse_document(whole_document())

    assert problems == []
    assert (len(document["models"]), len(document["endpoints"])) == (59, 172)
    snapshot = compile_snapshot(document, version=1, checksum="")
    assert all(snapshot.by_model.values())
    assert snapshot.resolve("openai/gpt-4o").models == ("gpt-4o",)


def test_every_endpoint_has_a_price_a_region_and_features() -> None:
    for name, endpoint in whole_document()["endpoints"].items():
        price = endpoint["price"]
        assert isinstance(price, dict), name
        assert Decimal(str(price["input_per_1m"])) > 0, name
        assert (Decimal(str(price["output_per_1m"])) > 0) == (endpoint["supports"] != ["embeddings"]), name
        assert Decimal(str(price.get("cached_input_per_1m", 0))) <= Decimal(str(price["input_per_1m"])), name
        assert endpoint["region"] in ("global", "us", "eu", "cn"), name
        assert "supports" in endpoint, name


def test_probes_of_every_provider_are_cheap_and_reasoning_models_are_asked_for_what_they_do_not_refuse() -> None:
    snapshot = compile_snapshot(parse_document(whole_document())[0], version=1, checksum="")

    assert {provider.probe_budget_pico for provider in snapshot.providers.values()} == {PICO // 10}
    assert {name for name, model in snapshot.models.items() if model.probe.max_tokens == 16} == {
        "o3", "gpt-5", "gpt-5-mini", "gpt-5.4", "gpt-5.6", "gpt-6-sol", "gpt-6-luna",
    }  # fmt: skip
    assert {model.probe.max_tokens for model in snapshot.models.values()} == {1, 16}


def test_every_dialect_has_a_provider() -> None:
    assert {str(provider["dialect"]) for provider in whole_document()["providers"].values()} == set(DIALECTS)


def test_what_only_the_responses_api_can_do_has_an_endpoint_that_is_asked_last_for_everything_else() -> None:
    endpoints = whole_document()["endpoints"]
    there = {name: one for name, one in endpoints.items() if one["account"] == "openai-responses-main"}

    for name, one in there.items():
        elsewhere = [other for other in endpoints.values() if other["model"] == one["model"] and other not in there.values()]
        assert one.get("weight") == (0 if elsewhere else None), name
    assert {one["model"] for one in there.values()} >= {"gpt-5.3-codex", "gpt-5.5-pro", "gpt-6-sol"}


@pytest.mark.parametrize(
    ("endpoint", "price"),
    [
        (
            "openai-gpt-4o",
            {
                "input_per_1m": 2.5,
                "output_per_1m": 10,
                "cached_input_per_1m": 1.25,
                "service_tiers": {"priority": {"input_per_1m": 4.25, "output_per_1m": 17, "cached_input_per_1m": 2.125}},
            },
        ),
        ("azure-eu-gpt-4o", {"input_per_1m": 2.75, "output_per_1m": 11, "cached_input_per_1m": 1.375, "cache_write_per_1m": 1.38}),
        (
            "anthropic-claude-haiku-4-5",
            {
                "input_per_1m": 1,
                "output_per_1m": 5,
                "cached_input_per_1m": 0.1,
                "cache_write_per_1m": 1.25,
                "cache_write_1h_per_1m": 2,
            },
        ),
        ("deepinfra-llama-3.3-70b-instruct", {"input_per_1m": 0.23, "output_per_1m": 0.4}),
        ("mistral-ministral-8b", {"input_per_1m": 0.15, "output_per_1m": 0.15, "cached_input_per_1m": 0.015}),
        (
            "xai-grok-4.7",
            {
                "input_per_1m": 2,
                "output_per_1m": 6,
                "cached_input_per_1m": 0.5,
                "tiers": [{"above_input_tokens": 200000, "input_per_1m": 4, "output_per_1m": 12, "cached_input_per_1m": 1}],
            },
        ),
    ],
)
def test_prices_are_those_of_the_source(endpoint: str, price: Mapping[str, object]) -> None:
    assert whole_document()["endpoints"][endpoint]["price"] == price


# --- what keys enable ---


def test_without_a_key_nothing_is_enabled_and_nothing_is_wrong() -> None:
    document, notes = builtin_document({"PATH": "/bin", "OPENAI_API_KEY": ""})

    assert document == {"providers": {}, "accounts": {}, "models": {}, "endpoints": {}, "tiers": {}}
    assert notes == []


def test_one_key_enables_one_provider_and_the_models_it_serves() -> None:
    document, notes = builtin_document({"OPENAI_API_KEY": "sk-secret"})

    assert parse_document(document)[1] == []
    ours = {"openai", "openai-responses"}
    assert (set(document["providers"]), providers_of(document), notes) == (ours, ours, [])
    assert document["accounts"] == {f"{name}-main": {"provider": name, "credential": "env:OPENAI_API_KEY"} for name in ours}
    assert {endpoint["model"] for endpoint in document["endpoints"].values()} == set(document["models"])
    assert "sk-secret" not in str(document)


def test_with_every_key_the_document_is_valid_and_complete_where_its_data_may_lie() -> None:
    document, notes = builtin_document(EVERYTHING)

    assert parse_document(document)[1] == []
    assert notes == ["openrouter is enabled, but the built-in catalog has no endpoint for it: add some with n4n catalog apply"]
    assert set(document["providers"]) == set(whole_document()["providers"])
    assert providers_of(document) == set(document["providers"]) - {"openrouter"}


@pytest.mark.parametrize("variable", sorted(variable for variable in EVERYTHING if "KEY" in variable or "TOKEN" in variable))
def test_each_key_alone_leads_to_a_valid_document_or_a_note(variable: str) -> None:
    document, notes = builtin_document({variable: "k"})

    assert parse_document(document)[1] == []
    assert bool(document["endpoints"]) != bool(notes)
    assert all(f"{variable} is set but " in note or note.startswith("openrouter is enabled, but") for note in notes)


def test_other_usual_names_of_a_variable_count_and_stand_in_the_account() -> None:
    document, _ = builtin_document({"GOOGLE_API_KEY": "k", "AWS_BEARER_TOKEN_BEDROCK": "k", "AWS_DEFAULT_REGION": "eu-west-1"})

    assert document["accounts"]["gemini-main"]["credential"] == "env:GOOGLE_API_KEY"
    assert document["providers"]["bedrock"]["vars"] == {"aws_region": "eu-west-1"}


def test_vars_are_filled_from_the_environment() -> None:
    environ = {"AZURE_OPENAI_API_KEY": "k", "AZURE_OPENAI_ENDPOINT": "https://my-team.openai.azure.com/"}
    by_url, _ = builtin_document(environ)
    by_name, _ = builtin_document(environ | {"AZURE_OPENAI_RESOURCE": "other"})

    assert by_url["providers"]["azure"]["vars"] == {"resource": "my-team"}
    assert by_name["providers"]["azure"]["vars"] == {"resource": "other"}


@pytest.mark.parametrize(
    ("environ", "note"),
    [
        ({"AZURE_OPENAI_API_KEY": "k"}, "azure is left out: AZURE_OPENAI_API_KEY is set but AZURE_OPENAI_RESOURCE is not"),
        (
            {"AZURE_OPENAI_API_KEY": "k", "AZURE_OPENAI_ENDPOINT": "https://proxy.example/"},
            "azure is left out: AZURE_OPENAI_API_KEY is set but AZURE_OPENAI_RESOURCE is not",
        ),
        (
            {"AWS_BEARER_TOKEN_BEDROCK": "k", "AWS_REGION": "us east/1"},
            "bedrock is left out: AWS_REGION must hold only letters, digits, dots, underscores and hyphens",
        ),
    ],
)
def test_a_provider_that_lacks_more_than_its_key_is_left_out_and_named(environ: Mapping[str, str], note: str) -> None:
    document, notes = builtin_document(environ)

    assert notes == [note]
    assert (document["providers"], document["accounts"], document["models"]) == ({}, {}, {})


def test_vertex_takes_the_file_that_the_machine_has() -> None:
    document, _ = builtin_document({"GOOGLE_APPLICATION_CREDENTIALS": "/key.json", "GOOGLE_CLOUD_PROJECT": "p"})

    assert document["accounts"]["vertex-main"]["credential"] == "env:GOOGLE_APPLICATION_CREDENTIALS"


def test_a_provider_that_lacks_two_vars_names_both() -> None:
    _, notes = builtin_document({"VERTEX_ACCESS_TOKEN": "k"})

    assert notes == [
        "vertex is left out: VERTEX_ACCESS_TOKEN is set but VERTEX_PROJECT is not",
        "vertex-openai is left out: VERTEX_ACCESS_TOKEN is set but VERTEX_PROJECT and VERTEX_LOCATION are not",
    ]


@pytest.mark.parametrize(
    ("place", "regions"),
    [("us-east-1", {"us", "global"}), ("eu-central-1", {"eu", "global"}), ("ap-northeast-1", {"global"})],
)
def test_an_endpoint_is_never_said_to_lie_where_its_provider_does_not_work(place: str, regions: set[str]) -> None:
    document, _ = builtin_document({"AWS_BEARER_TOKEN_BEDROCK": "k", "AWS_REGION": place})

    assert regions_of(document, "bedrock") == regions


def test_data_zones_of_azure_have_their_own_resources() -> None:
    document, _ = builtin_document({"AZURE_OPENAI_API_KEY_EU": "k", "AZURE_OPENAI_RESOURCE_EU": "zone"})

    assert set(document["providers"]) == {"azure-eu"}
    assert regions_of(document, "azure-eu") == {"eu"}


def test_a_european_location_leaves_nothing_that_claims_to_be_in_the_us() -> None:
    document, _ = builtin_document({"VERTEX_ACCESS_TOKEN": "k", "VERTEX_PROJECT": "p", "VERTEX_LOCATION": "europe-west1"})

    assert regions_of(document, "vertex") == {"global"}
    assert regions_of(document, "vertex-openai") == set()


# --- the simulated providers ---


def test_the_simulated_catalog_is_a_valid_document_with_several_endpoints_for_most_models() -> None:
    document, problems = parse_document(sim_document(PORTS))

    assert problems == []
    snapshot = compile_snapshot(document, version=1, checksum="")
    for model in ("gpt-4o", "gpt-4o-mini", "llama-3.3-70b-instruct", "text-embedding-3-small"):
        endpoints = snapshot.by_model[snapshot.models[model].id]
        assert {endpoint.provider.name for endpoint in endpoints} == set(PORTS), model
        assert all(endpoint.weight > 0 for endpoint in endpoints)
        assert len({endpoint.price.base.input for endpoint in endpoints if endpoint.price}) == len(endpoints), model
    assert sum(len(endpoints) > 1 for endpoints in snapshot.by_model.values()) > len(snapshot.models) / 2


def test_simulated_providers_listen_where_they_were_told_and_take_the_key_that_up_sets() -> None:
    document = sim_document(PORTS)

    assert {name: document["providers"][name]["base_url"] for name in PORTS} == {
        "sim-east": "http://127.0.0.1:20101/v1",
        "sim-west": "http://127.0.0.1:20102/v1",
        "sim-eu": "http://127.0.0.1:20103/v1",
    }
    assert document["providers"]["sim-anthropic"] == {
        "dialect": "anthropic",
        "base_url": "http://127.0.0.1:20102/anthropic",
        "allow_private": True,
        "probe_budget_usd_per_day": 1000,
    }
    assert {account["credential"] for account in document["accounts"].values()} == {"env:N4N_SIM_KEY"}


def test_simulated_models_are_offered_in_the_dialects_of_their_makers_and_a_tier_leads_through_three_of_them() -> None:
    snapshot = compile_snapshot(parse_document(sim_document(PORTS))[0], version=1, checksum="")
    spoken = {str(name): {endpoint.provider.dialect for endpoint in endpoints} for name, endpoints in snapshot.by_model.items()}

    assert spoken["claude-haiku-4-5"] == {"openai", "anthropic"}
    assert spoken["gemini-2.5-flash"] == {"openai", "gemini"}
    chain = snapshot.resolve("tier/reasoning").models
    assert [spoken[str(model)] for model in chain] == [{"anthropic"}, {"openai_responses", "openai"}, {"gemini"}]


def test_simulated_models_are_probed_but_asked_nothing_that_a_simulation_cannot_know() -> None:
    compiled = compile_snapshot(parse_document(sim_document(PORTS))[0], version=1, checksum="c")

    jobs = work_of(compiled, frozenset(DIALECTS)).jobs
    assert {name[0] for name in jobs} == {"p"} and len(jobs) == len(compiled.endpoints)


def test_simulated_embeddings_are_made_by_endpoints_that_do_nothing_else() -> None:
    snapshot = compile_snapshot(parse_document(sim_document(PORTS))[0], version=1, checksum="")

    embedding = [endpoint for endpoint in snapshot.endpoints.values() if "embeddings" in (endpoint.supports or ())]
    assert {endpoint.model for endpoint in embedding} == {"text-embedding-3-small"}
    assert {endpoint.supports for endpoint in embedding} == {frozenset({"embeddings"})}
