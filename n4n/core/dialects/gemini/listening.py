"""Whose words an answer is in: a decoder is chosen by what comes first, because an answer does not say which publisher's model it is of."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from n4n.core.chat import Event
from n4n.core.dialects import StreamDecoder
from n4n.core.sse import MAX_LINE

GOOGLE, ANTHROPIC, MISTRAL = "google", "anthropic", "mistralai"
_BLANK = b" \t\r\n\xef\xbb\xbf"
_ABSENT = msgspec.Raw(b"")


class _Marks(msgspec.Struct):
    """Members that only one of them has at the top: Anthropic's `type`, Mistral's `object` and `choices`."""

    type: msgspec.Raw = _ABSENT
    object: msgspec.Raw = _ABSENT
    choices: msgspec.Raw = _ABSENT


_READ = msgspec.json.Decoder(_Marks)


def publisher_in(body: bytes) -> str:
    """Whose words a whole answer is in; Google's where nothing tells."""
    if body.lstrip(_BLANK)[:1] == b"{":
        return _of_json(body.lstrip(_BLANK))
    return _of_lines(body + b"\n") or GOOGLE


def _of_json(raw: bytes) -> str:
    try:
        marks = _READ.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return GOOGLE
    if len(marks.type) and not len(marks.object):
        return ANTHROPIC
    return MISTRAL if len(marks.object) or len(marks.choices) else GOOGLE


def _of_lines(text: bytes) -> str | None:
    """Of server-sent events: only Anthropic names them. None: no line has come that tells."""
    lines = text.lstrip(_BLANK).replace(b"\r", b"\n").split(b"\n")
    for line in lines[:-1]:
        if line.startswith(b"event:"):
            return ANTHROPIC
        if line.startswith(b"data:"):
            return _of_json(line[5:])
    return None


class Listening:
    """Keeps what came until a line tells whose it is, then hands it to the decoder that `choose` makes."""

    __slots__ = ("_choose", "_decoder", "_head", "_held", "_size")

    def __init__(self, choose: Callable[[str], StreamDecoder]) -> None:
        self._choose = choose
        self._decoder: StreamDecoder | None = None
        self._held: list[bytes] = []
        self._size = 0
        self._head = b""  # the first byte that is not blank

    def __repr__(self) -> str:
        return f"<Listening, {self._size} bytes kept>" if self._decoder is None else repr(self._decoder)

    def feed(self, piece: bytes) -> list[Event]:
        """The events that this piece completed."""
        if self._decoder is not None:
            return self._decoder.feed(piece)
        self._held.append(piece)
        self._size += len(piece)
        publisher = self._heard(piece)
        return [] if publisher is None else self._hand_over(publisher)

    def end(self) -> list[Event]:
        """The input ended."""
        events = [] if self._decoder is not None else self._hand_over(publisher_in(b"".join(self._held)))
        assert self._decoder is not None
        return events + self._decoder.end()

    def _heard(self, piece: bytes) -> str | None:
        self._head = self._head or piece.lstrip(_BLANK)[:1]
        if self._head == b"[" or self._size > MAX_LINE:
            return GOOGLE
        if self._head in (b"{", b"<") or (b"\n" not in piece and b"\r" not in piece):  # whole bodies are judged at their end
            return None
        return _of_lines(b"".join(self._held))

    def _hand_over(self, publisher: str) -> list[Event]:
        self._decoder = self._choose(publisher)
        held, self._held = b"".join(self._held), []
        return self._decoder.feed(held)
