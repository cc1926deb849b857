"""What a stream of Messages says: one typed read per event, a whole message as events, and events as a whole message.

https://platform.claude.com/docs/en/build-with-claude/streaming
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import cast

import msgspec

from n4n.core import json_bytes

SHAPE = "anthropic"  # of chunks and requests in these words
FORMAT = "anthropic-claude-v1"  # of the reasoning entries that only Claude can read
Object = dict[str, object]


class Block(msgspec.Struct, gc=False):
    """A content block, of which only what the gateway looks at is read."""

    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None  # of redacted_thinking
    id: str | None = None
    name: str | None = None
    input: msgspec.Raw = msgspec.Raw(b"{}")


class Delta(msgspec.Struct, gc=False):
    """What a `content_block_delta` or `message_delta` brings."""

    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None
    stop_details: dict[str, object] | None = None


class Opening(msgspec.Struct, gc=False):
    """The message of a `message_start`."""

    id: str | None = None
    model: str | None = None
    usage: object = None


class Said(msgspec.Struct, gc=False):
    """One event of a stream."""

    type: str = ""
    index: int = 0
    message: Opening | None = None
    content_block: Block | None = None
    delta: Delta | None = None
    usage: object = None
    error: object = None


_READ = msgspec.json.Decoder(Said).decode


def read(data: bytes) -> Said | None:
    """One event; None: not JSON. JSON in the shape of no event is an event of no known type."""
    try:
        data if data.isascii() else data.decode()
        return _READ(data)
    except (ValueError, RecursionError):  # msgspec's errors and UnicodeDecodeError are ValueErrors
        pass
    try:
        data.decode()
        said = json_bytes.parse(data)
    except ValueError:
        return None
    if not isinstance(said, dict):
        return Said()
    try:
        return msgspec.convert(_raw_input(said), Said)  # half a surrogate pair in an escape is no reason to fail
    except ValueError:  # not in this shape, or half a pair where a number has to be
        return Said(error=said.get("error") or (said if said.get("type") == "error" else None))


def _raw_input(said: Object) -> Object:
    block = said.get("content_block")
    if isinstance(block, dict) and "input" in block:
        return {**said, "content_block": {**block, "input": msgspec.Raw(json_bytes.dump(block["input"]))}}
    return said


def dump(value: object) -> bytes:
    """JSON of a parsed value with raw parts in it; half surrogate pairs leave as the escapes they came as."""
    try:
        return json_bytes.encode(value)
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"), default=lambda raw: json_bytes.parse(bytes(raw))).encode()


def refusal_of(details: Mapping[str, object] | None) -> str | None:
    """The words in which a refusal explains itself, where it does."""
    explanation = details.get("explanation") if details else None
    return explanation if isinstance(explanation, str) and explanation else None


def as_events(message: Object) -> list[Object]:
    """A whole message as the events that would have told it."""
    content = message.get("content")
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    ending = {name: message[name] for name in ("stop_reason", "stop_sequence", "stop_details", "container") if name in message}
    opening = {**message, "content": [], "stop_reason": None, "stop_sequence": None}
    events: list[Object] = [{"type": "message_start", "message": opening}]
    for index, block in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events.append({"type": "content_block_stop", "index": index})
    ending["stop_reason"] = ending.get("stop_reason") or "end_turn"
    events.append({"type": "message_delta", "delta": ending, "usage": message.get("usage") or {}})
    return [*events, {"type": "message_stop"}]


def joined(payloads: Iterable[bytes]) -> Object:
    """The whole message that a stream of events told, as a client would join them."""
    message: Object = {"type": "message", "role": "assistant", "content": []}
    blocks: dict[object, Object] = {}
    pieces: dict[object, list[str]] = {}
    for payload in payloads:
        said = cast(Object, json_bytes.parse(payload))
        match said.get("type"):
            case "message_start":
                message = {**message, **_inner(said, "message"), "content": []}
            case "content_block_start":
                blocks[said.get("index")] = _inner(said, "content_block")
            case "content_block_delta":
                _extend(blocks.get(said.get("index"), {}), _inner(said, "delta"), pieces.setdefault(said.get("index"), []))
            case "message_delta":
                message.update(_inner(said, "delta"))
                message["usage"] = {**_inner(message, "usage"), **_inner(said, "usage")}
    for index, block in blocks.items():
        if text := "".join(pieces.get(index, ())):
            block["input"] = input_object(text)
    message["content"] = list(blocks.values())
    return message


def _extend(block: Object, delta: Object, pieces: list[str]) -> None:
    for name in ("text", "thinking"):
        if isinstance(delta.get(name), str):
            block[name] = str(block.get(name) or "") + str(delta[name])
    if isinstance(delta.get("signature"), str):
        block["signature"] = delta["signature"]
    if isinstance(delta.get("citation"), dict):
        citations = block.get("citations")
        block["citations"] = [*(citations if isinstance(citations, list) else []), delta["citation"]]
    if isinstance(delta.get("partial_json"), str):
        pieces.append(str(delta["partial_json"]))


def input_object(text: str) -> msgspec.Raw:
    """The arguments of a call as the object that `input` has to be, its text as it came; broken ones in a wrapper that says so.

    The wrapper is the one Anthropic proposes for its own broken inputs:
    https://platform.claude.com/docs/en/agents-and-tools/tool-use/fine-grained-tool-streaming
    """
    raw = text.encode(errors="backslashreplace").strip()
    if not raw:
        return msgspec.Raw(b"{}")
    try:
        if isinstance(json_bytes.parse(raw), dict):
            return msgspec.Raw(raw)
    except json_bytes.NotJson:
        pass
    return msgspec.Raw(json_bytes.dump({"INVALID_JSON": text}))


def _inner(said: Object, name: str) -> Object:
    inner = said.get(name)
    return inner if isinstance(inner, dict) else {}
