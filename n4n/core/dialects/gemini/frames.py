"""Where one response ends and the next begins in the bytes of a stream: server-sent events, one JSON array, or one JSON body."""

from __future__ import annotations

from n4n.core.chat import Comment
from n4n.core.dialects.gemini.json_array import ArrayParser, TooLong
from n4n.core.sse import SseComment, SseEvent, SseItem, SseParser

MAX_WHOLE = 32 * 1024 * 1024  # bytes of a whole JSON body where a stream was asked
_BLANK = b" \t\r\n\xef\xbb\xbf"
_COMMENT = Comment()


class Frames:
    """Bytes in any split; responses out, each as its JSON, and a Comment for whatever only shows that the upstream lives.

    TooLong: something is longer than allowed.
    """

    __slots__ = ("_array", "_events", "_size", "_whole")

    def __init__(self) -> None:
        self._events: SseParser | None = None
        self._array: ArrayParser | None = None
        self._whole: list[bytes] | None = None
        self._size = 0

    def feed(self, piece: bytes) -> list[bytes | Comment]:
        """What this piece completed."""
        if self._events is not None:
            return _of_events(self._events.feed(piece))
        if self._array is not None:
            return [*self._array.feed(piece)]
        if self._whole is not None:
            return self._collect(piece)
        return self.feed(piece) if self._begins(piece) else []

    def end(self) -> list[bytes | Comment]:
        """The input ended."""
        if self._events is not None:
            return _of_events(self._events.end())
        return [] if self._whole is None else [b"".join(self._whole)]

    def _begins(self, piece: bytes) -> bool:
        """A bracket begins an array, a brace JSON, a less-than sign a web page, whatever the content type says."""
        head = piece.lstrip(_BLANK)[:1]
        if head == b"[":
            self._array = ArrayParser()
        elif head in (b"{", b"<"):
            self._whole = []
        elif head:
            self._events = SseParser()
        return bool(head)

    def _collect(self, piece: bytes) -> list[bytes | Comment]:
        assert self._whole is not None
        self._whole.append(piece)
        self._size += len(piece)
        if self._size > MAX_WHOLE:
            raise TooLong
        return [_COMMENT]


def _of_events(items: list[SseItem]) -> list[bytes | Comment]:
    found: list[bytes | Comment] = []
    for item in items:
        if isinstance(item, SseEvent):
            found.append(item.data)
        elif isinstance(item, SseComment):
            found.append(_COMMENT)
        else:
            raise TooLong
    return found
