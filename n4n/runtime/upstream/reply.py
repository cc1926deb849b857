"""The head of an answer, and its body piece by piece, with a bound on every wait."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Mapping
from functools import lru_cache

from n4n.runtime.upstream.connection import Connection
from n4n.runtime.upstream.decode import Inflate, NotDecodable, is_plain
from n4n.runtime.upstream.faults import BROKE_OFF, Phases, UpstreamFault, broken, late

ANSWER_LIMIT = 64 << 20  # bytes of one whole answer; larger is a fault of the provider
ERROR_LIMIT = 256 << 10  # bytes of an error body that are read for its class
NOT_DECODED = "the provider's answer is compressed, which was not asked for, and cannot be decoded"
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class Reply:
    """One answer. `waited_s`: the time spent waiting for the provider so far; `connect_s`: for a connection to it, 0 where one was open."""

    __slots__ = ("_clock", "_connection", "_headers", "_inflate", "_last", "_phases", "_raw", "_strange", "connect_s", "status", "waited_s")

    def __init__(self, connection: Connection, phases: Phases, clock: Callable[[], float], sent: float, connect_s: float = 0.0) -> None:
        answer = connection.answer
        self.connect_s = connect_s
        self._connection, self._phases, self._clock = connection, phases, clock
        self._last = clock()
        self.waited_s = self._last - sent
        self.status = answer.status
        self._raw = answer.headers
        self._headers: dict[str, str] | None = None
        self._inflate: Inflate | None = None
        self._strange = False  # its encoding is not known here, which matters only to who reads it
        if answer.encoding and not is_plain(answer.encoding):
            try:
                self._inflate = Inflate(answer.encoding)
            except NotDecodable:
                self._strange = True

    @property
    def headers(self) -> Mapping[str, str]:
        """By name in lower case; of those that came twice the last. Values that are no text are left out."""
        if self._headers is None:
            self._headers = _readable(self._raw)
        return self._headers

    @property
    def content_type(self) -> str:
        """The media type in lower case without parameters, '' where none was sent."""
        return _media_type(self.get(b"content-type") or "")

    def get(self, name: bytes) -> str | None:
        """One header by its name in lower case, as in `headers`, without reading all the others."""
        if self._headers is not None:
            return self._headers.get(_name(name))
        found, size = None, len(name)
        for other, value in self._raw:
            if len(other) == size and other.lower() == name and (text := _text(value)) is not None:
                found = text
        return found

    async def read(self, limit: int = ANSWER_LIMIT) -> bytes:
        """The whole body; UpstreamFault when it is longer than `limit`, breaks off or stalls."""
        answer = self._connection.answer
        if answer.complete and answer.size <= limit and self._inflate is None and not self._strange:  # it came with its head
            return self._connection.take()
        pieces: list[bytes] = []
        size = 0
        while piece := await self.next():
            size += len(piece)
            if size > limit:
                raise self._given_up(broken(f"the provider's answer is larger than {limit} bytes"))
            pieces.append(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def read_error(self) -> bytes:
        """The head of an error's body, as far as it comes in time: what is missing does not hide the status."""
        pieces: list[bytes] = []
        size = 0
        try:
            while size < ERROR_LIMIT and (piece := await self.next()):
                pieces.append(piece)
                size += len(piece)
        except UpstreamFault:
            pass
        return b"".join(pieces)[:ERROR_LIMIT]

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body as it arrives; UpstreamFault when it stalls for longer than the idle bound or breaks off."""
        while piece := await self.next():
            yield piece

    async def next(self, until: float | None = None) -> bytes | None:
        """The next piece, b'' at the end, or None when `until` (the loop's clock) passed first; nothing is lost by that."""
        connection, answer = self._connection, self._connection.answer
        while True:
            if self._inflate is not None and (piece := self._decoded(b"")):
                return piece
            now = self._clock()
            if not (answer.size or answer.complete or answer.broken):
                started, (at, phase) = now, self._bound(until)
                try:
                    came = await connection.news(at)
                finally:
                    now = self._clock()
                    self.waited_s += now - started
                if not came:
                    if phase == "until":
                        return None
                    raise self._given_up(late(phase))
            self._last = now
            if now >= self._phases.deadline and not answer.complete:
                raise self._given_up(late("total"))  # however fast it comes
            if not answer.size:
                return self._ended()
            piece = connection.take()
            if self._inflate is None and not self._strange:
                return piece
            if piece := self._decoded(piece):
                return piece

    def _bound(self, until: float | None) -> tuple[float, str]:
        """Until when to wait, and what is said then."""
        at, phase = self._last + self._phases.idle_s, "idle"
        if self._phases.deadline <= at:
            at, phase = self._phases.deadline, "total"
        return (until, "until") if until is not None and until < at else (at, phase)

    def _ended(self) -> bytes:
        if self._connection.answer.broken:
            raise broken(BROKE_OFF)
        if self._inflate is not None:
            try:
                self._inflate.finish()
            except NotDecodable as error:
                raise broken(NOT_DECODED) from error
        return b""

    def _decoded(self, arrived: bytes) -> bytes:
        """What is there decoded, a piece of it; b'' when more has to come first."""
        try:
            if self._inflate is None:
                raise NotDecodable
            if arrived:
                self._inflate.give(arrived)
            return self._inflate.take()
        except NotDecodable as error:
            raise self._given_up(broken(NOT_DECODED)) from error

    def _given_up(self, fault: UpstreamFault) -> UpstreamFault:
        """The provider is stopped at once, not when whoever reads has taken note."""
        self._connection.abort()
        return fault

    def detach(self) -> None:
        """The call is over: the connection may be another's."""
        del self._connection


@lru_cache(512)
def _name(raw: bytes) -> str:
    return raw.decode("latin-1").lower()


def _readable(raw: list[tuple[bytes, bytes]]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in raw:
        if (text := _text(value)) is not None:
            headers[_name(name)] = text
    return headers


def _text(value: bytes) -> str | None:
    """A header's value, None where it is no text."""
    try:
        text = value.decode().rstrip(" \t")
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() or not _CONTROL.search(text) else None


@lru_cache(64)
def _media_type(value: str) -> str:
    return value.partition(";")[0].strip().lower()
