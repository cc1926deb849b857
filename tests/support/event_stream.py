"""AWS' binary event stream, written: frames as Bedrock sends them. Apart from the gateway's own reading, on purpose."""

from __future__ import annotations

import binascii
import json
import struct
from collections.abc import Mapping

Json = object


def frame(headers: Mapping[str, str], payload: bytes) -> bytes:
    """One frame with headers that are texts."""
    return raw_frame(b"".join(text_header(name, value) for name, value in headers.items()), payload)


def text_header(name: str, value: str) -> bytes:
    """One header of type 7."""
    told = value.encode()
    return struct.pack(">B", len(name)) + name.encode() + b"\x07" + struct.pack(">H", len(told)) + told


def raw_frame(headers: bytes, payload: bytes) -> bytes:
    """One frame, with headers as bytes."""
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    told = prelude + struct.pack(">I", binascii.crc32(prelude)) + headers + payload
    return told + struct.pack(">I", binascii.crc32(told))


def event(name: str, **payload: Json) -> bytes:
    """One event of ConverseStream, with its padding."""
    return event_of(name, json.dumps({**payload, "p": "abcdef"}, separators=(",", ":")).encode())


def event_of(name: str, payload: bytes) -> bytes:
    """One event with a payload as bytes."""
    return frame({":event-type": name, ":content-type": "application/json", ":message-type": "event"}, payload)


def exception(name: str, **payload: Json) -> bytes:
    """One exception."""
    headers = {":exception-type": name, ":content-type": "application/json", ":message-type": "exception"}
    return frame(headers, json.dumps(payload).encode())


def text(words: str, block: int = 0) -> bytes:
    """A piece of text."""
    return event("contentBlockDelta", contentBlockIndex=block, delta={"text": words})


START = event("messageStart", role="assistant")


def stop(reason: str = "end_turn") -> bytes:
    """The end of a message."""
    return event("messageStop", stopReason=reason)


def metadata(**usage: int) -> bytes:
    """The usage that follows it."""
    return event("metadata", usage=usage, metrics={"latencyMs": 7})
