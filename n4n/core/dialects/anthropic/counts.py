"""Tokens as Anthropic counts them, folded over a stream, and in the one shape of the gateway; both ways.

`input_tokens` leaves out what the cache read and wrote, and counts in a stream are totals so far: later ones replace earlier
ones (https://platform.claude.com/docs/en/api/messages, `usage`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import msgspec

from n4n.core.chat import Usage


class Counts(msgspec.Struct, frozen=True, gc=False):
    """What was told so far; None: not told."""

    uncached: int | None = None
    written: int | None = None
    read: int | None = None
    output: int | None = None
    thinking: int | None = None
    hourly: int | None = None  # of `written`

    def told(self, said: object) -> Counts:
        """With what one `usage` object says laid over it."""
        if not isinstance(said, Mapping):
            return self
        usage = cast(Mapping[str, object], said)
        details, lifetimes = usage.get("output_tokens_details"), usage.get("cache_creation")
        thinking = _count(details.get("thinking_tokens")) if isinstance(details, Mapping) else None
        return Counts(
            _later(usage.get("input_tokens"), self.uncached),
            _later(usage.get("cache_creation_input_tokens"), self.written),
            _later(usage.get("cache_read_input_tokens"), self.read),
            _later(usage.get("output_tokens"), self.output),
            self.thinking if thinking is None else thinking,
            _later(lifetimes.get("ephemeral_1h_input_tokens"), self.hourly) if isinstance(lifetimes, Mapping) else self.hourly,
        )

    def before_output(self) -> Counts:
        """The same input; the output that a stream's first event tells is a placeholder, no count."""
        return Counts(self.uncached, self.written, self.read, hourly=self.hourly)

    @property
    def usage(self) -> Usage | None:
        """All input, cached and written included; None where nothing was told."""
        if self.uncached is None and self.output is None:
            return None
        read, written, output = self.read or 0, self.written or 0, self.output or 0
        thinking, hourly = min(self.thinking or 0, output), min(self.hourly or 0, written)
        return Usage((self.uncached or 0) + read + written, output, read, written, thinking, cache_write_1h_tokens=hourly)


NOTHING = Counts()


def spelled(usage: Usage) -> dict[str, object]:
    """A `usage` object in Anthropic's words."""
    told: dict[str, object] = {
        "input_tokens": max(0, usage.prompt_tokens - usage.cached_tokens - usage.cache_write_tokens),
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
    }
    if usage.reasoning_tokens:
        told["output_tokens_details"] = {"thinking_tokens": usage.reasoning_tokens}
    return told


def in_chat(usage: Usage) -> dict[str, object]:
    """A `usage` object in the words of chat completions."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": usage.cache_write_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def _later(said: object, before: int | None) -> int | None:
    count = _count(said)
    return before if count is None else count


def _count(said: object) -> int | None:
    if type(said) is int:
        return max(0, said)
    if isinstance(said, float) and abs(said) < 1e15:  # false for NaN and infinity too
        return max(0, int(said))
    return None
