"""What makes a skin: how a client's protocol is read, and how answers and errors are said in it. All of it pure.

The data plane runs one engine behind every skin; nothing there knows which one it serves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from n4n.core.chat import ChatRequest, Chunk, Usage

Header = Callable[[str], str | None]  # a request header by its name; MalformedRequest where it was sent twice


class Frames(Protocol):
    """A stream as a client of this skin wants it. What it gives are whole frames of server-sent events; it stands behind the guard."""

    @property
    def waiting(self) -> bool:
        """Every choice has finished and nothing but usage is to come: be patient for 2 s, no longer."""
        ...

    @property
    def complete(self) -> bool:
        """The usage has come too: `finish` need not wait for the stream's end."""
        ...

    def receive(self, chunk: Chunk) -> tuple[bytes, ...]:
        """The frames that may go out now; after `finish` none."""
        ...

    def finish(self, usage: Usage | None, note: bytes) -> tuple[bytes, ...]:
        """The remaining frames, the end mark included. `usage`: the truth; `note`: n4n's block as JSON."""
        ...

    def error(self, body: Mapping[str, object]) -> bytes:
        """The last frame of a stream that broke; `body` is the error in OpenAI's shape."""
        ...


class Skin(Protocol):
    """One protocol of clients."""

    keep_alive: bytes  # what an open stream gets while its provider is silent

    def read(self, body: bytes, header: Header) -> ChatRequest:
        """A request. Raises MalformedRequest."""
        ...

    def losses(self, request: ChatRequest) -> tuple[str, ...]:
        """What the translation of a request leaves out, a line each, where its endpoint does not speak the client's dialect."""
        ...

    def frames(self, request: ChatRequest) -> Frames:
        """How the stream that answers a request is said."""
        ...

    def whole(self, chunk: Chunk, request: ChatRequest, usage: Usage | None, note: bytes) -> bytes:
        """The body that answers a request that asked for no stream."""
        ...

    def envelope(self, body: Mapping[str, object]) -> Mapping[str, object]:
        """An error, given in OpenAI's shape, as this skin says it."""
        ...
