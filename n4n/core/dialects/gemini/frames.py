"""Where one response ends and the next begins in the bytes of a stream: as in others, or, where no events were asked for, in an array."""

from __future__ import annotations

from n4n.core.dialects import frames
from n4n.core.dialects.frames import Frame, Item, TooLong
from n4n.core.dialects.gemini.json_array import ArrayParser, ElementTooLong

_BLANK = b" \t\r\n\xef\xbb\xbf"
_TOO_LONG = TooLong("one event of the provider's stream is too long")


class Frames:
    """Bytes in any split; frames out. A bracket begins an array, whatever the content type says."""

    __slots__ = ("_array", "_begun", "_others")

    def __init__(self) -> None:
        self._begun = False
        self._array: ArrayParser | None = None
        self._others = frames.Frames()

    def feed(self, piece: bytes) -> list[Item]:
        """What this piece completed, in order."""
        if not self._begun:
            head = piece.lstrip(_BLANK)[:1]
            self._begun = bool(head)
            self._array = ArrayParser() if head == b"[" else None
        if self._array is None:
            return self._others.feed(piece)
        try:
            return [Frame(element) for element in self._array.feed(piece)]
        except ElementTooLong:
            return [_TOO_LONG]

    def end(self) -> list[Item]:
        """The input ended."""
        return self._others.end() if self._array is None else []
