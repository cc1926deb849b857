"""The frames of one streamed answer whose events have names: from bytes in any split, or the body that was no stream at all.

For dialects that speak in server-sent events but not in OpenAI's chunks.
"""

from __future__ import annotations

import msgspec

from n4n.core import json_bytes
from n4n.core.sse import SseComment, SseEvent, SseItem, SseParser

MAX_WHOLE = 32 * 1024 * 1024  # bytes of a whole JSON body where a stream was asked
END_MARK = b"[DONE]"  # of chat completions; proxies add it to other streams too
_BLANK = b" \t\r\n\xef\xbb\xbf"


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One event: its data on one line, and the name its provider gave it, perhaps none."""

    data: bytes
    name: bytes = b""


class Whole(msgspec.Struct, frozen=True, gc=False):
    """The whole body: it is JSON or a page, no stream."""

    body: bytes


class KeepAlive(msgspec.Struct, frozen=True, gc=False):
    """A comment, or a piece of a body that is no stream."""


class TooLong(msgspec.Struct, frozen=True, gc=False):
    """One event, or a body that is no stream, is longer than allowed; nothing more follows."""

    what: str


Item = Frame | Whole | KeepAlive | TooLong
_KEEP_ALIVE = KeepAlive()


class Frames:
    """Bytes in, frames out."""

    __slots__ = ("_began", "_line_by_line", "_parser", "_size", "_whole")

    def __init__(self) -> None:
        self._parser = SseParser()
        self._began = False
        self._whole: list[bytes] | None = None
        self._size = 0
        self._line_by_line = True

    def feed(self, piece: bytes) -> list[Item]:
        """What this piece completed, in order."""
        if not self._began:
            self._sniff(piece)
        if self._whole is not None:
            return self._collect(piece)
        found: list[Item] = []
        for item in self._parser.feed(piece):
            self._item(item, found)
        if self._parser.pending:
            self._early(found)
        return found

    def end(self) -> list[Item]:
        """The input ended."""
        found: list[Item] = []
        if self._whole is not None:
            body, self._whole = b"".join(self._whole), None
            found.append(Whole(body))
        for item in self._parser.end():
            self._item(item, found)
        return found

    def _sniff(self, piece: bytes) -> None:
        """A field name or a colon begins a stream; a bracket begins JSON or a web page, whatever the content type says."""
        head = piece.lstrip(_BLANK)[:1]
        self._began = bool(head)
        if head in (b"{", b"[", b"<"):
            self._whole = []

    def _collect(self, piece: bytes) -> list[Item]:
        assert self._whole is not None
        self._whole.append(piece)
        self._size += len(piece)
        if self._size > MAX_WHOLE:
            self._whole = []
            return [TooLong("the provider's answer is too long")]
        return [_KEEP_ALIVE]

    def _item(self, item: SseItem, found: list[Item]) -> None:
        if isinstance(item, SseEvent):
            self._line_by_line = True
            found += _frames(item)
        elif isinstance(item, SseComment):
            found.append(_KEEP_ALIVE)
        else:
            found.append(TooLong("one event of the provider's stream is too long"))

    def _early(self, found: list[Item]) -> None:
        """Do not wait for the blank line of a provider that never sends one: a line that is whole JSON is an event."""
        first = self._parser.pending[0]
        if self._line_by_line and not (first[:1] == b"{" and is_json(first)):
            self._line_by_line = False  # one event over several lines: look again at the next one
        if self._line_by_line:
            for item in self._parser.take():
                self._item(item, found)


def _frames(event: SseEvent) -> list[Frame]:
    if b"\n" not in event.data:
        return [Frame(event.data, event.event)]
    lines = [line for line in event.data.split(b"\n") if line.strip()]
    if not is_json(event.data) and all(is_json(line) or line.strip() == END_MARK for line in lines):
        return [Frame(line) for line in lines]  # each was an event: their provider ends events with one line end
    return [Frame(event.data.replace(b"\n", b" "), event.event)]  # in JSON a raw line end stands between tokens only


def is_json(data: bytes) -> bool:
    """Whether the bytes are one JSON value."""
    try:
        json_bytes.parse(data)
    except json_bytes.NotJson:
        return False
    return True
