"""Simulated providers (llmock) on real sockets of this process, catalogs that reach each in its dialect, and llmock's verdict on n4n."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from llmock.pytest_plugin import LLMock
from llmock.testing import LLMockServer


@dataclass(frozen=True)
class Place:
    """Where a provider is found at an llmock server, what it speaks, and a model of its own."""

    dialect: str
    path: str
    model: str


PLACES: Mapping[str, Place] = {
    "openai": Place("openai", "/v1", "gpt-4o"),
    "openai-responses": Place("openai_responses", "/v1", "gpt-5"),
    "anthropic": Place("anthropic", "/anthropic", "claude-haiku-4-5"),
    "gemini": Place("gemini", "/gemini/v1beta", "gemini-2.5-pro"),
    "mistral": Place("openai", "/mistral/v1", "mistral-large-2512"),
    "groq": Place("openai", "/groq/openai/v1", "llama-3.3-70b-versatile"),
    "together": Place("openai", "/together/v1", "openai/gpt-oss-120b"),
}


class Simulated(LLMock):
    """One llmock server; several stand for companies that know nothing of each other."""

    def findings(self, but: Collection[str] | None = None) -> list[str]:
        """What its `/_llmock/verdict` holds against n4n, a line each; empty is clean. `but`: warnings that our policy intends."""
        with urllib.request.urlopen(f"{self.url}/_llmock/verdict", timeout=10) as answer:
            told = json.load(answer)["findings"]
        held = [one for one in told if one["severity"] == "error" or one["code"] not in (but or ())]
        return [f"{one['severity']} {one['code']} {one['path']}: {one['title']}" for one in held]


@contextmanager
def simulated() -> Iterator[Simulated]:
    """A server on a thread of this process, for as long as the block lasts."""
    with LLMockServer() as server:
        yield Simulated(server)


def route(*hops: tuple[Simulated, str], **model: object) -> dict[str, object]:
    """A catalog whose model `m` has endpoints e1, e2, … at these providers, asked in this order."""
    names = [f"e{index + 1}" for index in range(len(hops))]
    return {
        "providers": {
            f"p{name}": {"dialect": PLACES[at].dialect, "base_url": f"{server.url}{PLACES[at].path}", "allow_private": True}
            for name, (server, at) in zip(names, hops, strict=True)
        },
        "accounts": {f"a{name}": {"provider": f"p{name}", "credential": "env:CANARY"} for name in names},
        "models": {"m": {"strategy": "cost", "context_window": 128_000, "max_output_tokens": 8192, **model}},
        "endpoints": {
            name: {
                "model": "m",
                "account": f"a{name}",
                "upstream_model": PLACES[at].model,
                "price": {"input_per_1m": 1 + index, "output_per_1m": 10 + index},
            }
            for index, (name, (_, at)) in enumerate(zip(names, hops, strict=True))
        },
    }
