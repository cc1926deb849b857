"""Tokens as Anthropic counts them, folded over a stream, and in the one shape of the gateway; both ways.

`input_tokens` leaves out what the cache read and wrote, and counts in a stream are totals so far: later ones replace earlier
ones (https://platform.claude.com/docs/en/api/messages, `usage`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import msgspec

from n4n.core.chat import Usage
from n4n.core.service_tiers import tier_of
from n4n.core.usage import Told, fitted


class Counts(msgspec.Struct, frozen=True, gc=False):
    """What was told so far; None: not told."""

    uncached: int | None = None
    written: int | None = None
    read: int | None = None
    output: int | None = None
    thinking: int | None = None
    hourly: int | None = None  # of `written`
    tier: str = ""  # of service
    doubt: str = ""  # why a count that was told is none

    def told(self, said: object) -> Counts:
        """With what one `usage` object says laid over it."""
        if not isinstance(said, Mapping):
            return self
        usage, told = cast(Mapping[str, object], said), Told(self.doubt)
        details, lifetimes = usage.get("output_tokens_details"), usage.get("cache_creation")
        thinking = details.get("thinking_tokens") if isinstance(details, Mapping) else None
        hourly = lifetimes.get("ephemeral_1h_input_tokens") if isinstance(lifetimes, Mapping) else None
        return Counts(
            _later(told, usage.get("input_tokens"), self.uncached),
            _later(told, usage.get("cache_creation_input_tokens"), self.written),
            _later(told, usage.get("cache_read_input_tokens"), self.read),
            _later(told, usage.get("output_tokens"), self.output),
            _later(told, thinking, self.thinking),
            _later(told, hourly, self.hourly),
            _tier(usage) or self.tier,
            told.doubt,
        )

    def before_output(self) -> Counts:
        """The same input; the output that a stream's first event tells is a placeholder, no count."""
        return Counts(self.uncached, self.written, self.read, hourly=self.hourly, tier=self.tier, doubt=self.doubt)

    @property
    def usage(self) -> Usage | None:
        """All input, cached and written included; None where nothing was told."""
        if self.uncached is None and self.output is None:
            return None
        read, written, output = self.read or 0, self.written or 0, self.output or 0
        prompt, told = (self.uncached or 0) + read + written, Told(self.doubt)
        return fitted(
            told, prompt, output, cached=read, written=written, hourly=self.hourly or 0, reasoning=self.thinking or 0, tier=self.tier
        )


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


def _later(told: Told, said: object, before: int | None) -> int | None:
    count = told.count(said)
    return before if count is None else count


def _tier(usage: Mapping[str, object]) -> str:
    """The tier of service; what was asked to be fast is priced as that, whatever tier it had."""
    return tier_of(usage.get("speed")) or tier_of(usage.get("service_tier"))
