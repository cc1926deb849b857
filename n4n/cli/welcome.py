"""What `n4n up` prints when it is ready: where, with which key, a curl line to paste, and how to stop."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import cast
from urllib.parse import urlsplit

from n4n.core.document import Document, Table

NO_CATALOG = "no model can answer yet: set OPENAI_API_KEY (or another provider's key) and start again, or use --sim or --catalog FILE"
LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")
_SHOWN = 2  # obstacles, of many


@dataclass(frozen=True, slots=True)
class World:
    """What decides whether an endpoint can answer now. `listens`: whether somebody does, on a loopback port."""

    states: Mapping[str, str]  # of endpoints that are not active
    dialects: Collection[str]
    environ: Mapping[str, str]
    listens: Callable[[int], bool]


def trial(document: Document, world: World) -> tuple[str | None, str]:
    """The model with the cheapest input among those that a request would reach; None, and why, when there is none."""
    chatting = {name: endpoint for name, endpoint in document["endpoints"].items() if "embeddings" not in _supports(endpoint)}
    obstacles = {name: _obstacle(name, endpoint, document, world) for name, endpoint in chatting.items()}
    if not obstacles:
        return None, NO_CATALOG
    reached = [_priced(document["endpoints"][name]) for name, obstacle in obstacles.items() if not obstacle]
    if reached:
        return min(reached)[1], ""
    found = [obstacle for obstacle, _ in Counter(obstacles.values()).most_common()]
    told = ", ".join(found[:_SHOWN]) + (f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else "")
    return None, f"no endpoint of the catalog can answer now ({told}); see `n4n endpoint list` and `n4n catalog apply -h`"


def _supports(endpoint: Table) -> list[str]:
    return cast(list[str], endpoint.get("supports", []))


def _priced(endpoint: Table) -> tuple[float, str]:
    price = cast(Mapping[str, str], endpoint.get("price", {})).get("input_per_1m")
    return (float(price) if price else float("inf")), str(endpoint["model"])


def _obstacle(name: str, endpoint: Table, document: Document, world: World) -> str:
    """What keeps a request from this endpoint; empty: nothing that could be known here."""
    accounts = [document["accounts"][str(one)] for one in cast(list[str], endpoint.get("accounts") or [endpoint.get("account")])]
    provider_name = str(accounts[0]["provider"])
    provider = document["providers"][provider_name]
    if name in world.states:
        return f"{name} is {world.states[name]}"
    if provider["dialect"] not in world.dialects:
        return f"{provider_name} speaks {provider['dialect']}, which this version does not"
    variables = [str(account.get("credential", "")).removeprefix("env:") for account in accounts if _is_unset(account, world.environ)]
    if len(variables) == len(accounts):
        return f"{variables[0]} is not set"
    place = urlsplit(str(provider.get("base_url", "")))
    if place.hostname in LOOPBACK_HOSTS and not world.listens(place.port or (443 if place.scheme == "https" else 80)):
        return f"{provider_name} does not answer on {place.netloc}"
    return ""


def _is_unset(account: Table, environ: Mapping[str, str]) -> bool:
    kind, _, variable = str(account.get("credential", "")).partition(":")
    return kind == "env" and not environ.get(variable)


def curl(base_url: str, api_key: str, model: str) -> str:
    """One line to paste into a shell."""
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "Hello!"}]})
    return f"curl {base_url}/chat/completions -H 'Authorization: Bearer {api_key}' -H 'Content-Type: application/json' -d '{body}'"


def welcome(base_url: str, api_key: str, model: str | None, obstacle: str, took_s: float) -> str:
    """The whole text; without a `model` to try, the line that says why."""
    head = f"n4n is ready after {took_s:.1f} s\n\n  base URL  {base_url}\n  API key   {api_key}\n"
    tried = f"try it:\n\n{curl(base_url, api_key, model)}\n" if model else f"{obstacle}\n"
    return f"{head}\n{tried}\nCtrl-C stops everything; the next `n4n up` finds its versions, keys and history again.\n"
