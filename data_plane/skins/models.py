"""The skins of GET /v1/models and GET /v1/models/{id}: what a key may ask for, in OpenAI's shape, with an `n4n` block."""

from __future__ import annotations

from dataclasses import fields
from decimal import Decimal

from n4n.core.access import Key
from n4n.core.candidates import model_barred
from n4n.core.catalog import Endpoint, Model, PriceList, Snapshot
from n4n.core.errors import ModelNotAllowed, ModelNotFound

CREATED = 0  # the catalog keeps no creation time of a model


def list_models(snapshot: Snapshot, key: Key) -> dict[str, object]:
    """Every model, alias and tier the key may use, and what else its own list names."""
    names = [*snapshot.models, *snapshot.aliases, *(f"tier/{tier}" for tier in snapshot.tiers)]
    pinned = [name for name in sorted(key.models) if name not in names]
    shown = [_shown(snapshot, key, name) for name in (*names, *pinned)]
    return {"object": "list", "data": [entry for entry in shown if entry is not None]}


def show_model(snapshot: Snapshot, key: Key, name: str) -> dict[str, object]:
    """One model by any name a request may use; ModelNotFound or ModelNotAllowed."""
    snapshot.resolve(name)
    entry = _shown(snapshot, key, name)
    if entry is None:
        raise ModelNotAllowed(param="model")
    return entry


def _shown(snapshot: Snapshot, key: Key, name: str) -> dict[str, object] | None:
    """The entry of a name; None where it means nothing or the key may not use all of it."""
    try:
        target = snapshot.resolve(name)
    except ModelNotFound:
        return None
    if any(model_barred(key.models, snapshot.models[model], name) for model in target.models):
        return None
    if target.tier is not None:
        return {"id": name, "object": "model", "created": CREATED, "owned_by": "n4n", "n4n": {"chain": list(target.models)}}
    return _model(name, snapshot.models[target.models[0]], snapshot)


def _model(name: str, model: Model, snapshot: Snapshot) -> dict[str, object]:
    endpoints = snapshot.by_model[model.id]
    return {
        "id": name,
        "object": "model",
        "created": CREATED,
        "owned_by": endpoints[0].provider.name if endpoints else "n4n",
        "n4n": {
            "model": model.id,
            "context_window": model.context_window,
            "max_output_tokens": model.max_output_tokens,
            "capabilities": dict(model.scores) | dict.fromkeys(sorted(model.capabilities), True),
            "endpoints": [_endpoint(endpoint) for endpoint in endpoints],
        },
    }


def _endpoint(endpoint: Endpoint) -> dict[str, object]:
    return {
        "endpoint": endpoint.id,
        "provider": endpoint.provider.name,
        "region": endpoint.region or None,
        "context_window": endpoint.context_window,
        "max_output_tokens": endpoint.max_output_tokens,
        "price": price_block(endpoint.price),
    }


def price_block(price: PriceList | None) -> dict[str, object] | None:
    """Prices in USD per 1,000,000 tokens, as numbers; None for an unpriced endpoint."""
    if price is None:
        return None
    base = price.base
    always = ("input", "output", "cached_input", "cache_write")
    known = {one.name: _usd_per_1m(getattr(base, one.name)) for one in fields(base)}
    block: dict[str, object] = {f"{name}_per_1m": amount for name, amount in known.items() if name in always or amount is not None}
    services = {name: price_block(inner) for name, inner in price.services.items()}
    return {**block, "service_tiers": services} if services else block


def _usd_per_1m(pico: int | None) -> Decimal | None:
    return None if pico is None else Decimal(pico) / 1_000_000
