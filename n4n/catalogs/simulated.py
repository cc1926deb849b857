"""The catalog of `n4n up --sim`: providers simulated on loopback ports, each in its own dialect, with several endpoints for most models.

The simulated providers are three llmock servers. Each of them speaks every dialect under a path of its own and takes any key, so
more providers than servers are found there. Prices follow the built-in catalog and differ, so that costs and `sort=cost` show something.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import NamedTuple, cast

from n4n.catalogs.builtin import whole_document
from n4n.core.document import Document, Table

KEY_VARIABLE = "N4N_SIM_KEY"  # any value does
SERVERS = ("sim-east", "sim-west", "sim-eu")  # each is also a provider of its name, which sells the same models as the other two
REASONING = ("claude-sonnet-5-5", "gpt-5", "gemini-2.5-pro")  # the chain of tier/reasoning: three dialects
EMBEDDINGS = "text-embedding-3-small"
_EMBEDDINGS_PRICE: Table = {"input_per_1m": "0.02"}  # https://platform.openai.com/docs/models/text-embedding-3-small, read on 2026-11-29


class _Place(NamedTuple):
    """Where a provider is found and what it speaks there; `discount`: of the price it follows."""

    server: str
    dialect: str
    path: str
    region: str
    weight: int = 2
    discount: Decimal = Decimal(1)


_PLACES: Mapping[str, _Place] = MappingProxyType({
    "sim-east": _Place("sim-east", "openai", "/v1", "us-east", weight=3),
    "sim-west": _Place("sim-west", "openai", "/v1", "us-west", discount=Decimal("0.9")),
    "sim-eu": _Place("sim-eu", "openai", "/v1", "eu-central", discount=Decimal("1.1")),
    "sim-responses": _Place("sim-east", "openai_responses", "/v1", "us-east"),
    "sim-anthropic": _Place("sim-west", "anthropic", "/anthropic", "us-west"),
    "sim-gemini": _Place("sim-eu", "gemini", "/gemini/v1beta", "eu-central"),
    "sim-mistral": _Place("sim-eu", "openai", "/mistral/v1", "eu-central"),
    "sim-groq": _Place("sim-west", "openai", "/groq/openai/v1", "us-west"),
    "sim-together": _Place("sim-east", "openai", "/together/v1", "us-east"),
})  # fmt: skip

# Model ▸ who sells it, and the built-in endpoint whose price it follows.
_MODELS: Mapping[str, tuple[tuple[str, ...], str]] = MappingProxyType({
    "gpt-4o": (SERVERS, "openai-gpt-4o"),
    "gpt-4o-mini": (SERVERS, "openai-gpt-4o-mini"),
    "gpt-5": (("sim-responses", "sim-eu"), "openai-gpt-5"),
    "claude-haiku-4-5": ((*SERVERS, "sim-anthropic"), "anthropic-claude-haiku-4-5"),
    "claude-sonnet-5-5": (("sim-anthropic",), "anthropic-claude-sonnet-5-5"),
    "gemini-2.5-pro": (("sim-gemini",), "gemini-gemini-2.5-pro"),
    "gemini-2.5-flash": (("sim-gemini", "sim-west"), "gemini-gemini-2.5-flash"),
    "mistral-large-3": (("sim-mistral",), "mistral-mistral-large-3"),
    "llama-3.3-70b-instruct": (SERVERS, "deepinfra-llama-3.3-70b-instruct"),
    "gpt-oss-120b": (("sim-groq", "sim-together"), "groq-gpt-oss-120b"),
})  # fmt: skip


def sim_document(ports: Mapping[str, int]) -> Document:
    """The catalog for simulated providers that listen on these loopback ports; `ports` names all of SERVERS."""
    whole = whole_document()
    endpoints: dict[str, Table] = {}
    for model, (sellers, like) in _MODELS.items():
        followed = whole["endpoints"][like]
        upstream, price = str(followed["upstream_model"]), cast(Table, followed["price"])
        endpoints |= {f"{seller}-{model}": _endpoint(seller, model, upstream, price) for seller in sellers}
    embeddings = {f"{seller}-{EMBEDDINGS}": _endpoint(seller, EMBEDDINGS, EMBEDDINGS, _EMBEDDINGS_PRICE) for seller in SERVERS}
    return {
        "providers": {name: _provider(place, ports[place.server]) for name, place in _PLACES.items()},
        "accounts": {f"{name}-main": {"provider": name, "credential": f"env:{KEY_VARIABLE}"} for name in _PLACES},
        "models": {name: _unchecked(whole["models"][name]) for name in _MODELS} | {EMBEDDINGS: {"context_window": 8192}},
        "endpoints": endpoints | {name: {**endpoint, "supports": ["embeddings"]} for name, endpoint in embeddings.items()},
        "tiers": {"reasoning": {"chain": list(REASONING)}},
    }


def _unchecked(model: Table) -> Table:
    """Without the prober's deeper checks: simulated providers say the same whatever a system prompt asks of them."""
    return {**model, "probe": {**cast(Table, model.get("probe", {})), "checks_interval_sec": 0}}


def _provider(place: _Place, port: int) -> Table:
    return {
        "dialect": place.dialect,
        "base_url": f"http://127.0.0.1:{port}{place.path}",
        "allow_private": True,
        "probe_budget_usd_per_day": 1000,  # of play money
    }


def _endpoint(seller: str, model: str, upstream_model: str, price: Table) -> Table:
    place = _PLACES[seller]
    return {
        "model": model,
        "account": f"{seller}-main",
        "upstream_model": upstream_model,
        "region": place.region,
        "weight": place.weight,
        "price": _price(price, place.discount),
    }


def _price(like: Table, factor: Decimal) -> Table:
    """The price of another endpoint times the factor, without its tiers; money as text, which is exact."""
    return {name: f"{Decimal(str(amount)) * factor:f}" for name, amount in like.items() if name not in ("tiers", "service_tiers")}
