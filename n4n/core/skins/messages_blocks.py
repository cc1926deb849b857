"""The order of blocks in a stream of Messages: one open at a time, though a chat may tell of several calls by turns.

A block is open until something else is told and it can be closed: text at once, a call when its arguments are whole JSON. What
comes for others meanwhile is kept, and told when its turn comes; at the end all of it.
"""

from __future__ import annotations

from collections.abc import Hashable

from n4n.core.dialects.anthropic.events import dump
from n4n.core.dialects.frames import is_json

Object = dict[str, object]


def frame(event: str, data: bytes) -> bytes:
    """One server-sent event."""
    return b"event: %b\ndata: %b\n\n" % (event.encode(), data)


class _Pending:
    """A block with what has been told of it."""

    __slots__ = ("block", "kind", "pieces", "told")

    def __init__(self, kind: str, block: Object) -> None:
        self.kind, self.block = kind, block
        self.pieces: list[tuple[str, str]] = []  # member of the delta, text; not written yet
        self.told: list[str] = []  # arguments so far

    @property
    def is_whole(self) -> bool:
        return self.kind != "tool_use" or is_json("".join(self.told).encode(errors="backslashreplace"))


# The delta that brings each member.
_DELTAS = {"text": "text_delta", "thinking": "thinking_delta", "signature": "signature_delta", "partial_json": "input_json_delta"}


class Blocks:
    """Pieces in, frames out. A key tells blocks apart: each call has its own, text and thinking are new whenever they come again."""

    __slots__ = ("_closed", "_index", "_open", "_queue")

    def __init__(self) -> None:
        self._index = -1
        self._open: tuple[Hashable, _Pending] | None = None
        self._queue: dict[Hashable, _Pending] = {}
        self._closed: set[Hashable] = set()

    def add(self, key: Hashable, kind: str, block: Object, member: str, piece: str) -> list[bytes]:
        """A piece of the block `key`, which begins as `block` where it has not begun; the frames that may go out now."""
        frames: list[bytes] = []
        if self._open is not None and self._open[0] != key:
            self._advance(frames, until=key)
        if key in self._closed:
            return frames  # arguments that were whole already
        current = self._open[1] if self._open is not None and self._open[0] == key else None
        if current is None:
            current = self._queue.setdefault(key, _Pending(kind, block))
        if kind == "tool_use":
            current.told.append(piece)
        if piece:
            current.pieces.append((member, piece))
        if self._open is None:
            self._next(frames)
        elif self._open[0] == key:
            self._write(current, frames)
        return frames

    def once(self, kind: str, block: Object, member: str = "", piece: str = "") -> list[bytes]:
        """A block that nothing more is told of."""
        return self.add(object(), kind, block, member, piece)

    def closes(self, key: Hashable, member: str, piece: str) -> list[bytes] | None:
        """The last piece of the block `key` and its end, where it is the open one; None where it is not."""
        if self._open is None or self._open[0] != key:
            return None
        frames = [self._delta(member, piece)]
        self._close(frames)
        self._next(frames)
        return frames

    def end(self) -> list[bytes]:
        """Everything that is open or waits, to its end."""
        frames: list[bytes] = []
        while self._open is not None:
            self._close(frames)
            self._next(frames)
        return frames

    def _advance(self, frames: list[bytes], until: Hashable) -> None:
        """Close what can be closed before `until` has its turn."""
        while self._open is not None and self._open[0] != until and self._open[1].is_whole:
            self._close(frames)
            self._next(frames)

    def _close(self, frames: list[bytes]) -> None:
        assert self._open is not None
        key, pending = self._open
        frames.append(frame("content_block_stop", dump({"type": "content_block_stop", "index": self._index})))
        if pending.kind == "tool_use":
            self._closed.add(key)
        self._open = None

    def _next(self, frames: list[bytes]) -> None:
        if self._queue:
            key = next(iter(self._queue))
            pending = self._queue.pop(key)
            self._begin(key, pending, frames)
            self._write(pending, frames)

    def _begin(self, key: Hashable, pending: _Pending, frames: list[bytes]) -> None:
        self._index += 1
        self._open = key, pending
        start = {"type": "content_block_start", "index": self._index, "content_block": pending.block}
        frames.append(frame("content_block_start", dump(start)))

    def _write(self, pending: _Pending, frames: list[bytes]) -> None:
        frames += [self._delta(member, piece) for member, piece in pending.pieces]
        pending.pieces.clear()

    def _delta(self, member: str, piece: str) -> bytes:
        return frame(
            "content_block_delta",
            b'{"type":"content_block_delta","index":%d,"delta":{"type":"%b","%b":%b}}'
            % (self._index, _DELTAS[member].encode(), member.encode(), dump(piece)),
        )
