"""A LiteLLM proxy's config, and its price map, as a catalog: valid whatever they hold, and silent about nothing that was lost."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from n4n.catalogs.litellm_config import from_config, is_config
from n4n.catalogs.litellm_prices import from_price_map, is_price_map
from n4n.catalogs.prices import has_other_prices, price_of
from n4n.core.document import Document, parse_document

KEY: dict[str, Any] = {"api_key": "os.environ/OPENAI_API_KEY"}


def entry(model: str, said: str = "m", info: Mapping[str, object] | None = None, **params: object) -> dict[str, object]:
    made: dict[str, object] = {"model_name": said, "litellm_params": {"model": model, **params}}
    return made if info is None else {**made, "model_info": info}


def imported(*entries: object, environ: Mapping[str, str] | None = None, **sections: object) -> tuple[Document, list[str]]:
    document, notes = from_config({"model_list": list(entries), **sections}, environ or {})
    assert parse_document(document)[1] == []
    return document, notes


def one(model: str, environ: Mapping[str, str] | None = None, info: Mapping[str, object] | None = None, **params: object) -> dict[str, Any]:
    """The provider, account, model and endpoint of a single deployment."""
    document, _ = imported(entry(model, info=info, **params), environ=environ)
    return {kind[:-1]: next(iter(document[kind].values())) for kind in ("providers", "accounts", "models", "endpoints")}


# ── where deployments are


@pytest.mark.parametrize(
    ("model", "params", "provider", "credential", "upstream"),
    [
        ("openai/gpt-4o", {}, {"dialect": "openai", "base_url": "https://api.openai.com/v1"}, "env:OPENAI_API_KEY", "gpt-4o"),
        ("gpt-4o", {"api_key": "os.environ/K"}, {"dialect": "openai", "base_url": "https://api.openai.com/v1"}, "env:K", "gpt-4o"),
        (
            "claude-sonnet-4-5",
            {},
            {"dialect": "anthropic", "base_url": "https://api.anthropic.com"},
            "env:ANTHROPIC_API_KEY",
            "claude-sonnet-4-5",
        ),
        (
            "anthropic/claude-x",
            {"api_base": "https://p.example.com/v1/messages"},
            {"dialect": "anthropic", "base_url": "https://p.example.com"},
            "env:ANTHROPIC_API_KEY",
            "claude-x",
        ),
        (
            "gemini/gemini-2.5-pro",
            {},
            {"dialect": "gemini", "base_url": "https://generativelanguage.googleapis.com/v1beta"},
            "env:GEMINI_API_KEY",
            "gemini-2.5-pro",
        ),
        (
            "x",
            {"custom_llm_provider": "groq"},
            {"dialect": "openai", "base_url": "https://api.groq.com/openai/v1"},
            "env:GROQ_API_KEY",
            "x",
        ),
        (
            "groq/x",
            {"custom_llm_provider": "groq"},
            {"dialect": "openai", "base_url": "https://api.groq.com/openai/v1"},
            "env:GROQ_API_KEY",
            "x",
        ),
        (
            "together_ai/meta-llama/Llama",
            {},
            {"dialect": "openai", "base_url": "https://api.together.ai/v1"},
            "env:TOGETHERAI_API_KEY",
            "meta-llama/Llama",
        ),
        (
            "azure/dep",
            {"api_base": "https://r.openai.azure.com/", "api_version": "2024-10-21"},
            {"dialect": "azure", "base_url": "https://r.openai.azure.com/openai", "vars": {"api_version": "2024-10-21"}},
            "env:AZURE_API_KEY",
            "dep",
        ),
        (
            "azure/dep",
            {"api_base": "https://r.openai.azure.com/openai/v1/"},
            {"dialect": "azure", "base_url": "https://r.openai.azure.com/openai/v1"},
            "env:AZURE_API_KEY",
            "dep",
        ),
        (
            "azure/dep",
            {"api_base": "os.environ/BASE", "api_version": "preview"},
            {"dialect": "azure", "base_url": "https://b.openai.azure.com/openai/v1", "vars": {"api_version": "preview"}},
            "env:AZURE_API_KEY",
            "dep",
        ),
        (
            "azure/dep",
            {"base_url": "https://r.example.com"},
            {"dialect": "azure", "base_url": "https://r.example.com/openai"},
            "env:AZURE_API_KEY",
            "dep",
        ),
        (
            "azure_ai/claude-x",
            {"api_base": "https://r.services.ai.azure.com/models"},
            {"dialect": "anthropic", "base_url": "https://r.services.ai.azure.com/anthropic"},
            "env:AZURE_AI_API_KEY",
            "claude-x",
        ),
        (
            "azure_ai/grok",
            {"api_base": "https://r.services.ai.azure.com"},
            {"dialect": "openai", "base_url": "https://r.services.ai.azure.com/openai/v1"},
            "env:AZURE_AI_API_KEY",
            "grok",
        ),
        (
            "hosted_vllm/org/model",
            {"api_base": "http://localhost:8000/v1/chat/completions", "api_key": "fake-key"},
            {"dialect": "openai", "base_url": "http://localhost:8000/v1", "allow_private": True},
            None,
            "org/model",
        ),
        ("ollama/llama3", {}, {"dialect": "openai", "base_url": "http://localhost:11434/v1", "allow_private": True}, None, "llama3"),
        (
            "ollama_chat/llama3",
            {"api_base": "http://10.0.0.5:11434"},
            {"dialect": "openai", "base_url": "http://10.0.0.5:11434/v1", "allow_private": True},
            None,
            "llama3",
        ),
        (
            "bedrock/converse/us.anthropic.claude-x",
            {"aws_region_name": "us-east-1"},
            {"dialect": "bedrock", "base_url": "https://bedrock-runtime.{aws_region}.amazonaws.com", "vars": {"aws_region": "us-east-1"}},
            None,
            "us.anthropic.claude-x",
        ),
        (
            "bedrock/eu-west-1/anthropic.claude-x",
            {"api_key": "os.environ/AWS_BEARER_TOKEN_BEDROCK"},
            {"dialect": "bedrock", "base_url": "https://bedrock-runtime.{aws_region}.amazonaws.com", "vars": {"aws_region": "eu-west-1"}},
            "env:AWS_BEARER_TOKEN_BEDROCK",
            "anthropic.claude-x",
        ),
        (
            "anthropic.claude-x",
            {"aws_access_key_id": "os.environ/AWS_ACCESS_KEY_ID", "aws_secret_access_key": "os.environ/AWS_SECRET_ACCESS_KEY"},
            {
                "dialect": "bedrock",
                "base_url": "https://bedrock-runtime.{aws_region}.amazonaws.com",
                "vars": {"aws_region": "eu-central-1"},
            },
            None,
            "anthropic.claude-x",
        ),
        (
            "bedrock/x",
            {"aws_region_name": "us-east-1", "aws_access_key_id": "AKIA", "aws_bedrock_runtime_endpoint": "https://vpce.example.com/"},
            {"dialect": "bedrock", "base_url": "https://vpce.example.com"},
            "env:AWS_CREDENTIAL_OF_N4N",
            "x",
        ),
        (
            "vertex_ai/gemini-2.5-pro",
            {"vertex_project": "p", "vertex_location": "us-central1", "vertex_credentials": "/etc/sa.json"},
            {
                "dialect": "vertex",
                "base_url": "https://{location}-aiplatform.googleapis.com/v1/projects/{project}/locations/{location}",
                "vars": {"project": "p", "location": "us-central1"},
            },
            "file:/etc/sa.json",
            "gemini-2.5-pro",
        ),
        (
            "gemini-2.5-pro",
            {"vertex_project": "p", "vertex_credentials": "os.environ/SA"},
            {
                "dialect": "vertex",
                "base_url": "https://aiplatform.googleapis.com/v1/projects/{project}/locations/{location}",
                "vars": {"project": "p", "location": "global"},
            },
            "env:SA",
            "gemini-2.5-pro",
        ),
        (
            "vertex_ai/x",
            {"vertex_project": "p", "vertex_credentials": '{"type":"service_account"}'},
            {
                "dialect": "vertex",
                "base_url": "https://aiplatform.googleapis.com/v1/projects/{project}/locations/{location}",
                "vars": {"project": "p", "location": "global"},
            },
            "env:GOOGLE_APPLICATION_CREDENTIALS",
            "x",
        ),
    ],
)
def test_a_deployment_is_an_endpoint_of_its_provider(
    model: str, params: dict[str, object], provider: dict[str, object], credential: str | None, upstream: str
) -> None:
    got = one(model, {"BASE": "https://b.openai.azure.com", "AWS_REGION": "eu-central-1"}, **params)

    assert got["provider"] == provider
    assert got["account"].get("credential") == credential
    assert got["endpoint"]["upstream_model"] == upstream


def test_what_a_deployment_is_worth_and_can_do_is_kept() -> None:
    info = {
        "id": "mine",
        "mode": "chat",
        "max_input_tokens": 8192,
        "max_output_tokens": 4096,
        "input_cost_per_token": 2.5e-06,
        "output_cost_per_token": 1e-05,
        "cache_read_input_token_cost": 1.25e-06,
        "input_cost_per_token_above_200k_tokens": 5e-06,
        "supports_function_calling": True,
        "supports_vision": True,
        "supports_tool_choice": True,
        "supports_forced_tool_use": False,
    }
    params = {"rpm": 6, "tpm": "1000", "max_parallel_requests": 3, "weight": 2, "region_name": "EU West", "extra_body": {"top_k": 5}}
    document, notes = imported(entry("openai/x", info=info, **params, **KEY))

    assert notes == []
    assert document["endpoints"]["mine"] == {
        "model": "m",
        "account": "openai-main",
        "upstream_model": "x",
        "region": "eu-west",
        "weight": 2,
        "body": {"top_k": 5},
        "price": {
            "input_per_1m": "2.5",
            "output_per_1m": "10",
            "cached_input_per_1m": "1.25",
            "tiers": [{"above_input_tokens": 200000, "input_per_1m": "5", "output_per_1m": "10", "cached_input_per_1m": "1.25"}],
        },
        "supports": [
            "tools",
            "tool_choice",
            "vision",
            "sampling_params",
            "logprobs",
            "logit_bias",
            "penalties",
            "stop",
            "seed",
            "n",
            "stream_options",
        ],
    }
    assert document["accounts"]["openai-main"]["limits"] == {"scope": "per_model", "rpm": 6, "tpm": 1000, "concurrency": 3}
    assert document["models"]["m"] == {"context_window": 8192, "max_output_tokens": 4096}


def test_what_the_config_does_not_tell_the_built_in_catalog_may_know() -> None:
    document, notes = imported(
        entry("azure/our-deployment", info={"base_model": "azure/gpt-4o"}, api_base="https://r.openai.azure.com", **KEY),
        entry("openai/nobody-knows", "other", **KEY),
    )

    assert document["endpoints"]["azure-m"]["price"] == {"input_per_1m": 2.5, "output_per_1m": 10, "cached_input_per_1m": 1.25}
    assert document["models"]["m"]["context_window"] == 128000
    assert "price" not in document["endpoints"]["openai-other"]
    assert notes == [
        "model_list[1] (other) has no price: its cost is null until its endpoint gets one",
        "endpoints whose price and abilities are those of the built-in catalog, for the config tells none: 1",
    ]


@pytest.mark.parametrize(
    ("model", "info", "dialect", "supports"),
    [
        ("text-embedding-3-small", {"mode": "embedding"}, "openai", ["embeddings"]),
        ("text-completion-openai/gpt-3.5-turbo-instruct", {}, "openai", ["text_completions"]),
        ("openai/gpt-5-codex", {"mode": "responses"}, "openai_responses", None),
    ],
)
def test_a_mode_is_a_kind_of_endpoint(model: str, info: dict[str, object], dialect: str, supports: list[str] | None) -> None:
    got = one(model, info=info)

    assert (got["provider"]["dialect"], got["endpoint"].get("supports")) == (dialect, supports)


def test_deployments_of_one_key_share_an_account_unless_their_limits_differ() -> None:
    document, _ = imported(
        entry("openai/a", "x", **KEY),
        entry("openai/b", "y", **KEY),
        entry("openai/b", "x", rpm=5, **KEY),
        entry("openai/b", "x", rpm=5, **KEY),
    )

    assert {name: one["account"] for name, one in document["endpoints"].items()} == {
        "openai-x": "openai-main",
        "openai-y": "openai-main",
        "openai-x-2": "openai-main-2",
        "openai-x-3": "openai-main-2",
    }
    assert len(document["providers"]) == 1


def test_a_limit_may_stand_beside_the_parameters_and_a_credential_in_its_list() -> None:
    document, _ = imported(
        {**entry("openai/a", litellm_credential_name="shared"), "rpm": 7},
        credential_list=[
            {"credential_name": "shared", "credential_values": {"api_key": "os.environ/SHARED", "api_base": "https://s.example.com/v1"}},
            5,
        ],
    )

    assert document["accounts"]["openai-main"] == {
        "provider": "openai",
        "credential": "env:SHARED",
        "limits": {"scope": "per_model", "rpm": 7},
    }
    assert document["providers"]["openai"]["base_url"] == "https://s.example.com/v1"


def test_keys_themselves_are_put_elsewhere_and_never_shown() -> None:
    document, notes = imported(
        entry("openai/a", api_key="sk-very-secret-1"),
        entry("openai/b", api_key="sk-very-secret-2"),
        entry("openai/c", api_key="sk-very-secret-1"),
        entry("hosted_vllm/d", api_key="sk-very-secret-3", api_base="https://v.example.com"),
        entry("bedrock/e", aws_region_name="us-east-1", aws_access_key_id="AKIASECRET", aws_secret_access_key="verysecret"),
        entry("bedrock/e", aws_region_name="us-east-1", aws_profile_name="work"),
    )

    credentials = [account["credential"] for account in document["accounts"].values()]
    assert credentials == ["env:OPENAI_API_KEY_1", "env:OPENAI_API_KEY_2", "env:HOSTED_VLLM_API_KEY_1", "env:AWS_CREDENTIAL_OF_N4N"]
    shown = json.dumps(document) + "".join(notes)
    assert not any(key in shown for key in ("very-secret", "AKIASECRET", "verysecret"))
    assert sum("put it into the environment variable OPENAI_API_KEY_1" in note for note in notes) == 2
    assert any("profile:NAME" in note for note in notes) and any("ID:SECRET" in note for note in notes)


def test_headers_are_the_providers_where_they_can_be() -> None:
    document, notes = imported(
        entry("openai/a", organization="org-1", extra_headers={"x-team": "a", "authorization": "b"}, **KEY),
        entry("openai/b", "n", organization="os.environ/ORG", **KEY),
    )

    assert any("providers.openai.headers.authorization: is not a header" in note for note in notes)
    assert any("the header OpenAI-Organization was left out" in note for note in notes)
    assert list(document["models"]) == ["n"]
    kept, _ = imported(entry("openai/a", organization="org-1", headers={"x-team": "a"}, **KEY))
    assert kept["providers"]["openai"]["headers"] == {"x-team": "a", "OpenAI-Organization": "org-1"}


# ── names


def test_a_name_that_is_none_here_is_an_alias() -> None:
    document, notes = imported(
        entry("openai/a", "vendor/model:free", **KEY),
        entry("openai/b", "vendor-model-free", **KEY),
        entry("openai/c", "my model", **KEY),
        entry("openai/d", "tier/x", **KEY),
        entry("openai/e", "vendor/model:free", **KEY),
        entry("openai/f", "…", **KEY),
    )

    assert {name: model.get("aliases") for name, model in document["models"].items()} == {
        "vendor-model-free": ["vendor/model:free"],
        "vendor-model-free-2": None,
        "my-model": None,
        "tier-x": None,
        "unnamed": None,
    }
    assert "model 'my model' is now my-model: its old name cannot be one here" in notes
    assert sum(one["model"] == "vendor-model-free" for one in document["endpoints"].values()) == 2


def test_an_endpoint_never_has_a_providers_name() -> None:
    document, _ = imported(
        entry("openai/a", info={"id": "azure"}, **KEY),
        entry("azure/b", api_base="https://r.example.com"),
        entry("openai/c", info={"id": "openai"}),
    )

    assert document["providers"].keys().isdisjoint(document["endpoints"])
    assert len(document["endpoints"]) == 3


# ── settings


def test_settings_are_those_of_every_model() -> None:
    document, notes = imported(
        entry("openai/gpt-4o", "a", timeout=90, max_retries=1, **KEY),
        entry("openai/gpt-4o", "b", num_retries=30, **KEY),
        router_settings={
            "num_retries": 3,
            "timeout": 30,
            "allowed_fails": 2,
            "cooldown_time": 45,
            "routing_strategy": "cost-based-routing",
            "model_group_alias": {"old": "a", "older": {"model": "b", "hidden": True}},
            "retry_policy": {"TimeoutErrorRetries": 1, "RateLimitErrorRetries": 50},
            "model_group_retry_policy": {"b": {"InternalServerErrorRetries": 4}},
            "enable_pre_call_checks": True,
        },
        litellm_settings={"drop_params": True, "request_timeout": 10, "num_retries": 9},
    )

    first, second = document["models"]["a"], document["models"]["b"]
    assert first["retry"] == {"max_retries": 1, "by_class": {"timeout": {"max_retries": 1}, "rate_limited": {"max_retries": 20}}}
    assert second["retry"] == {"max_retries": 20, "by_class": {"server_error": {"max_retries": 4}}}
    assert (first["timeouts"], second["timeouts"]) == ({"total_ms": 90_000}, {"total_ms": 30_000})
    assert first["circuit_breaker"] == {"failure_threshold": 3, "window_sec": 60, "recovery_timeout_sec": 45}
    assert (first["strategy"], first["aliases"], second["aliases"]) == ("cost", ["old"], ["older"])
    assert len(notes) == 1 and notes[0].startswith("endpoints whose price")


def test_fallbacks_are_substitutes_and_tiers_among_models_of_one_kind() -> None:
    document, notes = imported(
        *(entry("openai/gpt-4o", name, **KEY) for name in "abcd"),
        entry("text-embedding-3-small", "vectors", {"mode": "embedding"}, **KEY),
        router_settings={
            "fallbacks": [{"a": ["b", "c", "a"]}, {"gone": ["b"]}, {"b": "gone"}],
            "context_window_fallbacks": [{"a": ["d", "b"]}],
            "content_policy_fallbacks": [{"c": ["d"]}],
            "default_fallbacks": ["d"],
        },
    )

    assert {name: tier["chain"] for name, tier in document["tiers"].items()} == {
        "a": ["a", "b", "c", "d"],
        "c": ["c", "d"],
        "b": ["b", "d"],
    }
    assert document["models"]["a"]["substitutes"] == ["b", "c", "d"]
    assert "substitutes" not in document["models"]["vectors"]
    assert any("tier/a" in note and "consistency=available" in note for note in notes)
    assert sum("gone was left out: model_list has no such model" in note for note in notes) == 1
    assert any("fallbacks: gone was left out" in note for note in notes)
    assert any(note.startswith("content_policy_fallbacks: they stand in") for note in notes)


def test_a_model_that_is_left_out_stands_in_for_nobody() -> None:
    document, _ = imported(
        entry("openai/gpt-4o", "a", **KEY),
        entry("openai/gpt-4o", "b", api_base="ftp://x", **KEY),
        entry("openai/gpt-4o", "c", **KEY),
        router_settings={"fallbacks": [{"a": ["b"]}, {"c": ["b", "a"]}]},
    )

    assert list(document["models"]) == ["a", "c"]
    assert "substitutes" not in document["models"]["a"] and document["models"]["c"]["substitutes"] == ["a"]
    assert document["tiers"] == {"c": {"chain": ["c", "a"]}}


def test_a_fallback_of_every_model_stands_in_for_every_model() -> None:
    document, _ = imported(*(entry("openai/gpt-4o", name, **KEY) for name in "ab"), litellm_settings={"fallbacks": [{"*": ["b"]}]})

    assert {name: tier["chain"] for name, tier in document["tiers"].items()} == {"a": ["a", "b"]}


@pytest.mark.parametrize(
    ("sections", "line"),
    [
        (
            {"router_settings": {"routing_strategy": "magic"}},
            "router_settings.routing_strategy magic was left out: balanced stands in for it",
        ),
        ({"router_settings": {"redis_host": "h"}}, "router_settings.redis_host was left out: set N4N_REDIS_URL"),
        ({"router_settings": {"unheard_of": 1}}, "router_settings.unheard_of was left out: it has no counterpart"),
        (
            {"router_settings": {"model_group_alias": {"x": "gone"}}},
            "model_group_alias.x was left out: it has to be a free name for a model of model_list",
        ),
        (
            {"router_settings": {"retry_policy": {"BadRequestErrorRetries": 2}}},
            "retry_policy.BadRequestErrorRetries was left out: such an answer is the same at every try",
        ),
        ({"router_settings": {"retry_policy": {"OddRetries": 2}}}, "retry_policy.OddRetries was left out: it has no counterpart"),
        ({"litellm_settings": {"cache": True}}, "litellm_settings.cache was left out: answers are not cached"),
        ({"general_settings": {"master_key": "sk-1234"}}, "general_settings.master_key was left out: keys are made with n4n key create"),
        ({"environment_variables": {"A": "b"}}, "environment_variables.A was left out: set it in the environment of the router"),
        ({"mcp_servers": {"a": 1}}, "mcp_servers was left out: it has no counterpart"),
    ],
)
def test_a_setting_without_a_counterpart_is_told(sections: dict[str, object], line: str) -> None:
    assert line in imported(entry("openai/gpt-4o", **KEY), **sections)[1]


@pytest.mark.parametrize(
    ("made", "line"),
    [
        (entry("openai/*", "openai/*"), "model_list[1] (openai/*) was left out: a catalog names each model"),
        (
            entry("cohere/command-r"),
            "model_list[1] (m) was left out: cohere is no provider that can be spoken to; if it speaks like OpenAI",
        ),
        (entry("some-model"), "model_list[1] (m) was left out: nothing tells whose model 'some-model' is"),
        (entry("openai/"), "model_list[1] (m) was left out: nothing tells whose model"),
        (entry("openai/x", info={"mode": "image_generation"}), "model_list[1] (m) was left out: mode image_generation"),
        (entry("hosted_vllm/x"), "model_list[1] (m) was left out: hosted_vllm has no address of its own"),
        (entry("azure/x"), "model_list[1] (m) was left out: api_base is missing"),
        (entry("azure_ai/x"), "model_list[1] (m) was left out: azure_ai has no address of its own"),
        (
            entry("azure/x", api_base="os.environ/GONE"),
            "model_list[1] (m) was left out: api_base stands in the environment variable GONE, which is not set here",
        ),
        (entry("bedrock/x"), "model_list[1] (m) was left out: aws_region_name is missing"),
        (entry("vertex_ai/x"), "model_list[1] (m) was left out: vertex_project is missing"),
        (entry("openai/x", api_base="ftp://x"), "providers.openai-2 was left out: providers.openai-2.base_url: must begin with http"),
        ({"model_name": 5}, "model_list[1] was left out: it needs a model_name and litellm_params.model, both texts"),
        ("odd", "model_list[1] was left out: it needs a model_name and litellm_params.model, both texts"),
        (
            entry("openai/x", temperature=0.5),
            "model_list[1] (m): temperature was left out: what stands in an endpoint's body binds clients too",
        ),
        (entry("openai/x", tags=["a"], empty=None), "model_list[1] (m): tags was left out: it has no counterpart"),
        (
            entry("openai/x", info={"access_groups": ["a"]}),
            "model_list[1] (m): model_info.access_groups was left out: give keys the models",
        ),
    ],
)
def test_a_deployment_or_parameter_without_a_counterpart_is_told(made: object, line: str) -> None:
    _, notes = imported(entry("openai/gpt-4o", "kept", **KEY), made)

    assert any(note.startswith(line) for note in notes), notes


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**13) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
)
MODELS = st.sampled_from(["openai/a", "azure/b", "bedrock/c", "vertex_ai/d", "hosted_vllm/e", "claude-f", "x/y", "ollama/g"])
PARAMS = st.dictionaries(
    st.sampled_from(
        [
            "api_base",
            "api_key",
            "api_version",
            "rpm",
            "weight",
            "timeout",
            "max_retries",
            "extra_body",
            "extra_headers",
            "region_name",
            "aws_region_name",
            "vertex_project",
            "vertex_credentials",
            "input_cost_per_token",
            "organization",
            "custom_llm_provider",
        ]
    ),
    JSON | st.sampled_from(["https://x.example.com/v1", "os.environ/A", "us-east-1"]),
    max_size=5,
)
SECTION = st.dictionaries(
    st.sampled_from(
        [
            "num_retries",
            "timeout",
            "allowed_fails",
            "cooldown_time",
            "routing_strategy",
            "fallbacks",
            "default_fallbacks",
            "model_group_alias",
            "retry_policy",
        ]
    ),
    JSON,
    max_size=4,
)


@given(
    st.lists(
        st.builds(
            lambda model, said, params, info: entry(model, said, info, **params),
            MODELS,
            st.text(max_size=5),
            PARAMS,
            st.dictionaries(
                st.sampled_from(["mode", "id", "base_model", "max_input_tokens", "input_cost_per_token", "supports_vision"]),
                JSON,
                max_size=3,
            ),
        )
        | JSON,
        max_size=4,
    ),
    SECTION,
)
def test_whatever_a_config_holds_the_catalog_is_valid(entries: list[object], section: dict[str, object]) -> None:
    document, notes = imported(*entries, environ={"A": "https://a.example.com"}, router_settings=section)

    assert all(isinstance(note, str) for note in notes)
    assert document["endpoints"] or notes or not entries


# ── the price map

CHAT = {"mode": "chat", "max_input_tokens": 1000, "max_output_tokens": 100, "input_cost_per_token": 1e-06, "output_cost_per_token": 2e-06}


def priced(prices: Mapping[str, object], environ: Mapping[str, str] | None = None) -> tuple[Document, list[str]]:
    document, notes = from_price_map(prices, environ or {})
    assert parse_document(document)[1] == []
    return document, notes


def test_the_same_model_at_several_providers_has_several_endpoints() -> None:
    document, notes = priced(
        {
            "sample_spec": {"litellm_provider": "one of", "mode": "chat"},
            "gpt-x": {**CHAT, "litellm_provider": "openai", "supports_function_calling": True, "supports_reasoning": True},
            "groq/gpt-x": {**CHAT, "litellm_provider": "groq", "max_input_tokens": 500, "input_cost_per_token": 5e-07},
            "gpt-x-codex": {**CHAT, "litellm_provider": "openai", "mode": "responses"},
            "embed-x": {"litellm_provider": "openai", "mode": "embedding", "input_cost_per_token": 2e-08, "output_cost_per_token": 0.0},
            "instruct-x": {"litellm_provider": "text-completion-openai", "mode": "completion"},
        }
    )

    assert notes == []
    assert set(document["endpoints"]) == {
        "openai-gpt-x",
        "groq-gpt-x",
        "openai-responses-gpt-x-codex",
        "openai-embed-x",
        "openai-instruct-x",
    }
    assert document["models"]["gpt-x"] == {"context_window": 1000, "max_output_tokens": 100}
    groq = document["endpoints"]["groq-gpt-x"]
    assert (groq["context_window"], groq["price"]) == (500, {"input_per_1m": "0.5", "output_per_1m": "2"})
    assert document["endpoints"]["openai-gpt-x"]["supports"] == ["tools", "reasoning", "seed", "n", "stream_options"]
    assert document["endpoints"]["openai-embed-x"]["price"] == {"input_per_1m": "0.02", "output_per_1m": "0"}
    assert document["endpoints"]["openai-instruct-x"]["supports"] == ["text_completions"]


def test_what_needs_a_place_is_carried_over_where_the_environment_tells_it() -> None:
    prices = {
        "azure/eu/gpt-x": {**CHAT, "litellm_provider": "azure"},
        "azure_ai/claude-x": {**CHAT, "litellm_provider": "azure_ai"},
        "azure_ai/grok": {**CHAT, "litellm_provider": "azure_ai"},
        "eu.anthropic.claude-x": {**CHAT, "litellm_provider": "bedrock_converse"},
        "us.anthropic.claude-x": {**CHAT, "litellm_provider": "bedrock_converse"},
        "bedrock/us-east-1/old": {**CHAT, "litellm_provider": "bedrock"},
        "vertex_ai/claude-x": {**CHAT, "litellm_provider": "vertex_ai-anthropic_models"},
    }
    environ = {
        "AZURE_API_BASE": "https://r.openai.azure.com",
        "AZURE_AI_API_BASE": "https://r.services.ai.azure.com",
        "AWS_REGION": "eu-west-1",
        "VERTEXAI_PROJECT": "p",
    }
    document, notes = priced(prices, environ)

    assert {name: one.get("region") for name, one in document["endpoints"].items()} == {
        "azure-gpt-x": "eu",
        "azure-foundry-claude-x": None,
        "azure-foundry-2-grok": None,
        "bedrock-eu.anthropic.claude-x": "eu-west-1",
        "vertex-claude-x": "global",
    }
    assert notes == ["entries left out, for they are of a single region, or of a model to be tuned first: 2"]
    nowhere, why = priced(prices)
    assert not nowhere["endpoints"] and not nowhere["providers"]
    assert [note.partition(" were left out: ")[0] for note in why] == [
        "models of azure",
        "models of azure_ai",
        "models of vertex_ai",
        "entries left out, for they are of a single region, or of a model to be tuned first: 3",
    ]


def test_what_the_map_has_for_others_is_counted() -> None:
    _, notes = priced(
        {
            "gpt-x": {**CHAT, "litellm_provider": "openai", "input_cost_per_image": 0.1},
            "dall-e": {"litellm_provider": "openai", "mode": "image_generation"},
            "command": {**CHAT, "litellm_provider": "cohere"},
            "ft:gpt-x": {**CHAT, "litellm_provider": "openai"},
            "odd": 5,
        }
    )

    assert notes == [
        "entries billed for more than tokens (images, searches, seconds, sound), of which the rest has no price here: 1",
        "entries left out, for their mode is image_generation, and only chat, responses, completion and embedding are served: 1",
        "entries left out, for their providers cannot be spoken to: 1",
        "entries left out, for they are of a single region, or of a model to be tuned first: 1",
    ]


@given(
    st.dictionaries(
        st.text(max_size=5) | MODELS,
        st.fixed_dictionaries(
            {"litellm_provider": st.sampled_from(["openai", "azure", "bedrock", "x"])}, optional=dict.fromkeys(CHAT, JSON)
        )
        | JSON,
        max_size=4,
    )
)
@example({"m": {"litellm_provider": "openai", "input_cost_per_token": 1e16}})
def test_whatever_a_price_map_holds_the_catalog_is_valid(prices: dict[str, object]) -> None:
    priced(prices, {"AWS_REGION": "us-east-1", "AZURE_API_BASE": "https://r.example.com"})


def test_the_two_kinds_of_files_are_told_apart() -> None:
    config: dict[str, object] = {"model_list": []}
    prices: dict[str, object] = {"gpt-x": {"litellm_provider": "openai"}}
    others: list[object] = [[], {}, {"model_list": 5}, None]

    assert (is_config(config), is_price_map(config), is_config(prices), is_price_map(prices)) == (True, False, False, True)
    assert not any(ask(other) for ask in (is_config, is_price_map) for other in others)


def test_a_price_map_tells_sounds_pictures_and_tiers_of_service() -> None:
    info = {
        "litellm_provider": "openai", "mode": "chat", "input_cost_per_token": 2.5e-6, "output_cost_per_token": 1.5e-5,
        "input_cost_per_token_above_272k_tokens": 5e-6, "input_cost_per_token_flex": 1.25e-6, "output_cost_per_token_flex": 7.5e-6,
        "input_cost_per_token_above_272k_tokens_flex": 2.5e-6, "output_cost_per_token_priority": 3e-5, "input_cost_per_audio_token": 4e-5,
        "output_cost_per_image_token": 3e-5,
    }  # fmt: skip

    assert price_of(info) == {
        "input_per_1m": "2.5",
        "output_per_1m": "15",
        "audio_input_per_1m": "40",
        "image_output_per_1m": "30",
        "tiers": [
            {
                "above_input_tokens": 272_000, "input_per_1m": "5", "output_per_1m": "15", "audio_input_per_1m": "40",
                "image_output_per_1m": "30",
            }
        ],
        "service_tiers": {
            "flex": {
                "input_per_1m": "1.25",
                "output_per_1m": "7.5",
                "tiers": [{"above_input_tokens": 272_000, "input_per_1m": "2.5", "output_per_1m": "7.5"}],
            }
        },
    }, "a tier whose input has no price is none"  # fmt: skip
    assert not has_other_prices(info)
    assert has_other_prices({"input_cost_per_image": 1})
    assert has_other_prices({"cache_read_input_audio_token_cost": 1})
