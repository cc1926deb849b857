"""A request of a client that speaks Responses: its members as it wrote them, but for what this endpoint cannot take."""

from __future__ import annotations

import re

import msgspec

from n4n.core import json_bytes
from n4n.core.catalog import Endpoint
from n4n.core.chat import ChatRequest, Native
from n4n.core.chat_request import missing_features
from n4n.core.dialects.responses.chat_words import decoded
from n4n.core.dialects.responses.notes import Notes

Fields = dict[str, bytes]
FOREIGN = "n4n.v1."  # begins what stands where this API's sealed reasoning does, and only other providers can read
_REASONING = re.compile(rb'"type"\s*:\s*"reasoning"')
# The members a feature is asked for by, an inner one behind a dot.
_FEATURE_MEMBERS = {
    "tools": ("tools", "tool_choice", "parallel_tool_calls"),
    "tool_choice": ("tool_choice",),
    "forced_tool_choice": ("tool_choice",),
    "parallel_tools": ("parallel_tool_calls",),
    "reasoning": ("reasoning",),
    "json_schema": ("text.format",),
    "json_object": ("text.format",),
    "logprobs": ("top_logprobs",),
    "sampling_params": ("temperature", "top_p"),
}
_LISTED = {"reasoning": "reasoning.encrypted_content", "logprobs": "message.output_text.logprobs"}  # in `include`


class _Item(msgspec.Struct, gc=False):
    type: str = ""
    encrypted_content: str | None = None


class _Tool(msgspec.Struct, gc=False):
    type: str = ""


_RAW_LIST = msgspec.json.Decoder(list[msgspec.Raw] | None)
_ITEMS = msgspec.json.Decoder(list[_Item])
_TOOLS = msgspec.json.Decoder(list[_Tool] | None)
_NAMES = msgspec.json.Decoder(list[str] | None)


def members(request: ChatRequest, words: Native, endpoint: Endpoint, notes: Notes) -> Fields:
    """The body's members, the model's name still the client's."""
    fields: Fields = dict(words.fields)
    missing = missing_features(request.features, endpoint.supports)
    for feature in sorted(missing):
        for name in _FEATURE_MEMBERS.get(feature, ()):
            _take_out(fields, name, feature, notes)
        if feature in _LISTED:
            _unlist(fields, _LISTED[feature], feature, notes)
    if "web_search" in missing:
        _drop_web_search(fields, notes)
    _limit(fields, request, endpoint, notes)
    if "input" in fields and _REASONING.search(memoryview(fields["input"])):
        fields["input"] = _readable(fields["input"], notes)
    if "reasoning" in request.features - missing and bytes(fields.get("store", b"null")) != b"false":
        _list(fields, _LISTED["reasoning"])  # who lets the provider keep its reasoning, gets it to keep
    fields.pop("background", None)
    return fields


def _take_out(fields: Fields, name: str, feature: str, notes: Notes) -> None:
    outer, dot, inner = name.partition(".")
    raw = fields.get(outer)
    if raw is None:
        return
    if not dot:
        del fields[outer]
    else:
        known = json_bytes.members(raw) if json_bytes.is_object(raw) else {}
        if known.pop(inner, None) is None:
            return
        fields[outer] = json_bytes.join(known.items())
    notes.left_out(name, f"does not support {feature}")


def _unlist(fields: Fields, wish: str, feature: str, notes: Notes) -> None:
    names = _included(fields)
    if wish in names:
        fields["include"] = json_bytes.encode([name for name in names if name != wish])
        notes.left_out(f"{wish} in include", f"does not support {feature}")


def _list(fields: Fields, wish: str) -> None:
    names = _included(fields)
    if wish not in names:
        fields["include"] = json_bytes.encode([*names, wish])


def _included(fields: Fields) -> list[str]:
    names: list[str] | None = decoded(fields.get("include", b"null"), _NAMES, "include")
    return names or []


def _drop_web_search(fields: Fields, notes: Notes) -> None:
    raw = fields.get("tools", b"null")
    tools: list[_Tool] | None = decoded(raw, _TOOLS, "tools")
    entries: list[msgspec.Raw] | None = decoded(raw, _RAW_LIST, "tools")
    kept = [entry for entry, tool in zip(entries or (), tools or (), strict=True) if not tool.type.startswith("web_search")]
    fields["tools"] = json_bytes.encode(kept)
    notes.left_out("web_search in tools", "does not support web_search")


def _limit(fields: Fields, request: ChatRequest, endpoint: Endpoint, notes: Notes) -> None:
    most, asked = endpoint.max_output_tokens, request.max_output_tokens
    if most is not None and asked is not None and asked > most:
        fields["max_output_tokens"] = b"%d" % most
        notes.say(f"max_output_tokens was lowered to {most}, the most that endpoint {endpoint.id} writes")


def _readable(raw: bytes, notes: Notes) -> bytes:
    """Without the reasoning that cannot be read here: what another provider sealed, and what the client left to a store that
    nobody keeps, which the API would look for in vain and fail."""
    items: list[_Item] = decoded(raw, _ITEMS, "input")
    entries: list[msgspec.Raw] | None = decoded(raw, _RAW_LIST, "input")
    kept = []
    for place, (entry, item) in enumerate(zip(entries or (), items, strict=True)):
        if item.type != "reasoning" or (item.encrypted_content and not item.encrypted_content.startswith(FOREIGN)):
            kept.append(entry)
        elif not item.encrypted_content:
            notes.left_out(f"input[{place}]", "keeps no reasoning: send its encrypted_content too")
    return raw if len(kept) == len(items) else json_bytes.encode(kept)
