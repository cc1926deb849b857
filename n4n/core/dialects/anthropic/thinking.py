"""Reasoning: what a chat asks for as `thinking` and `effort`, and signed reasoning of earlier turns as the blocks it was."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import cast

import msgspec

from n4n.core.dialects.anthropic.chat_words import Reasoning, decoded
from n4n.core.dialects.anthropic.events import FORMAT
from n4n.core.dialects.anthropic.parts import Block

_WORD = msgspec.json.Decoder(str | None)
_REASONING = msgspec.json.Decoder(Reasoning | None)
_FLAG = msgspec.json.Decoder(bool | None)
_EFFORTS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "xhigh", "max": "max"}
# Tokens for models that are told a budget, of which 1,024 is the least (`thinking.budget_tokens`).
_BUDGETS = {"minimal": 1_024, "low": 2_048, "medium": 8_192, "high": 16_384, "xhigh": 32_000, "max": 32_000}
LEAST_BUDGET = 1_024


@dataclass(frozen=True, slots=True)
class Wish:
    """How much a chat wants reasoned; `effort` is OpenAI's word, None: it says nothing of it."""

    effort: str | None = None
    budget: int | None = None
    display: str | None = None

    @property
    def wants(self) -> bool:
        """Whether it wants any."""
        return self.effort != "none" and not (self.effort is None and self.budget is None)


def wish(fields: Mapping[str, bytes]) -> Wish:
    """`reasoning_effort`, `reasoning` (OpenRouter's) and `include_reasoning` of a chat as one. Raises MalformedRequest."""
    effort = decoded(fields.get("reasoning_effort", b"null"), _WORD, "reasoning_effort")
    include = decoded(fields.get("include_reasoning", b"null"), _FLAG, "include_reasoning")
    more = decoded(fields.get("reasoning", b"null"), _REASONING, "reasoning") or Reasoning()
    if more.enabled is False:
        effort = "none"
    effort = effort or more.effort or ("medium" if more.enabled and more.max_tokens is None else None)
    shown = include if more.exclude is None else not more.exclude
    return Wish(effort, more.max_tokens, None if shown is None else "summarized" if shown else "omitted")


def thinking(wish: Wish, max_tokens: int, *, adaptive: bool) -> tuple[Block | None, str | None]:
    """`thinking` and `output_config.effort` for a wish; (None, None): nothing was wished, or `max_tokens` leaves no room for it.

    `adaptive`: the model decides itself how much, guided by an effort; else it is told a budget, which is part of `max_tokens`.
    """
    if wish.effort == "none":
        return {"type": "disabled"}, None
    if not wish.wants:
        return None, None
    shown: Block = {} if wish.display is None else {"display": wish.display}
    if adaptive:
        return {"type": "adaptive", **shown}, _EFFORTS.get(wish.effort or "")
    budget = wish.budget or _BUDGETS.get(wish.effort or "", _BUDGETS["medium"])
    if budget >= max_tokens:
        budget = max_tokens // 2
    return ({"type": "enabled", "budget_tokens": max(budget, LEAST_BUDGET), **shown} if max_tokens > LEAST_BUDGET else None), None


def restored(blocks: list[Block], details: object) -> list[Block]:
    """The blocks of an earlier answer with its signed reasoning at the places it had; entries that only others can read are left out."""
    for place, block in _signed(details if isinstance(details, list) else ()):
        blocks.insert(len(blocks) if place > len(blocks) else place, block)
    return blocks


def _signed(details: Iterable[object]) -> list[tuple[int, Block]]:
    found: list[tuple[int, Block]] = []
    for entry in details:
        if not isinstance(entry, dict) or entry.get("format") != FORMAT:
            continue
        detail = cast(dict[str, object], entry)
        place = detail.get("index")
        block = block_of(detail)
        if block is not None:
            found.append((place if type(place) is int and place >= 0 else len(found), block))
    return sorted(found, key=lambda one: one[0])


def block_of(detail: Mapping[str, object]) -> Block | None:
    """The block that an entry of Claude's reasoning was; None: it is not signed, so Claude would refuse it."""
    signature, data, text = detail.get("signature"), detail.get("data"), detail.get("text")
    if detail.get("type") == "reasoning.text" and isinstance(signature, str) and signature:
        return {"type": "thinking", "thinking": text if isinstance(text, str) else "", "signature": signature}
    if detail.get("type") == "reasoning.encrypted" and isinstance(data, str) and data:
        return {"type": "redacted_thinking", "data": data}
    return None
