"""Tokens as Bedrock counts them, in the shapes of the gateway and of chat.

`inputTokens` leaves out what the cache read and wrote
(https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_TokenUsage.html).
"""

from __future__ import annotations

from typing import cast

import msgspec

from n4n.core.chat import Usage

REASONING_PATH = "/usage/output_tokens_details"  # where Claude tells what it reasoned; Converse has no word for it


class Lifetime(msgspec.Struct, gc=False):
    """How much was written to be kept for how long."""

    ttl: object = None
    inputTokens: object = None


class Told(msgspec.Struct, gc=False):
    """`usage` of an answer."""

    inputTokens: int | float | None = None
    outputTokens: int | float | None = None
    cacheReadInputTokens: int | float | None = None
    cacheWriteInputTokens: int | float | None = None
    cacheDetails: list[Lifetime] | None = None


def usage_of(told: Told | None, reasoning: int = 0) -> Usage | None:
    """All input, cached and written included; None: nothing was told."""
    if told is None or (told.inputTokens is None and told.outputTokens is None):
        return None
    read, written = _count(told.cacheReadInputTokens), _count(told.cacheWriteInputTokens)
    output = _count(told.outputTokens)
    hourly = min(written, sum(_count(one.inputTokens) for one in told.cacheDetails or () if one.ttl == "1h"))
    prompt = _count(told.inputTokens) + read + written
    return Usage(prompt, output, read, written, min(reasoning, output), cache_write_1h_tokens=hourly)


def reasoning_in(fields: object) -> int:
    """The tokens of reasoning among an answer's `additionalModelResponseFields`, where they were asked for."""
    for name in ("usage", "output_tokens_details"):
        fields = cast(object, fields.get(name)) if isinstance(fields, dict) else None
    return _count(fields.get("thinking_tokens")) if isinstance(fields, dict) else 0


def in_chat(usage: Usage) -> dict[str, object]:
    """A `usage` object in the words of chat completions."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": usage.cache_write_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def _count(said: object) -> int:
    if isinstance(said, bool) or not isinstance(said, int | float) or not 0 <= said < 1e15:  # false for NaN and infinity too
        return 0
    return int(said)
