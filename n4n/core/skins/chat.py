"""The skin of POST /v1/chat/completions: OpenAI's chat request in, OpenAI's answer or stream out."""

from __future__ import annotations

from collections.abc import Mapping

from n4n.core import json_bytes
from n4n.core.chat import ChatRequest, Chunk, Usage
from n4n.core.chat_request import read_chat
from n4n.core.skins.skin import Header
from n4n.core.stream_tail import StreamTail, with_note

_DONE = b"data: [DONE]\n\n"
_BROKEN = [{"index": 0, "delta": {}, "finish_reason": "error"}]


class ChatFrames(StreamTail):
    """A stream of chunks. `include_usage`: the client asked for usage in it."""

    def receive(self, chunk: Chunk) -> tuple[bytes, ...]:
        """The frames that may go out now."""
        return tuple([b"data: %b\n\n" % payload for payload in super().receive(chunk)])

    def finish(self, usage: Usage | None, note: bytes) -> tuple[bytes, ...]:
        """The last chunks, with the block on the last one, and the end mark."""
        return (*[b"data: %b\n\n" % payload for payload in super().finish(usage, note)], _DONE)

    def error(self, body: Mapping[str, object]) -> bytes:
        """The last event of a stream that broke after output had been sent; no [DONE] follows it."""
        return b"data: %b\n\n" % json_bytes.encode({**body, "choices": _BROKEN})


class Chat:
    """See above. Its shape is the one that all others are translated from and to, so nothing is lost."""

    keep_alive = b": n4n\n\n"

    def read(self, body: bytes, _: Header) -> ChatRequest:
        """A chat request."""
        return read_chat(body)

    def losses(self, _: ChatRequest) -> tuple[str, ...]:
        """Nothing."""
        return ()

    def frames(self, request: ChatRequest) -> ChatFrames:
        """Chunks."""
        return ChatFrames(request.include_usage)

    def whole(self, chunk: Chunk, request: ChatRequest, usage: Usage | None, note: bytes) -> bytes:
        """The completion as it came, with the block spliced in."""
        return with_note(chunk.payload, note)

    def envelope(self, body: Mapping[str, object]) -> Mapping[str, object]:
        """As it is."""
        return body
