"""One connection of the scripted upstream: HTTP/1.1 by hand, requests in, the steps of an answer out."""

import asyncio
import fcntl
import json
import socket
import struct
import termios
import time
from collections import deque
from collections.abc import Coroutine
from http import HTTPStatus
from typing import Protocol, assert_never, cast

from tests.support.answers import completion
from tests.support.call import Call, Reply, take_request
from tests.support.script import (
    Bill,
    Chunk,
    EchoHeaders,
    Fin,
    Hang,
    Head,
    Headers,
    Raw,
    Rst,
    Sleep,
    Slice,
    Status,
    Step,
    Wait,
    Whole,
    Wire,
    event,
)


class Owner(Protocol):
    """What a connection needs of the upstream it belongs to."""

    def joined(self, connection: "Connection") -> int: ...
    def left(self, connection: "Connection") -> None: ...
    def due(self, call: Call) -> Reply: ...
    def own(self, work: Coroutine[None, None, None]) -> "asyncio.Task[None]": ...


class Connection(asyncio.Protocol):
    """Reads all the time, so that requests and departures are noticed as they come; plays one answer at a time."""

    def __init__(self, owner: Owner) -> None:
        self.gone = asyncio.Event()
        self._owner = owner
        self._number = 0
        self._received = bytearray()
        self._due: deque[tuple[Call, Reply]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._closing = False  # by us

    # --- called by the loop ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are no subclass
        self._transport.set_write_buffer_limits(high=0)  # pause_writing means: something has not left yet
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._number = self._owner.joined(self)

    def data_received(self, content: bytes) -> None:
        self._received += content
        while (call := take_request(self._received, self._number)) is not None:
            self._due.append((call, self._owner.due(call)))
        if self._due and self._task is None:
            self._task = self._owner.own(self._play_what_is_due())
            self._task.add_done_callback(self._dropped_if_broken)

    def eof_received(self) -> bool:
        self._peer_left()
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._peer_left()
        self.gone.set()
        self._owner.left(self)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # --- called by the upstream ---

    def drop(self) -> None:
        """The upstream goes down: nothing more is sent, and nobody is said to have left."""
        self._closing = True
        self._abandon()
        self._transport.abort()

    # --- playing ---

    def _peer_left(self) -> None:
        if not self._closing:
            self._closing = True
            for call, _ in self._due:
                call.peer_closed_at = time.monotonic()
            self._abandon()

    def _abandon(self) -> None:
        if self._task is not None:
            self._task.cancel()
        for call, _ in self._due:
            call.over.set()
        self._due.clear()

    def _dropped_if_broken(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and task.exception() is not None:
            self.drop()

    async def _play_what_is_due(self) -> None:
        while self._due and not self._closing:
            call, answer = self._due[0]
            response = _Response()
            for step in answer(call) if callable(answer) else answer:
                if not self._closing:
                    await self._play(step, response, call)
            if not self._closing:
                await self._send(response.end(), response)
            self._closing = self._closing or response.closes
            call.finished_at = time.monotonic()
            call.over.set()
            self._due.popleft()
        self._task = None
        if self._closing:
            self._transport.close()

    async def _play(self, step: Step, response: "_Response", call: Call) -> None:
        match step:
            case Status(code):
                response.status = code
            case Headers(pairs):
                response.headers += pairs
            case Head():
                await self._send(response.head(None), response)
            case Chunk(content):
                await self._send(response.part(event(content)), response)
            case Raw(content):
                await self._send(response.part(content), response)
            case Whole(content):
                await self._send(response.head(len(content)) + content, response)
            case Wire(content):
                response.bare = True
                await self._send(content, response)
            case Slice():
                response.slice, response.gap_due = step, False
            case Sleep(seconds):
                await asyncio.sleep(seconds)
            case Wait(gate):
                await gate.passed()
            case Hang():
                await asyncio.Event().wait()
            case Fin():
                self._closing = True
            case Rst():
                await self._reset()
            case EchoHeaders():
                for echoed in completion(json.dumps(call.headers)):
                    await self._play(echoed, response, call)
            case Bill(usage):
                call.billed = usage
            case _:
                assert_never(step)

    async def _send(self, content: bytes, response: "_Response") -> None:
        size = response.slice.size or len(content)
        for start in range(0, len(content), max(size, 1)):
            if response.gap_due:
                await asyncio.sleep(response.slice.gap)
            self._transport.write(content[start : start + size])
            await self._writable.wait()
            response.gap_due = response.slice.size > 0

    async def _reset(self) -> None:
        own = self._transport.get_extra_info("socket")
        await self._writable.wait()
        # a reset throws away what the kernel has not yet delivered, and nothing but asking tells (tcp(7), SIOCOUTQ)
        while struct.unpack("i", fcntl.ioctl(own.fileno(), termios.TIOCOUTQ, bytes(4)))[0]:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        linger = struct.pack("ii", 1, 0)  # on, for 0 seconds: closing sends RST instead of FIN (socket(7))
        own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self._closing = True
        self._transport.abort()


class _Response:
    """The framing of one answer: what the head said about the body, and what therefore stands around each part."""

    def __init__(self) -> None:
        self.status = 200
        self.headers: list[tuple[str, str]] = []
        self.slice, self.gap_due = Slice(0), False
        self.bare = False  # the script wrote the response, or some of it, by itself
        self._begun = self._chunked = False

    @property
    def closes(self) -> bool:
        """The head told the peer that the connection ends with this answer."""
        return ("connection", "close") in self._said()

    def head(self, length: int | None) -> bytes:
        """The head with this body length (None: not known), once; empty if it went out already."""
        if self._begun:
            return b""
        self._begun = True
        framing = {name for name, _ in self._said()} & {"content-length", "transfer-encoding"}
        if not framing and length is not None:
            self.headers.append(("Content-Length", str(length)))
        elif not framing and not self.closes:
            self.headers.append(("Transfer-Encoding", "chunked"))
        self._chunked = ("transfer-encoding", "chunked") in self._said()
        lines = [
            f"HTTP/1.1 {self.status} {_reason(self.status)}",
            *(f"{name}: {value}" for name, value in self.headers),
        ]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")

    def part(self, content: bytes) -> bytes:
        """A part of the body, with the head before the first; an empty part adds nothing (it would end the body)."""
        framed = b"%x\r\n%b\r\n" % (len(content), content)
        head = self.head(None)
        return head + (framed if self._chunked and content else content)

    def end(self) -> bytes:
        """What is left to send when the script is done."""
        if not self._begun:
            return b"" if self.bare else self.head(0)
        return b"0\r\n\r\n" if self._chunked else b""

    def _said(self) -> set[tuple[str, str]]:
        return {(name.lower(), value.lower()) for name, value in self.headers}


def _reason(status: int) -> str:
    return HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else "Scripted"
