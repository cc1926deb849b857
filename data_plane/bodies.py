"""A request as it may be: its form where aiohttp's parser is milder than we are, and its body, read within bounds."""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from aiohttp import HttpVersion10, HttpVersion11, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader

from n4n.core.errors import BodyTooLarge, MalformedRequest, RequestTooSlow, UnmetExpectation, UnsupportedEncoding

SLOWEST = 1024  # bytes a second that a body has to keep up with once its first grace is over; Apache's mod_reqtimeout asks for 500
_STEP = 1 << 20  # bytes that are decompressed before others get their turn
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_HOST = re.compile(r"[A-Za-z0-9._~%:\[\]-]{0,300}\Z")
_VERSIONS = (HttpVersion11, HttpVersion10)


@dataclass(frozen=True, slots=True)
class BodyBounds:
    """What a body may be: `most` bytes, within `grace_s` plus one second for every SLOWEST bytes that came."""

    most: int
    grace_s: float

    def too_large(self) -> BodyTooLarge:
        """The error that names the bound."""
        return BodyTooLarge(f"the request body is larger than {self.most >> 20} MiB, the bound that N4N_MAX_BODY_MIB sets")


class BoundedRequest(web.BaseRequest):
    """One request of a client. `read` is the one way to its body."""

    ATTRS = web.BaseRequest.ATTRS | {"_special", "bounds", "doubtful", "spoken"}

    def __init__(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: web.RequestHandler,
        writer: AbstractStreamWriter,
        task: asyncio.Task[None],
        bounds: BodyBounds,
    ) -> None:
        self.spoken = message.version  # what the client speaks; it is answered in a version that exists
        plain = message if message.version in _VERSIONS and message.method != "UNKNOWN" else _in_plain_http(message)
        super().__init__(plain, payload, protocol, writer, task, asyncio.get_running_loop(), client_max_size=bounds.most)
        self.bounds = bounds
        self._special = "content-encoding" in self.headers or "expect" in self.headers
        self.doubtful = message.method == "CONNECT"  # where it ends is a matter of opinion: nothing after it is read

    def check(self) -> None:
        """MalformedRequest for forms that the parser lets pass and another reader of the same bytes may understand otherwise."""
        problem = self._problem()
        if problem is not None:
            self.doubtful = True
            raise MalformedRequest(problem)

    def _problem(self) -> str | None:
        if self.spoken not in _VERSIONS:
            return "the request must be HTTP/1.1 or HTTP/1.0"
        coding = self.headers.get("transfer-encoding")
        if coding is not None and (coding.strip().lower() != "chunked" or self.spoken == HttpVersion10):
            return "transfer-encoding must be absent, or chunked in HTTP/1.1"
        if "#" in self.raw_path:
            return "the URL must not hold a fragment"
        if not _HOST.match(self.headers.get("host", "")):
            return "host must be a name or an address, and perhaps a port"
        return None

    def came(self) -> bytes | None:
        """The whole body where it came with its head, as it nearly always does; None: `read` it. BodyTooLarge."""
        content = self.content
        if not content.is_eof() or self._special or content.exception() is not None:
            return None
        whole = content.read_nowait(-1)
        if len(whole) > self.bounds.most:
            raise self.bounds.too_large()
        return whole

    async def read(self) -> bytes:
        """The whole body, decompressed. RequestError: too large, too slow, broken, or in an encoding that is not spoken here."""
        whole = self.came()
        if whole is not None:
            return whole
        if (self.content_length or 0) > self.bounds.most:
            raise self.bounds.too_large()
        inflate = self._inflate()
        self._meet_expectation()
        sent = await self._sent()
        if inflate is None:
            return sent
        pieces = []
        for piece in inflate.pieces(sent):
            pieces.append(piece)
            await asyncio.sleep(0)
        return b"".join(pieces)

    async def _sent(self) -> bytes:
        """The bytes as they were sent."""
        clock = asyncio.get_running_loop().time
        latest = clock() + self.bounds.grace_s
        pieces: list[bytes] = []
        size = 0
        try:
            while True:
                async with asyncio.timeout_at(latest + size / SLOWEST):
                    piece = await self.content.readany()
                if not piece:
                    return b"".join(pieces)
                pieces.append(piece)
                size += len(piece)
                if size > self.bounds.most:
                    raise self.bounds.too_large()
        except TimeoutError as error:
            raise RequestTooSlow("the request body did not arrive in time; N4N_BODY_TIMEOUT_SEC sets how long it may take") from error
        except web.RequestPayloadError as error:
            raise MalformedRequest("the request body broke off or is not well-formed HTTP") from error

    def _inflate(self) -> Inflate | None:
        named = ",".join(self.headers.getall("content-encoding", ())).strip().lower()
        if named in ("", "identity"):
            return None
        if named not in ("gzip", "x-gzip", "deflate"):
            raise UnsupportedEncoding
        return Inflate(gzip=named != "deflate", bounds=self.bounds)

    def _meet_expectation(self) -> None:
        expected = self.headers.get("expect")
        if expected is None or self.version < HttpVersion11:  # RFC 9110, 10.1.1: of an older client it is ignored
            return
        if expected.strip().lower() != "100-continue":
            raise UnmetExpectation
        if not self.content.is_eof() and self.content.total_bytes == 0 and self.transport is not None:
            self.transport.write(_CONTINUE)  # nothing of an earlier answer waits: see Connection.began


def _in_plain_http(message: RawRequestMessage) -> RawRequestMessage:
    """The same in HTTP/1.1, to be closed after."""
    return RawRequestMessage(
        message.method,
        message.path,
        HttpVersion11,
        message.headers,
        message.raw_headers,
        True,
        message.compression,
        message.upgrade,
        message.chunked,
        message.url,
    )


class Inflate:
    """Decompresses one body and stops where it grows over the bound, however small it was when it came."""

    def __init__(self, *, gzip: bool, bounds: BodyBounds) -> None:
        self._gzip, self._bounds = gzip, bounds

    def pieces(self, sent: bytes) -> Iterator[bytes]:
        """The body in pieces of at most 1 MiB; RequestError when it is broken or too large."""
        wrapped = sent[:1] and sent[0] & 0x0F == zlib.DEFLATED  # RFC 9110, 8.4.1.2: some send deflate without its zlib wrapper
        stream = zlib.decompressobj(31 if self._gzip else 15 if wrapped else -15)
        size, left = 0, sent
        while left and not stream.eof:
            try:
                piece = stream.decompress(left, _STEP)
            except zlib.error as error:
                raise MalformedRequest("the request body is not what its content-encoding says") from error
            left = stream.unconsumed_tail
            size += len(piece)
            if size > self._bounds.most:
                raise self._bounds.too_large()
            yield piece
        if sent and (not stream.eof or stream.unused_data):
            raise MalformedRequest("the compressed request body broke off, or something follows it")
