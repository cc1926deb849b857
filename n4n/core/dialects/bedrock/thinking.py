"""Reasoning: what a chat asks for in the fields of each model, and the reasoning of earlier turns as the blocks it was.

https://docs.aws.amazon.com/bedrock/latest/userguide/claude-messages-extended-thinking.html, …-adaptive-thinking.html,
https://docs.aws.amazon.com/nova/latest/nova2-userguide/extended-thinking.html. Converse has no word for any of it: it goes
among `additionalModelRequestFields`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import cast

import msgspec

from n4n.core import json_bytes
from n4n.core.dialects.bedrock.events import CLAUDES, OWN, Object
from n4n.core.dialects.bedrock.models import Reasoning, Traits
from n4n.core.dialects.bedrock.notes import Notes
from n4n.core.dialects.bedrock.words import Reasoning as Routed
from n4n.core.dialects.bedrock.words import Thinking, decoded, word

LEAST_BUDGET = 1_024
_ROUTED = msgspec.json.Decoder(Routed | None)
_THINKING = msgspec.json.Decoder(Thinking | None)
_FLAG = msgspec.json.Decoder(bool | None)
_EFFORTS = ("low", "medium", "high", "xhigh", "max")  # Claude's
_NOVAS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high"}
_BUDGETS = {"minimal": 1_024, "low": 2_048, "medium": 8_192, "high": 16_384, "xhigh": 32_000, "max": 32_000}


@dataclass(frozen=True, slots=True)
class Wish:
    """How much a chat wants reasoned; `effort` is OpenAI's word, none: not at all. `display` is Claude's word for what is shown."""

    effort: str | None = None
    budget: int | None = None
    adaptive: bool = False  # it leaves that to the model
    display: str | None = None

    @property
    def wants(self) -> bool:
        """Whether it wants any."""
        return self.effort != "none" and not (self.effort is None and self.budget is None and not self.adaptive)


def wish(fields: Mapping[str, bytes]) -> Wish:
    """`reasoning_effort`, `reasoning`, `thinking` and `include_reasoning` as one. Raises MalformedRequest."""
    effort = word(fields.get("reasoning_effort"), "reasoning_effort")
    include = decoded(fields.get("include_reasoning"), _FLAG, "include_reasoning")
    routed = decoded(fields.get("reasoning"), _ROUTED, "reasoning") or Routed()
    own = decoded(fields.get("thinking"), _THINKING, "thinking")
    if routed.enabled is False or (own is not None and own.type == "disabled"):
        effort = "none"
    effort = effort or routed.effort or ("medium" if routed.enabled and routed.max_tokens is None else None)
    shown = include if routed.exclude is None else not routed.exclude
    display = own.display if own is not None and own.display else None if shown is None else "summarized" if shown else "omitted"
    budget = own.budget_tokens if own is not None and own.budget_tokens is not None else routed.max_tokens
    return Wish(effort, budget, own is not None and own.type == "adaptive", display)


def reasoning_fields(wish: Wish, traits: Traits, limit: int | None, notes: Notes) -> Object:
    """The model's own fields for a wish; empty: nothing was wished, or the model cannot be told. `limit`: of all output, None: none."""
    if wish.effort == "none" or not wish.wants:
        return _off(traits, notes) if wish.effort == "none" else {}
    effort = wish.effort or _effort_of(wish.budget)
    match traits.reasoning:
        case Reasoning.ADAPTIVE:
            shown = {} if wish.display is None else {"display": wish.display}
            fields: Object = {"thinking": {"type": "adaptive", **shown}}
            near = "low" if effort == "minimal" else effort
            return fields | ({"output_config": {"effort": near}} if near in _EFFORTS else {})
        case Reasoning.BUDGET:
            return _budget(wish, limit, notes)
        case Reasoning.NOVA:
            return {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": _NOVAS.get(effort or "", "medium")}}
        case Reasoning.NESTED:
            return {"reasoning": {"effort": effort or "medium"}}
        case Reasoning.FLAT:
            return {"reasoning_effort": effort or "medium"}
    notes.left_out("reasoning", "cannot be told how much to reason")
    return {}


def _off(traits: Traits, notes: Notes) -> Object:
    match traits.reasoning:
        case Reasoning.ADAPTIVE if traits.always_reasons:
            notes.left_out("reasoning_effort none", "always reasons")
        case Reasoning.ADAPTIVE | Reasoning.BUDGET:
            return {"thinking": {"type": "disabled"}}
        case Reasoning.NOVA:
            return {"reasoningConfig": {"type": "disabled"}}
        case Reasoning.NESTED:
            return {"reasoning": {"effort": "none"}}
        case Reasoning.FLAT:
            notes.left_out("reasoning_effort none", "always reasons")
        case _:
            pass  # it does not reason
    return {}


def _budget(wish: Wish, limit: int | None, notes: Notes) -> Object:
    """A number of tokens, which is part of the limit and less than it."""
    budget = max(wish.budget or _BUDGETS.get(wish.effort or "", _BUDGETS["medium"]), LEAST_BUDGET)
    if limit is not None and budget >= limit:
        budget = max(limit // 2, LEAST_BUDGET)
    if limit is not None and budget >= limit:
        notes.left_out("reasoning", f"needs more than {LEAST_BUDGET} max_tokens for it")
        return {}
    return {"thinking": {"type": "enabled", "budget_tokens": budget}}


def _effort_of(budget: int | None) -> str | None:
    """The nearest effort of a number of tokens."""
    if budget is None:
        return None
    return next((effort for effort in ("low", "medium", "high") if budget <= _BUDGETS[effort]), "max")


def restored(blocks: list[bytes], details: Iterable[object], *, signed: bool) -> list[bytes]:
    """The blocks of an earlier answer with its reasoning at the places it had; entries that only others can read are left out.

    `signed`: the model knows Claude's signatures. What was encrypted on Bedrock goes back to Bedrock.
    """
    found: list[tuple[int, bytes]] = []
    for entry in details:
        block = _block_of(cast(Object, entry), signed=signed) if isinstance(entry, dict) else None
        if block is not None:
            place = cast(Object, entry).get("index")
            found.append((place if type(place) is int and place >= 0 else len(found), block))
    for place, block in sorted(found, key=lambda one: one[0]):
        blocks.insert(place, block)
    return blocks


def _block_of(detail: Object, *, signed: bool) -> bytes | None:
    """The block that an entry of reasoning was; None: this model would refuse it."""
    signature, data, text = detail.get("signature"), detail.get("data"), detail.get("text")
    match detail.get("type"), detail.get("format"):
        case "reasoning.text", form if form == CLAUDES and signed and isinstance(signature, str) and signature:
            told = {"text": text if isinstance(text, str) else "", "signature": signature}
            return json_bytes.dump({"reasoningContent": {"reasoningText": told}})
        case "reasoning.encrypted", form if form == OWN and isinstance(data, str) and data:
            return json_bytes.dump({"reasoningContent": {"redactedContent": data}})
    return None
