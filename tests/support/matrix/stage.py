"""Where clients and providers meet: one router, one scripted upstream, the official SDKs; each model has a provider of its own."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import anthropic
import openai

from data_plane.health import Health
from tests.support.matrix.client import Client
from tests.support.matrix.table import CLIENTS, PROVIDERS
from tests.support.router import KEY, RunningRouter, running_router
from tests.support.upstream import ScriptedUpstream

Json = object
BASES = {"gemini": "/v1beta", "vertex": "/v1/projects/p/locations/global", "anthropic": "", "bedrock": ""}
_QUIRKS = {"openai": ["max_completion_tokens"], "azure": ["max_completion_tokens"]}
ALONE = {"stream_guard": {"chunks": 1}, "retry": {"max_retries": 0}}  # one attempt, and what came is shown


class Stage:
    """What a cell needs."""

    def __init__(self, house: RunningRouter, upstream: ScriptedUpstream, sdks: tuple[openai.AsyncOpenAI, anthropic.AsyncAnthropic]) -> None:
        self.house, self.upstream = house, upstream
        self.clients: dict[str, Client] = {name: make(*sdks) for name, make in CLIENTS.items()}

    def forget(self) -> None:
        """What the router has learned of endpoints, and what it was scripted to be told."""
        self.house.router.health = Health(time.monotonic, lambda: 0.5)
        self.upstream.calls.clear()
        self.upstream.script()


def providers(upstream: ScriptedUpstream) -> dict[str, object]:
    """The providers of a catalog, `p-NAME`: all of them are one upstream."""
    root = f"http://127.0.0.1:{upstream.port}"
    return {
        f"p-{name}": {
            "dialect": one.dialect,
            "base_url": root + BASES.get(one.dialect, "/v1"),
            "allow_private": True,
            "quirks": _QUIRKS.get(one.dialect, []),
        }
        for name, one in PROVIDERS.items()
    }


def account(provider: str) -> dict[str, object]:
    """An account at a provider."""
    return {"provider": f"p-{provider}", "credential": "env:CANARY"}


def endpoint(model: str, provider: str, account: str, **fields: Json) -> dict[str, object]:
    """An endpoint of a catalog."""
    price = {"input_per_1m": 1, "output_per_1m": 2}
    return {"model": model, "account": account, "upstream_model": PROVIDERS[provider].model, "price": price, **fields}


@asynccontextmanager
async def staged(models: Mapping[str, str]) -> AsyncIterator[Stage]:
    """A stage where each model has one endpoint, `e-MODEL`, through an account of its own at the provider of this name."""
    async with ScriptedUpstream() as upstream:
        document = {
            "providers": providers(upstream),
            "accounts": {f"a-{model}": account(provider) for model, provider in models.items()},
            "models": dict.fromkeys(models, ALONE),
            "endpoints": {f"e-{model}": endpoint(model, provider, f"a-{model}") for model, provider in models.items()},
        }
        async with on_stage(document, upstream) as stage:
            yield stage


@asynccontextmanager
async def on_stage(document: Mapping[str, Json], upstream: ScriptedUpstream) -> AsyncIterator[Stage]:
    """A stage with this catalog."""
    async with running_router(document) as house:
        root = house.base_url.removesuffix("/v1")
        async with (
            openai.AsyncOpenAI(base_url=house.base_url, api_key=KEY, max_retries=0) as one,
            anthropic.AsyncAnthropic(base_url=root, api_key=KEY, max_retries=0) as other,
        ):
            yield Stage(house, upstream, (one, other))
