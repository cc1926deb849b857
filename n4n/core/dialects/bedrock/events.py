"""What Converse and ConverseStream say, as far as a chat has words for it: one typed read per answer or event.

https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStreamOutput.html. What cannot be read strictly (half a
surrogate pair in a text, a member of a type nobody expects) is read leniently, once more.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Iterable
from typing import TypeVar, cast

import msgspec

from n4n.core import json_bytes
from n4n.core.dialects.bedrock.counts import Told

Object = dict[str, object]
CLAUDES = "anthropic-claude-v1"  # of reasoning that Claude signed
OWN = "bedrock-converse-v1"  # of reasoning that only Bedrock can read
_NO_INPUT = msgspec.Raw(b"{}")
T = TypeVar("T")


class Signed(msgspec.Struct, gc=False):
    """`reasoningText`."""

    text: str | None = None
    signature: str | None = None


class Thought(msgspec.Struct, gc=False):
    """`reasoningContent`, of a whole block or of a delta."""

    reasoningText: Signed | None = None
    text: str | None = None
    signature: str | None = None
    redactedContent: str | None = None  # base64


class ToolUse(msgspec.Struct, gc=False):
    """A call; `type` is set where the provider makes it itself. `input` is an object, or a piece of its JSON in a delta."""

    toolUseId: str | None = None
    name: str | None = None
    input: msgspec.Raw = _NO_INPUT
    type: str | None = None


class Words(msgspec.Struct, gc=False):
    """A piece of cited text."""

    text: str | None = None


class Cited(msgspec.Struct, gc=False):
    """`citationsContent`: text beside where it is from."""

    content: list[Words] | None = None


class Block(msgspec.Struct, gc=False):
    """A content block or a delta of one."""

    text: str | None = None
    toolUse: ToolUse | None = None
    reasoningContent: Thought | None = None
    citationsContent: Cited | None = None


class Start(msgspec.Struct, gc=False):
    """`start` of a block."""

    toolUse: ToolUse | None = None


class Said(msgspec.Struct, gc=False):
    """The payload of any event; which one it is stands in its frame."""

    contentBlockIndex: int = 0
    start: Start | None = None
    delta: Block | None = None
    stopReason: str | None = None
    usage: Told | None = None
    additionalModelResponseFields: object = None
    serviceTier: object = None


class _Message(msgspec.Struct, gc=False):
    content: list[Block]


class _Output(msgspec.Struct, gc=False):
    message: _Message


class Whole(msgspec.Struct, gc=False):
    """A whole answer."""

    output: _Output
    stopReason: str | None = None
    usage: Told | None = None
    additionalModelResponseFields: object = None
    serviceTier: object = None


_SAID = msgspec.json.Decoder(Said)
_WHOLE = msgspec.json.Decoder(Whole)


def read_said(payload: bytes) -> Said | None:
    """One event's payload; None: it is no JSON object in UTF-8."""
    return _read(payload, _SAID, Said)


def read_whole(body: bytes) -> Whole | None:
    """A whole answer; None: the body is none."""
    return _read(body, _WHOLE, Whole)


def _read(raw: bytes, decoder: msgspec.json.Decoder[T], shape: type[T]) -> T | None:
    try:
        raw if raw.isascii() else raw.decode()
        return decoder.decode(raw)
    except (ValueError, RecursionError):  # msgspec's errors and UnicodeDecodeError are ValueErrors
        pass
    try:
        raw.decode()
        parsed = json_bytes.parse(raw)
    except ValueError:
        return None
    if not isinstance(parsed, dict):
        return None
    try:
        return msgspec.convert(_lenient(cast(Object, parsed)), shape)
    except ValueError:  # half a pair in a member's name is one
        return None


def _lenient(said: Object) -> Object:
    """With every call's input as raw JSON again, and without members that are not of their type."""
    made = dict(said)
    for name in ("start", "delta"):
        if name in made:
            made[name] = _block(made[name])
    message = _inner(_inner(made, "output"), "message")
    if isinstance(message.get("content"), list):
        blocks = [_block(block) for block in cast(list[object], message["content"]) if isinstance(block, dict)]
        made["output"] = {"message": {"content": blocks}}
    return {**made, "usage": _inner(made, "usage") or None, "stopReason": _text(made.get("stopReason"))}


def _block(block: object) -> object:
    if not isinstance(block, dict):
        return None
    call = block.get("toolUse")
    if isinstance(call, dict):
        texts = {name: _text(call.get(name)) for name in ("toolUseId", "name", "type")}
        return {**block, "toolUse": {**texts, "input": msgspec.Raw(json_bytes.dump(call.get("input") or {}))}}
    return block


def _inner(said: Object, name: str) -> Object:
    inner = said.get(name)
    return inner if isinstance(inner, dict) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def text_of(block: Block) -> str:
    """The text that a client sees of a block or delta, cited or not."""
    cited = block.citationsContent.content if block.citationsContent is not None else None
    return (block.text or "") + "".join(words.text or "" for words in cited or ())


def thought_of(thought: Thought) -> tuple[str, str]:
    """Text and signature of a whole block or of a delta."""
    inner = thought.reasoningText or Signed()
    return inner.text or thought.text or "", inner.signature or thought.signature or ""


def joined_base64(pieces: Iterable[str]) -> str:
    """One base64 text of pieces that were encoded each for itself."""
    found = list(pieces)
    if len(found) == 1:
        return found[0]
    try:
        return b64encode(b"".join(b64decode(piece, validate=True) for piece in found)).decode()
    except (binascii.Error, ValueError):
        return "".join(found)
