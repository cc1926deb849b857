"""Answers as bytes on a client's connection: head, framing and body leave in one write, past aiohttp's own response classes.

Those build a header map, a writer and several tasks' worth of calls for each answer, which costs more than all that n4n
does for a request. What leaves here is HTTP/1.1 (RFC 9112); a client of HTTP/1.0 gets a body that ends with its connection.
"""

from __future__ import annotations

from email.utils import formatdate
from typing import Protocol, cast

from aiohttp import HttpVersion11

from data_plane.bodies import BoundedRequest
from data_plane.connections import AT_ONCE, Connection, whole
from data_plane.turns import Written

_END = b"0\r\n\r\n"
_KEPT, _CLOSED = Written(keep_alive=True), Written(keep_alive=False)


class Way(Protocol):
    """What answers are written to. Every method may raise ConnectionError: the client is gone."""

    @property
    def begun(self) -> bool:
        """Whether anything was written."""
        ...

    @property
    def clogged(self) -> bool:
        """Whether the client has to take some of it before it is sent more: wait for `room`."""
        ...

    def whole(self, status: int, fields: bytes, body: bytes, *, last: bool) -> None:
        """These header lines (each with its line end), and the body, which is JSON. `last`: the connection closes after it."""
        ...

    def begin(self, fields: bytes, *, last: bool) -> bytes:
        """The head of a body that comes in pieces; it goes out in front of the first of them."""
        ...

    def piece(self, head: bytes, piece: bytes, *, end: bool) -> None:
        """The head, where it has not gone out yet, and some of the body, at least one byte."""
        ...

    async def room(self) -> None:
        """Returns when there is some."""
        ...


class Outgoing:
    """One answer, to its client's connection."""

    __slots__ = ("_chunked", "_connection", "_keep", "begun")

    def __init__(self, request: BoundedRequest) -> None:
        self._connection = cast(Connection, request.protocol)
        self._keep = request.keep_alive
        self._chunked = request.version >= HttpVersion11
        self.begun = False

    @property
    def written(self) -> Written:
        """For aiohttp."""
        return _KEPT if self._keep else _CLOSED

    def whole(self, status: int, fields: bytes, body: bytes, *, last: bool) -> None:
        """These header lines (each with its line end), and the body, which is JSON. `last`: the connection closes after it."""
        self._keep = self._keep and not last
        self.begun = True
        self._connection.write(whole(status, fields + date(self._connection) + self._connection_line(), body))

    def begin(self, fields: bytes, *, last: bool) -> bytes:
        """The head of a body that comes in pieces; it goes out in front of the first of them."""
        self._keep = self._keep and not last and self._chunked
        self.begun = True
        framing = b"transfer-encoding: chunked\r\n" if self._chunked else b""
        return b"HTTP/1.1 200 OK\r\n%b%b%b%b\r\n" % (fields, date(self._connection), framing, self._connection_line())

    def piece(self, head: bytes, piece: bytes, *, end: bool) -> None:
        """The head, where it has not gone out yet, and some of the body, at least one byte."""
        if len(piece) > AT_ONCE and self._chunked:  # not worth copying
            self._connection.write(b"%b%x\r\n" % (head, len(piece)))
            self._connection.write(piece)
            self._connection.write(b"\r\n%b" % (_END if end else b""))
            return
        framed = b"%x\r\n%b\r\n%b" % (len(piece), piece, _END if end else b"") if self._chunked else piece
        self._connection.write(head + framed if head else framed)

    @property
    def clogged(self) -> bool:
        """Whether the client has to take some of it before it is sent more: wait for `room`."""
        return self._connection.clogged

    async def room(self) -> None:
        """Returns when there is some."""
        await self._connection.room()

    def _connection_line(self) -> bytes:
        if not self._keep:
            return b"connection: close\r\n"
        return b"" if self._chunked else b"connection: keep-alive\r\n"


_second: tuple[int, bytes] = (0, b"")


def date(connection: Connection) -> bytes:
    """The header line that tells the time, made once a second."""
    global _second
    second = int(connection.door.wall())
    if _second[0] != second:
        _second = (second, b"date: %b\r\n" % formatdate(second, usegmt=True).encode())
    return _second[1]
