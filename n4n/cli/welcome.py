"""What `n4n up` prints when it is ready: where, with which key, a curl line to paste, and how to stop."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import cast

from n4n.core.document import Document, Table

NO_CATALOG = "no model can answer yet: set OPENAI_API_KEY (or another provider's key) and start again, or use --sim or --catalog FILE"


def example_model(document: Document, states: Mapping[str, str], dialects: Collection[str]) -> str | None:
    """The model with the cheapest input among those that a request would reach; None when there is none."""
    reached = [
        _priced(endpoint) for name, endpoint in document["endpoints"].items() if _is_reached(name, endpoint, document, states, dialects)
    ]
    return min(reached, default=(0.0, None))[1]


def _priced(endpoint: Table) -> tuple[float, str]:
    price = cast(Mapping[str, str], endpoint.get("price", {})).get("input_per_1m")
    return (float(price) if price else float("inf")), str(endpoint["model"])


def _is_reached(name: str, endpoint: Table, document: Document, states: Mapping[str, str], dialects: Collection[str]) -> bool:
    account = str(endpoint.get("account") or cast(list[str], endpoint["accounts"])[0])
    provider = document["providers"][str(document["accounts"][account]["provider"])]
    return name not in states and provider["dialect"] in dialects


def curl(base_url: str, api_key: str, model: str) -> str:
    """One line to paste into a shell."""
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "Hello!"}]})
    return f"curl {base_url}/chat/completions -H 'Authorization: Bearer {api_key}' -H 'Content-Type: application/json' -d '{body}'"


def welcome(base_url: str, api_key: str, model: str | None, took_s: float) -> str:
    """The whole text."""
    head = f"n4n is ready after {took_s:.1f} s\n\n  base URL  {base_url}\n  API key   {api_key}\n"
    trial = f"try it:\n\n{curl(base_url, api_key, model)}\n" if model else f"{NO_CATALOG}\n"
    return f"{head}\n{trial}\nCtrl-C stops everything; the next `n4n up` finds its versions, keys and history again.\n"
