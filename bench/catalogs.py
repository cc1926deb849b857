"""Catalogs of realistic size for the discovery bench: models with their policies, and endpoints spread over providers and regions."""

from __future__ import annotations

import copy

Document = dict[str, dict[str, dict[str, object]]]
PROVIDERS = 40
REGIONS = ("eu-west-1", "us-east-1", "ap-south-1", "us")


def large_catalog(endpoints: int, models: int) -> Document:
    """Every model has endpoints / models of them, at different providers."""
    return {
        "providers": {f"p{n}": {"dialect": "openai", "base_url": f"https://api.p{n}.example/v1"} for n in range(PROVIDERS)},
        "accounts": {f"p{n}-main": _account(n) for n in range(PROVIDERS)},
        "models": {f"model-{n}": _model(n) for n in range(models)},
        "endpoints": {f"p{n % PROVIDERS}-model-{n % models}-{n}": _endpoint(n, models) for n in range(endpoints)},
        "tiers": {"best": {"chain": ["model-0", "model-1"]}},
    }


def with_changes(document: Document, number: int, resources: int) -> Document:
    """The same with so many entries changed, a tenth of them models and the others endpoints; another `number`, other ones."""
    after = {section: dict(entries) for section, entries in document.items()}
    models, endpoints = list(document["models"]), list(document["endpoints"])
    for index in range(resources):
        section, names = ("models", models) if index % 10 == 9 else ("endpoints", endpoints)
        name = names[(number * 7919 + index * 31) % len(names)]
        entry = copy.deepcopy(after[section][name])
        entry["max_output_tokens"] = 1_000 + number
        after[section][name] = entry
    return after


def _account(n: int) -> dict[str, object]:
    return {"provider": f"p{n}", "credential": f"env:P{n}_KEY", "limits": {"rpm": 500, "tpm": 200_000, "concurrency": 200}}


def _model(n: int) -> dict[str, object]:
    return {
        "context_window": 128_000,
        "max_output_tokens": 16_384,
        "capabilities": {"reasoning": 0.5, "coding": 0.7, "tools": True, "vision": n % 2 == 0, "json_schema": True},
        "aliases": [f"vendor/model-{n}"],
        "retry": {"retry_on": ["timeout", "5xx", "429"], "max_retries": 2},
        "timeouts": {"connect_ms": 2_000, "first_token_ms": 8_000, "idle_ms": 30_000, "total_ms": 600_000},
    }


def _endpoint(n: int, models: int) -> dict[str, object]:
    return {
        "model": f"model-{n % models}",
        "account": f"p{n % PROVIDERS}-main",
        "upstream_model": f"vendor-model-{n % models}",
        "region": REGIONS[n % len(REGIONS)],
        "weight": 1 + n % 9,
        "price": {"input_per_1m": 2.5, "output_per_1m": 10, "cached_input_per_1m": 1.25},
        "supports": ["tools", "vision", "json_schema", "seed", "logprobs"],
        "data": {"training": False, "retention": "30d"},
    }
