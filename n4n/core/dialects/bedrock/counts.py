"""Tokens as Bedrock counts them, in the shapes of the gateway and of chat.

`inputTokens` leaves out what the cache read and wrote
(https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_TokenUsage.html).
"""

from __future__ import annotations

from typing import cast

import msgspec

from n4n.core.chat import Usage
from n4n.core.service_tiers import tier_of
from n4n.core.usage import Told as Reading
from n4n.core.usage import fitted

REASONING_PATH = "/usage/output_tokens_details"  # where Claude tells what it reasoned; Converse has no word for it


class Told(msgspec.Struct, gc=False):
    """`usage` of an answer."""

    inputTokens: object = None
    outputTokens: object = None
    cacheReadInputTokens: object = None
    cacheWriteInputTokens: object = None
    cacheDetails: object = None  # a list of how much was written to be kept for how long


def usage_of(said: Told | None, reasoning: object = None, service_tier: object = None) -> Usage | None:
    """All input, cached and written included; None: nothing was told."""
    if said is None:
        return None
    told = Reading()
    fresh, output = told.count(said.inputTokens), told.count(said.outputTokens)
    if fresh is None and output is None:
        return None
    read, written = told.some(said.cacheReadInputTokens), told.some(said.cacheWriteInputTokens)
    details = said.cacheDetails if isinstance(said.cacheDetails, list) else ()
    hourly = sum(told.some(one.get("inputTokens")) for one in details if isinstance(one, dict) and one.get("ttl") == "1h")
    return fitted(
        told,
        (fresh or 0) + read + written,
        output or 0,
        cached=read,
        written=written,
        hourly=hourly,
        reasoning=told.some(reasoning),
        tier=tier_of(service_tier.get("type")) if isinstance(service_tier, dict) else "",
    )


def reasoning_in(fields: object) -> object:
    """The tokens of reasoning among an answer's `additionalModelResponseFields`, where they were asked for."""
    for name in ("usage", "output_tokens_details"):
        fields = cast(object, fields.get(name)) if isinstance(fields, dict) else None
    return fields.get("thinking_tokens") if isinstance(fields, dict) else None


def in_chat(usage: Usage) -> dict[str, object]:
    """A `usage` object in the words of chat completions."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": usage.cache_write_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
