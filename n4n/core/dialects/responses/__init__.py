"""OpenAI's Responses API, for models that live only there, and for clients that speak it themselves.

https://platform.openai.com/docs/api-reference/responses. A client that speaks Responses gets its own words through untouched,
both ways; for all others the chat is translated there, and the answer back.
"""

from __future__ import annotations

from collections.abc import Mapping

from n4n.core import json_bytes
from n4n.core.catalog import Endpoint
from n4n.core.chat import ChatRequest, Chunk, Failed, UpstreamRequest
from n4n.core.dialects import Speech, StreamDecoder
from n4n.core.dialects.classify import garbled
from n4n.core.dialects.responses import failures
from n4n.core.dialects.responses.answer import joined, read_whole
from n4n.core.dialects.responses.request import CANNOT, members
from n4n.core.dialects.responses.stream import TOO_DEEP, ResponseDecoder
from n4n.core.dialects.responses.words import FORMAT, SHAPE
from n4n.core.errors import Failure, MalformedRequest

_PATH = "/responses"
_SSE_HEADS = (b"data:", b"event:", b"id:", b"retry:", b":")
_CONTENT = ("content-type", "application/json")
_WHOLE, _STREAM = ("accept", "application/json"), ("accept", "text/event-stream")
_SPEECH = Speech(SHAPE, CANNOT, reads=frozenset((FORMAT,)))


class Responses:
    """The dialect `openai_responses`."""

    name = SHAPE

    def speech(self, model: str) -> Speech:
        """Responses."""
        return _SPEECH

    def encode(self, request: ChatRequest, endpoint: Endpoint, secret: str | None) -> UpstreamRequest:
        """POST base_url/responses. MalformedRequest for a chat that nobody could read."""
        try:
            fields, warnings = members(request, endpoint)
        except (RecursionError, json_bytes.NotJson) as error:  # what could just be read may be too deep to be written again
            raise MalformedRequest("the body is nested too deeply") from error
        provider = endpoint.provider
        key = (("authorization", f"Bearer {secret}"),) if secret else ()
        headers = (_CONTENT, _STREAM if request.stream else _WHOLE, *key, *provider.headers.items())
        return UpstreamRequest(provider.base_url + _PATH, headers, json_bytes.join(fields.items()), tuple(warnings), provider.allow_private)

    def decode(self, body: bytes, content_type: str, request: ChatRequest) -> Chunk | Failure:
        """A whole answer; also one that came as a stream though none was asked."""
        head = body[:64].lstrip(b" \t\r\n\xef\xbb\xbf")
        streamed = head.startswith(_SSE_HEADS) or (content_type.startswith("text/event-stream") and head[:1] not in (b"{", b"[", b"<", b""))
        try:
            return (_of_stream if streamed else read_whole)(body, native=_is_native(request))
        except RecursionError:
            return garbled(TOO_DEEP)

    def decoder(self, request: ChatRequest) -> StreamDecoder:
        """A decoder for one streamed answer."""
        return ResponseDecoder(native=_is_native(request))

    def failure(self, status: int, headers: Mapping[str, str], body: bytes, now: float) -> Failure:
        """What an error answer means."""
        return failures.failure_of(status, headers, body, now)


def _is_native(request: ChatRequest) -> bool:
    return request.native is not None and request.native.dialect == SHAPE


def _of_stream(body: bytes, *, native: bool) -> Chunk | Failure:
    decoder = ResponseDecoder(native=True)
    events = decoder.feed(body) + decoder.end()
    for event in events:
        if isinstance(event, Failed):
            return event.failure
    return read_whole(json_bytes.dump(joined(event.payload for event in events if isinstance(event, Chunk))), native=native)
