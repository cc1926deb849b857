"""What an answer of the Responses API says: one typed read per event or body; what is in none of these members stays unread.

https://platform.openai.com/docs/api-reference/responses-streaming
"""

from __future__ import annotations

from math import isfinite
from typing import TypeVar

import msgspec

from n4n.core import json_bytes

SHAPE = "openai_responses"  # of chunks and requests in these words
FORMAT = "openai-responses-v1"  # of the reasoning entries that only this API can read
Object = dict[str, object]
T = TypeVar("T")


class Part(msgspec.Struct, gc=False):
    """A part of an item's content, or of its summary."""

    type: str = ""
    text: str | None = None
    refusal: str | None = None
    annotations: list[Object] | None = None
    logprobs: list[Object] | None = None


class Item(msgspec.Struct, gc=False):
    """An item of the output."""

    type: str = ""
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    input: str | None = None  # of a custom tool's call
    content: list[Part] | None = None
    summary: list[Part] | None = None
    encrypted_content: str | None = None


class Incomplete(msgspec.Struct, gc=False):
    """Why a response ended early."""

    reason: str | None = None


class Answer(msgspec.Struct, gc=False):
    """A response, whole or on its way."""

    id: str | None = None
    status: str | None = None
    model: str | None = None
    created_at: float | None = None
    output: list[Item] | None = None
    incomplete_details: Incomplete | None = None
    usage: object = None
    service_tier: object = None
    error: object = None


class Said(msgspec.Struct, gc=False):
    """One event of a stream."""

    type: str = ""
    output_index: int = 0
    delta: str | None = None
    logprobs: list[Object] | None = None
    annotation: Object | None = None
    item: Item | None = None
    response: Answer | None = None
    error: object = None


def whole_seconds(created: float | None) -> int:
    """The time that an answer tells, without its fraction; 0 where it tells none that can be."""
    return int(created) if created and isfinite(created) else 0


_SAID = msgspec.json.Decoder(Said)
_ANSWER = msgspec.json.Decoder(Answer)


def read_event(data: bytes) -> Said | None:
    """One event; None: not JSON. JSON in the shape of no event is one of no known type."""
    said = _read(data, _SAID, Said)
    if not isinstance(said, dict):
        return said
    return Said(type=str(said.get("type")), error=said.get("error"))


def read_answer(body: bytes) -> Answer | None:
    """A whole response; None: not JSON, or not in this shape."""
    answer = _read(body, _ANSWER, Answer)
    return answer if isinstance(answer, Answer) else None


def _read(raw: bytes, decoder: msgspec.json.Decoder[T], shape: type[T]) -> T | Object | None:
    """Typed, else the parsed object where its members are of types that nobody expects; None: no JSON object."""
    try:
        raw if raw.isascii() else raw.decode()
        return decoder.decode(raw)
    except (ValueError, RecursionError):  # msgspec's errors and UnicodeDecodeError are ValueErrors
        pass
    try:
        raw.decode()
        said = json_bytes.parse(raw)
    except ValueError:
        return None
    if not isinstance(said, dict):
        return shape()
    try:
        return msgspec.convert(said, shape)  # half a surrogate pair in an escape is no reason to fail
    except (ValueError, RecursionError):  # half a pair in a member's name is one
        return said
