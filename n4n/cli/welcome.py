"""What `n4n up` prints when it is ready: where, with which key, a curl line to paste, and how to stop."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import cast

from n4n.cli.router_probe import Router

LOOKED_AT = 12  # models asked about before giving up on a good example
NO_CATALOG = "no model can answer yet: set OPENAI_API_KEY (or another provider's key) and start again, or use --sim or --catalog FILE"


def example_model(router: Router) -> str | None:
    """The cheapest model, of the first few, that a request would reach; None when there is none."""
    found: list[tuple[float, str]] = []
    for model in router.models()[:LOOKED_AT]:
        body = router.explain(model).body
        candidates = cast(list[Mapping[str, object]], body.get("candidates", [])) if isinstance(body, dict) else []
        found.extend((_input_price(candidate), model) for candidate in candidates if candidate.get("kept"))
    return min(found)[1] if found else None


def _input_price(candidate: Mapping[str, object]) -> float:
    price = candidate.get("price")
    told = price.get("input_per_1m") if isinstance(price, Mapping) else None
    return float(str(told)) if told is not None else float("inf")


def curl(base_url: str, api_key: str, model: str) -> str:
    """One line to paste into a shell."""
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "Hello!"}]})
    return f"curl {base_url}/chat/completions -H 'Authorization: Bearer {api_key}' -H 'Content-Type: application/json' -d '{body}'"


def welcome(base_url: str, api_key: str, model: str | None, took_s: float) -> str:
    """The whole text."""
    head = f"n4n is ready after {took_s:.1f} s\n\n  base URL  {base_url}\n  API key   {api_key}\n"
    trial = f"try it:\n\n{curl(base_url, api_key, model)}\n" if model else f"{NO_CATALOG}\n"
    return f"{head}\n{trial}\nCtrl-C stops everything; the next `n4n up` finds its versions, keys and history again.\n"
