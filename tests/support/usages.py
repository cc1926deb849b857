"""Whole and streamed answers of every dialect around one `usage`, in the provider's own bytes; and what n4n reads of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from n4n.core.chat import ChatRequest, Chunk, Failed, Native, Usage
from n4n.core.dialects import Dialect, StreamDecoder
from n4n.core.dialects.completions import SHAPE as COMPLETIONS
from n4n.core.dialects.embeddings import SHAPE as EMBEDDINGS
from n4n.core.dialects.table import DIALECTS
from tests.support import event_stream

Json = object
TEXT = "pong"


@dataclass(frozen=True)
class Speaker:
    """One way to tell usage. `counts`: where its numbers stand, as dotted names; `more` beside the usage: the tier of service."""

    name: str
    dialect: str
    counts: tuple[str, ...]
    whole: Callable[[Json, Mapping[str, Json]], bytes]
    stream: Callable[[Json, Mapping[str, Json]], bytes] | None
    shape: str | None = None  # of a request that is no chat

    def request(self, stream: bool) -> ChatRequest:
        """Whatever it was that was asked."""
        native = None if self.shape is None else Native(self.shape, {"input": msgspec.Raw(b'"ping"')})
        return ChatRequest({}, "m", stream=stream, native=native)

    @property
    def speaker(self) -> Dialect:
        """The codec."""
        return DIALECTS[self.dialect]

    def read(self, usage: Json, stream: bool, **more: Json) -> Usage | None:
        """The last usage that is read; AssertionError where the answer did not survive its usage."""
        request = self.request(stream)
        if stream:
            assert self.stream is not None
            decoder: StreamDecoder = self.speaker.decoder(request)
            events = decoder.feed(self.stream(usage, more)) + decoder.end()
            assert not [event for event in events if isinstance(event, Failed)], events
            chunks = [event for event in events if isinstance(event, Chunk)]
            assert any(chunk.content for chunk in chunks)
            return next((chunk.usage for chunk in reversed(chunks) if chunk.usage is not None), None)
        read = self.speaker.decode(self.whole(usage, more), "application/json", request)
        assert isinstance(read, Chunk), read
        assert read.content
        return read.usage


def _json(value: Json) -> bytes:
    return json.dumps(value).encode()


def _data(*events: Mapping[str, Json], names: bool = False) -> bytes:
    heads = (b"event: %b\n" % str(one["type"]).encode() if names else b"" for one in events)
    return b"".join(head + b"data: %b\n\n" % _json(one) for head, one in zip(heads, events, strict=True))


def _chat_whole(usage: Json, more: Mapping[str, Json]) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": TEXT}, "finish_reason": "stop"}
    return _json({"id": "c", "object": "chat.completion", "choices": [choice], "usage": usage, **more})


def _chat_stream(usage: Json, more: Mapping[str, Json]) -> bytes:
    head = {"id": "c", "object": "chat.completion.chunk", **more}
    said = {**head, "choices": [{"index": 0, "delta": {"role": "assistant", "content": TEXT}, "finish_reason": None}], "usage": None}
    ended = {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    return _data(said, ended, {"id": "c", "object": "chat.completion.chunk", "choices": [], "usage": usage}) + b"data: [DONE]\n\n"


def _text_whole(usage: Json, more: Mapping[str, Json]) -> bytes:
    choice = {"index": 0, "text": TEXT, "finish_reason": "stop"}
    return _json({"id": "c", "object": "text_completion", "choices": [choice], "usage": usage, **more})


def _vectors_whole(usage: Json, more: Mapping[str, Json]) -> bytes:
    return _json({"object": "list", "data": [{"object": "embedding", "index": 0, "embedding": [0.5]}], "usage": usage, **more})


def _responses(usage: Json, more: Mapping[str, Json]) -> dict[str, Json]:
    item = {"type": "message", "id": "m", "role": "assistant", "content": [{"type": "output_text", "text": TEXT, "annotations": []}]}
    return {"id": "r", "object": "response", "status": "completed", "output": [item], "usage": usage, **more}


def _responses_whole(usage: Json, more: Mapping[str, Json]) -> bytes:
    return _json(_responses(usage, more))


def _responses_stream(usage: Json, more: Mapping[str, Json]) -> bytes:
    delta = {"type": "response.output_text.delta", "item_id": "m", "output_index": 0, "content_index": 0, "delta": TEXT}
    return _data(delta, {"type": "response.completed", "response": _responses(usage, more)}, names=True)


def _messages_whole(usage: Json, more: Mapping[str, Json]) -> bytes:
    said = {"content": [{"type": "text", "text": TEXT}], "stop_reason": "end_turn", "usage": usage, **more}
    return _json({"id": "msg", "type": "message", "role": "assistant", "model": "c", **said})


def _messages_stream(usage: Json, more: Mapping[str, Json]) -> bytes:
    early = {**usage, "output_tokens": 1} if isinstance(usage, dict) and "output_tokens" in usage else usage
    message = {
        "id": "msg",
        "type": "message",
        "role": "assistant",
        "model": "c",
        "content": [],
        "stop_reason": None,
        "usage": early,
        **more,
    }
    with_output = ("output_tokens", "output_tokens_details")
    late = {name: usage[name] for name in with_output if name in usage} if isinstance(usage, dict) else usage
    return _data(
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": TEXT}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": late},
        {"type": "message_stop"},
        names=True,
    )


def _candidate(finish: str | None) -> dict[str, Json]:
    said: dict[str, Json] = {"content": {"role": "model", "parts": [{"text": TEXT}]}, "index": 0}
    return said if finish is None else {**said, "finishReason": finish}


def _gemini_whole(usage: Json, more: Mapping[str, Json]) -> bytes:
    return _json({"candidates": [_candidate("STOP")], "usageMetadata": usage, **more})


def _gemini_stream(usage: Json, more: Mapping[str, Json]) -> bytes:
    early = {"promptTokenCount": 7, "totalTokenCount": 7} if isinstance(usage, dict) and usage else usage  # replaced
    return _data({"candidates": [_candidate(None)], "usageMetadata": early}, {"candidates": [_candidate("STOP")], "usageMetadata": usage})


def _converse_whole(usage: Json, more: Mapping[str, Json]) -> bytes:
    said = {"output": {"message": {"role": "assistant", "content": [{"text": TEXT}]}}, "stopReason": "end_turn"}
    return _json({**said, "usage": usage, "metrics": {"latencyMs": 7}, **more})


def _converse_stream(usage: Json, more: Mapping[str, Json]) -> bytes:
    told = event_stream.event("metadata", usage=usage, metrics={"latencyMs": 7}, **more)
    return event_stream.START + event_stream.text(TEXT) + event_stream.stop() + told


_OPENAI = (
    "prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details.cached_tokens", "prompt_tokens_details.cache_write_tokens",
    "prompt_tokens_details.audio_tokens", "prompt_tokens_details.image_tokens", "completion_tokens_details.reasoning_tokens",
    "completion_tokens_details.audio_tokens", "cached_tokens", "prompt_cache_hit_tokens",
)  # fmt: skip
_RESPONSES = (
    "input_tokens", "output_tokens", "total_tokens", "input_tokens_details.cached_tokens", "input_tokens_details.cache_write_tokens",
    "output_tokens_details.reasoning_tokens",
)  # fmt: skip
_ANTHROPIC = (
    "input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens_details.thinking_tokens",
    "cache_creation.ephemeral_1h_input_tokens",
)  # fmt: skip
_GEMINI = (
    "promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount", "cachedContentTokenCount", "toolUsePromptTokenCount",
    "totalTokenCount",
)  # fmt: skip
_BEDROCK = ("inputTokens", "outputTokens", "totalTokens", "cacheReadInputTokens", "cacheWriteInputTokens")
SPEAKERS: Mapping[str, Speaker] = {
    one.name: one
    for one in (
        Speaker("openai", "openai", _OPENAI, _chat_whole, _chat_stream),
        Speaker("azure", "azure", _OPENAI, _chat_whole, _chat_stream),
        Speaker("completions", "openai", _OPENAI, _text_whole, None, COMPLETIONS),
        Speaker("embeddings", "openai", ("prompt_tokens", "total_tokens"), _vectors_whole, None, EMBEDDINGS),
        Speaker("responses", "openai_responses", _RESPONSES, _responses_whole, _responses_stream),
        Speaker("anthropic", "anthropic", _ANTHROPIC, _messages_whole, _messages_stream),
        Speaker("gemini", "gemini", _GEMINI, _gemini_whole, _gemini_stream),
        Speaker("vertex", "vertex", _GEMINI, _gemini_whole, _gemini_stream),
        Speaker("claude at vertex", "vertex", _ANTHROPIC, _messages_whole, _messages_stream),
        Speaker("bedrock", "bedrock", _BEDROCK, _converse_whole, _converse_stream),
    )
}
