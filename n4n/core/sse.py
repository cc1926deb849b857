"""Server-sent events from bytes in any split (https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream).

Lenient where providers are: no space after the colon, a pending event at the end of input is used. Data stays bytes, so
that a character cut in two by a read is never decoded by half.
"""

from __future__ import annotations

import msgspec

MAX_LINE = 8 * 1024 * 1024  # bytes of one event: whole reasoning traces and images come in one line
_BOM = b"\xef\xbb\xbf"


class SseEvent(msgspec.Struct, frozen=True, gc=False):
    """One event: its data lines joined with LF, and its name, empty where none was given."""

    data: bytes
    event: bytes = b""


class SseComment(msgspec.Struct, frozen=True, gc=False):
    """A line that begins with a colon: a keep-alive."""


class SseTooLong(msgspec.Struct, frozen=True, gc=False):
    """An event is longer than allowed. The parser has stopped: it returns nothing more."""


SseItem = SseEvent | SseComment | SseTooLong
_COMMENT = SseComment()


class SseParser:
    """Bytes in, events out. `max_line` bounds what is kept: an unfinished line, or an unfinished event's data together."""

    __slots__ = ("_begun", "_data", "_kept", "_max", "_name", "_parts", "_skip_lf", "_stopped")

    def __init__(self, max_line: int = MAX_LINE) -> None:
        self._max = max_line
        self._parts: list[bytes] = []  # of the line that has not ended yet
        self._data: list[bytes] = []  # ended data lines of the event that has not ended yet
        self._kept = 0  # bytes in both
        self._name = b""
        self._begun = self._skip_lf = self._stopped = False

    def __repr__(self) -> str:
        return f"<SseParser {'stopped' if self._stopped else f'{len(self._data)} lines, {self._kept} bytes kept'}>"

    def feed(self, piece: bytes) -> list[SseItem]:
        """What this piece completed, in order."""
        alone = self.alone(piece)
        if alone is not None:
            return [SseEvent(alone)]
        if self._stopped or not piece:
            return []
        if self._skip_lf:
            self._skip_lf = False
            piece = piece[1:] if piece[:1] == b"\n" else piece
        if b"\r" in piece:
            self._skip_lf = piece[-1:] == b"\r"
            piece = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return self._lines(piece)

    def alone(self, piece: bytes) -> bytes | None:
        """The data of the one event, of one line and without a name, that this piece is: the common case. None: `feed` it."""
        if piece[-2:] != b"\n\n" or piece[:6] != b"data: " or self._parts or self._data or self._skip_lf or self._name or self._stopped:
            return None
        inner = piece[6:-2]
        if b"\n" in inner or b"\r" in inner or len(inner) > self._max:
            return None
        self._begun = True
        return inner

    def end(self) -> list[SseItem]:
        """The input ended: an event that was pending counts."""
        found = self._lines(b"\n\n")
        self._stopped = True
        return found

    @property
    def pending(self) -> list[bytes]:
        """The ended data lines of the event that has not ended yet; to look at, not to change."""
        return self._data

    def take(self) -> list[SseItem]:
        """The pending data lines as an event each, for providers that end every event with one line end only."""
        name = self._name
        found: list[SseItem] = [SseEvent(line, name) for line in self._data]
        self._kept -= sum(map(len, self._data))
        self._data.clear()
        return found

    def _lines(self, piece: bytes) -> list[SseItem]:
        lines = piece.split(b"\n")
        rest = lines.pop()
        found: list[SseItem] = []
        if lines and not self._stopped:
            if self._parts:
                self._parts.append(lines[0])
                lines[0] = b"".join(self._parts)
                self._kept -= len(lines[0]) - len(self._parts.pop())
                self._parts.clear()
            if not self._begun:
                self._begun = True
                lines[0] = lines[0].removeprefix(_BOM)
            for line in lines:
                if self._line(line, found):
                    return found
        if rest and not self._stopped:
            self._parts.append(rest)
            self._kept += len(rest)
            if self._kept > self._max + len(b"data: "):
                self._stop(found)
        return found

    def _line(self, line: bytes, found: list[SseItem]) -> bool:
        """Take one line in; True: it was too much."""
        if not line:
            if self._data:
                found.append(SseEvent(self._data[0] if len(self._data) == 1 else b"\n".join(self._data), self._name))
                self._kept = 0
                self._data = []
            self._name = b""
        elif line[:5] == b"data:":
            data = line[6:] if line[5:6] == b" " else line[5:]
            self._kept += len(data)
            self._data.append(data)
            if self._kept > self._max:
                self._stop(found)
                return True
        elif line[:1] == b":":
            found.append(_COMMENT)
        elif line[:6] == b"event:":
            self._name = line[6:].removeprefix(b" ")
        elif line == b"data":
            self._data.append(b"")
        elif line == b"event":
            self._name = b""
        return False  # id, retry and unknown fields mean nothing here

    def _stop(self, found: list[SseItem]) -> None:
        self._stopped = True
        self._kept = 0
        self._data, self._parts = [], []
        found.append(SseTooLong())
