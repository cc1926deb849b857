"""Functions a model may call, and whether it must: `tools` and `toolConfig` (https://ai.google.dev/api/caching#Tool)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from n4n.core import json_bytes
from n4n.core.dialects.gemini.parameters import parameters
from n4n.core.dialects.gemini.schemas import Allowance
from n4n.core.errors import MalformedRequest

_MODES = {"auto": "AUTO", "none": "NONE", "required": "ANY", "any": "ANY"}


class _Function(msgspec.Struct):
    name: str
    description: str | None = None
    parameters: object = None
    strict: bool | None = None


class _Tool(msgspec.Struct):
    type: str = "function"
    function: _Function | None = None
    cache_control: object = None


_TOOLS = msgspec.json.Decoder(list[_Tool] | None)


def tools(raw: bytes, allowance: Allowance, warnings: list[str]) -> bytes | None:
    """`tools` with the declarations of all functions; None: there is none. MalformedRequest: the list is none of tools."""
    try:
        read = _TOOLS.decode(raw) or []
    except (msgspec.DecodeError, RecursionError) as error:
        raise MalformedRequest(f"tools cannot be read: {error}", param="tools") from error
    declared = [_declaration(tool.function, allowance, warnings) for tool in read if tool.function is not None]
    for tool in read:
        if tool.function is None:
            warnings.append(f"a tool of type {tool.type[:40]!r} was left out: Gemini takes functions")
    if any(tool.cache_control is not None for tool in read):
        warnings.append("cache_control was left out: Gemini caches prompts by itself")
    return json_bytes.dump([{"functionDeclarations": declared}]) if declared else None


def _declaration(function: _Function, allowance: Allowance, warnings: list[str]) -> dict[str, object]:
    made: dict[str, object] = {"name": function.name}
    if function.description:
        made["description"] = function.description
    schema, left_out = parameters(function.parameters, allowance)
    if schema is not None:
        made["parameters"] = schema
    if function.strict:
        left_out |= {"strict"}
    if left_out:
        warnings.append(f"of the tool {function.name[:64]} was left out: {', '.join(sorted(left_out))[:200]}")
    return made


def tool_config(raw: bytes, warnings: list[str]) -> bytes | None:
    """`toolConfig` of a `tool_choice`; None: the model decides."""
    choice = json_bytes.parse(raw)
    mode, names = _mode(choice)
    if mode is None:
        warnings.append(f"tool_choice was left out: Gemini has none such as {json_bytes.dump(choice).decode()[:100]}")
        return None
    config: dict[str, object] = {"mode": mode}
    if names:
        config["allowedFunctionNames"] = names
    return json_bytes.dump({"functionCallingConfig": config})


def _mode(choice: object) -> tuple[str | None, list[str]]:
    """The mode, and the functions it is about, if not all."""
    if isinstance(choice, str):
        return _MODES.get(choice), []
    if not isinstance(choice, Mapping):
        return None, []
    if choice.get("type") == "function":
        name = _name(choice)
        return ("ANY", [name]) if name else (None, [])
    allowed = choice.get("allowed_tools") if choice.get("type") == "allowed_tools" else None
    listed = allowed.get("tools") if isinstance(allowed, Mapping) else None
    names = [name for tool in (listed if isinstance(listed, list) else []) if isinstance(tool, Mapping) and (name := _name(tool))]
    if not isinstance(allowed, Mapping) or not names:
        return None, []
    return ("ANY" if allowed.get("mode") == "required" else "VALIDATED"), names  # AUTO takes no names


def _name(choice: Mapping[str, object]) -> str | None:
    """The function's name, where chat or Responses put it."""
    function = choice.get("function")
    name = function.get("name") if isinstance(function, Mapping) else choice.get("name")
    return name if isinstance(name, str) else None
