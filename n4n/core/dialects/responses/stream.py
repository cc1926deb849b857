"""Streams of the Responses API: bytes in any split become events, in the client's own words where it speaks Responses, else in
those of chat.

A stream is a success when the event of a completed or incomplete response has come. One of a failed response, an event of type
`error` and an end without any of them are failures. Nothing that an upstream can send makes it raise.
"""

from __future__ import annotations

from typing import cast

from n4n.core import json_bytes
from n4n.core.chat import Chunk, Comment, Done, Event, Failed
from n4n.core.dialects.classify import garbled
from n4n.core.dialects.deltas import text_bytes
from n4n.core.dialects.frames import END_MARK, Frame, Frames, Item, KeepAlive, Whole
from n4n.core.dialects.responses import counts, failures
from n4n.core.dialects.responses.answer import NOT_FINISHED, as_events, read_whole
from n4n.core.dialects.responses.chat_chunks import ChatWriter
from n4n.core.dialects.responses.words import SHAPE, Object, Said, read_event
from n4n.core.errors import Failure

TOO_DEEP = "the provider's answer is nested too deeply"
_COMMENT = Comment()
_LAST = frozenset(("response.completed", "response.incomplete"))
_FAILED = frozenset(("error", "response.failed", "response.cancelled"))
_OUTPUT = frozenset(
    ("response.output_text.delta", "response.refusal.delta", "response.reasoning_summary_text.delta", "response.reasoning_text.delta",
     "response.function_call_arguments.delta", "response.custom_tool_call_input.delta", "response.mcp_call_arguments.delta",
     "response.code_interpreter_call_code.delta")
)  # fmt: skip


class ResponseDecoder:
    """The decoder of one streamed answer with status 200. `native`: the client speaks Responses itself."""

    __slots__ = ("_frames", "_over", "_writer")

    def __init__(self, *, native: bool) -> None:
        self._frames = Frames()
        self._writer = None if native else ChatWriter()
        self._over = False

    def __repr__(self) -> str:
        return f"<ResponseDecoder {'over' if self._over else 'open'}>"

    def feed(self, piece: bytes) -> list[Event]:
        """The events that this piece completed, in order; nothing after a Failed or Done."""
        return [] if self._over else self._events(self._frames.feed(piece))

    def end(self) -> list[Event]:
        """The input ended."""
        if self._over:
            return []
        events = self._events(self._frames.end())
        if not self._over:
            self._fail(garbled("the provider's stream ended before the answer did"), events)
        return events

    def _events(self, items: list[Item]) -> list[Event]:
        events: list[Event] = []
        for item in items:
            if self._over:
                break
            try:
                self._item(item, events)
            except (RecursionError, json_bytes.NotJson):
                self._fail(garbled(TOO_DEEP), events)
        return events

    def _item(self, item: Item, events: list[Event]) -> None:
        if isinstance(item, Frame):
            self._frame(item.data, item.name, events)
        elif isinstance(item, KeepAlive):
            events.append(_COMMENT)
        elif isinstance(item, Whole):
            self._whole(item.body, events)
        else:
            self._fail(garbled(item.what), events)

    def _frame(self, data: bytes, name: bytes, events: list[Event]) -> None:
        said = read_event(data)
        if said is None:
            if not data.strip() or data.strip() == END_MARK:
                events.append(_COMMENT)
            else:
                self._fail(garbled("the provider's stream is corrupt"), events)
            return
        said.type = said.type or name.decode(errors="replace")
        if said.error or said.type in _FAILED or name == b"error" or _broke(said):
            self._fail(failures.failure_inside(json_bytes.parse(data)), events)
        elif said.type:
            self._said(said, data, events)
        else:
            events.append(_COMMENT)

    def _said(self, said: Said, data: bytes, events: list[Event]) -> None:
        last = said.type in _LAST
        usage = counts.read(said.response.usage, said.response.service_tier) if said.response is not None else None
        if self._writer is None:
            content, size = _speaks(said), text_bytes(said.delta) if said.type in _OUTPUT else 0
            event = said.type.encode(errors="replace")
            events.append(Chunk(data, content, last, usage=usage, output_bytes=size, shape=SHAPE, event=event))
        else:
            chunks = self._writer.write(said)
            if last and usage is not None:
                chunks.append(self._writer.usage(usage))
            events += chunks or (_COMMENT,)
        if last:
            events.append(Done())
            self._over = True

    def _whole(self, body: bytes, events: list[Event]) -> None:
        """A whole body where a stream was asked."""
        whole = read_whole(body, native=True)
        if isinstance(whole, Failure):
            self._fail(whole, events)
            return
        for event in as_events(cast(Object, json_bytes.parse(whole.payload))):
            self._frame(json_bytes.dump(event), b"", events)

    def _fail(self, failure: Failure, events: list[Event]) -> None:
        events.append(Failed(failure))
        self._over = True


def _broke(said: Said) -> bool:
    """An event that calls a response complete which is not."""
    response = said.response
    return said.type in _LAST and response is not None and bool(response.error or response.status in NOT_FINISHED)


def _speaks(said: Said) -> bool:
    if said.type in _OUTPUT:
        return bool(said.delta)
    if said.item is None:
        return False
    return said.type == "response.output_item.added" and said.item.type not in ("message", "reasoning")
