"""Where n4n's own time goes in one request: measured in one of seventeen, by putting clocks around what the others use bare.

Counted, not drawn, and every model, skin and client has its turn: seventeen is a prime, so that no rhythm of clients keeps step with it.
The others pay for a count and a few comparisons with None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from n4n.core.catalog import Endpoint
from n4n.core.chat import ChatRequest, Chunk, Event, UpstreamRequest, Usage
from n4n.core.dialects import Dialect, Speech, StreamDecoder
from n4n.core.errors import Failure

if TYPE_CHECKING:
    from data_plane.answers import Answer

ONE_IN = 17


class Parts:
    """Seconds that one request's parts took so far; reserving is told by its record.

    auth: from its head until the caller is known. plan: which endpoints, in which order. connect: until there is a connection to a
    provider, 0 where one was open. translate: reading the request, writing the provider's, reading its answer, writing the client's
    events. write: the block and the head of the answer, and handing it to the client's connection, a slow client included.
    """

    __slots__ = ("auth_s", "clock", "connect_s", "plan_s", "translate_s", "write_s")

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.auth_s = self.plan_s = self.connect_s = self.translate_s = self.write_s = 0.0

    def __repr__(self) -> str:
        return (
            f"Parts(auth={self.auth_s:.6f}, plan={self.plan_s:.6f}, connect={self.connect_s:.6f}, "
            f"translate={self.translate_s:.6f}, write={self.write_s:.6f})"
        )


class TimedDialect:
    """A dialect whose work is timed."""

    def __init__(self, dialect: Dialect, parts: Parts) -> None:
        self._dialect, self._parts, self.name = dialect, parts, dialect.name

    def speech(self, model: str) -> Speech:
        """As the dialect's."""
        return self._dialect.speech(model)

    def encode(self, request: ChatRequest, endpoint: Endpoint, secret: str | None) -> UpstreamRequest:
        """As the dialect's."""
        begun = self._parts.clock()
        encoded = self._dialect.encode(request, endpoint, secret)
        self._parts.translate_s += self._parts.clock() - begun
        return encoded

    def decode(self, body: bytes, content_type: str, request: ChatRequest) -> Chunk | Failure:
        """As the dialect's."""
        begun = self._parts.clock()
        decoded = self._dialect.decode(body, content_type, request)
        self._parts.translate_s += self._parts.clock() - begun
        return decoded

    def decoder(self, request: ChatRequest) -> StreamDecoder:
        """As the dialect's, timed."""
        return _TimedDecoder(self._dialect.decoder(request), self._parts)

    def failure(self, status: int, headers: Mapping[str, str], body: bytes, now: float) -> Failure:
        """As the dialect's."""
        return self._dialect.failure(status, headers, body, now)


class _TimedDecoder:
    def __init__(self, decoder: StreamDecoder, parts: Parts) -> None:
        self._decoder, self._parts = decoder, parts

    def feed(self, piece: bytes) -> list[Event]:
        begun = self._parts.clock()
        events = self._decoder.feed(piece)
        self._parts.translate_s += self._parts.clock() - begun
        return events

    def end(self) -> list[Event]:
        return self._decoder.end()


class TimedAnswer:
    """An answer whose making is timed."""

    def __init__(self, answer: Answer, parts: Parts) -> None:
        self._answer, self._parts = answer, parts

    @property
    def wake_at(self) -> float | None:
        """As the answer's."""
        return self._answer.wake_at

    @property
    def quiet_until(self) -> float | None:
        """As the answer's."""
        return self._answer.quiet_until

    def put(self, chunks: Sequence[Chunk]) -> bool:
        """As the answer's."""
        begun = self._parts.clock()
        due = self._answer.put(chunks)
        self._parts.translate_s += self._parts.clock() - begun
        return due

    async def flush(self) -> None:
        """As the answer's."""
        begun = self._parts.clock()
        await self._answer.flush()
        self._parts.write_s += self._parts.clock() - begun

    async def finish(self, usage: Usage | None) -> None:
        """As the answer's."""
        begun = self._parts.clock()
        await self._answer.finish(usage)
        self._parts.write_s += self._parts.clock() - begun
