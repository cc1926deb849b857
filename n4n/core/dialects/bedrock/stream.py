"""Streams of ConverseStream: frames in any split become chunks of a chat.

There is no end mark: an answer is whole when its stop reason and, after it, its usage have come, or the input ended after the stop
reason. An exception in a frame, and an end before the reason, are failures. Nothing that an upstream can send makes it raise.
"""

from __future__ import annotations

from typing import cast

from n4n.core import json_bytes
from n4n.core.chat import Chunk, Comment, Done, Event, Failed
from n4n.core.dialects.bedrock import failures
from n4n.core.dialects.bedrock.answer import as_chunk, read_answer
from n4n.core.dialects.bedrock.chat_chunks import BROKEN_OFF, ChatWriter
from n4n.core.dialects.bedrock.counts import reasoning_in, usage_of
from n4n.core.dialects.bedrock.events import Object, Said, read_said
from n4n.core.dialects.bedrock.frames import Broken, Frame, Frames
from n4n.core.dialects.classify import garbled
from n4n.core.dialects.completion import as_chunks
from n4n.core.errors import Failure

MAX_WHOLE = 32 * 1024 * 1024  # bytes of a whole JSON body where a stream was asked
_KNOWN = frozenset(("messageStart", "contentBlockStart", "contentBlockDelta", "contentBlockStop", "messageStop", "metadata"))
_TEXT_HEADS = (b"{", b"[", b"<")
_BLANK = b" \t\r\n\xef\xbb\xbf"
_COMMENT = Comment()


class ConverseDecoder:
    """The decoder of one streamed answer with status 200; `model` is the client's word for what answers."""

    __slots__ = ("_began", "_finished", "_frames", "_model", "_over", "_reasoning", "_size", "_whole", "_writer")

    def __init__(self, model: str) -> None:
        self._model = model
        self._frames = Frames()
        self._writer = ChatWriter(model)
        self._whole: list[bytes] | None = None  # the body so far, where it is no stream at all
        self._size = 0
        self._reasoning: object = None
        self._began = self._finished = self._over = False

    def __repr__(self) -> str:
        return f"<ConverseDecoder {'over' if self._over else 'finished' if self._finished else 'open'}>"

    def feed(self, piece: bytes) -> list[Event]:
        """The events that this piece completed, in order; nothing after a Failed or Done."""
        if self._over:
            return []
        if not self._began and (head := piece.lstrip(_BLANK)[:1]):
            self._began = True
            self._whole = [] if head in _TEXT_HEADS else None  # a frame begins with its length, and that with a zero
        events: list[Event] = []
        if self._whole is not None:
            self._collect(self._whole, piece, events)
        elif self._began:
            for item in self._frames.feed(piece):
                self._item(item, events)
        return events

    def end(self) -> list[Event]:
        """The input ended."""
        events: list[Event] = []
        if self._over:
            return events
        if self._whole is not None:
            self._convert(b"".join(self._whole), events)
        elif self._finished:
            self._done(events)
        else:
            self._fail(garbled("the provider's stream ended before the answer did"), events)
        return events

    def _item(self, item: Frame | Broken, events: list[Event]) -> None:
        if self._over:
            return
        match item:
            case Broken(what=what):
                self._fail(garbled(what), events)
            case Frame(kind="event", name=name, payload=payload) if name in _KNOWN:
                said = read_said(payload)
                if said is None:
                    self._fail(garbled("the provider's stream is corrupt"), events)
                else:
                    self._said(name, said, payload, events)
            case Frame(kind="exception" | "error"):
                self._fail(failures.failure_in_stream(item.kind, item.name, item.payload, item.message), events)
            case _:
                events.append(_COMMENT)

    def _said(self, name: str, said: Said, payload: bytes, events: list[Event]) -> None:
        if name == "metadata":
            usage = usage_of(said.usage, self._reasoning, said.serviceTier)
            events.append(_COMMENT if usage is None else self._writer.usage(usage))
            if self._finished:
                self._done(events)
        elif name == "messageStop" and said.stopReason in BROKEN_OFF:
            self._fail(garbled("the provider broke off its answer"), events)
        elif self._finished:  # a client is told once
            events.append(_COMMENT)
        else:
            events += self._writer.write(name, said, payload) or (_COMMENT,)
            if name == "messageStop":
                self._finished = True
                self._reasoning = reasoning_in(said.additionalModelResponseFields)

    def _collect(self, whole: list[bytes], piece: bytes, events: list[Event]) -> None:
        whole.append(piece)
        self._size += len(piece)
        if self._size > MAX_WHOLE:
            self._fail(garbled("the provider's answer is too long"), events)
        else:
            events.append(_COMMENT)

    def _convert(self, body: bytes, events: list[Event]) -> None:
        """A whole body where a stream was asked."""
        answer = read_answer(body)
        if isinstance(answer, Failure):
            self._fail(answer, events)
            return
        chunk = as_chunk(answer, body, self._model)
        spoken, ended = map(json_bytes.dump, as_chunks(cast(Object, json_bytes.parse(chunk.payload))))
        events.append(Chunk(spoken, content=chunk.content, output_bytes=chunk.output_bytes))
        events.append(Chunk(ended, finishes=True, usage=chunk.usage))
        self._done(events)

    def _done(self, events: list[Event]) -> None:
        events.append(Done())
        self._over = True

    def _fail(self, failure: Failure, events: list[Event]) -> None:
        events.append(Failed(failure))
        self._over, self._whole = True, None
