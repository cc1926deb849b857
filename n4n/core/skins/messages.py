"""Reading a request to POST /v1/messages or /v1/messages/count_tokens: the fields the gateway needs, typed; all others as they came.

https://platform.claude.com/docs/en/api/messages. Providers that speak Messages get what the client wrote; for all others the
chat that it means is made when somebody first needs it (messages_chat).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, TypeVar

import msgspec

from n4n.core import json_bytes
from n4n.core.chat import ChatRequest, Native, Translated
from n4n.core.chat_request import OWN_FIELDS, read_chat
from n4n.core.dialects.anthropic.events import SHAPE
from n4n.core.dialects.anthropic.request import BETAS
from n4n.core.errors import MalformedRequest
from n4n.core.fitness import tools_named
from n4n.core.json_bytes import Members
from n4n.core.member_kinds import MESSAGES, check_kinds, of
from n4n.core.origin import origins_in
from n4n.core.skins.messages_chat import as_chat
from n4n.core.skins.messages_errors import NoThreads

T = TypeVar("T")
_BETA = re.compile(r"[A-Za-z0-9._-]{1,100}\Z")
_MOST_BETAS = 64
_EMPTY = (b"null", b"false", b"[]", b"{}", b'""')
_CACHE_CONTROL = b'"cache_control"'
_PARTS = {"image": "vision", "document": "pdf_input"}
_SAMPLING = ("temperature", "top_p", "top_k")
_MESSAGES = re.compile(rb"\[\s*\{")
_ANY_MESSAGES = b"[{}]"
# Members that a chat has too, but in another shape.
_OTHER_SHAPE = frozenset(("max_tokens", "tools", "tool_choice", "thinking", "metadata", "system"))


class _Kind(msgspec.Struct, gc=False):
    type: str = ""


class _Block(msgspec.Struct, gc=False):
    type: str = ""
    content: list[_Kind] | str | None = None  # of a tool_result


class _Turn(msgspec.Struct, gc=False):
    role: str = ""
    content: list[_Block] | str | None = None


class _Choice(msgspec.Struct, gc=False):
    type: str = ""
    disable_parallel_tool_use: bool | None = None


class _Output(msgspec.Struct, gc=False):
    format: _Kind | None = None
    effort: str | None = None


_TURNS = msgspec.json.Decoder(list[_Turn])
_KIND = msgspec.json.Decoder(_Kind | None)
_KINDS = msgspec.json.Decoder(list[_Kind] | None)
_CHOICE = msgspec.json.Decoder(_Choice | None)
_OUTPUT = msgspec.json.Decoder(_Output | None)
_COUNT = msgspec.json.Decoder(Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)] | None)


def read_messages(body: bytes, *, beta: str | None = None) -> ChatRequest:
    """A request from its body and its `anthropic-beta` header, which rides in the native members. Raises MalformedRequest.

    A conversation kept by one provider's account cannot be continued at another, so `thread` is refused, whatever it says.
    """
    try:
        body if body.isascii() else body.decode()
        fields = json_bytes.members(body)
    except ValueError:
        return read_chat(body)  # which says what is wrong
    plain = read_chat(_like_a_chat(fields))
    check_kinds(fields, of(MESSAGES, fields))
    if bytes(fields.get("thread", b"null")) != b"null":
        raise NoThreads(param="thread")
    most = _read(fields, "max_tokens", _COUNT, "must be a whole number from 0")
    own = {name: raw for name, raw in fields.items() if name not in OWN_FIELDS}
    betas = _betas(beta)
    if betas:
        own[BETAS] = msgspec.Raw(json_bytes.encode(betas))
    return ChatRequest(
        fields=Translated(lambda: as_chat(own)),
        model=plain.model,
        stream=plain.stream,
        max_output_tokens=most,
        features=frozenset(_features(fields, body)),
        body_bytes=len(body),
        models=plain.models,
        unsupported_params=plain.unsupported_params,
        provider_object=plain.provider_object,
        native=Native(SHAPE, own),
        sealed=b'"signature"' in body or b'"redacted_thinking"' in body,
        made_by=origins_in(body),
        native_tools=tools_named(_of_the_api(fields)),
    )


def _like_a_chat(fields: Members) -> bytes:
    """What a chat is checked for too, without the long parts: the same things are refused on every skin."""
    shared: dict[str, bytes] = {name: raw for name, raw in fields.items() if name not in _OTHER_SHAPE}
    if "messages" in shared and _MESSAGES.match(memoryview(shared["messages"])):
        shared["messages"] = _ANY_MESSAGES
    return json_bytes.join(shared.items())


def _read(fields: Members, name: str, decoder: msgspec.json.Decoder[T], rule: str) -> T | None:
    raw = fields.get(name)
    if raw is None:
        return None
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise MalformedRequest(f"{name} {rule}", param=name) from error


def _betas(header: str | None) -> list[str]:
    names = [name.strip() for name in (header or "").split(",") if name.strip()]
    if len(names) > _MOST_BETAS or not all(map(_BETA.match, names)):
        raise MalformedRequest("anthropic-beta must be a list of names, separated by commas", param="anthropic-beta")
    return names


def _of_the_api(fields: Members) -> Iterable[str]:
    """The types of tools that Messages knows itself, whoever runs them; a chat has no words for them."""
    tools = _read(fields, "tools", _KINDS, "must be a list of tools") or []
    yield from (tool.type for tool in tools if tool.type not in ("", "custom"))
    if bytes(fields.get("mcp_servers", b"null")) not in _EMPTY:
        yield "mcp_servers"


def _features(fields: Members, body: bytes) -> Iterable[str]:
    tools = _read(fields, "tools", _KINDS, "must be a list of tools") or []
    if tools:
        yield "tools"
    if any(tool.type.startswith("web_search_") for tool in tools):
        yield "web_search"
    choice = _read(fields, "tool_choice", _CHOICE, "must be an object with a type") or _Choice()
    if choice.type:
        yield "tool_choice"
    if choice.type in ("any", "tool"):
        yield "forced_tool_choice"
    if choice.disable_parallel_tool_use:
        yield "parallel_tools"
    thinking = _read(fields, "thinking", _KIND, "must be an object with a type") or _Kind()
    output = _read(fields, "output_config", _OUTPUT, "must be an object") or _Output()
    if thinking.type not in ("", "disabled") or output.effort is not None:
        yield "reasoning"
    older = _read(fields, "output_format", _KIND, "must be an object with a type")  # of a beta, before output_config
    if "json_schema" in (output.format.type if output.format else "", older.type if older else ""):
        yield "json_schema"
    if _CACHE_CONTROL in body:
        yield "prompt_caching"
    if any(bytes(fields[name]) not in _EMPTY for name in _SAMPLING if name in fields):
        yield "sampling_params"
    if bytes(fields.get("stop_sequences", b"null")) not in _EMPTY:
        yield "stop"
    yield from _parts(fields["messages"], body)


def _parts(messages: msgspec.Raw, body: bytes) -> Iterable[str]:
    seen = [name for name in _PARTS if b'"%b"' % name.encode() in body]
    if not seen:
        return
    try:
        turns = _TURNS.decode(messages)
    except (msgspec.DecodeError, RecursionError):
        return  # a content no provider knows; it will say so
    blocks = [block for turn in turns if isinstance(turn.content, list) for block in turn.content]
    inner = [part.type for block in blocks if isinstance(block.content, list) for part in block.content]
    found = {block.type for block in blocks}.union(inner)
    yield from (_PARTS[name] for name in seen if name in found)
