"""The client side of a worker: how many connections there are, how long a head may take, who does not read, how refusals leave.

`Door` makes one `Connection` for each client; both extend aiohttp's server by its public methods alone. Once in a while
the door looks over all connections, so that no request pays for timers.

    head: first byte (or a new connection) ──▶ end of head      at most header_timeout_s, else 408 and close
    body: data_plane/bodies.py
    answer: what was written ──▶ taken by the client            some of it within slow_reader_s, else the connection is reset
    then: idle                                                  at most keep_alive_s
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import cast

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_exceptions import BadHttpMessage, LineTooLong
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader

from data_plane.turns import UNREAD_BODY_S, Turns, Written
from n4n.core.errors import GatewayError, HeadersTooLarge, MalformedRequest, RequestTooSlow, TargetTooLong
from n4n.runtime.settings import Settings

TARGET_LIMIT = 8190  # bytes of a request line
HEADER_LIMIT = 16 << 10  # bytes of one header
MOST_HEADERS = 100
HEAD_LIMIT = 64 << 10  # bytes of all headers
READ_BUFFER = 64 << 10  # twice as much of a body is held at most before the client is not read from any more
SEND_BUFFER = 256 << 10  # of the kernel; its own idea is up to 4 MiB for each client that does not read
AT_ONCE = 16 << 10  # bytes of an answer that do not wait for the end of the loop's turn
LINGER_S = 1.0  # a refused client may still be sending: it gets the answer, not a reset
LONGEST_ROUND_S = 1.0
_FORGET = struct.pack("ii", 1, 0)
log = logging.getLogger("n4n.data_plane")
RequestFactory = Callable[
    [RawRequestMessage, StreamReader, web.RequestHandler, AbstractStreamWriter, "asyncio.Task[None]"], web.BaseRequest
]


@dataclass(frozen=True, slots=True)
class Refused:
    """An answer to bytes that never became a request. `fields`: its header lines, each with its line end."""

    status: int
    fields: bytes
    body: bytes

    def wire(self) -> bytes:
        """As bytes that close the connection."""
        return whole(self.status, self.fields + b"connection: close\r\n", self.body)


def whole(status: int, fields: bytes, body: bytes) -> bytes:
    """A whole JSON answer as it goes out."""
    return b"%b%bcontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (_STATUS_LINES[status], fields, len(body), body)


_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}


class Head:
    """How far the next request's head has come. `since`: when its first byte came, None while there is none."""

    __slots__ = ("_seam", "done", "since", "size")

    def __init__(self, since: float | None = None) -> None:
        self.reset(since)

    def reset(self, since: float | None = None) -> None:
        """Another head is to come."""
        self.since, self.size, self.done = since, 0, False
        self._seam = b""

    def received(self, piece: bytes, now: float) -> None:
        """Bytes that belong to a head, not to a body. What follows the head's end is not looked at."""
        if self.done:
            return
        if self.since is None:
            self.since = now
        if not self.size:
            piece = piece.lstrip(b"\r\n")  # RFC 9112, 2.2: empty lines before a request are passed over
        end = piece.find(b"\r\n\r\n")
        if end < 0:
            seam = self._seam + piece[:3]
            end = -1 if b"\r\n\r\n" not in seam else 0
        if end >= 0:
            self.done = True
        self.size += len(piece) if end < 0 else end
        self._seam = (self._seam + piece[-3:])[-3:]

    def late(self, now: float, bound_s: float) -> bool:
        """Whether it has begun, and should have ended."""
        return self.since is not None and not self.done and now - self.since >= bound_s


class Unread:
    """How much of what was written the client has not taken, and since when nothing of it moved."""

    __slots__ = ("_moved", "size")

    def __init__(self) -> None:
        self.size, self._moved = 0, 0.0

    def seen(self, size: int, now: float) -> None:
        """`size` bytes wait to be taken."""
        if not size or size < self.size or not self.size:
            self._moved = now
        self.size = size

    def moved(self) -> None:
        """The client took some."""
        self.size = 0

    def stuck(self, now: float, bound_s: float) -> bool:
        """Whether the client took nothing for so long."""
        return self.size > 0 and now - self._moved >= bound_s


class Connection(Turns):
    """One client's connection, watched."""

    def __init__(self, door: Door) -> None:
        super().__init__(
            door,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=door.bounds.keep_alive_s,
            access_log=None,  # type: ignore[arg-type]  # None: none
            max_line_size=TARGET_LIMIT,
            max_field_size=HEADER_LIMIT,
            max_headers=MOST_HEADERS,
            read_bufsize=READ_BUFFER,
            lingering_time=UNREAD_BODY_S,
            auto_decompress=False,
        )
        self.door = door
        self.head = Head()
        self.unread = Unread()
        self.body: StreamReader | None = None  # of the newest request
        self.busy = self.refused = self.answering = False
        self.clogged = False  # the client has not taken enough of what was written to be sent more
        self._held = self._upgrading = False
        self._unsent = b""  # of an answer, until the end of this turn of the loop
        self._room: asyncio.Future[None] | None = None
        self.wire: asyncio.Transport | None = None  # aiohttp forgets its own before the last bytes have left

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is there, and owes a head."""
        self.wire = cast(asyncio.Transport, transport)
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        self.head = Head(self.door.clock())
        self.door.entered()
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """It is gone, and everything that was written with it."""
        self.door.left()
        self.wire = None
        self._rests()
        self._unclogged()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes of a head or a body. aiohttp calls it with none to go on with what it kept."""
        if self.refused:
            return
        if data and (self.body is None or self.body.is_eof()):
            if self.general and self.head.since is None and not self.busy:
                self.keep_alive(True)  # a head that has begun is not cut off by the idle timer, it has one of its own
            self.head.received(data, self.door.clock())
            if self.head.size > HEAD_LIMIT and not self.busy:
                self.refuse(HeadersTooLarge())
                return
        super().data_received(data)

    def pause_reading(self) -> None:
        """So much of a body has come that the client has to wait."""
        self._held = True
        super().pause_reading()

    def resume_reading(self, resume_parser: bool = True) -> None:
        """aiohttp asks for it after every piece of a body; there is something to do only after a pause."""
        if self._held:
            self._held = False
            super().resume_reading(resume_parser)

    def pause_writing(self) -> None:
        """What was written waits for the client."""
        self.clogged = True
        super().pause_writing()

    def resume_writing(self) -> None:
        """The client has taken enough for us to go on."""
        self.unread.moved()
        self._unclogged()
        super().resume_writing()

    def _unclogged(self) -> None:
        self.clogged = False
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def write(self, piece: bytes) -> None:
        """Bytes of an answer. ConnectionError: the client is gone."""
        wire = self.wire
        if wire is None or wire.is_closing():
            raise ConnectionError("the client is gone")
        self.answering = True
        if len(piece) > AT_ONCE or self.door.at_work == 1:  # who is alone waits for nobody, and nothing else of its request for it
            self.flush()
            wire.write(piece)
        elif self._unsent:
            self._unsent += piece
        else:
            self._unsent = piece
            self.door.leaves(self)

    def flush(self) -> None:
        """What was written goes to the client."""
        unsent, wire = self._unsent, self.wire
        if unsent:
            self._unsent = b""
            if wire is not None and not wire.is_closing():
                wire.write(unsent)

    def force_close(self) -> None:
        """aiohttp ends the connection."""
        self.flush()
        super().force_close()

    async def room(self) -> None:
        """Returns when the client has taken enough. ConnectionError: it is gone."""
        while self.clogged:
            self._room = asyncio.get_running_loop().create_future()
            await self._room
        if self.wire is None:
            raise ConnectionError("the client is gone")

    def began(self, body: StreamReader, *, upgrading: bool) -> None:
        """A head is complete; its request is being answered. `upgrading`: it asked for another protocol, which it does not get."""
        self._upgrading = upgrading
        if self._unsent:  # of the answer before it
            self.flush()
        self.head.reset()
        self.door.at_work += not self.busy
        self.body, self.busy, self.answering = body, True, False

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Writes what is left of an answer; from then on the next head's time counts."""
        try:
            if isinstance(resp, Written) and not self._upgrading:
                return resp, False
            if isinstance(resp, Refused):
                return await self._last_answer(resp), False
            return await super().finish_response(request, resp, start_time)
        finally:
            self.answered()

    def answered(self) -> None:
        """An answer is out: from here on the next head's time counts."""
        self._rests()
        if self.head.since is not None:
            self.head.since = self.door.clock()

    def _rests(self) -> None:
        """No request of this connection is being answered."""
        self.door.at_work -= self.busy
        self.busy = False

    async def _last_answer(self, refused: Refused) -> web.StreamResponse:
        """Sends the end, then gives the client a moment to take it before the connection is closed over its unread bytes."""
        self.write(refused.wire())
        self.flush()
        if self.wire is not None:
            self.wire.write_eof()
        await asyncio.sleep(LINGER_S)
        return Written(keep_alive=False)  # type: ignore[return-value]  # see Written

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """The answer to bytes that are no request. What aiohttp knows of them may hold a key, so it is neither told nor logged."""
        if self.wire is None or self.answering or request.writer.output_size > 0:
            raise ConnectionError("nothing can be answered any more")
        self.refused = True
        return self.door.refusal(error_of(exc))  # type: ignore[return-value]  # `finish_response` knows it

    def log_exception(self, *args: object, **kw: object) -> None:
        """aiohttp logs requests and their bytes here; the request log has what may be known of them."""

    def refuse(self, error: GatewayError) -> None:
        """Answers in the place of a request that has not come, and closes."""
        assert self.wire is not None
        self.refused = True
        self.flush()
        self.wire.write(self.door.refusal(error).wire())
        self.wire.write_eof()
        asyncio.get_running_loop().call_later(LINGER_S, self.force_close)

    def look(self, now: float) -> None:
        """Ends what takes too long."""
        if self.wire is None:
            return
        self.unread.seen(self.wire.get_write_buffer_size(), now)
        if self.unread.stuck(now, self.door.bounds.slow_reader_s):
            reset(self.wire)
        elif not self.busy and not self.refused and self.head.late(now, self.door.bounds.header_timeout_s):
            if self.head.size:
                self.refuse(
                    RequestTooSlow("the request's headers did not arrive in time; N4N_HEADER_TIMEOUT_SEC sets how long they may take")
                )
            else:
                self.force_close()
        elif self.idle_since is not None and self.head.since is None and now - self.idle_since >= self.door.bounds.keep_alive_s:
            self.force_close()


def reset(wire: asyncio.Transport) -> None:
    """Ends a connection at once, the kernel's part of it too: what is unread is forgotten, not kept for who may never read."""
    wire.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _FORGET)
    wire.abort()


class TurnedAway(asyncio.Protocol):
    """A client above the bound: it is told so at once, whatever it sends."""

    def __init__(self, refused: Refused) -> None:
        self._answer = refused.wire()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Answers, and leaves the client a moment to take it."""
        wire = cast(asyncio.Transport, transport)
        wire.write(self._answer)
        wire.write_eof()
        asyncio.get_running_loop().call_later(LINGER_S, wire.abort)


def error_of(fault: BaseException | None) -> GatewayError:
    """What a fault of aiohttp's parser is called here; any other is ours."""
    if isinstance(fault, LineTooLong):
        return TargetTooLong() if fault.args[1] == TARGET_LIMIT else HeadersTooLarge()
    if isinstance(fault, BadHttpMessage):
        return HeadersTooLarge() if "Too many headers" in fault.message else MalformedRequest("the request is not well-formed HTTP/1.1")
    return GatewayError("the gateway failed; its log tells why")


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a worker's clients are held to."""

    connections: int  # 0: any number
    header_timeout_s: float
    keep_alive_s: float
    slow_reader_s: float

    @classmethod
    def of(cls, settings: Settings) -> Bounds:
        """As the settings say."""
        return cls(
            settings.max_connections, float(settings.header_timeout_sec), float(settings.keep_alive_sec), float(settings.slow_reader_sec)
        )

    @property
    def round_s(self) -> float:
        """How often connections are looked over."""
        return min(LONGEST_ROUND_S, self.header_timeout_s / 4, self.slow_reader_s / 4)


class Door(web.Server):
    """aiohttp's server behind these bounds. `refusal` makes the answer to bytes that are no request, `full` that to one client too many."""

    def __init__(
        self,
        handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        *,
        request_factory: RequestFactory,
        bounds: Bounds,
        refusal: Callable[[GatewayError], Refused],
        full: Callable[[], Refused],
    ) -> None:
        super().__init__(handler, request_factory=request_factory, handler_cancellation=True)
        self.bounds, self.refusal, self._full = bounds, refusal, full
        self.clock = asyncio.get_running_loop().time
        self.wall = time.time
        self.at_work = 0  # connections whose request is being answered
        self._leaving: list[Connection] = []
        self._open = 0
        self._round: asyncio.TimerHandle | None = None
        self._told = False

    def __call__(self) -> web.RequestHandler:
        """One more client: asyncio asks for the protocol of its connection."""
        if self.bounds.connections and self._open >= self.bounds.connections:
            if not self._told:
                log.warning("%d client connections are open, as many as N4N_MAX_CONNECTIONS allows; more are told 503", self._open)
            self._told = True
            return TurnedAway(self._full())  # type: ignore[return-value]  # a protocol, which is all that asyncio needs
        return Connection(self)

    def leaves(self, connection: Connection) -> None:
        """This one has something to send. What is written in one turn of the loop leaves at its end, all in a row: so whoever is at the
        other side is woken once for many answers, not once for each, which is most of a write's cost where that is this machine."""
        if not self._leaving:
            self._loop.call_soon(self._flush)
        self._leaving.append(connection)

    def _flush(self) -> None:
        leaving, self._leaving = self._leaving, []
        for connection in leaving:
            connection.flush()

    def entered(self) -> None:
        """A connection was made."""
        self._open += 1
        if self._round is None:
            self._round = asyncio.get_running_loop().call_later(self.bounds.round_s, self._look)

    def left(self) -> None:
        """A connection is gone."""
        self._open -= 1
        self._told = self._told and self._open > self.bounds.connections * 9 // 10

    def _look(self) -> None:
        now = self.clock()
        for connection in self.connections:
            if isinstance(connection, Connection):
                connection.look(now)
        self._round = asyncio.get_running_loop().call_later(self.bounds.round_s, self._look) if self._open else None
