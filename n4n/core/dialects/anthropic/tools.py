"""Tools of a chat, and how they may be chosen, in the words of Messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import msgspec

from n4n.core import json_bytes
from n4n.core.dialects.anthropic.chat_words import Choice, Definition, Tool, decoded, given
from n4n.core.dialects.anthropic.parts import Block, Notes
from n4n.core.dialects.anthropic.schema import closed

Fields = Mapping[str, bytes]
_TOOLS = msgspec.json.Decoder(list[Tool] | None)
_FUNCTIONS = msgspec.json.Decoder(list[Definition] | None)
_CHOICE = msgspec.json.Decoder(Choice | str | None)
_FLAG = msgspec.json.Decoder(bool | None)
_WORDS = {"auto": "auto", "required": "any", "any": "any", "none": "none"}
_NO_PARAMETERS = msgspec.Raw(b'{"type":"object","properties":{}}')


def tools(fields: Fields, notes: Notes) -> list[Block]:
    """`tools`, or the old `functions`. Raises MalformedRequest."""
    found: list[Block] = []
    given_tools: list[Tool] | None = decoded(fields.get("tools", b"null"), _TOOLS, "tools")
    for place, tool in enumerate(given_tools or ()):
        if tool.function is None:
            notes.left_out(f"tools[{place}]", f"takes no tool of type {tool.type[:40]}")
        else:
            found.append(_tool(tool.function, tool.cache_control if given(tool.cache_control) else tool.function.cache_control))
    functions = decoded(fields.get("functions", b"null"), _FUNCTIONS, "functions") or ()
    return found + [_tool(function, function.cache_control) for function in functions]


def _tool(function: Definition, mark: msgspec.Raw) -> Block:
    schema: object = function.parameters if given(function.parameters) else _NO_PARAMETERS
    tool: Block = {"name": function.name}
    if function.description:
        tool["description"] = function.description
    if function.strict:
        tool["strict"] = True
        schema = closed(json_bytes.parse(bytes(cast(msgspec.Raw, schema))))
    tool["input_schema"] = schema
    if given(mark):
        tool["cache_control"] = mark
    return tool


def choice(fields: Fields, found: list[Block], notes: Notes) -> tuple[Block | None, list[Block]]:
    """`tool_choice` with `parallel_tool_calls` in it, and the tools it leaves. Raises MalformedRequest."""
    chosen, left = _choice(fields, found, notes)
    if decoded(fields.get("parallel_tool_calls", b"null"), _FLAG, "parallel_tool_calls") is False and left:
        chosen = chosen or {"type": "auto"}
        if chosen["type"] != "none":
            chosen["disable_parallel_tool_use"] = True
    return (chosen if left else None), left


def _choice(fields: Fields, found: list[Block], notes: Notes) -> tuple[Block | None, list[Block]]:
    said = decoded(fields.get("tool_choice", fields.get("function_call", b"null")), _CHOICE, "tool_choice")
    if said is None:
        return None, found
    if isinstance(said, str):
        return _word(said, notes), found
    if said.allowed_tools is not None:
        names = {one.function.name for one in said.allowed_tools.tools if one.function is not None}
        return _word(said.allowed_tools.mode, notes), [tool for tool in found if tool["name"] in names]
    name = said.name if said.function is None else said.function.name
    if name is not None:
        return {"type": "tool", "name": name}, found
    notes.left_out("tool_choice", f"knows no choice of type {said.type[:40]}")
    return None, found


def _word(word: str, notes: Notes) -> Block | None:
    if word not in _WORDS:
        notes.left_out("tool_choice", f"knows no choice {word[:40]}")
        return None
    return {"type": _WORDS[word]}


def is_forced(chosen: Block | None) -> bool:
    """Whether the model has to call a tool."""
    return chosen is not None and chosen["type"] in ("any", "tool")
