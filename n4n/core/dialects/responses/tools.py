"""Tools of a chat, what it forces, and the shape it wants of its answer, as the Responses API spells them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from n4n.core.dialects.responses.chat_words import Choice, Definition, Reference, Tool, decoded, given
from n4n.core.dialects.responses.notes import Notes

Object = dict[str, object]
_TOOLS = msgspec.json.Decoder(list[Tool] | None)
_RAW_LIST = msgspec.json.Decoder(list[msgspec.Raw] | None)
_FUNCTIONS = msgspec.json.Decoder(list[Definition] | None)
_CHOICE = msgspec.json.Decoder(Choice | str | None)
_OBJECT = msgspec.json.Decoder(Object | None)
_NULL = b"null"


def tools(fields: Mapping[str, bytes]) -> list[object]:
    """`tools`, those of the old `functions`, and the search of the web that `web_search_options` asks for."""
    raw = fields.get("tools", _NULL)
    offered: list[Tool] | None = decoded(raw, _TOOLS, "tools")
    entries: list[msgspec.Raw] | None = decoded(raw, _RAW_LIST, "tools")
    made = [_tool(tool, entry) for tool, entry in zip(offered or (), entries or (), strict=True)]
    made += [_function(one) for one in decoded(fields.get("functions", _NULL), _FUNCTIONS, "functions") or []]
    search = decoded(fields.get("web_search_options", _NULL), _OBJECT, "web_search_options")
    return made if search is None else [*made, _search(search)]


def _tool(tool: Tool, entry: msgspec.Raw) -> object:
    if tool.custom is not None:
        told = {"type": "custom", "name": tool.custom.name, "description": tool.custom.description, "format": _grammar(tool.custom.format)}
        return {name: value for name, value in told.items() if value is not None}
    return entry if tool.function is None else _function(tool.function)  # the API's own tools go as they came


def _function(function: Definition) -> Object:
    """Strict only where the client says so: a chat is lenient by default, Responses is not."""
    made: Object = {"type": "function", "name": function.name}
    if function.description is not None:
        made["description"] = function.description
    made["parameters"] = function.parameters if given(function.parameters) else {"type": "object", "properties": {}}
    return {**made, "strict": function.strict is True}


def _grammar(said: Object | None) -> Object | None:
    """A chat wraps a grammar in an object of its own."""
    inner = said.get("grammar") if said is not None else None
    return {"type": "grammar", **inner} if isinstance(inner, dict) else said


def _search(options: Object) -> Object:
    made: Object = {"type": "web_search"}
    if "search_context_size" in options:
        made["search_context_size"] = options["search_context_size"]
    location = options.get("user_location")
    if isinstance(location, dict):
        inner = location.get("approximate")
        made["user_location"] = {"type": "approximate", **inner} if isinstance(inner, dict) else location
    return made


def choice(fields: Mapping[str, bytes]) -> object:
    """`tool_choice`, or the old `function_call`; None: none was made."""
    said = decoded(fields.get("tool_choice", _NULL), _CHOICE, "tool_choice")
    if said is None:
        said = decoded(fields.get("function_call", _NULL), _CHOICE, "function_call")
    if said is None or isinstance(said, str):
        return said
    if said.allowed_tools is not None:
        allowed = said.allowed_tools
        return {"type": "allowed_tools", "mode": allowed.mode, "tools": [_named(one) for one in allowed.tools]}
    if said.function is None and said.custom is None:
        return {"type": said.type} if said.name is None else {"type": "function", "name": said.name}
    return _named(Reference(said.type, said.function, said.custom))


def _named(reference: Reference) -> Object:
    named = reference.custom or reference.function
    return {"type": reference.type} if named is None else {"type": reference.type, "name": named.name}


def text(fields: Mapping[str, bytes], notes: Notes) -> Object | None:
    """`text`: the format wanted, and how verbose; None: nothing was said."""
    made: Object = {}
    wanted = decoded(fields.get("response_format", _NULL), _OBJECT, "response_format")
    if wanted is not None and wanted.get("type") != "text":
        schema = wanted.get("json_schema")
        made["format"] = {"type": "json_schema", **schema} if isinstance(schema, dict) else {"type": wanted.get("type")}
        if isinstance(schema, dict) and not schema.get("name"):
            made["format"] = {"type": "json_schema", **schema, "name": "answer"}
            notes.say("response_format.json_schema.name is missing: it was set to answer")
    if given(msgspec.Raw(fields.get("verbosity", _NULL))):
        made["verbosity"] = msgspec.Raw(fields["verbosity"])
    return made or None
