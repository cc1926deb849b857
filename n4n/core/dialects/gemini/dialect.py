"""The dialect `gemini`: Gemini models with a key of AI Studio's."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from n4n.core import json_bytes
from n4n.core.catalog import Endpoint
from n4n.core.chat import ChatRequest, Chunk, Failed, UpstreamRequest
from n4n.core.dialects import Speech, StreamDecoder, completion
from n4n.core.dialects.classify import garbled
from n4n.core.dialects.gemini.answer import Answer, spelled
from n4n.core.dialects.gemini.body import CANNOT, body_of
from n4n.core.dialects.gemini.failures import failure_from
from n4n.core.dialects.gemini.signatures import FORMAT
from n4n.core.dialects.gemini.stream import GeminiDecoder, read_response
from n4n.core.errors import Failure, MalformedRequest

_BLANK = b" \t\r\n\xef\xbb\xbf"
_WHOLE_PATHS = ("models/", "tunedModels/")
SPEECH = Speech("gemini", CANNOT, reads=frozenset((FORMAT,)))


class Gemini:
    """The dialect `gemini`."""

    name = "gemini"

    def speech(self, model: str) -> Speech:
        """What Gemini takes."""
        return SPEECH

    def encode(self, request: ChatRequest, endpoint: Endpoint, secret: str | None) -> UpstreamRequest:
        """POST base_url/models/MODEL:generateContent, the secret as x-goog-api-key; as `key=` in the URL it would reach logs."""
        model = endpoint.upstream_model
        path = model if model.startswith(_WHOLE_PATHS) else f"models/{model}"
        return encoded(request, endpoint, path, ("x-goog-api-key", secret) if secret else None)

    def decode(self, body: bytes, content_type: str, request: ChatRequest) -> Chunk | Failure:
        """A whole answer; also one that came as a stream though none was asked."""
        head = body[:64].lstrip(_BLANK)[:1]
        if not head:
            return garbled("the provider's answer was empty")
        if head == b"<":
            return garbled("the provider answered with a web page")
        if head == b"{":
            return read_response(body.strip().removeprefix(b"\xef\xbb\xbf"), Answer(request).completion)
        return _of_stream(body, request)

    def decoder(self, request: ChatRequest) -> StreamDecoder:
        """A decoder for one streamed answer."""
        return GeminiDecoder(request)

    def failure(self, status: int, headers: Mapping[str, str], body: bytes, now: float) -> Failure:
        """What an error answer means."""
        return failure_from(status, headers, body, now)


def encoded(request: ChatRequest, endpoint: Endpoint, path: str, credential: tuple[str, str] | None) -> UpstreamRequest:
    """The request for the model at `path` below the base URL. A stream is asked for as server-sent events."""
    try:
        body, warnings = body_of(request, endpoint)
    except (RecursionError, json_bytes.NotJson) as error:
        raise MalformedRequest("the request is nested too deeply for the provider") from error
    provider = endpoint.provider
    headers = [("content-type", "application/json"), ("accept", "text/event-stream" if request.stream else "application/json")]
    headers += [credential] if credential else []
    headers += provider.headers.items()
    method = "streamGenerateContent?alt=sse" if request.stream else "generateContent"
    url = f"{provider.base_url}/{quote(path, safe='/@-._~:')}:{method}"
    return UpstreamRequest(url, tuple(headers), body, tuple(warnings), provider.allow_private)


def _of_stream(body: bytes, request: ChatRequest) -> Chunk | Failure:
    decoder = GeminiDecoder(request)
    events = decoder.feed(body) + decoder.end()
    chunks = [event for event in events if isinstance(event, Chunk)]
    for event in events:
        if isinstance(event, Failed):
            return event.failure
    usage = next((chunk.usage for chunk in reversed(chunks) if chunk.usage is not None), None)
    whole = completion.joined(chunk.payload for chunk in chunks) | {"usage": spelled(usage)}
    size, spoke = sum(chunk.output_bytes for chunk in chunks), any(chunk.content for chunk in chunks)
    return Chunk(json_bytes.dump(whole), spoke, finishes=True, usage=usage, output_bytes=size)
