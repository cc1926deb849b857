"""Streams of Messages: bytes in any split become events, in the client's own words where it speaks Messages, else in those of chat.

A stream is a success when a stop reason has come; `message_stop` alone proves nothing, and its absence after the reason is
no fault. An `error` event, and an end before the reason, are failures. Nothing that an upstream can send makes it raise.
"""

from __future__ import annotations

from n4n.core import json_bytes
from n4n.core.chat import Chunk, Comment, Done, Event, Failed, Usage
from n4n.core.dialects.anthropic import failures
from n4n.core.dialects.anthropic.answer import read_message
from n4n.core.dialects.anthropic.chat_chunks import ChatWriter
from n4n.core.dialects.anthropic.counts import NOTHING
from n4n.core.dialects.anthropic.events import SHAPE, Block, Delta, Said, as_events, dump, read
from n4n.core.dialects.classify import garbled
from n4n.core.dialects.deltas import text_bytes
from n4n.core.dialects.frames import END_MARK, Frame, Frames, Item, TooLong, Whole
from n4n.core.errors import Failure

TOO_DEEP = "the provider's answer is nested too deeply"
_COMMENT = Comment()
_DELTAS = frozenset(("content_block_delta", "message_delta"))


class MessageDecoder:
    """The decoder of one streamed answer with status 200. `native`: the client speaks Messages itself."""

    __slots__ = ("_counts", "_finished", "_frames", "_over", "_writer")

    def __init__(self, *, native: bool) -> None:
        self._frames = Frames()
        self._writer = None if native else ChatWriter()
        self._counts = NOTHING
        self._finished = self._over = False

    def __repr__(self) -> str:
        return f"<MessageDecoder {'over' if self._over else 'finished' if self._finished else 'open'}>"

    def feed(self, piece: bytes) -> list[Event]:
        """The events that this piece completed, in order; nothing after a Failed or Done."""
        return [] if self._over else self._events(self._frames.feed(piece))

    def end(self) -> list[Event]:
        """The input ended."""
        if self._over:
            return []
        events = self._events(self._frames.end())
        if not self._over:
            self._conclude(events, "the provider's stream ended before the answer did")
        return events

    def _events(self, items: list[Item]) -> list[Event]:
        events: list[Event] = []
        for item in items:
            if self._over:
                break
            if isinstance(item, Frame | Whole):
                self._guarded(item, events)
            elif isinstance(item, TooLong):
                self._fail(garbled(item.what), events)
            else:
                events.append(_COMMENT)
        return events

    def _guarded(self, item: Frame | Whole, events: list[Event]) -> None:
        try:
            if isinstance(item, Frame):
                self._frame(item.data, item.name, events)
            else:
                self._whole(item.body, events)
        except RecursionError:  # what could just be read may be too deep to be written again
            self._fail(garbled(TOO_DEEP), events)

    def _frame(self, data: bytes, name: bytes, events: list[Event]) -> None:
        said = read(data)
        if said is None:
            if not data.strip() or data.strip() == END_MARK:
                events.append(_COMMENT)
            else:
                self._fail(garbled("the provider's stream is corrupt"), events)
        elif said.error is not None or said.type == "error" or name == b"error":
            self._fail(failures.failure_inside(json_bytes.parse(data)), events)
        elif said.type == "ping":
            events.append(_COMMENT)
        else:
            self._said(said, data, name, events)

    def _said(self, said: Said, data: bytes, name: bytes, events: list[Event]) -> None:
        usage = self._told(said)
        finishes = said.type == "message_delta" and said.delta is not None and said.delta.stop_reason is not None
        if self._writer is None:
            event = said.type.encode(errors="replace") or name
            events.append(Chunk(data, _has_output(said), finishes, usage=usage, output_bytes=_size(said), shape=SHAPE, event=event))
        else:
            chunks = [] if finishes and self._finished else self._writer.write(said, usage)  # a client of chat is told once
            if said.type == "message_delta" and usage is not None:
                chunks.append(self._writer.usage(usage))
            events += chunks or (_COMMENT,)
        self._finished = self._finished or finishes
        if said.type == "message_stop":
            self._conclude(events, "the provider's stream says it is done, but the answer is not")

    def _told(self, said: Said) -> Usage | None:
        """All that is known of usage, where this event told some of it."""
        if said.type == "message_start" and said.message is not None:
            self._counts = self._counts.told(said.message.usage).before_output()
            return self._counts.usage
        if said.type == "message_delta":
            self._counts = self._counts.told(said.usage)
            return self._counts.usage
        return None

    def _whole(self, body: bytes, events: list[Event]) -> None:
        """A whole body where a stream was asked."""
        message = read_message(body)
        if isinstance(message, Failure):
            self._fail(message, events)
            return
        for event in as_events(message):
            self._frame(dump(event), b"", events)

    def _conclude(self, events: list[Event], otherwise: str) -> None:
        if self._finished:
            events.append(Done())
            self._over = True
        else:
            self._fail(garbled(otherwise), events)

    def _fail(self, failure: Failure, events: list[Event]) -> None:
        events.append(Failed(failure))
        self._over = True


def _has_output(said: Said) -> bool:
    block, delta = said.content_block, said.delta
    if block is not None:
        return bool(block.text or block.thinking) or block.type not in ("text", "thinking")
    return delta is not None and said.type in _DELTAS and bool(delta.text or delta.thinking or delta.partial_json)


def _size(said: Said) -> int:
    block, delta = said.content_block or Block(), said.delta or Delta()
    return sum(text_bytes(text) for text in (block.text, block.thinking, delta.text, delta.thinking, delta.partial_json))
