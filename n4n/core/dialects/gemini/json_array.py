"""A JSON array that arrives piece by piece, as its elements: how Gemini streams where nobody asks for server-sent events."""

from __future__ import annotations

import re

_MARKS = re.compile(rb'["{}\[\]]')
_IN_TEXT = re.compile(rb'["\\]')
MAX_ELEMENT = 32 * 1024 * 1024


class ElementTooLong(Exception):
    """An element is longer than allowed."""


class ArrayParser:
    """Bytes from the opening bracket on, in any split; elements out, each as its bytes. Only where elements begin and end is looked at."""

    __slots__ = ("_depth", "_escaped", "_in_text", "_kept", "_size", "closed")

    def __init__(self) -> None:
        self._depth = 0
        self._in_text = self._escaped = False
        self._kept: list[bytes] = []  # of the element that has not ended yet
        self._size = 0
        self.closed = False

    def feed(self, piece: bytes) -> list[bytes]:
        """The elements that this piece completed. ElementTooLong: one is beyond all bounds."""
        found: list[bytes] = []
        at = start = 0
        while not self.closed and at < len(piece):
            if self._escaped:
                self._escaped, at = False, at + 1
                continue
            mark = (_IN_TEXT if self._in_text else _MARKS).search(piece, at)
            if mark is None:
                break
            at = mark.end()
            start = self._mark(mark[0], piece, start, at, found)
        if self._depth > 1:
            self._keep(piece[start:])
        return found

    def _mark(self, mark: bytes, piece: bytes, start: int, at: int, found: list[bytes]) -> int:
        """One bracket, quote or backslash that ends at `at`; returns where what has to be kept begins."""
        if self._in_text:
            self._escaped = mark == b"\\"
            self._in_text = self._escaped
        elif mark == b'"':
            self._in_text = True
        elif mark in b"{[":
            self._depth += 1
            return at - 1 if self._depth == 2 else start
        else:
            self._depth -= 1
            if self._depth == 1:
                self._keep(piece[start:at])
                found.append(b"".join(self._kept))
                self._kept, self._size = [], 0
            self.closed = self._depth <= 0
        return start

    def _keep(self, piece: bytes) -> None:
        self._kept.append(piece)
        self._size += len(piece)
        if self._size > MAX_ELEMENT:
            raise ElementTooLong
