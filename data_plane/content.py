"""What was said in one request, for its trace: of tenants that asked for it alone.

What was asked is there anyway until the request ends. A whole answer is, too; of a stream the pieces would be gone, so they are heard as
they pass, where the sampler has chosen the trace when the request came: nobody hears all streams for the few that fail.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from n4n.core.chat import Chunk, Usage
from n4n.core.content import Heard, input_messages

if TYPE_CHECKING:
    from data_plane.answers import Answer
    from data_plane.record import Record


class Content:
    """Of one request; `asked`: its body."""

    __slots__ = ("_asked", "_heard")

    def __init__(self, asked: bytes) -> None:
        self._asked, self._heard = asked, Heard()

    def __repr__(self) -> str:
        return f"<Content of {len(self._asked)} bytes>"

    def heard_through(self, answer: Answer) -> Answer:
        """The answer, all of whose pieces are heard."""
        return _HeardAnswer(answer, self._heard)

    def attributes(self, record: Record, finish_reasons: Sequence[str]) -> dict[str, str]:
        """Of a span, when the request is over."""
        if not record.stream and record.last_chunk is not None:
            self._heard.take(record.last_chunk.payload)
        told = {"gen_ai.input.messages": input_messages(self._asked), "gen_ai.output.messages": self._heard.messages(finish_reasons)}
        return {name: messages for name, messages in told.items() if messages is not None}


class _HeardAnswer:
    def __init__(self, answer: Answer, heard: Heard) -> None:
        self._answer, self._heard = answer, heard

    @property
    def wake_at(self) -> float | None:
        return self._answer.wake_at

    @property
    def quiet_until(self) -> float | None:
        return self._answer.quiet_until

    def put(self, chunks: Sequence[Chunk]) -> bool:
        for chunk in chunks:
            self._heard.take(chunk.payload)
        return self._answer.put(chunks)

    async def flush(self) -> None:
        await self._answer.flush()

    async def finish(self, usage: Usage | None) -> None:
        await self._answer.finish(usage)
