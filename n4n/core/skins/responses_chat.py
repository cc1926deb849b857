"""What a request to Responses means as a chat, for providers that speak something else; and what a chat has no words for."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from n4n.core import json_bytes
from n4n.core.chat import ChatRequest
from n4n.core.dialects.responses.chat_words import decoded, given
from n4n.core.dialects.responses.words import SHAPE
from n4n.core.errors import MalformedRequest, Untellable
from n4n.core.skins.responses_tools import choice, offered
from n4n.core.skins.responses_turns import chat_messages

Object = dict[str, object]
Fields = Mapping[str, msgspec.Raw]
LOGPROBS = "message.output_text.logprobs"
_NULL = msgspec.Raw(b"null")
_EMPTY = (b"null", b"false", b"[]", b"{}", b'""')
_SAME = (
    "temperature", "top_p", "parallel_tool_calls", "metadata", "user", "safety_identifier", "prompt_cache_key", "prompt_cache_options",
    "prompt_cache_retention", "service_tier", "moderation", "top_logprobs",
)  # fmt: skip
# What is said in other words, and what asks for nothing where nothing is stored, padded or run in the background.
_SAID = frozenset(
    (*_SAME, "model", "input", "instructions", "stream", "stream_options", "store", "background", "include", "max_output_tokens", "tools",
     "tool_choice", "text", "reasoning")
)  # fmt: skip


class Format(msgspec.Struct, gc=False):
    """`text.format`; the schema stays raw."""

    type: str = "text"
    name: str | None = None
    description: str | None = None
    schema: msgspec.Raw = _NULL
    strict: bool | None = None


class Text(msgspec.Struct, gc=False):
    """`text`."""

    format: Format | None = None
    verbosity: str | None = None


class Reasoning(msgspec.Struct, gc=False):
    """`reasoning`."""

    effort: str | None = None
    summary: str | None = None


TEXT = msgspec.json.Decoder(Text | None)
REASONING = msgspec.json.Decoder(Reasoning | None)
NAMES = msgspec.json.Decoder(list[str] | None)


def as_chat(fields: Fields) -> dict[str, msgspec.Raw]:
    """The members of a chat completion's body. MalformedRequest for what nobody could read, or only Responses can."""
    if given(fields.get("prompt", _NULL)):
        raise Untellable("prompt is kept by providers that speak the Responses API; write out what it says in input", param="prompt")
    tools = offered(fields)
    wanted = decoded(fields.get("text", _NULL), TEXT, "text") or Text()
    reasoning = decoded(fields.get("reasoning", _NULL), REASONING, "reasoning") or Reasoning()
    made: Object = {
        "model": fields["model"],
        "messages": chat_messages(fields.get("instructions"), fields.get("input")).messages,
        "stream": fields.get("stream"),
        "max_completion_tokens": fields.get("max_output_tokens"),
        **{name: fields[name] for name in _SAME if name in fields},
        "tools": tools.functions or None,
        "tool_choice": choice(fields, tools),
        "web_search_options": tools.web_search,
        "response_format": _format(wanted.format),
        "verbosity": wanted.verbosity,
        "reasoning_effort": reasoning.effort,
        "logprobs": True if LOGPROBS in (decoded(fields.get("include", _NULL), NAMES, "include") or ()) else None,
    }
    if not tools.functions:
        made.pop("parallel_tool_calls", None)
    try:
        found = {name: json_bytes.encode(value) for name, value in made.items() if value is not None}
    except RecursionError as error:
        raise MalformedRequest("the body is nested too deeply") from error
    return {name: msgspec.Raw(raw) for name, raw in found.items() if raw != b"null"}


def losses(request: ChatRequest) -> tuple[str, ...]:
    """What of a request to Responses a chat cannot say, each in a line for `n4n.warnings`; for providers that do not speak it."""
    if request.native is None or request.native.dialect != SHAPE:
        return ()
    fields = request.native.fields
    lost = [name for name, raw in fields.items() if name not in _SAID and bytes(raw) not in _EMPTY]
    lost += chat_messages(fields.get("instructions"), fields.get("input")).lost
    lost += offered(fields).lost
    return tuple(f"{name} was left out: only the Responses API has a word for it" for name in lost)


def _format(wanted: Format | None) -> Object | None:
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type != "json_schema":
        return {"type": wanted.type}
    told = {"name": wanted.name or "answer", "description": wanted.description, "schema": wanted.schema, "strict": wanted.strict}
    return {"type": "json_schema", "json_schema": {name: value for name, value in told.items() if value is not None}}
