"""Tokens as the Responses API spells them, and in the one shape of the gateway; both ways. All input, cached included."""

from __future__ import annotations

from collections.abc import Mapping

from n4n.core.chat import Usage
from n4n.core.service_tiers import tier_of
from n4n.core.usage import normalise

_SPELLINGS = {
    "prompt_tokens": "input_tokens",
    "completion_tokens": "output_tokens",
    "total_tokens": "total_tokens",
    "prompt_tokens_details": "input_tokens_details",
    "completion_tokens_details": "output_tokens_details",
}


def read(said: object, service_tier: object = None) -> Usage | None:
    """A `usage` object, and the answer's tier beside it; None where no count can be read."""
    if not isinstance(said, Mapping):
        return None
    return normalise({ours: said.get(theirs) for ours, theirs in _SPELLINGS.items()}, tier_of(service_tier))


def spelled(usage: Usage) -> dict[str, object]:
    """A `usage` object in the words of Responses."""
    return {theirs: value for (_, theirs), value in zip(_SPELLINGS.items(), in_chat(usage).values(), strict=True)}


def in_chat(usage: Usage) -> dict[str, object]:
    """A `usage` object in the words of chat completions."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": usage.cache_write_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
