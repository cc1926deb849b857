"""What a client of Anthropic's Messages makes of a stream: strict about the order of events, and written apart from the gateway's own."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

Json = dict[str, Any]
_BRINGS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature", "input_json_delta": "partial_json"}


def events_of(frames: Iterable[bytes]) -> list[tuple[str, Json]]:
    """Every frame as the event's name and data; each frame is one event, and its data repeats the name."""
    found = []
    for frame in frames:
        assert frame.endswith(b"\n\n") and frame.count(b"\n") == 3, frame
        name, data = (line.partition(b": ")[2] for line in frame.decode().encode().split(b"\n")[:2])
        event = json.loads(data)
        assert event["type"] == name.decode()
        found.append((name.decode(), event))
    return found


def joined(frames: Iterable[bytes]) -> Json:
    """The message of a whole stream, with `n4n` and `usage` as the last events told them."""
    events = [event for name, event in events_of(frames) if name != "ping"]
    assert [event["type"] for event in events[-2:]] == ["message_delta", "message_stop"]
    message: Json = {**events[0]["message"], "content": []}
    assert events[0]["type"] == "message_start"
    open_block: Json | None = None
    for event in events[1:-1]:
        match event["type"]:
            case "content_block_start":
                assert open_block is None, "one block at a time"
                assert event["index"] == len(message["content"])
                open_block = {**event["content_block"]}
                message["content"].append(open_block)
                pieces: list[str] = []
            case "content_block_delta":
                assert open_block is not None and event["index"] == len(message["content"]) - 1
                name = _BRINGS[event["delta"]["type"]]
                if name == "partial_json":
                    pieces.append(event["delta"][name])
                elif name == "signature":
                    open_block[name] = event["delta"][name]
                else:
                    open_block[name] += event["delta"][name]
            case "content_block_stop":
                assert open_block is not None and event["index"] == len(message["content"]) - 1
                if open_block["type"] == "tool_use" and "".join(pieces):
                    open_block["input"] = json.loads("".join(pieces))
                open_block = None
            case "message_delta":
                assert open_block is None
                message |= event["delta"]
                message["usage"] |= event["usage"]
                message["n4n"] = event.get("n4n")
    return message
