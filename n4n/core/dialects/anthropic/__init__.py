"""Anthropic's Messages, at Anthropic itself and in front of Claude at Azure Foundry.

https://platform.claude.com/docs/en/api/messages. A client that speaks Messages gets its own words through untouched, both ways;
for all others the chat is translated there, and the answer back.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from n4n.core import json_bytes
from n4n.core.catalog import Endpoint
from n4n.core.chat import ChatRequest, Chunk, Failed, UpstreamRequest
from n4n.core.dialects import Speech, StreamDecoder
from n4n.core.dialects.anthropic import failures
from n4n.core.dialects.anthropic.answer import read_whole
from n4n.core.dialects.anthropic.events import FORMAT, SHAPE, dump, joined
from n4n.core.dialects.anthropic.request import BETAS, CANNOT, members
from n4n.core.dialects.anthropic.stream import TOO_DEEP, MessageDecoder
from n4n.core.dialects.classify import garbled
from n4n.core.errors import Failure, MalformedRequest

VERSION = "2023-06-01"  # of the API; there is no other
_SSE_HEADS = (b"data:", b"event:", b"id:", b"retry:", b":")
_BEARER = re.compile(r"sk-ant-oat|eyJ[\w-]+\.[\w-]+\.")  # an OAuth token of Anthropic's, a JWT such as Entra's
_COUNTED = frozenset(("model", "messages", "system", "tools", "tool_choice", "thinking", "output_config", "cache_control", "speed"))
_NAMES = msgspec.json.Decoder(list[str])
_SPEECH = Speech(SHAPE, CANNOT, reads=frozenset((FORMAT,)))


class Anthropic:
    """The dialect `anthropic`."""

    name = SHAPE

    def speech(self, model: str) -> Speech:
        """Messages."""
        return _SPEECH

    def encode(self, request: ChatRequest, endpoint: Endpoint, secret: str | None) -> UpstreamRequest:
        """POST base_url/v1/messages. MalformedRequest for a chat that nobody could read."""
        fields, warnings = _members(request, endpoint)
        headers = _headers(fields, request, endpoint, secret)
        provider = endpoint.provider
        return UpstreamRequest(_url(endpoint), headers, _body(fields), tuple(warnings), provider.allow_private)

    def encode_count(self, request: ChatRequest, endpoint: Endpoint, secret: str | None) -> UpstreamRequest:
        """POST base_url/v1/messages/count_tokens, which is free and has a limit of its own: the input of the same request, counted."""
        fields, warnings = _members(request, endpoint)
        headers = _headers(fields, request, endpoint, secret)
        counted = {name: raw for name, raw in fields.items() if name in _COUNTED}
        url, allow_private = _url(endpoint) + "/count_tokens", endpoint.provider.allow_private
        return UpstreamRequest(url, headers, _body(counted), tuple(warnings), allow_private)

    def decode(self, body: bytes, content_type: str, request: ChatRequest) -> Chunk | Failure:
        """A whole answer; also one that came as a stream though none was asked."""
        head = body[:64].lstrip(b" \t\r\n\xef\xbb\xbf")
        streamed = head.startswith(_SSE_HEADS) or (content_type.startswith("text/event-stream") and head[:1] not in (b"{", b"[", b"<", b""))
        try:
            return (_of_stream if streamed else read_whole)(body, native=_is_native(request))
        except RecursionError:  # what could just be read may be too deep to be written again
            return garbled(TOO_DEEP)

    def decoder(self, request: ChatRequest) -> StreamDecoder:
        """A decoder for one streamed answer."""
        return MessageDecoder(native=_is_native(request))

    def failure(self, status: int, headers: Mapping[str, str], body: bytes, now: float) -> Failure:
        """What an error answer means."""
        return failures.failure_of(status, headers, body, now)


def _members(request: ChatRequest, endpoint: Endpoint) -> tuple[dict[str, bytes], list[str]]:
    try:
        return members(request, endpoint)
    except (RecursionError, json_bytes.NotJson) as error:  # what could just be read may be too deep to be read or written again
        raise MalformedRequest("the body is nested too deeply") from error


def _body(fields: Mapping[str, bytes]) -> bytes:
    """In one piece and one copy: there may be megabytes of images in it."""
    return json_bytes.encode({name: msgspec.Raw(raw) for name, raw in fields.items()})


def _is_native(request: ChatRequest) -> bool:
    return request.native is not None and request.native.dialect == SHAPE


def _url(endpoint: Endpoint) -> str:
    """Base URLs are given as the root, such as https://api.anthropic.com or https://x.services.ai.azure.com/anthropic."""
    base = endpoint.provider.base_url
    return f"{base}/messages" if base.endswith("/v1") else f"{base}/v1/messages"


def _headers(fields: dict[str, bytes], request: ChatRequest, endpoint: Endpoint, secret: str | None) -> tuple[tuple[str, str], ...]:
    """The catalog's headers win, but betas add up: what the catalog asks for and what the client's own words need."""
    headers = {
        "content-type": "application/json",
        "accept": "text/event-stream" if request.stream else "application/json",
        "anthropic-version": VERSION,
    }
    if secret and _BEARER.match(secret):
        headers["authorization"] = f"Bearer {secret}"
    elif secret:
        headers["x-api-key"] = secret  # Foundry takes it too
    headers.update((name.lower(), value) for name, value in endpoint.provider.headers.items())
    named = [name.strip() for name in headers.get("anthropic-beta", "").split(",")]
    betas = list(dict.fromkeys(name for name in (*named, *_betas(fields.pop(BETAS, b"[]"))) if name))
    if betas:
        headers["anthropic-beta"] = ",".join(betas)
    return tuple(headers.items())


def _betas(raw: bytes) -> list[str]:
    try:
        return [name for name in _NAMES.decode(raw) if re.fullmatch(r"[A-Za-z0-9._-]{1,100}", name)]
    except msgspec.DecodeError:
        return []


def _of_stream(body: bytes, *, native: bool) -> Chunk | Failure:
    decoder = MessageDecoder(native=True)
    events = decoder.feed(body) + decoder.end()
    for event in events:
        if isinstance(event, Failed):
            return event.failure
    return read_whole(dump(joined(event.payload for event in events if isinstance(event, Chunk))), native=native)
