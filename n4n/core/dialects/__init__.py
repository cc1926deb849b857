"""Dialects: the wire formats of providers, as pure codecs. One table, name to dialect; a dialect knows no other dialect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from n4n.core.catalog import Endpoint
from n4n.core.chat import CHAT, ChatRequest, Chunk, Event, UpstreamRequest
from n4n.core.errors import Failure


class Speech(msgspec.Struct, frozen=True):
    """How a model is spoken to. `shape`: who writes in it gets through untouched. `cannot`: features of a chat that are lost on the
    way into it at every endpoint, whatever the catalog says. `binds`: what sealed reasoning is bound to, account, model or nothing;
    `reads`: the formats of `reasoning_details` that it understands, each of which is one maker's."""

    shape: str = CHAT
    cannot: frozenset[str] = frozenset()
    binds: str = ""
    reads: frozenset[str] = frozenset()


class StreamDecoder(Protocol):
    """Turns the bytes of one streamed answer, in any split, into events. Not reusable."""

    def feed(self, piece: bytes) -> list[Event]:
        """Events that this piece completed; after a `Failed` or `Done` it returns nothing more."""
        ...

    def end(self) -> list[Event]:
        """The input ended: what was pending, then `Done` when every choice had finished, else `Failed`."""
        ...


class Dialect(Protocol):
    """One wire format. Nothing here raises for anything an upstream can send: what cannot be read is a `Failure`."""

    name: str

    def speech(self, model: str) -> Speech:
        """How a model, by its provider's name, is spoken to; always the same value for the same name."""
        ...

    def encode(self, request: ChatRequest, endpoint: Endpoint, secret: str | None) -> UpstreamRequest:
        """The request as this endpoint wants it; content headers and the credential included, connection headers not."""
        ...

    def decode(self, body: bytes, content_type: str, request: ChatRequest) -> Chunk | Failure:
        """A whole answer with status 200; also one that came as a stream though none was asked."""
        ...

    def decoder(self, request: ChatRequest) -> StreamDecoder:
        """A decoder for one streamed answer with status 200."""
        ...

    def failure(self, status: int, headers: Mapping[str, str], body: bytes, now: float) -> Failure:
        """The class of an answer that is not 200 (header names in lower case; `now` in Unix seconds, for dates)."""
        ...
