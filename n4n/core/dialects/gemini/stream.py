"""Streams of Gemini's, decoded. Every response in one brings what is new, and its usage counts from the beginning.

There is no end mark: the body ends after a finish reason. A stream is a success only when every choice that was seen has finished.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, assert_never

from n4n.core import json_bytes
from n4n.core.chat import ChatRequest, Comment, Done, Event, Failed
from n4n.core.dialects.classify import garbled
from n4n.core.dialects.frames import END_MARK, Frame, Item, KeepAlive, TooLong, Whole
from n4n.core.dialects.gemini.answer import Answer
from n4n.core.dialects.gemini.candidates import Object
from n4n.core.dialects.gemini.failures import failure_within, read_status
from n4n.core.dialects.gemini.frames import Frames
from n4n.core.errors import Failure

_COMMENT = Comment()
T = TypeVar("T")


class GeminiDecoder:
    """The decoder of one streamed answer with status 200."""

    __slots__ = ("_answer", "_frames", "_over")

    def __init__(self, request: ChatRequest) -> None:
        self._frames = Frames()
        self._answer = Answer(request)
        self._over = False

    def __repr__(self) -> str:
        return f"<GeminiDecoder {'over' if self._over else 'open'}{', complete' if self._answer.complete else ''}>"

    def feed(self, piece: bytes) -> list[Event]:
        """The events that this piece completed, in order; nothing after a Failed or Done."""
        events: list[Event] = []
        if not self._over:
            self._take(self._frames.feed(piece), events)
        return events

    def end(self) -> list[Event]:
        """The input ended."""
        events: list[Event] = []
        if self._over:
            return events
        self._take(self._frames.end(), events)
        if not self._over:
            complete, self._over = self._answer.complete, True
            events.append(Done() if complete else Failed(garbled("the provider's stream ended before the answer did")))
        return events

    def _take(self, items: list[Item], events: list[Event]) -> None:
        for item in items:
            if self._over:
                return
            event = self._event(item)
            events.append(event)
            self._over = isinstance(event, Failed)

    def _event(self, item: Item) -> Event:
        """One response, or an error in its place; whatever an upstream can send."""
        match item:
            case Frame(data=raw) | Whole(body=raw):
                if not raw.strip() or raw.strip() == END_MARK:
                    return _COMMENT
                read = read_response(raw, self._answer.chunk)
                return Failed(read) if isinstance(read, Failure) else read
            case KeepAlive():
                return _COMMENT
            case TooLong(what=what):
                return Failed(garbled(what))
        assert_never(item)


def read_response(raw: bytes, make: Callable[[Object], T]) -> T | Failure:
    """One response's JSON through `make`; the error that is in its place, or that it is none."""
    try:
        raw if raw.isascii() else raw.decode()
        said = json_bytes.parse(raw)
        told = read_status(said)
        if told is not None:
            return failure_within(told, raw)
        return make(said) if isinstance(said, dict) else garbled("the provider's answer is no completion")
    except (json_bytes.NotJson, UnicodeDecodeError, RecursionError):
        return garbled("the provider's answer is not valid JSON in UTF-8")
