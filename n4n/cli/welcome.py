"""What `n4n up` prints when it is ready: where, with which key, a curl line to paste, and how to stop."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import cast

from n4n.cli.router_probe import Router

LOOKED_AT = 12  # models asked about before giving up on an example
NO_CATALOG = "no model can answer yet: set OPENAI_API_KEY (or another provider's key) and start again, or use --sim or --catalog FILE"


def example_model(router: Router, models: Sequence[Mapping[str, object]]) -> str | None:
    """The cheapest model that a request would reach; None when there is none. `models` as GET /v1/models lists them."""
    by_price = sorted((_least_price(model), str(model.get("id"))) for model in models if _is_itself(model))
    return next((model for _, model in by_price[:LOOKED_AT] if _is_reached(router, model)), None)


def _is_itself(model: Mapping[str, object]) -> bool:
    """Not an alias, not a tier."""
    told = model.get("n4n")
    return isinstance(told, Mapping) and told.get("model") == model.get("id")


def _least_price(model: Mapping[str, object]) -> float:
    told = cast(Mapping[str, object], model["n4n"])
    prices = [endpoint.get("price") for endpoint in cast(list[Mapping[str, object]], told.get("endpoints", []))]
    inputs = [price.get("input_per_1m") for price in prices if isinstance(price, Mapping)]
    return min((float(str(one)) for one in inputs if one is not None), default=float("inf"))


def _is_reached(router: Router, model: str) -> bool:
    body = router.explain(model).body
    candidates = cast(list[Mapping[str, object]], body.get("candidates", [])) if isinstance(body, dict) else []
    return any(candidate.get("kept") for candidate in candidates)


def curl(base_url: str, api_key: str, model: str) -> str:
    """One line to paste into a shell."""
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "Hello!"}]})
    return f"curl {base_url}/chat/completions -H 'Authorization: Bearer {api_key}' -H 'Content-Type: application/json' -d '{body}'"


def welcome(base_url: str, api_key: str, model: str | None, took_s: float) -> str:
    """The whole text."""
    head = f"n4n is ready after {took_s:.1f} s\n\n  base URL  {base_url}\n  API key   {api_key}\n"
    trial = f"try it:\n\n{curl(base_url, api_key, model)}\n" if model else f"{NO_CATALOG}\n"
    return f"{head}\n{trial}\nCtrl-C stops everything; the next `n4n up` finds its versions, keys and history again.\n"
