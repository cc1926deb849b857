"""The catalog of `n4n up --sim`: providers simulated on loopback ports, with several endpoints per model.

Every simulated provider is one llmock server, which speaks each dialect under a path of its own and takes any key. Prices
are shaped after the built-in catalog and differ, so that costs and `sort=cost` show something.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from n4n.catalogs.builtin import whole_document
from n4n.core.document import Document, Table

KEY_VARIABLE = "N4N_SIM_KEY"  # any value does
REGIONS = {"sim-east": "us-east", "sim-west": "us-west", "sim-eu": "eu-central"}
WEIGHTS = {"sim-east": 3, "sim-west": 2, "sim-eu": 2}
DISCOUNTS = {"sim-east": Decimal("1"), "sim-west": Decimal("0.9"), "sim-eu": Decimal("1.1")}  # of the price it follows
ANTHROPIC = "sim-anthropic"  # speaks Anthropic's dialect, at the server of sim-west

# Model ▸ the built-in endpoint whose price it follows.
MODELS = {
    "gpt-4o": "openai-gpt-4o",
    "gpt-4o-mini": "openai-gpt-4o-mini",
    "claude-haiku-4-5": "anthropic-claude-haiku-4-5",
    "llama-3.3-70b-instruct": "deepinfra-llama-3.3-70b-instruct",
}
ALSO_IN_ANTHROPIC = "claude-haiku-4-5"


def sim_document(ports: Mapping[str, int]) -> Document:
    """The catalog for simulated providers that listen on these loopback ports; `ports` names all of sim-east, sim-west and sim-eu."""
    whole = whole_document()
    providers = {name: _provider("openai", ports[name], "/v1") for name in REGIONS}
    providers[ANTHROPIC] = _provider("anthropic", ports["sim-west"], "/anthropic")
    endpoints = {
        f"{name}-{model}": _endpoint(name, model, REGIONS[name], WEIGHTS[name], _price(whole["endpoints"][like], DISCOUNTS[name]))
        for model, like in MODELS.items()
        for name in REGIONS
    }
    price = _price(whole["endpoints"][MODELS[ALSO_IN_ANTHROPIC]], Decimal(1))
    endpoints[f"{ANTHROPIC}-{ALSO_IN_ANTHROPIC}"] = _endpoint(ANTHROPIC, ALSO_IN_ANTHROPIC, REGIONS["sim-west"], 2, price)
    return {
        "providers": providers,
        "accounts": {f"{name}-main": {"provider": name, "credential": f"env:{KEY_VARIABLE}"} for name in providers},
        "models": {name: whole["models"][name] for name in MODELS},
        "endpoints": endpoints,
        "tiers": {},
    }


def _provider(dialect: str, port: int, path: str) -> Table:
    return {"dialect": dialect, "base_url": f"http://127.0.0.1:{port}{path}", "allow_private": True}


def _endpoint(provider: str, model: str, region: str, weight: int, price: Table) -> Table:
    return {
        "model": model,
        "account": f"{provider}-main",
        "upstream_model": model,
        "region": region,
        "weight": weight,
        "price": price,
    }


def _price(like: Table, factor: Decimal) -> Table:
    """The price of another endpoint times the factor, without its tiers; money as text, which is exact."""
    given = like["price"]
    assert isinstance(given, dict)
    return {name: f"{Decimal(str(amount)) * factor:f}" for name, amount in given.items() if name != "tiers"}
