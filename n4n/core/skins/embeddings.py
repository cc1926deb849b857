"""The skin of POST /v1/embeddings (https://platform.openai.com/docs/api-reference/embeddings): texts in, vectors out.

Served by endpoints that say `supports: [embeddings]` alone; there is no chat that would mean the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, NoReturn, TypeVar

import msgspec

from n4n.core import json_bytes
from n4n.core.chat import ChatRequest, Chunk, Native, Translated, Usage
from n4n.core.chat_request import OWN_FIELDS, read_chat
from n4n.core.dialects.embeddings import SHAPE
from n4n.core.errors import MalformedRequest, Untellable
from n4n.core.json_bytes import Members
from n4n.core.member_kinds import EMBEDDINGS, check_kinds, of
from n4n.core.skins.chat import ChatFrames
from n4n.core.skins.skin import Header
from n4n.core.stream_tail import with_note

T = TypeVar("T")
MOST_INPUTS = 2_048
_SHARED = OWN_FIELDS | {
    "model", "api_base", "base_url", "api_key", "api_version", "extra_headers", "organization", "custom_llm_provider", "extra_body",
}  # fmt: skip
_MESSAGES = b'[{"role":"user"}]'
_Tokens = Annotated[list[Annotated[int, msgspec.Meta(ge=0)]], msgspec.Meta(min_length=1)]
_Text = Annotated[str, msgspec.Meta(min_length=1)]
_ONE = msgspec.json.Decoder(_Text | _Tokens)
_MANY_TEXTS = msgspec.json.Decoder(list[_Text])
_MANY_TOKENS = msgspec.json.Decoder(list[_Tokens])
_COUNT = msgspec.json.Decoder(Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] | None)
_WORD = msgspec.json.Decoder(str | None)
_FORMATS = (None, "float", "base64")


class Embeddings:
    """See above."""

    keep_alive = b": n4n\n\n"

    def read(self, body: bytes, _: Header) -> ChatRequest:
        """A request for embeddings. Raises MalformedRequest."""
        return read_embeddings(body)

    def losses(self, _: ChatRequest) -> tuple[str, ...]:
        """Nothing: where it cannot be said, it is not sent."""
        return ()

    def frames(self, request: ChatRequest) -> ChatFrames:
        """Embeddings are never streamed."""
        return ChatFrames(request.include_usage)

    def whole(self, chunk: Chunk, request: ChatRequest, usage: Usage | None, note: bytes) -> bytes:
        """The vectors as they came, with the block spliced in."""
        return with_note(chunk.payload, note)

    def envelope(self, body: Mapping[str, object]) -> Mapping[str, object]:
        """As it is."""
        return body


def read_embeddings(body: bytes) -> ChatRequest:
    """A request from its body. Raises MalformedRequest, which names the field."""
    try:
        fields = json_bytes.members(body)
        body if body.isascii() else body.decode()
    except ValueError:
        return read_chat(body)  # which says what is wrong
    shared = {name: raw for name, raw in fields.items() if name in _SHARED}
    plain = read_chat(json_bytes.join({**shared, "messages": _MESSAGES}.items()))
    _check_input(fields)
    check_kinds(fields, of(EMBEDDINGS, fields))
    _read(fields, "dimensions", _COUNT, "must be a whole number from 1")
    if _read(fields, "encoding_format", _WORD, "must be float or base64") not in _FORMATS:
        raise MalformedRequest("encoding_format must be float or base64", param="encoding_format")
    return ChatRequest(
        fields=Translated(_no_chat),
        model=plain.model,
        features=frozenset(("embeddings",)),
        body_bytes=len(body),
        models=plain.models,
        unsupported_params=plain.unsupported_params,
        provider_object=plain.provider_object,
        native=Native(SHAPE, {name: raw for name, raw in fields.items() if name not in OWN_FIELDS}),
    )


def _no_chat() -> NoReturn:
    raise Untellable("the model makes no embeddings: name one whose endpoint has embeddings in its supports", param="model")


def _check_input(fields: Members) -> None:
    """A text, a list of up to 2,048 texts, a list of tokens, or a list of up to 2,048 such lists; none of them empty."""
    raw = fields.get("input")
    if raw is None or bytes(raw) == b"null":
        raise MalformedRequest("input is missing: send a text or a list of texts", param="input")
    head = bytes(memoryview(raw)[:64]).translate(None, b" \t\r\n")
    try:
        many = [] if head[:2] not in (b'["', b"[[") else (_MANY_TEXTS if head[1:2] == b'"' else _MANY_TOKENS).decode(raw)
        if not many:
            _ONE.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        rule = "must be a text, a list of texts, a list of tokens, or a list of such lists; none of them may be empty"
        raise MalformedRequest(f"input {rule}", param="input") from error
    if len(many) > MOST_INPUTS:
        raise MalformedRequest(f"input holds {len(many)} entries; send at most {MOST_INPUTS} at a time", param="input")


def _read(fields: Members, name: str, decoder: msgspec.json.Decoder[T], rule: str) -> T | None:
    raw = fields.get(name)
    try:
        return None if raw is None else decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise MalformedRequest(f"{name} {rule}", param=name) from error
