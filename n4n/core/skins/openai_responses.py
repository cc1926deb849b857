"""The skin of POST /v1/responses, put together: OpenAI's Responses in, a response or its events out. Nothing is stored."""

from __future__ import annotations

from collections.abc import Mapping

from n4n.core.chat import ChatRequest, Chunk, Usage
from n4n.core.skins import responses_answer
from n4n.core.skins.responses import read_responses
from n4n.core.skins.responses_chat import losses
from n4n.core.skins.responses_stream import ResponsesStream
from n4n.core.skins.skin import Header


class OpenAIResponses:
    """See above."""

    keep_alive = b": n4n\n\n"

    def read(self, body: bytes, _: Header) -> ChatRequest:
        """A Responses request."""
        return read_responses(body)

    def losses(self, request: ChatRequest) -> tuple[str, ...]:
        """What only Responses has a word for."""
        return losses(request)

    def frames(self, request: ChatRequest) -> ResponsesStream:
        """Events, numbered."""
        return ResponsesStream(request)

    def whole(self, chunk: Chunk, request: ChatRequest, usage: Usage | None, note: bytes) -> bytes:
        """A response."""
        return responses_answer.whole(chunk, request, usage, note)

    def envelope(self, body: Mapping[str, object]) -> Mapping[str, object]:
        """OpenAI's errors are the same everywhere."""
        return body
