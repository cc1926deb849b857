"""What else is asked of providers beside chat, under one dialect's name: text completions and embeddings.

A request says by its native words what it asks for; whether an endpoint can do it is a fact of the catalog, for no provider tells:
`supports: [text_completions]`, beside chat, or `supports: [embeddings]`, instead of it. Asked for what they cannot, providers
answer as if the model were gone or the key were wrong, which would take a healthy endpoint out for everybody.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from n4n.core.catalog import Endpoint
from n4n.core.chat import ChatRequest, Chunk, Native, UpstreamRequest
from n4n.core.dialects import Dialect, Speech, StreamDecoder
from n4n.core.errors import Failure, Untellable

EMBEDDINGS = "embeddings"  # features of an endpoint, as the catalog names them
TEXT_COMPLETIONS = "text_completions"


class Kind(Protocol):
    """One other thing to ask for, beside the chat of the same dialect, whose address, credential and errors it shares."""

    feature: str  # what an endpoint has to name in `supports`

    def encode(self, chat: Dialect, request: ChatRequest, words: Native, endpoint: Endpoint, secret: str | None) -> UpstreamRequest:
        """The request as the endpoint wants it."""
        ...

    def decode(self, chat: Dialect, body: bytes, content_type: str, request: ChatRequest) -> Chunk | Failure:
        """A whole answer, also one of the chat that the request became where the endpoint knows no better."""
        ...

    def decoder(self, chat: Dialect, request: ChatRequest) -> StreamDecoder:
        """A decoder for one streamed answer, also of a chat."""
        ...


class ByKind:
    """A dialect of chat that can be asked for other things too, each by the dialect of its native words."""

    def __init__(self, chat: Dialect, kinds: Mapping[str, Kind]) -> None:
        self.name = chat.name
        self._chat, self._kinds = chat, kinds

    def speech(self, model: str) -> Speech:
        """As for chat."""
        return self._chat.speech(model)

    def encode(self, request: ChatRequest, endpoint: Endpoint, secret: str | None) -> UpstreamRequest:
        """In its own words where the endpoint has this, else as the chat that it means; Untellable where it means none."""
        words, supports = request.native, endpoint.supports
        kind = None if words is None else self._kinds.get(words.dialect)
        if words is not None and kind is not None and supports is not None and kind.feature in supports:
            return kind.encode(self._chat, request, words, endpoint, secret)
        if supports is not None and EMBEDDINGS in supports:
            raise Untellable(f"{request.model[:100]} makes embeddings alone: ask for them at /v1/embeddings", param="model")
        return self._chat.encode(request, endpoint, secret)

    def decode(self, body: bytes, content_type: str, request: ChatRequest) -> Chunk | Failure:
        """A whole answer."""
        kind = self._kind(request)
        if kind is None:
            return self._chat.decode(body, content_type, request)
        return kind.decode(self._chat, body, content_type, request)

    def decoder(self, request: ChatRequest) -> StreamDecoder:
        """A decoder for one streamed answer."""
        kind = self._kind(request)
        return self._chat.decoder(request) if kind is None else kind.decoder(self._chat, request)

    def failure(self, status: int, headers: Mapping[str, str], body: bytes, now: float) -> Failure:
        """What an error answer means."""
        return self._chat.failure(status, headers, body, now)

    def _kind(self, request: ChatRequest) -> Kind | None:
        return None if request.native is None else self._kinds.get(request.native.dialect)
