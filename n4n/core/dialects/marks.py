"""Marks in a chat that only some providers know, taken out for all others: cache marks, and reasoning that another one wrote.

A chat that was translated from Messages or Responses bears them, and so may one of a client that talks to Claude most of the time.
OpenAI itself refuses members it does not know, and so do Groq and Mistral; OpenRouter knows these.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import msgspec

from n4n.core import json_bytes

Object = dict[str, object]
CACHE = "cache_control"
_OF_MESSAGES = (CACHE, "reasoning_details", "reasoning_content")
_BUT_CONTENT = _OF_MESSAGES[:2]


def unmarked(fields: Mapping[str, msgspec.Raw], *, keeps_reasoning: bool = False) -> dict[str, bytes]:
    """The members of a chat without marks; those that bear none are the bytes they were. `keeps_reasoning`: plain text of it stays."""
    kept: dict[str, bytes] = {name: raw for name, raw in fields.items() if name != CACHE}
    for name, marks in (("messages", _BUT_CONTENT if keeps_reasoning else _OF_MESSAGES), ("tools", (CACHE,))):
        raw = bytes(kept.get(name, b""))
        if any(b'"%b"' % mark.encode() in raw for mark in marks):
            kept[name] = _without(raw, marks)
    return kept


def _without(raw: bytes, marks: tuple[str, ...]) -> bytes:
    try:
        entries = json_bytes.parse(raw)
    except json_bytes.NotJson:  # too deep to be read whole; whoever gets it will say so
        return raw
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, dict):
            _strip(cast(Object, entry), marks)
    return json_bytes.dump(entries)


def _strip(entry: Object, marks: tuple[str, ...]) -> None:
    content, function = entry.get("content"), entry.get("function")
    inner = [*(content if isinstance(content, list) else []), function]
    for one in (entry, *(part for part in inner if isinstance(part, dict))):
        for mark in marks:
            one.pop(mark, None)
