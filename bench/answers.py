"""One answer in the words of each dialect: half a kilobyte of text whole, and as a stream of as many events as `payloads` has."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from zlib import crc32

from bench import payloads

WORDS = [f" word{number}" for number in range(payloads.EVENTS - 4)]
_PROMPT, _COMPLETION = 412, 28


@dataclass(frozen=True, slots=True)
class Answers:
    """What a provider sends: a whole body, and the pieces of a stream."""

    model: str
    whole: bytes
    pieces: tuple[bytes, ...]


def answers() -> Mapping[str, Answers]:
    """By dialect."""
    return {
        "openai": _openai(),
        "openai_responses": _responses(),
        "anthropic": _anthropic(),
        "gemini": _gemini(),
        "bedrock": _bedrock(),
    }


def _json(content: object) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()


def _event(content: object, name: str = "") -> bytes:
    return (f"event: {name}\n".encode() if name else b"") + b"data: " + _json(content) + b"\n\n"


def _openai() -> Answers:
    _, _, whole = payloads.answer().partition(b"\r\n\r\n")
    framed = [piece.split(b"\r\n\r\n", 1)[1] if piece.startswith(b"HTTP") else piece for piece in payloads.stream_pieces()]
    return Answers("bench-model", whole, tuple(piece.split(b"\r\n", 1)[1].split(b"\r\n")[0] for piece in framed))


def _responses() -> Answers:
    usage = {
        "input_tokens": _PROMPT, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": _COMPLETION,
        "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": _PROMPT + _COMPLETION,
    }  # fmt: skip

    def response(status: str, text: str | None) -> dict[str, object]:
        part: dict[str, object] = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
        message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}
        told = {"id": "resp_1", "object": "response", "created_at": 1_764_460_800, "status": status, "model": "m", "error": None}
        return {**told, "incomplete_details": None, "output": [] if text is None else [message], "usage": usage if text else None}

    at = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    text = "".join(WORDS)
    opened = {"type": "message", "id": "msg_1", "role": "assistant", "status": "in_progress", "content": []}
    events: list[dict[str, object]] = [
        {"type": "response.created", "response": response("in_progress", None)},
        {"type": "response.output_item.added", "output_index": 0, "item": opened},
        *({"type": "response.output_text.delta", **at, "delta": word, "logprobs": []} for word in WORDS),
        {"type": "response.output_text.done", **at, "text": text, "logprobs": []},
        {"type": "response.completed", "response": response("completed", text)},
    ]
    pieces = tuple(_event({**event, "sequence_number": place}, str(event["type"])) for place, event in enumerate(events))
    return Answers("gpt-5", _json(response("completed", payloads.TEXT)), pieces)


def _anthropic() -> Answers:
    usage = {"input_tokens": _PROMPT, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0, "output_tokens": _COMPLETION}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_sequence": None, "usage": usage}
    whole = {**message, "content": [{"type": "text", "text": payloads.TEXT}], "stop_reason": "end_turn"}
    events: list[dict[str, object]] = [
        {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": word}} for word in WORDS[1:]),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": usage},
        {"type": "message_stop"},
    ]
    return Answers("claude-sonnet-4-6", _json(whole), tuple(_event(event, str(event["type"])) for event in events))


def _gemini() -> Answers:
    usage = {"promptTokenCount": _PROMPT, "candidatesTokenCount": _COMPLETION, "totalTokenCount": _PROMPT + _COMPLETION}

    def said(text: str, **more: object) -> dict[str, object]:
        candidate = {"content": {"role": "model", "parts": [{"text": text}]}, "index": 0, **more}
        return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "m", "responseId": "r1"}

    pieces = [_event(said(word)) for word in (*WORDS, *WORDS[:3])] + [_event(said(".", finishReason="STOP"))]
    return Answers("gemini-2.5-flash", _json(said(payloads.TEXT, finishReason="STOP")), tuple(pieces))


def _bedrock() -> Answers:
    usage = {"inputTokens": _PROMPT, "outputTokens": _COMPLETION, "totalTokens": _PROMPT + _COMPLETION}
    message = {"message": {"role": "assistant", "content": [{"text": payloads.TEXT}]}}
    pieces = [
        _frame("messageStart", {"role": "assistant"}),
        *(_frame("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": word}}) for word in WORDS),
        _frame("contentBlockStop", {"contentBlockIndex": 0}),
        _frame("messageStop", {"stopReason": "end_turn"}),
        _frame("metadata", {"usage": usage, "metrics": {"latencyMs": 500}}),
    ]
    whole = {"output": message, "stopReason": "end_turn", "usage": usage, "metrics": {"latencyMs": 500}}
    return Answers("anthropic.claude-sonnet-4-6", _json(whole), tuple(pieces))


def _frame(kind: str, payload: object) -> bytes:
    """One message of AWS' event stream (https://smithy.io/2.0/aws/amazon-eventstream.html)."""
    body, headers = _json(payload), b""
    for name, value in ((":event-type", kind), (":content-type", "application/json"), (":message-type", "event")):
        headers += struct.pack(f">B{len(name)}sBH{len(value)}s", len(name), name.encode(), 7, len(value), value.encode())
    start = struct.pack(">II", 16 + len(headers) + len(body), len(headers))
    framed = start + struct.pack(">I", crc32(start)) + headers + body
    return framed + struct.pack(">I", crc32(framed))
