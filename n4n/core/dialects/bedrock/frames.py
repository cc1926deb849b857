"""Frames of AWS' binary event stream (application/vnd.amazon.eventstream) from bytes in any split.

    total length u32 | headers length u32 | CRC-32 of these eight | headers | payload | CRC-32 of everything before it

All big-endian. One header: name length u8, name, type u8, value; of its type depends how the value is told
(https://smithy.io/2.0/aws/amazon-eventstream.html). A length is believed only after its checksum has been, and never beyond
the bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from zlib import crc32

import msgspec

MAX_FRAME = 8 * 1024 * 1024  # bytes; AWS' own bound is 24 MiB, an event of a model's answer has some hundred bytes
MAX_HEADERS = 128 * 1024  # AWS' own bound
_PRELUDE = Struct(">II")
_U32 = Struct(">I")
_LEAST = 16  # prelude, its checksum, the frame's checksum
_FIXED = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}  # type ▸ bytes of its value: flags, integers, timestamp, UUID
_BYTES, _TEXT = 6, 7


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One message. `kind` is event, exception or error; `name` is what the event, exception or error is called."""

    kind: str
    name: str
    payload: bytes
    message: str = ""  # of an error, which has no payload


class Broken(msgspec.Struct, frozen=True, gc=False):
    """The bytes are no event stream, or one of its frames is too long; nothing more follows."""

    what: str


_CORRUPT = Broken("the provider's stream is corrupt")
_TOO_LONG = Broken("one event of the provider's stream is too long")


class Frames:
    """Bytes in, frames out."""

    __slots__ = ("_buffer", "_need", "_stopped")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._need = 12  # bytes until something can be decided
        self._stopped = False

    def __repr__(self) -> str:
        return f"<Frames {'stopped' if self._stopped else f'{len(self._buffer)} of {self._need} bytes'}>"

    def feed(self, piece: bytes) -> list[Frame | Broken]:
        """What this piece completed, in order; after a `Broken` nothing more."""
        if self._stopped:
            return []
        buffer = self._buffer
        buffer += piece
        found: list[Frame | Broken] = []
        at = 0
        while len(buffer) - at >= self._need:
            if self._need == 12:
                length = _length(buffer, at)
                if isinstance(length, Broken):
                    return [*found, self._stop(length)]
                self._need = length
                continue
            frame = _frame(bytes(buffer[at : at + self._need]))
            if isinstance(frame, Broken):
                return [*found, self._stop(frame)]
            found.append(frame)
            at += self._need
            self._need = 12
        del buffer[:at]
        return found

    def _stop(self, broken: Broken) -> Broken:
        self._stopped = True
        self._buffer.clear()
        return broken


def looks_like_frames(head: bytes) -> bool:
    """Whether a body begins like a frame: the first byte of a length below 16 MiB, which no text begins with."""
    return head[:1] == b"\x00"


def _length(buffer: bytearray, at: int) -> int | Broken:
    total, headers = _PRELUDE.unpack_from(buffer, at)
    (told,) = _U32.unpack_from(buffer, at + 8)
    if crc32(buffer[at : at + 8]) != told or total < _LEAST + headers:
        return _CORRUPT
    return _TOO_LONG if total > MAX_FRAME or headers > MAX_HEADERS else int(total)


def _frame(raw: bytes) -> Frame | Broken:
    (told,) = _U32.unpack_from(raw, len(raw) - 4)
    if crc32(raw[:-4]) != told:
        return _CORRUPT
    end = 12 + _PRELUDE.unpack_from(raw)[1]
    headers = _headers(raw[12:end])
    if headers is None:
        return _CORRUPT
    kind = headers.get(":message-type", "event")
    name = headers.get(":error-code" if kind == "error" else f":{kind}-type", "")
    return Frame(kind, name, raw[end:-4], headers.get(":error-message", ""))


def _headers(raw: bytes) -> Mapping[str, str] | None:
    """The headers that are texts; the others are stepped over. None: not in their form."""
    found: dict[str, str] = {}
    at, end = 0, len(raw)
    while at < end:
        size = raw[at]
        name = raw[at + 1 : at + 1 + size]
        at += 1 + size
        if at >= end:
            return None
        kind = raw[at]
        at += 1
        if kind in _FIXED:
            at += _FIXED[kind]
        elif kind in (_BYTES, _TEXT) and at + 2 <= end:
            size = int.from_bytes(raw[at : at + 2], "big")
            if kind == _TEXT:
                found[name.decode(errors="replace")] = raw[at + 2 : at + 2 + size].decode(errors="replace")
            at += 2 + size
        else:
            return None
    return found if at == end else None
