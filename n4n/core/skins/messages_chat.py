"""What a Messages request means as a chat, for providers that speak something else; and what a chat has no words for.

The reverse of the dialect's translation: results of calls become messages of their own, signed reasoning goes beside the text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec

from n4n.core import json_bytes
from n4n.core.chat import ChatRequest
from n4n.core.dialects.anthropic.chat_words import decoded, given
from n4n.core.dialects.anthropic.events import SHAPE
from n4n.core.dialects.anthropic.schema import is_strict
from n4n.core.errors import MalformedRequest
from n4n.core.skins.messages_turns import chat_messages, raw_or_none

Object = dict[str, object]
Fields = Mapping[str, msgspec.Raw]
_LONGEST_USER = 64  # characters of `user`
_TRANSLATED = frozenset(
    ("model", "messages", "system", "max_tokens", "stream", "tools", "tool_choice", "thinking", "output_config", "output_format",
     "stop_sequences", "temperature", "top_p", "top_k", "metadata", "service_tier", "cache_control", "anthropic_beta")
)  # fmt: skip
_EMPTY = (b"null", b"false", b"[]", b"{}", b'""')
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
_TIERS = {"auto": "auto", "standard_only": "default"}


class _Tool(msgspec.Struct, gc=False):
    name: str = ""
    type: str | None = None
    description: str | None = None
    input_schema: msgspec.Raw = msgspec.Raw(b"")
    strict: bool | None = None
    cache_control: msgspec.Raw = msgspec.Raw(b"")
    user_location: Object | None = None

    @property
    def is_plain(self) -> bool:
        """Whether its caller runs it and its schema is told, as a chat's tools are."""
        return self.type in (None, "custom")


class _Choice(msgspec.Struct, gc=False):
    type: str = "auto"
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class _Format(msgspec.Struct, gc=False):
    type: str = ""
    schema: Object = {}


class _Output(msgspec.Struct, gc=False):
    format: _Format | None = None
    effort: str | None = None


class _Thinking(msgspec.Struct, gc=False):
    type: str = ""
    budget_tokens: int | None = None


_TOOLS = msgspec.json.Decoder(list[_Tool] | None)
_CHOICE = msgspec.json.Decoder(_Choice | None)
_OUTPUT = msgspec.json.Decoder(_Output | None)
_FORMAT = msgspec.json.Decoder(_Format | None)
_THINKING = msgspec.json.Decoder(_Thinking | None)
_COUNT = msgspec.json.Decoder(int | None)
_WORD = msgspec.json.Decoder(str | None)
_OBJECT = msgspec.json.Decoder(Object | None)


def as_chat(fields: Fields) -> dict[str, msgspec.Raw]:
    """The members of a chat completion's body. Raises MalformedRequest for what nobody could read."""
    try:
        return {name: msgspec.Raw(json_bytes.encode(value)) for name, value in _made(fields).items() if value is not None}
    except RecursionError as error:  # what could just be read may be too deep to be written again
        raise MalformedRequest("the body is nested too deeply") from error


def _made(fields: Fields) -> Object:
    return {
        "model": fields["model"],
        "messages": chat_messages(fields.get("system"), fields["messages"]).messages,
        "stream": raw_or_none(fields.get("stream")),
        "max_completion_tokens": _most(fields),
        "temperature": raw_or_none(fields.get("temperature")),
        "top_p": raw_or_none(fields.get("top_p")),
        "top_k": raw_or_none(fields.get("top_k")),
        "stop": raw_or_none(fields.get("stop_sequences")),
        **_tools(fields),
        **_choice(fields),
        **_output(fields),
        "user": _user(fields),
        "service_tier": _TIERS.get(decoded(fields.get("service_tier", b"null"), _WORD, "service_tier") or ""),
        "cache_control": raw_or_none(fields.get("cache_control")),
    }


def losses(request: ChatRequest) -> tuple[str, ...]:
    """What of a Messages request a chat cannot say, each in a line for `n4n.warnings`; for providers that do not speak Messages."""
    if request.native is None or request.native.dialect != SHAPE:
        return ()
    fields = request.native.fields
    lost = [name for name, raw in fields.items() if name not in _TRANSLATED and bytes(raw) not in _EMPTY]
    lost += chat_messages(fields.get("system"), fields["messages"]).lost
    lost += [f"tools[{place}] ({tool.type})" for place, tool in enumerate(_read_tools(fields)) if not _is_known(tool)]
    return tuple(f"{name} was left out: only Messages has a word for it" for name in dict.fromkeys(lost))


def _most(fields: Fields) -> int | None:
    most = decoded(fields.get("max_tokens", b"null"), _COUNT, "max_tokens")
    return None if most is None else max(1, most)  # 0 only warms a cache; a chat writes one token


# ── tools


def _read_tools(fields: Fields) -> list[_Tool]:
    tools: list[_Tool] | None = decoded(fields.get("tools", b"null"), _TOOLS, "tools")
    return tools or []


def _is_known(tool: _Tool) -> bool:
    return tool.is_plain or str(tool.type).startswith("web_search_")


def _tools(fields: Fields) -> Object:
    made: list[Object] = []
    search: Object | None = None
    for tool in _read_tools(fields):
        if tool.is_plain:
            made.append(_tool(tool))
        elif _is_known(tool):
            search = {"user_location": _place(tool.user_location)} if tool.user_location else {}
    return {"tools": made or None, "web_search_options": search}


def _tool(tool: _Tool) -> Object:
    function: Object = {"name": tool.name}
    if tool.description:
        function["description"] = tool.description
    if given(tool.input_schema):
        function["parameters"] = tool.input_schema
    if tool.strict:
        function["strict"] = True
    made: Object = {"type": "function", "function": function}
    return {**made, "cache_control": tool.cache_control} if given(tool.cache_control) else made


def _place(location: Object) -> Object:
    approximate = {name: value for name, value in location.items() if name != "type"}
    return {"type": "approximate", "approximate": approximate}


def _choice(fields: Fields) -> Object:
    choice = decoded(fields.get("tool_choice", b"null"), _CHOICE, "tool_choice")
    if choice is None:
        return {}
    named = {"type": "function", "function": {"name": choice.name}}
    said: object = named if choice.type == "tool" else _CHOICES.get(choice.type)
    return {"tool_choice": said, "parallel_tool_calls": False if choice.disable_parallel_tool_use else None}


# ── what the answer has to be


def _output(fields: Fields) -> Object:
    output = decoded(fields.get("output_config", b"null"), _OUTPUT, "output_config") or _Output()
    wanted = output.format or decoded(fields.get("output_format", b"null"), _FORMAT, "output_format")
    made: Object = {"reasoning_effort": _effort(fields, output.effort)}
    if wanted is not None and wanted.type == "json_schema":
        schema = {"name": "answer", "schema": wanted.schema, "strict": is_strict(wanted.schema)}
        made["response_format"] = {"type": "json_schema", "json_schema": schema}
    return made


def _effort(fields: Fields, effort: str | None) -> str | None:
    """OpenAI's word for how much is to be reasoned; a budget is one by its size, and who says nothing gets Claude's own default."""
    thinking = decoded(fields.get("thinking", b"null"), _THINKING, "thinking") or _Thinking()
    if thinking.type == "disabled":
        return None
    if effort is not None:
        return effort
    if thinking.type == "adaptive":
        return "high"
    if thinking.type == "enabled":
        budget = thinking.budget_tokens or 0
        return "low" if budget < 4_096 else "medium" if budget < 16_384 else "high"
    return None


def _user(fields: Fields) -> str | None:
    """`user` takes fewer characters than `metadata.user_id`: a longer one becomes its fingerprint, as opaque and as constant."""
    metadata = decoded(fields.get("metadata", b"null"), _OBJECT, "metadata") or {}
    user = metadata.get("user_id")
    if not isinstance(user, str) or not user:
        return None
    return user if len(user) <= _LONGEST_USER else hashlib.sha256(user.encode()).hexdigest()
