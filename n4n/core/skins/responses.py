"""Reading a request to POST /v1/responses: the fields the gateway needs, typed; all others as they came.

https://platform.openai.com/docs/api-reference/responses/create. Providers that speak Responses get what the client wrote; for all
others the chat that it means is made when somebody first needs it (responses_chat). Nothing is kept here or there between requests:
what would need a store is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, TypeVar

import msgspec

from n4n.core import json_bytes
from n4n.core.chat import ChatRequest, Native, Translated
from n4n.core.chat_request import OWN_FIELDS, read_chat
from n4n.core.dialects.responses.words import SHAPE
from n4n.core.errors import MalformedRequest
from n4n.core.fitness import tools_named
from n4n.core.json_bytes import Members
from n4n.core.member_kinds import RESPONSES, check_kinds, of
from n4n.core.origin import origins_in
from n4n.core.skins.responses_chat import LOGPROBS, NAMES, REASONING, TEXT, as_chat

T = TypeVar("T")
_MESSAGES = b'[{"role":"user"}]'  # in place of what a chat would hold
# What read_chat looks at in the same way under the same name; the rest are places that it refuses to be sent to.
_SHARED = OWN_FIELDS | {
    "model", "stream", "temperature", "top_p", "top_logprobs", "tool_choice", "prompt_cache_key", "prompt_cache_options",
    "prompt_cache_retention", "reasoning",
    "api_base", "base_url", "api_key", "api_version", "extra_headers", "organization", "custom_llm_provider", "extra_body",
}  # fmt: skip
_STORED = {
    "previous_response_id": "no response is kept: send the whole conversation in input",
    "conversation": "no conversation is kept: send the whole conversation in input",
}
_INPUT = re.compile(rb'"|\[\s*\{')
_ITEM_REFERENCE = b'"item_reference"'
_SAYABLE = frozenset(("function", "custom", "namespace"))  # tools that a chat can be offered
_PARTS = {"input_image": "vision", "input_file": "pdf_input", "input_audio": "audio_input"}


class _Kind(msgspec.Struct, gc=False):
    type: str = ""


class _Item(msgspec.Struct, gc=False):
    type: str = ""
    content: list[_Kind] | str | None = None


_ITEMS = msgspec.json.Decoder(list[_Item])
_KINDS = msgspec.json.Decoder(list[_Kind] | None)
_FLAG = msgspec.json.Decoder(bool | None)
_COUNT = msgspec.json.Decoder(Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)] | None)


def read_responses(body: bytes) -> ChatRequest:
    """A request from its body. Raises MalformedRequest, which names the field."""
    plain = read_chat(_shared(body))
    fields = json_bytes.members(body)
    check_kinds(fields, of(RESPONSES, fields))
    _refuse_what_is_stored(fields)
    _check_input(fields)
    own = {name: raw for name, raw in fields.items() if name not in OWN_FIELDS}
    return ChatRequest(
        fields=Translated(lambda: as_chat(own)),
        model=plain.model,
        stream=plain.stream,
        max_output_tokens=_read(fields, "max_output_tokens", _COUNT, "must be a whole number from 1"),
        features=plain.features | frozenset(_features(fields, body)),
        body_bytes=len(body),
        models=plain.models,
        unsupported_params=plain.unsupported_params,
        provider_object=plain.provider_object,
        native=Native(SHAPE, own),
        sealed=b'"encrypted_content"' in body,
        made_by=origins_in(body),
        native_tools=tools_named(kind for kind in _kinds(fields) if kind not in _SAYABLE),
    )


def _shared(body: bytes) -> bytes:
    """The part of the body that reads like a chat's, so that the same checks hold here."""
    try:
        fields = json_bytes.members(body)
    except json_bytes.NotJson:
        return body  # which says what is wrong
    if not body.isascii():
        try:
            body.decode()
        except UnicodeDecodeError:
            return body
    known = {name: raw for name, raw in fields.items() if name in _SHARED}
    return json_bytes.join({**known, "messages": _MESSAGES}.items())


def _refuse_what_is_stored(fields: Members) -> None:
    for name, why in _STORED.items():
        if bytes(fields.get(name, b"null")) != b"null":
            raise MalformedRequest(f"{name} cannot be used: {why}", param=name)
    if _read(fields, "background", _FLAG, "must be true or false"):
        raise MalformedRequest("background cannot be used: no response is kept to be fetched later; ask for a stream", param="background")
    _read(fields, "store", _FLAG, "must be true or false")


def _check_input(fields: Members) -> None:
    raw = fields.get("input")
    if raw is None or bytes(raw) == b"null":
        if bytes(fields.get("prompt", b"null")) != b"null":
            return
        raise MalformedRequest("input is missing: send a text, or a list of at least one item", param="input")
    if not _INPUT.match(memoryview(raw)):
        raise MalformedRequest("input must be a text, or a list of at least one item", param="input")
    if _ITEM_REFERENCE in bytes(raw):
        for place, item in enumerate(_items(fields)):
            if item.type == "item_reference":
                raise MalformedRequest(
                    f"input[{place}] refers to an item, but no item is kept: send the item itself", param=f"input[{place}]"
                )


def _items(fields: Members) -> list[_Item]:
    try:
        return _ITEMS.decode(fields["input"])
    except (KeyError, msgspec.DecodeError, RecursionError):
        return []  # no items that anybody knows; who reads them will say so


def _read(fields: Members, name: str, decoder: msgspec.json.Decoder[T], rule: str) -> T | None:
    raw = fields.get(name)
    if raw is None:
        return None
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise MalformedRequest(f"{name} {rule}", param=name) from error


def _kinds(fields: Members) -> list[str]:
    return [tool.type for tool in _read(fields, "tools", _KINDS, "must be a list of tools, each an object with a type") or []]


def _features(fields: Members, body: bytes) -> Iterable[str]:
    kinds = _kinds(fields)
    if any(kind in _SAYABLE for kind in kinds):
        yield "tools"
    if any(kind.startswith("web_search") for kind in kinds):
        yield "web_search"
    if _read(fields, "parallel_tool_calls", _FLAG, "must be true or false") is not None and kinds:
        yield "parallel_tools"
    text = _read(fields, "text", TEXT, 'must be an object such as {"format": {"type": "text"}}')
    if text is not None and text.format is not None and text.format.type in ("json_schema", "json_object"):
        yield text.format.type
    _read(fields, "reasoning", REASONING, 'must be an object such as {"effort": "low"}')
    if LOGPROBS in (_read(fields, "include", NAMES, "must be a list of texts") or ()):
        yield "logprobs"
    seen = [name for name in _PARTS if b'"%b"' % name.encode() in body]
    if seen:
        found = {part.type for item in _items(fields) if isinstance(item.content, list) for part in item.content}
        yield from (_PARTS[name] for name in seen if name in found)
