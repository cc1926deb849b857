"""Items of an output in the words of a chat's answer: its texts, its calls, its reasoning and what seals it, its finish reason.

Reasoning that has to come back unchanged is an entry of `reasoning_details`; `index` is its place among the items that come back,
consecutive messages counted once, so that it can be put back there.
"""

from __future__ import annotations

from collections.abc import Iterable

from n4n.core.dialects.deltas import text_bytes
from n4n.core.dialects.responses.words import FORMAT, Answer, Item, Object, Part

CALLS = frozenset(("function_call", "custom_tool_call"))


class Places:
    """The places of items in their order, as `reasoning_details` counts them."""

    __slots__ = ("_count", "_was_message")

    def __init__(self) -> None:
        self._count = 0
        self._was_message = False

    def next(self, item: Item) -> int:
        """The place of the item that comes now; the same for all messages in a row."""
        if not (item.type in CALLS or item.type == "message" or is_sealed(item)):
            return self._count
        place = self._count - 1 if item.type == "message" and self._was_message else self._count
        self._was_message = item.type == "message"
        self._count = place + 1
        return place


def is_sealed(item: Item) -> bool:
    """Whether it is reasoning that its provider can read again."""
    return item.type == "reasoning" and bool(item.encrypted_content)


def detail(item: Item, place: int) -> Object:
    """The entry of `reasoning_details` that carries a sealed item."""
    return {"type": "reasoning.encrypted", "data": item.encrypted_content, "id": item.id, "format": FORMAT, "index": place}


def call(item: Item, seed: str) -> Object:
    """An entry of `tool_calls`; arguments that are empty are an object without members. `seed` stands in for an id."""
    name = item.call_id or item.id or f"call_{seed}"
    if item.type == "custom_tool_call":
        return {"id": name, "type": "custom", "custom": {"name": item.name or "", "input": item.input or ""}}
    return {"id": name, "type": "function", "function": {"name": item.name or "", "arguments": item.arguments or "{}"}}


def texts(item: Item, *kinds: str) -> str:
    """The text of an item's parts of these kinds, joined without a separator."""
    parts = (*(item.summary or ()), *(item.content or ()))
    return "".join((part.refusal if part.type == "refusal" else part.text) or "" for part in parts if part.type in kinds)


def reasoning(item: Item) -> str:
    """What an item of reasoning tells in words."""
    return texts(item, "summary_text", "reasoning_text")


def citations(found: Iterable[Object] | None) -> list[Object]:
    """Annotations that a chat knows: pages of the web."""
    said = [dict(one) for one in found or () if one.get("type") == "url_citation"]
    return [{"type": one.pop("type"), "url_citation": one} for one in said]


def parts_of(items: Iterable[Item]) -> list[Part]:
    """The parts of all messages."""
    return [part for item in items if item.type == "message" for part in item.content or ()]


def size(item: Item) -> int:
    """The bytes of text, reasoning and arguments in it."""
    inner = texts(item, "output_text", "refusal", "summary_text", "reasoning_text")
    return text_bytes(inner) + text_bytes(item.arguments) + text_bytes(item.input)


def speaks(item: Item) -> bool:
    """Whether a client would see something of it."""
    return item.type not in ("message", "reasoning") or is_sealed(item) or size(item) > 0


def finish_reason(answer: Answer, *, calls: bool) -> str:
    """OpenAI's word for why it ended."""
    reason = answer.incomplete_details.reason if answer.incomplete_details else None
    if answer.status == "incomplete" and reason != "steered":
        return "content_filter" if reason == "content_filter" else "length"
    return "tool_calls" if calls else "stop"
