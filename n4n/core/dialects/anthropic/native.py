"""A request of a client that speaks Messages: its members as it wrote them, but for what this endpoint cannot take."""

from __future__ import annotations

import re
from typing import cast

from n4n.core import json_bytes
from n4n.core.catalog import Endpoint
from n4n.core.chat import ChatRequest, Native
from n4n.core.chat_request import missing_features
from n4n.core.dialects.anthropic.parts import Notes

Fields = dict[str, bytes]
FOREIGN = "n4n.v1."  # begins what stands where Claude's signatures do, and only other providers can read
_UNREADABLE = re.compile(rb'"(?:signature|data)"\s*:\s*"(?:"|n4n\.v1\.)')
# The members a feature is asked for by, an inner one behind a dot.
_FEATURE_MEMBERS = {
    "tools": ("tools", "tool_choice"),
    "tool_choice": ("tool_choice",),
    "forced_tool_choice": ("tool_choice",),
    "parallel_tools": ("tool_choice.disable_parallel_tool_use",),
    "reasoning": ("thinking", "output_config.effort"),
    "json_schema": ("output_config.format", "output_format"),
    "sampling_params": ("temperature", "top_p", "top_k"),
    "stop": ("stop_sequences",),
}
DEFAULT_MAX_TOKENS = 4_096  # where neither client nor catalog says: the least that any Claude writes


def members(request: ChatRequest, words: Native, endpoint: Endpoint, notes: Notes) -> Fields:
    """The body's members, the model's name still the client's."""
    fields: Fields = dict(words.fields)
    for feature in sorted(missing_features(request.features, endpoint.supports)):
        for name in _FEATURE_MEMBERS.get(feature, ()):
            _take_out(fields, name, feature, notes)
    if "tools" in fields and endpoint.supports is not None and "web_search" not in endpoint.supports and "web_search" in request.features:
        _drop_web_search(fields, notes)
    _limit(fields, request, endpoint, notes)
    if b'thinking"' in bytes(fields["messages"]) and _UNREADABLE.search(memoryview(fields["messages"])):
        fields["messages"] = _readable(fields["messages"])
    return fields


def _take_out(fields: Fields, name: str, feature: str, notes: Notes) -> None:
    outer, dot, inner = name.partition(".")
    raw = fields.get(outer)
    if raw is None:
        return
    if dot:
        if not json_bytes.is_object(raw):
            return
        known = json_bytes.members(raw)
        if known.pop(inner, None) is None:
            return
        fields[outer] = json_bytes.join(known.items())
        if not known:
            del fields[outer]
    else:
        del fields[outer]
    notes.left_out(name, f"does not support {feature}")


def _drop_web_search(fields: Fields, notes: Notes) -> None:
    kept: list[object] = []
    for tool in cast(list[object], json_bytes.parse(bytes(fields["tools"]))):
        if isinstance(tool, dict) and str(tool.get("type")).startswith("web_search_"):
            notes.left_out(f"the tool {str(tool['type'])[:40]}", "does not support web_search")
        else:
            kept.append(tool)
    if kept:
        fields["tools"] = json_bytes.dump(kept)
    else:
        del fields["tools"]
        fields.pop("tool_choice", None)


def _limit(fields: Fields, request: ChatRequest, endpoint: Endpoint, notes: Notes) -> None:
    asked, most = request.max_output_tokens, endpoint.max_output_tokens
    if asked is None:
        fields["max_tokens"] = b"%d" % (most or DEFAULT_MAX_TOKENS)
    elif most is not None and asked > most:
        fields["max_tokens"] = b"%d" % most
        notes.say(f"max_tokens was lowered to {most}, the most that endpoint {endpoint.id} writes")


def _readable(raw: bytes) -> bytes:
    """The messages without reasoning that Claude did not sign, which it refuses; a move from another provider leaves it behind."""
    messages = json_bytes.parse(bytes(raw))
    kept: list[object] = []
    for message in messages if isinstance(messages, list) else []:
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, list):
            left = [block for block in content if not _is_foreign(block)]
            if not left and content:
                continue
            message = {**message, "content": left}
        kept.append(message)
    return json_bytes.dump(kept)


def _is_foreign(block: object) -> bool:
    if not isinstance(block, dict):
        return False
    match block.get("type"):
        case "thinking":
            return not block.get("signature") or str(block["signature"]).startswith(FOREIGN)
        case "redacted_thinking":
            return not block.get("data") or str(block["data"]).startswith(FOREIGN)
    return False
