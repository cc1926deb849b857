"""Whole answers of Messages: reading one, and the chat completion it is."""

from __future__ import annotations

from typing import cast

import msgspec

from n4n.core import json_bytes
from n4n.core.chat import Chunk
from n4n.core.dialects.anthropic import failures
from n4n.core.dialects.anthropic.chat_chunks import Places, arguments_of, detail, finish_reason
from n4n.core.dialects.anthropic.counts import NOTHING, in_chat
from n4n.core.dialects.anthropic.events import SHAPE, Block, Object, dump, refusal_of
from n4n.core.dialects.classify import garbled
from n4n.core.dialects.completion import NOT_UTF8
from n4n.core.dialects.deltas import text_bytes
from n4n.core.errors import Failure


class _Message(msgspec.Struct, gc=False):
    type: str
    content: list[Block]
    id: str | None = None
    model: str | None = None
    stop_reason: str | None = None
    stop_details: dict[str, object] | None = None
    usage: dict[str, object] | None = None
    error: object = None


_READ = msgspec.json.Decoder(_Message).decode
_NO_MESSAGE = "the provider's answer holds no message"


def read_whole(body: bytes, *, native: bool) -> Chunk | Failure:
    """One whole answer with status 200 as a chunk: its own bytes where the client speaks Messages, else a chat completion."""
    body = _stripped(body)
    try:
        body if body.isascii() else body.decode()
        message = _READ(body)
    except (ValueError, RecursionError):
        parsed = read_message(body)
        if isinstance(parsed, Failure):
            return parsed
        message = _converted(parsed)
    if message.type != "message" or message.error:
        parsed = read_message(body)
        return parsed if isinstance(parsed, Failure) else garbled(_NO_MESSAGE)
    usage = NOTHING.told(message.usage).usage
    spoke = any(block.text or block.thinking or block.type not in ("text", "thinking") for block in message.content)
    size = sum(map(_size, message.content))
    payload, shape = (body, SHAPE) if native else (dump(_completion(message)), "chat")
    return Chunk(payload, content=spoke, finishes=True, usage=usage, output_bytes=size, shape=shape)


def read_message(body: bytes) -> Object | Failure:
    """A whole answer, parsed; a Failure where it is none."""
    body = _stripped(body)
    if not body:
        return garbled("the provider's answer was empty")
    if body[:1] == b"<":
        return garbled("the provider answered with a web page")
    try:
        body.decode()
        said = json_bytes.parse(body)
    except ValueError:
        return garbled(NOT_UTF8)
    if isinstance(said, dict) and said.get("type") == "message" and isinstance(said.get("content"), list) and not said.get("error"):
        return cast(Object, said)
    if failures.read_error(said) is not None:
        return failures.failure_inside(said)
    return garbled(_NO_MESSAGE)


def _stripped(body: bytes) -> bytes:
    return body.strip().removeprefix(b"\xef\xbb\xbf").lstrip()


def _converted(parsed: Object) -> _Message:
    """A message that the strict read refused: half a surrogate pair in it, or members of types that nobody expects."""
    blocks = [block for block in cast(list[object], parsed["content"]) if isinstance(block, dict)]
    return _Message(
        "message",
        [_block(block) for block in blocks],
        id=_text(parsed.get("id")),
        model=_text(parsed.get("model")),
        stop_reason=_text(parsed.get("stop_reason")),
        stop_details=_object(parsed.get("stop_details")),
        usage=_object(parsed.get("usage")),
    )


def _block(block: Object) -> Block:
    words = {name: _text(block.get(name)) for name in ("text", "thinking", "signature", "data", "id", "name")}
    return Block(_text(block.get("type")) or "", **words, input=msgspec.Raw(json_bytes.dump(block.get("input") or {})))


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _object(value: object) -> Object | None:
    return cast(Object, value) if isinstance(value, dict) else None


def _size(block: Block) -> int:
    arguments = len(arguments_of(block)) if block.type == "tool_use" else 0
    return text_bytes(block.text) + text_bytes(block.thinking) + arguments


def _completion(message: _Message) -> Object:
    texts: list[str] = []
    thoughts: list[str] = []
    details: list[Object] = []
    calls: list[Object] = []
    places = Places()
    for block in message.content:
        place = places.next(block.type)
        match block.type:
            case "text":
                texts.append(block.text or "")
            case "thinking":
                thoughts.append(block.thinking or "")
                if block.signature:
                    details.append(detail("reasoning.text", place, text=block.thinking or "", signature=block.signature))
            case "redacted_thinking":
                details.append(detail("reasoning.encrypted", place, data=block.data or ""))
            case "tool_use":
                function = {"name": block.name or "", "arguments": arguments_of(block)}
                calls.append({"id": block.id or f"call_{len(calls)}", "type": "function", "function": function})
    answer: Object = {"role": "assistant", "content": "".join(texts) or None, "refusal": refusal_of(message.stop_details)}
    extras = {"reasoning_content": "".join(thoughts), "reasoning_details": details, "tool_calls": calls}
    answer.update((name, value) for name, value in extras.items() if value)
    reason = finish_reason(message.stop_reason, calls=bool(calls))
    usage = NOTHING.told(message.usage).usage
    return {
        "id": message.id or "",
        "object": "chat.completion",
        "created": 0,
        "model": message.model or "",
        "choices": [{"index": 0, "message": answer, "logprobs": None, "finish_reason": reason}],
        "usage": None if usage is None else in_chat(usage),
    }
