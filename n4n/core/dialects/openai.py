"""OpenAI's chat completions, and all who speak like it: vLLM, Together, DeepInfra, Groq, Fireworks, OpenRouter, Mistral, DeepSeek, xAI.

https://platform.openai.com/docs/api-reference/chat. What the client wrote goes out as the bytes it wrote; only what the
endpoint needs otherwise is made anew.
"""

from __future__ import annotations

from collections.abc import Mapping

from n4n.core import json_bytes
from n4n.core.catalog import Endpoint
from n4n.core.chat import ChatRequest, Chunk, Failed, UpstreamRequest
from n4n.core.chat_request import FEATURE_FIELDS, is_full, missing_features
from n4n.core.dialects import Speech, StreamDecoder, classify, completion
from n4n.core.dialects.chunks import ChunkDecoder
from n4n.core.dialects.marks import unmarked
from n4n.core.dialects.overlay import lay_over
from n4n.core.dialects.quirks import respell, translated
from n4n.core.errors import Failure

_PATH = "/chat/completions"
_SSE_HEADS = (b"data:", b"event:", b"id:", b"retry:", b":")
_LIMITS = ("max_completion_tokens", "max_tokens")
_ASK_USAGE = b'{"include_usage":true}'
_TRUE = b"true"
_CONTENT = ("content-type", "application/json")
_WHOLE, _STREAM = ("accept", "application/json"), ("accept", "text/event-stream")
SPEECH = Speech()


class OpenAI:
    """The dialect `openai`."""

    name = "openai"

    def speech(self, model: str) -> Speech:
        """Chat itself, which can carry whatever a chat can hold."""
        return SPEECH

    def encode(self, request: ChatRequest, endpoint: Endpoint, secret: str | None) -> UpstreamRequest:
        """POST base_url/chat/completions. Nothing of the client's headers; `secret` as a bearer token, where there is one."""
        provider, warnings = endpoint.provider, list[str]()
        if request.native is not None:
            fields = translated(request.fields, endpoint, warnings)
        elif request.marked and "marks" not in provider.quirks:
            fields = unmarked(request.fields, keeps_reasoning="reasoning_content" in provider.quirks)
        else:
            fields = dict(request.fields)
        fields["model"] = json_bytes.encode(endpoint.upstream_model)
        if request.features:
            _leave_out(fields, request, endpoint, warnings)
        _clamp(fields, request, endpoint, warnings)
        if request.stream:
            _ask_usage(fields, request, endpoint)
        if provider.quirks:
            respell(fields, provider.quirks)
        if endpoint.body:
            lay_over(fields, endpoint.body)
        key = (("authorization", f"Bearer {secret}"),) if secret else ()
        headers = (_CONTENT, _STREAM if request.stream else _WHOLE, *key, *provider.headers.items())
        return UpstreamRequest(provider.base_url + _PATH, headers, json_bytes.join(fields.items()), tuple(warnings), provider.allow_private)

    def decode(self, body: bytes, content_type: str, request: ChatRequest) -> Chunk | Failure:
        """A whole answer; also one that came as a stream though none was asked."""
        head = body[:64].lstrip(b" \t\r\n\xef\xbb\xbf")
        if head.startswith(_SSE_HEADS) or (content_type.startswith("text/event-stream") and head[:1] not in (b"{", b"[", b"<", b"")):
            return _of_stream(body, request)
        return completion.read_whole(body)

    def decoder(self, request: ChatRequest) -> StreamDecoder:
        """A decoder for one streamed answer."""
        return ChunkDecoder(request.n)

    def failure(self, status: int, headers: Mapping[str, str], body: bytes, now: float) -> Failure:
        """What an error answer means."""
        return classify.failure_of(status, headers, body, now)


def _of_stream(body: bytes, request: ChatRequest) -> Chunk | Failure:
    decoder = ChunkDecoder(request.n)
    events = decoder.feed(body) + decoder.end()
    chunks = [event for event in events if isinstance(event, Chunk)]
    for event in events:
        if isinstance(event, Failed):
            return event.failure
    return completion.read_whole(json_bytes.dump(completion.joined(chunk.payload for chunk in chunks)))


def _leave_out(fields: dict[str, bytes], request: ChatRequest, endpoint: Endpoint, warnings: list[str]) -> None:
    """Drop the fields of features this endpoint does not have, and say so."""
    for feature in sorted(missing_features(request.features, endpoint.supports)):
        for name in FEATURE_FIELDS.get(feature, ()):
            if fields.pop(name, None) is not None:
                warnings.append(f"{name} was left out: endpoint {endpoint.id} does not support {feature}")


def _clamp(fields: dict[str, bytes], request: ChatRequest, endpoint: Endpoint, warnings: list[str]) -> None:
    """Lower a wish for more output than the endpoint writes, which providers refuse."""
    most = endpoint.max_output_tokens
    if most is None or request.max_output_tokens is None:
        return
    for name in _LIMITS:
        asked = fields.get(name)
        if asked is not None and bytes(asked) != b"null" and int(bytes(asked)) > most:
            fields[name] = b"%d" % most
            warnings.append(f"{name} was lowered to {most}, the most that endpoint {endpoint.id} writes")


def _ask_usage(fields: dict[str, bytes], request: ChatRequest, endpoint: Endpoint) -> None:
    """Usage is always asked for, but of who refuses to be asked: they tell it anyway, and no client misses what it asked for."""
    supports = endpoint.supports
    if supports is not None and "stream_options" not in supports and is_full(supports):
        fields.pop("stream_options", None)
    elif not request.include_usage:
        fields["stream_options"] = _asking_usage(fields.get("stream_options"))


def _asking_usage(given: bytes | None) -> bytes:
    if given is None or bytes(given) == b"null":
        return _ASK_USAGE
    options = json_bytes.members(given)
    return json_bytes.join({**options, "include_usage": _TRUE}.items())
