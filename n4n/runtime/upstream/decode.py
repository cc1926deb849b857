"""Bodies that come compressed though nobody asked for it: gzip and deflate (RFC 9110, section 8.4.1), a little at a time.

give ▸ take ▸ take … ▸ give ▸ …     no more than PIECE bytes are made at once, however well they were compressed
"""

from __future__ import annotations

import zlib

PIECE = 64 << 10
_GZIP, _ZLIB, _RAW = 31, 15, -15  # window bits, as zlib's inflateInit2 reads them
_IDENTITY = (b"", b"identity")


class NotDecodable(Exception):
    """The body is not in the encoding that its head names, or in one that nobody speaks here"""


class Inflate:
    """One body. NotDecodable at any step."""

    __slots__ = ("_any", "_deflate", "_full", "_rest", "_stream")

    def __init__(self, encoding: bytes) -> None:
        name = encoding.strip().lower()
        if name not in (b"gzip", b"x-gzip", b"deflate"):
            raise NotDecodable
        self._deflate = name == b"deflate"
        self._stream = None if self._deflate else zlib.decompressobj(_GZIP)
        self._rest, self._any, self._full = b"", False, False

    def give(self, content: bytes) -> None:
        """Compressed bytes, at least one; only when `take` had nothing left."""
        self._rest += content

    def take(self) -> bytes:
        """The next decoded bytes, b'' when more has to come first."""
        while self._rest or self._full:
            stream = self._stream
            if stream is None:  # some send deflate without zlib's frame, which is told by its first byte
                stream = self._stream = zlib.decompressobj(_ZLIB if self._rest[0] & 0x0F == 8 else _RAW)
            self._any = True
            if stream.eof:
                if self._deflate:
                    raise NotDecodable
                stream = self._stream = zlib.decompressobj(_GZIP)  # gzip bodies may be several in a row
            try:
                piece = stream.decompress(self._rest, PIECE)
            except zlib.error as error:
                raise NotDecodable from error
            self._full = len(piece) == PIECE and not stream.eof  # zlib may hold more, also when it has read all there is
            self._rest = stream.unused_data if stream.eof else stream.unconsumed_tail
            if piece:
                return piece
        return b""

    def finish(self) -> None:
        """Nothing more comes."""
        if self._any and (self._stream is None or not self._stream.eof):
            raise NotDecodable


def is_plain(encoding: bytes) -> bool:
    """Whether a body of this content-encoding is as it is."""
    return encoding.strip().lower() in _IDENTITY
