"""Counting the tokens of a request at its provider, which costs nothing there: by the dialects that have a call for it.

A counter takes the request apart that its dialect makes of it, so that what is counted is what would be sent.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

import msgspec

from n4n.core import json_bytes
from n4n.core.catalog import Endpoint
from n4n.core.chat import ChatRequest, UpstreamRequest
from n4n.core.dialects import Dialect
from n4n.core.dialects.anthropic import Anthropic
from n4n.core.dialects.gemini.listening import ANTHROPIC, GOOGLE
from n4n.core.dialects.gemini.vertex import publisher_of

_RESPONSES = frozenset(("model", "input", "instructions", "parallel_tool_calls", "reasoning", "text", "tool_choice", "tools", "truncation"))
_VERTEX = frozenset(("contents", "systemInstruction", "tools", "generationConfig"))
_CONVERSE = frozenset(("messages", "system", "toolConfig", "additionalModelRequestFields"))


class Counter(Protocol):
    """How one dialect counts."""

    def encode(self, dialect: Dialect, request: ChatRequest, endpoint: Endpoint, secret: str | None) -> UpstreamRequest | None:
        """The call, not signed yet; None: the endpoint's model cannot be counted. RequestError as of the dialect's own `encode`."""
        ...


class AnthropicCounter:
    """https://platform.claude.com/docs/en/api/messages-count-tokens."""

    def encode(self, dialect: Dialect, request: ChatRequest, endpoint: Endpoint, secret: str | None) -> UpstreamRequest | None:
        """POST …/v1/messages/count_tokens."""
        return Anthropic().encode_count(request, endpoint, secret)


class ResponsesCounter:
    """https://platform.openai.com/docs/api-reference/responses/input-tokens."""

    def encode(self, dialect: Dialect, request: ChatRequest, endpoint: Endpoint, secret: str | None) -> UpstreamRequest | None:
        """POST …/responses/input_tokens."""
        sent = _whole(dialect, request, endpoint, secret)
        return _changed(sent, sent.url + "/input_tokens", json_bytes.join(_only(sent.body, _RESPONSES)))


class GeminiCounter:
    """https://ai.google.dev/api/tokens."""

    def encode(self, dialect: Dialect, request: ChatRequest, endpoint: Endpoint, secret: str | None) -> UpstreamRequest | None:
        """POST …:countTokens, the request inside."""
        sent = _whole(dialect, request, endpoint, secret)
        model = json_bytes.encode(f"models/{endpoint.upstream_model.removeprefix('models/')}")
        return _changed(sent, _counting(sent.url), b'{"generateContentRequest":{"model":%b,%b}' % (model, sent.body[1:]))


class VertexCounter:
    """https://cloud.google.com/vertex-ai/generative-ai/docs/model-reference/count-tokens, and for Claude as Anthropic's own SDK asks."""

    def encode(self, dialect: Dialect, request: ChatRequest, endpoint: Endpoint, secret: str | None) -> UpstreamRequest | None:
        """POST …:countTokens; for Claude …/models/count-tokens:rawPredict, with the model in the body."""
        publisher, model = publisher_of(endpoint.upstream_model)
        if publisher not in (GOOGLE, ANTHROPIC):
            return None
        sent = _whole(dialect, request, endpoint, secret)
        if publisher == GOOGLE:
            return _changed(sent, _counting(sent.url), json_bytes.join(_only(sent.body, _VERTEX)))
        counted = Anthropic().encode_count(request, endpoint, None).body
        fields = {**json_bytes.members(counted), "model": json_bytes.encode(model), "anthropic_version": b'"vertex-2023-10-16"'}
        head, _, _ = sent.url.rpartition("/models/")
        return _changed(sent, f"{head}/models/count-tokens:rawPredict", json_bytes.join(fields.items()))


class BedrockCounter:
    """https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_CountTokens.html; not every model can be counted."""

    def encode(self, dialect: Dialect, request: ChatRequest, endpoint: Endpoint, secret: str | None) -> UpstreamRequest | None:
        """POST …/model/ID/count-tokens."""
        sent = _whole(dialect, request, endpoint, secret)
        head, _, _ = sent.url.rpartition("/")
        return _changed(sent, f"{head}/count-tokens", b'{"input":{"converse":%b}}' % json_bytes.join(_only(sent.body, _CONVERSE)))


COUNTERS: Mapping[str, Counter] = {
    "anthropic": AnthropicCounter(),
    "openai_responses": ResponsesCounter(),
    "gemini": GeminiCounter(),
    "vertex": VertexCounter(),
    "bedrock": BedrockCounter(),
}


class _Counted(msgspec.Struct, gc=False):
    """Anthropic and Responses, Google, Bedrock."""

    input_tokens: int | None = None
    totalTokens: int | None = None  # Google's name
    inputTokens: int | None = None  # Bedrock's name


_READ = msgspec.json.Decoder(_Counted).decode


def read_count(body: bytes) -> int | None:
    """The count in an answer with status 200; None: there is none."""
    try:
        told = _READ(body)
    except (msgspec.DecodeError, RecursionError):
        return None
    count = next((one for one in (told.input_tokens, told.totalTokens, told.inputTokens) if one is not None), None)
    return count if count is not None and count >= 0 else None


def _whole(dialect: Dialect, request: ChatRequest, endpoint: Endpoint, secret: str | None) -> UpstreamRequest:
    """What would be sent, not as a stream, whose address differs."""
    return dialect.encode(msgspec.structs.replace(request, stream=False), endpoint, secret)


def _only(body: bytes, names: Collection[str]) -> list[tuple[str, bytes]]:
    return [(name, raw) for name, raw in json_bytes.members(body).items() if name in names]


def _changed(sent: UpstreamRequest, url: str, body: bytes) -> UpstreamRequest:
    return msgspec.structs.replace(sent, url=url, body=body)


def _counting(url: str) -> str:
    head, _, _ = url.rpartition(":")
    return f"{head}:countTokens"
