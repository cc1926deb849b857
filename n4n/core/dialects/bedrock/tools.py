"""Tools of a chat, and how they may be chosen: `toolConfig` (https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ToolConfiguration.html).

There is no choice `none`: the tools are left away, and the history is told without them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from n4n.core import json_bytes
from n4n.core.dialects.bedrock.marks import CACHE, mark
from n4n.core.dialects.bedrock.models import Traits
from n4n.core.dialects.bedrock.notes import Notes
from n4n.core.dialects.bedrock.schema import closed
from n4n.core.dialects.bedrock.words import Choice, Definition, Ending, Tool, decoded

Object = dict[str, object]
_TOOLS = msgspec.json.Decoder(list[Tool] | None)
_FUNCTIONS = msgspec.json.Decoder(list[Definition] | None)
_CHOICE = msgspec.json.Decoder(Choice | str | None)
_FLAG = msgspec.json.Decoder(bool | None)
_NO_PARAMETERS: Object = {"type": "object", "properties": {}}


@dataclass(slots=True)
class Offer:
    """The tools of one request. `blocks` are JSON, cache marks among them; `choice` JSON too, None: the model decides."""

    blocks: list[bytes] = field(default_factory=list)
    choice: bytes | None = None
    own: Object | None = None  # `tool_choice` among the model's own fields
    forced: bool = False  # the model has to call a tool

    def config(self) -> bytes:
        """`toolConfig`."""
        choice = b"" if self.choice is None else b',"toolChoice":%b' % self.choice
        return b'{"tools":[%b]%b}' % (b",".join(self.blocks), choice)


def offer(fields: Mapping[str, bytes], traits: Traits, notes: Notes) -> Offer:
    """`tools` or the old `functions`, with `tool_choice` and `parallel_tool_calls`. Raises MalformedRequest."""
    found = _definitions(fields, notes)
    chosen = decoded(fields.get("tool_choice") or fields.get("function_call"), _CHOICE, "tool_choice")
    if isinstance(chosen, Choice) and chosen.allowed_tools is not None:
        names = {tool.function.name for tool in chosen.allowed_tools.tools if tool.function is not None}
        found = [(definition, ending) for definition, ending in found if definition.name in names]
        chosen = chosen.allowed_tools.mode
    if chosen == "none" or not found:
        return Offer()
    made = Offer()
    for definition, ending in found:
        made.blocks.append(_spec(definition, traits, notes))
        made.blocks += _mark(ending, traits, notes)
    made.choice = _choice(chosen, notes)
    made.forced = made.choice is not None
    if decoded(fields.get("parallel_tool_calls"), _FLAG, "parallel_tool_calls") is False:
        made.own = _one_at_a_time(traits, notes, forced=made.forced)
    return made


def _definitions(fields: Mapping[str, bytes], notes: Notes) -> list[tuple[Definition, Ending | None]]:
    found: list[tuple[Definition, Ending | None]] = []
    tools: list[Tool] | None = decoded(fields.get("tools"), _TOOLS, "tools")
    for place, tool in enumerate(tools or ()):
        if tool.function is None:
            notes.left_out(f"tools[{place}]", f"takes no tool of type {tool.type[:40]}")
        else:
            found.append((tool.function, tool.cache_control or tool.function.cache_control))
    functions = decoded(fields.get("functions"), _FUNCTIONS, "functions") or ()
    return found + [(function, function.cache_control) for function in functions]


def _spec(definition: Definition, traits: Traits, notes: Notes) -> bytes:
    spec: Object = {"name": definition.name}
    if definition.description and definition.description.strip():
        spec["description"] = definition.description
    strict = definition.strict is True and traits.strict_tools
    if definition.strict and not strict:
        notes.left_out("strict of tools", "holds no tool to its schema")
    spec["inputSchema"] = {"json": _schema(definition.parameters, strict=strict)}
    if strict:
        spec["strict"] = True
    return json_bytes.dump({"toolSpec": spec})


def _schema(parameters: msgspec.Raw, *, strict: bool) -> object:
    """The parameters' schema, whose outermost type has to be object."""
    schema = json_bytes.parse(bytes(parameters))
    if not isinstance(schema, dict):
        return _NO_PARAMETERS
    whole = schema if schema.get("type") == "object" else {**schema, "type": "object"}
    return closed(whole) if strict else whole


def _mark(ending: Ending | None, traits: Traits, notes: Notes) -> list[bytes]:
    if ending is not None and traits.caches and not traits.caches_tools:
        notes.left_out("cache_control of tools", "caches no tools")
        return []
    return mark(ending, traits, notes)


def _choice(chosen: Choice | str | None, notes: Notes) -> bytes | None:
    """`toolChoice` where it is more than auto, which is what Converse does by itself."""
    if isinstance(chosen, Choice):
        name = chosen.name if chosen.function is None else chosen.function.name
        if name is not None:
            return b'{"tool":{"name":%b}}' % json_bytes.dump(name)
        notes.left_out("tool_choice", f"knows no choice of type {chosen.type[:40]}")
    elif chosen in ("required", "any"):
        return b'{"any":{}}'
    elif chosen not in (None, "auto"):
        notes.left_out("tool_choice", f"knows no choice {chosen[:40]}")
    return None


def _one_at_a_time(traits: Traits, notes: Notes, *, forced: bool) -> Object | None:
    """Converse has no word for it, Claude has; beside a forced choice its type must not be told twice."""
    if not traits.one_call_at_a_time:
        notes.left_out("parallel_tool_calls", "cannot be held to one call at a time")
        return None
    return {"disable_parallel_tool_use": True} if forced else {"type": "auto", "disable_parallel_tool_use": True}


def has_marks(blocks: list[bytes]) -> bool:
    """Whether there is a cache mark among them."""
    return any(block.startswith(CACHE) for block in blocks)
