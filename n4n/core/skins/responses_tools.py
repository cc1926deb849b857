"""Tools of the Responses API as tools of a chat, and the way back from a call to the tool it calls.

A chat knows functions only. A custom tool, which takes free text, is a function with one text; a namespace's tools bear its name
in front. Tools that the API runs itself are what only it can do, but for the search of the web.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from n4n.core import json_bytes
from n4n.core.chat import ChatRequest
from n4n.core.dialects.responses.chat_words import decoded, given
from n4n.core.errors import Untellable

Object = dict[str, object]
Fields = Mapping[str, msgspec.Raw]
_NULL = msgspec.Raw(b"null")
_INPUT = "input"  # the one argument of a custom tool that is a function
_FREE_TEXT = {"type": "object", "properties": {_INPUT: {"type": "string"}}, "required": [_INPUT], "additionalProperties": False}


class _Grammar(msgspec.Struct, gc=False):
    type: str = ""
    syntax: str = ""
    definition: str = ""


class _Tool(msgspec.Struct, gc=False):
    type: str
    name: str = ""
    description: str | None = None
    parameters: msgspec.Raw = _NULL
    strict: bool | None = None
    format: _Grammar | None = None
    tools: list[_Tool] = []
    search_context_size: str | None = None
    user_location: Object | None = None


class _Choice(msgspec.Struct, gc=False):
    type: str
    name: str = ""
    mode: str = "auto"
    tools: list[_Choice] = []


_TOOLS = msgspec.json.Decoder(list[_Tool] | None)
_CHOICE = msgspec.json.Decoder(_Choice | str | None)


@dataclass(frozen=True, slots=True)
class Called:
    """The tool behind a function's name."""

    name: str
    namespace: str | None = None
    custom: bool = False


@dataclass(slots=True)
class Offered:
    """What a chat is offered, whom a call is for, and the tools that only the API itself can run."""

    functions: list[Object] = field(default_factory=list)
    called: dict[str, Called] = field(default_factory=dict)
    web_search: Object | None = None
    lost: list[str] = field(default_factory=list)


def offered(fields: Fields) -> Offered:
    """The tools of a request. Raises MalformedRequest for what nobody could read."""
    tools: list[_Tool] | None = decoded(fields.get("tools", _NULL), _TOOLS, "tools")
    made = Offered()
    for place, tool in enumerate(tools or ()):
        match tool.type:
            case "function" | "custom":
                _offer(made, tool)
            case "namespace":
                for inner in tool.tools:
                    _offer(made, inner, tool.name)
            case name if name.startswith("web_search"):
                made.web_search = _search(tool)
            case _:
                made.lost.append(f"tools[{place}] ({tool.type[:40]})")
    return made


def called_in(request: ChatRequest) -> dict[str, Called]:
    """Whom the names of functions stand for in the answer to a request to Responses."""
    return {} if request.native is None else offered(request.native.fields).called


def function_name(name: str, namespace: str | None) -> str:
    """What a chat calls a tool."""
    return f"{namespace}__{name}" if namespace else name


def _offer(made: Offered, tool: _Tool, namespace: str | None = None) -> None:
    name = function_name(tool.name, namespace)
    made.called[name] = Called(tool.name, namespace, tool.type == "custom")
    function: Object = {"name": name}
    description = _described(tool)
    if description:
        function["description"] = description
    if tool.type == "custom":
        function["parameters"] = _FREE_TEXT
    elif given(tool.parameters):
        function["parameters"] = tool.parameters
    if tool.strict is not None and tool.type != "custom":
        function["strict"] = tool.strict
    made.functions.append({"type": "function", "function": function})


def _described(tool: _Tool) -> str:
    """A grammar, which no chat enforces, is told in words."""
    words = [tool.description] if tool.description else []
    if tool.format is not None and tool.format.definition:
        words.append(f"The input has to conform to this {tool.format.syntax} grammar:\n{tool.format.definition}")
    return "\n".join(words)


def _search(tool: _Tool) -> Object:
    made: Object = {} if tool.search_context_size is None else {"search_context_size": tool.search_context_size}
    if tool.user_location:
        place = {name: value for name, value in tool.user_location.items() if name != "type" and value is not None}
        made["user_location"] = {"type": "approximate", "approximate": place}
    return made


def choice(fields: Fields, tools: Offered) -> object:
    """`tool_choice` of a chat; None: none was made. MalformedRequest where it forces what only the API itself can run."""
    said = decoded(fields.get("tool_choice", _NULL), _CHOICE, "tool_choice")
    if said is None or isinstance(said, str):
        return said if tools.functions else None  # a choice without tools is refused
    if said.type == "allowed_tools":
        named = [_named(one) for one in said.tools if one.type in ("function", "custom")]
        return {"type": "allowed_tools", "allowed_tools": {"mode": said.mode, "tools": named}}
    if said.type in ("function", "custom"):
        return _named(said)
    if said.type.startswith("web_search"):
        return None
    raise Untellable(
        f"tool_choice: {said.type[:40]} is run by endpoints that speak the Responses API themselves; choose a model that has one",
        param="tool_choice",
    )


def _named(said: _Choice) -> Object:
    return {"type": "function", "function": {"name": said.name}}


def free_text(arguments: str) -> str:
    """The text that a function's arguments hold for a custom tool; arguments of another shape are the text themselves."""
    try:
        said = json_bytes.parse(arguments.encode(errors="backslashreplace"))
    except json_bytes.NotJson:
        return arguments
    text = said.get(_INPUT) if isinstance(said, dict) else None
    return text if isinstance(text, str) else arguments


def arguments_of(text: str) -> str:
    """A custom tool's text as the arguments of its function."""
    return json_bytes.dump({_INPUT: text}).decode()
