"""HTTP answers, well- and ill-formed, as bytes: what a client makes of each, and where another client may see it otherwise."""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
NONE = "no answer"
BROKEN = "broke off"


@dataclass(frozen=True, slots=True)
class Case:
    """`raw` on the wire, then the provider's end. `status` 0: no answer. `body` None: it breaks off. `keeps`: whether the connection
    could be used again had the provider not ended it; None: depends on the cut. `aiohttp`: why its client sees something else."""

    raw: bytes
    status: int = 200
    body: bytes | None = b""
    keeps: bool | None = False
    aiohttp: str = ""


def sized(body: bytes, *headers: bytes, status: bytes = b"200 OK", length: int | None = None) -> bytes:
    """An answer with its length."""
    lines = (b"HTTP/1.1 " + status, *headers, b"Content-Length: %d" % (len(body) if length is None else length))
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def chunks(*pieces: bytes, trailer: bytes = b"") -> bytes:
    """A chunked body."""
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n" + trailer + b"\r\n"


def fault(raw: bytes, aiohttp: str = "") -> Case:
    """An answer that is none."""
    return Case(raw, 0, None, aiohttp=aiohttp)


def cut(raw: bytes, status: int = 200, aiohttp: str = "") -> Case:
    """An answer whose body breaks off."""
    return Case(raw, status, None, aiohttp=aiohttp)


_STRICT = "a bare line feed ends a line there"
_SURPLUS = "what follows a whole answer spoils it there, when it comes in the same read"
_RAW = zlib.compressobj(wbits=-15)
RAW_DEFLATE = _RAW.compress(b"squeezed") + _RAW.flush()

CASES: dict[str, Case] = {
    # well-formed
    "sized": Case(sized(b"hello"), body=b"hello", keeps=True),
    "sized, empty": Case(sized(b""), keeps=True),
    "sized, large": Case(sized(b"x" * 70_000), body=b"x" * 70_000, keeps=True),
    "sized, with what looks like an answer inside": Case(sized(b"HTTP/1.1 200 OK\r\n\r\n"), body=b"HTTP/1.1 200 OK\r\n\r\n", keeps=True),
    "chunked": Case(CHUNKED + chunks(b"hel", b"lo"), body=b"hello", keeps=True),
    "chunked, empty": Case(CHUNKED + chunks(), keeps=True),
    "chunked, in capitals": Case(CHUNKED + b"A\r\n0123456789\r\n0\r\n\r\n", body=b"0123456789", keeps=True),
    "chunked, leading zeros": Case(CHUNKED + b"0003\r\nabc\r\n000\r\n\r\n", body=b"abc", keeps=True),
    "chunked, extensions": Case(CHUNKED + b'1;a=b;c="d"\r\na\r\n0;e\r\n\r\n', body=b"a", keeps=True),
    "chunked, single bytes": Case(CHUNKED + chunks(*[b"z"] * 300), body=b"z" * 300, keeps=True),
    "chunked, one trailer": Case(CHUNKED + chunks(b"a", trailer=b"X-T: 1\r\n"), body=b"a"),
    "chunked, trailers": Case(CHUNKED + chunks(b"a", trailer=b"X-T: 1\r\nX-U: 9\r\nContent-Encoding: gzip\r\n"), body=b"a"),
    "chunked, CRLF inside": Case(CHUNKED + chunks(b"\r\n0\r\n\r\n"), body=b"\r\n0\r\n\r\n", keeps=True),
    "chunked, spaces after the size": Case(CHUNKED + b"1  \r\na\r\n0\r\n\r\n", body=b"a", keeps=True),
    "until the end": Case(OK + b"\r\nhello", body=b"hello"),
    "until the end, empty": Case(OK + b"\r\n"),
    "until the end, said": Case(OK + b"Connection: close\r\n\r\nhello", body=b"hello"),
    "sized, connection close": Case(sized(b"hello", b"Connection: close"), body=b"hello"),
    "HTTP/1.0": Case(b"HTTP/1.0 200 OK\r\n\r\nhello", body=b"hello"),
    "HTTP/1.0, sized": Case(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi", body=b"hi"),
    "HTTP/1.0, kept": Case(b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nhi", body=b"hi", keeps=True),
    "no reason": Case(b"HTTP/1.1 200\r\nContent-Length: 1\r\n\r\na", body=b"a", keeps=True),
    "no reason, a space": Case(b"HTTP/1.1 200 \r\nContent-Length: 1\r\n\r\na", body=b"a", keeps=True),
    "odd reason": Case(sized(b"a", status=b"200 It's \xc3\xa9t\xc3\xa9 \xff"), body=b"a", keeps=True),
    "status 204": Case(b"HTTP/1.1 204 No Content\r\n\r\n", 204, keeps=True),
    "status 304": Case(sized(b"", status=b"304 Not Modified", length=9), 304, keeps=True),
    "status 201": Case(sized(b"a", status=b"201 C"), 201, b"a", keeps=True),
    "status 301": Case(sized(b"gone", b"Location: http://127.0.0.1:1/", status=b"301 M"), 301, b"gone", keeps=True),
    "status 418": Case(sized(b"tea", status=b"418 T"), 418, b"tea", keeps=True),
    "status 500": Case(sized(b"oh", status=b"500 E"), 500, b"oh", keeps=True),
    "status 599": Case(sized(b"oh", status=b"599 E"), 599, b"oh", keeps=True),
    "status 999": Case(sized(b"oh", status=b"999 E"), 999, b"oh", keeps=True),
    "100 first": Case(b"HTTP/1.1 100 Continue\r\n\r\n" + sized(b"a"), body=b"a", keeps=True),
    "103 and 102 first": Case(b"HTTP/1.1 103 E\r\nLink: <x>\r\n\r\nHTTP/1.1 102 P\r\n\r\n" + sized(b"a"), body=b"a", keeps=True),
    "100 before chunks": Case(b"HTTP/1.1 100 C\r\nX: y\r\n\r\n" + CHUNKED + chunks(b"a"), body=b"a", keeps=True),
    "empty lines first": Case(b"\r\n\r\n" + sized(b"a"), body=b"a", keeps=True),
    "an upgrade offered": Case(sized(b"a", b"Connection: upgrade", b"Upgrade: h2c"), body=b"a", keeps=True),
    "spaces around values": Case(OK + b"Content-Length:   1  \r\nX:\t y \t\r\n\r\na", body=b"a", keeps=True),
    "an empty value": Case(sized(b"a", b"X:"), body=b"a", keeps=True),
    "names in odd capitals": Case(OK + b"cOnTeNt-LeNgTh: 1\r\n\r\na", body=b"a", keeps=True),
    "UTF-8 in a value": Case(sized(b"a", "X: é".encode()), body=b"a", keeps=True),
    "a folded value": Case(sized(b"a", b"X: y\r\n z"), body=b"a", keeps=True),
    "the same header twice": Case(sized(b"a", b"X: 1", b"x: 2"), body=b"a", keeps=True),
    "chunks in capitals": Case(OK + b"TRANSFER-ENCODING: Chunked\r\n\r\n" + chunks(b"a"), body=b"a", keeps=True),
    "127 headers": Case(sized(b"a", *[b"X-%d: y" % n for n in range(126)]), body=b"a", keeps=True),
    "a header of 32 KiB": Case(sized(b"a", b"X: " + b"y" * (32 << 10)), body=b"a", keeps=True),
    "kept for 5 seconds": Case(sized(b"a", b"Keep-Alive: timeout=5, max=100"), body=b"a", keeps=True),
    # encoded though nobody asked
    "gzip": Case(sized(gzip.compress(b"squeezed"), b"Content-Encoding: gzip"), body=b"squeezed", keeps=True),
    "x-gzip": Case(sized(gzip.compress(b"squeezed"), b"Content-Encoding: X-GZip"), body=b"squeezed", keeps=True, aiohttp="not known there"),
    "gzip in chunks": Case(
        OK + b"Content-Encoding: GZIP\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks(*map(bytes, zip(gzip.compress(b"squeezed")))),
        body=b"squeezed",
        keeps=True,
    ),
    "deflate": Case(sized(zlib.compress(b"squeezed"), b"Content-Encoding: deflate"), body=b"squeezed", keeps=True),
    "deflate, raw": Case(sized(RAW_DEFLATE, b"Content-Encoding: deflate"), body=b"squeezed", keeps=True),
    "identity": Case(sized(b"a", b"Content-Encoding: identity"), body=b"a", keeps=True),
    "gzip of nothing": Case(sized(b"", b"Content-Encoding: gzip"), keeps=True),
    "gzip, repeated well": Case(OK + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(b"x" * 300_000), body=b"x" * 300_000),
    "not gzip": cut(sized(b"plain words", b"Content-Encoding: gzip")),
    "gzip cut off": cut(sized(gzip.compress(b"squeezed")[:-9], b"Content-Encoding: gzip"), aiohttp="the end is not looked for there"),
    "an encoding that nobody speaks": cut(sized(b"abc", b"Content-Encoding: zebra"), aiohttp="passed on as it is there"),
    # ill-formed
    "nothing": fault(b""),
    "not HTTP": fault(b"SSH-2.0-OpenSSH_9.2\r\n"),
    "HTML at once": fault(b"<html></html>\r\n\r\n"),
    "TLS": fault(b"\x15\x03\x01\x00\x02\x02\x46"),
    "HTTP/2's preface": fault(b"\x00\x00\x12\x04\x00\x00\x00\x00\x00\x00\x03"),
    "cut in the status line": fault(b"HTTP/1.1 20"),
    "cut in a header": fault(OK + b"Content-Le"),
    "cut before the empty line": fault(OK + b"Content-Length: 1\r\n"),
    "only 100": fault(b"HTTP/1.1 100 Continue\r\n\r\n"),
    "101": fault(b"HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nabc", "handed on there"),
    "status 99": fault(b"HTTP/1.1 99 X\r\nContent-Length: 0\r\n\r\n"),
    "status 1000": fault(b"HTTP/1.1 1000 X\r\nContent-Length: 0\r\n\r\n"),
    "status in words": fault(b"HTTP/1.1 OK\r\nContent-Length: 0\r\n\r\n"),
    "HTTP/3.7": fault(b"HTTP/3.7 200 OK\r\nContent-Length: 0\r\n\r\n"),
    "small letters": fault(b"http/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
    "bare line feeds": fault(b"HTTP/1.1 200 OK\nContent-Length: 1\n\na", _STRICT),
    "one bare line feed": fault(OK + b"X: y\nContent-Length: 1\r\n\r\na", _STRICT),
    "a header without a colon": fault(OK + b"abc\r\nContent-Length: 0\r\n\r\n"),
    "a header without a name": fault(OK + b": x\r\nContent-Length: 0\r\n\r\n"),
    "a space in a name": fault(OK + b"X Y: z\r\nContent-Length: 0\r\n\r\n"),
    "a space before the colon": fault(OK + b"Content-Length : 0\r\n\r\n", "the name of another header there"),
    "a bare carriage return": fault(OK + b"X: y\rz\r\nContent-Length: 0\r\n\r\n"),
    "UTF-8 in a name": fault(OK + "é: x\r\nContent-Length: 0\r\n\r\n".encode()),
    "two lengths alike": fault(OK + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\na"),
    "two lengths": fault(OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab"),
    "a list of lengths": fault(OK + b"Content-Length: 1, 1\r\n\r\na"),
    "a length with a sign": fault(OK + b"Content-Length: +1\r\n\r\na"),
    "a negative length": fault(OK + b"Content-Length: -1\r\n\r\na"),
    "a length in words": fault(OK + b"Content-Length: one\r\n\r\na"),
    "an empty length": fault(OK + b"Content-Length:\r\n\r\na"),
    "a hexadecimal length": fault(OK + b"Content-Length: 0x1\r\n\r\na"),
    "a huge length": fault(OK + b"Content-Length: 99999999999999999999999\r\n\r\na"),
    "a length and chunks": fault(OK + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks(b"a")),
    "chunks and a length": fault(OK + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n" + chunks(b"a")),
    "chunked twice": fault(OK + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks(b"a"), "allowed there"),
    "gzip and chunked": fault(OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + chunks(b"a"), "the gzip is passed on there"),
    "a transfer encoding that nobody speaks": fault(OK + b"Transfer-Encoding: zebra\r\n\r\nabc", "read to the end there"),
    "200 headers": fault(sized(b"a", *[b"X-%d: y" % n for n in range(200)])),
    "a header of 70 KiB": fault(sized(b"a", b"X: " + b"y" * (70 << 10))),
    "a reason of 70 KiB": fault(sized(b"a", status=b"200 " + b"y" * (70 << 10))),
    "informational answers without an end": fault(b"HTTP/1.1 102 P\r\nX: y\r\n\r\n" * 4000 + sized(b"a"), "not bounded there"),
    "sized, cut": cut(sized(b"hell", length=5)),
    "sized, cut at once": cut(sized(b"", length=5)),
    "chunked, cut in the size": cut(CHUNKED + b"1"),
    "chunked, cut in a chunk": cut(CHUNKED + b"5\r\nhel"),
    "chunked, cut after a chunk": cut(CHUNKED + b"5\r\nhello\r\n"),
    "chunked, cut in the last": cut(CHUNKED + b"5\r\nhello\r\n0\r\n"),
    "chunked, cut in a trailer": cut(CHUNKED + b"5\r\nhello\r\n0\r\nX-T: 1"),
    "chunked, a length in the trailer": cut(CHUNKED + chunks(b"a", trailer=b"Content-Length: 9\r\n")),
    "chunked, no size": cut(CHUNKED + b"\r\nhello\r\n0\r\n\r\n"),
    "chunked, a size in words": cut(CHUNKED + b"five\r\nhello\r\n0\r\n\r\n"),
    "chunked, a negative size": cut(CHUNKED + b"-5\r\nhello\r\n0\r\n\r\n"),
    "chunked, a size with 0x": cut(CHUNKED + b"0x5\r\nhello\r\n0\r\n\r\n"),
    "chunked, a huge size": cut(CHUNKED + b"fffffffffffffffffff\r\nhello\r\n0\r\n\r\n"),
    "chunked, longer than said": cut(CHUNKED + b"3\r\nhello\r\n0\r\n\r\n"),
    "chunked, bare line feeds": cut(CHUNKED + b"5\nhello\n0\n\n"),
    "chunked, extensions with line feeds": cut(CHUNKED + b"5;a\nb\r\nhello\r\n0\r\n\r\n"),
    # more than was asked for
    "two answers": Case(sized(b"one") + sized(b"two"), body=b"one"),
    "chunks and another answer": Case(CHUNKED + chunks(b"one") + sized(b"two"), body=b"one"),
    "garbage behind": Case(sized(b"one") + b"garbage", body=b"one", aiohttp=_SURPLUS),
    "one byte behind": Case(sized(b"one") + b"H", body=b"one"),
    "empty lines behind": Case(sized(b"one") + b"\r\n\r\n", body=b"one", keeps=None),
    "behind 204": Case(b"HTTP/1.1 204 N\r\nContent-Length: 3\r\n\r\nabc", 204, aiohttp=_SURPLUS),
    "behind 304": Case(b"HTTP/1.1 304 N\r\nContent-Length: 3\r\n\r\nabc", 304, aiohttp=_SURPLUS),
    "behind connection close": Case(sized(b"one", b"Connection: close") + b"more", body=b"one", aiohttp=_SURPLUS),
}
