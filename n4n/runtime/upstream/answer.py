"""HTTP/1.1 answers from bytes, one after the other on one connection, by llhttp (RFC 9112). No I/O.

    begin ▸ feed* ▸ (complete | broken)     `end` says that the peer sends no more

How the bytes are cut makes no difference. llhttp is milder here than the standard where real servers are: folded lines and
control characters in a header (whoever reads headers leaves such values out), spaces after a chunk's size. A bare line feed ends
no line: it may be somebody else's text that a provider let through, and what follows would be the next caller's answer.
"""

from __future__ import annotations

import httptools

HEAD_LIMIT = 64 << 10  # bytes of a head, those of informational answers before it included
MOST_HEADERS = 128
FRAME_LIMIT = 256 << 10  # bytes in a row that are no body: chunk extensions, trailers

_SPACE = 0x20
_BARE = frozenset((204, 304))


class _Refused(Exception):
    """More than there may be, or what may not be: ends the parser's run."""


class Answer:
    """The answer that is on its way on one connection. `headers` are as they came, in their order."""

    __slots__ = (
        "_begun", "_framing", "_informal", "_parser", "_trailed", "_until_end", "broken", "complete", "encoding", "head_done", "headers",
        "keep", "kept_alive_s", "pieces", "size", "status",
    )  # fmt: skip

    def __init__(self) -> None:
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        self._parser.set_dangerous_leniencies(lenient_headers=True, lenient_spaces_after_chunk_size=True)
        self.begin()

    def __repr__(self) -> str:
        state = "broken" if self.broken else "complete" if self.complete else "open"
        return f"<Answer {self.status} {state}, {self.size} bytes{', to be kept' if self.keep else ''}>"

    def begin(self) -> None:
        """The next answer. Only after one that was `complete` and `keep`."""
        self.status = 0  # of the final answer
        self.headers: list[tuple[bytes, bytes]] = []
        self.encoding = b""  # content-encoding
        self.pieces: list[bytes] = []  # of the body, not taken yet
        self.size = 0  # bytes in `pieces`
        self.head_done = False
        self.complete = False
        self.broken = False
        self.keep = False  # whether the connection may carry another answer
        self.kept_alive_s: float | None = None  # for how long the provider says that it keeps the connection
        self._begun = 0  # bytes of head so far
        self._framing = 0  # bytes since the last byte of body
        self._informal = False
        self._trailed = False
        self._until_end = True

    def feed(self, content: memoryview) -> None:
        """The next bytes, at least one."""
        if self.complete or self.broken or self._parser is None:
            self.keep = False  # nobody asked for these
            return
        size = self.size
        if not self.head_done:
            room = HEAD_LIMIT - self._begun
            self._begun += len(content)
            if len(content) > room:
                self._parse(content[:room])
                if self.head_done:
                    self.feed(content[room:])
                else:
                    self.broken = True
                return
        try:
            self._parser.feed_data(content)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._spoilt()
        if self.size != size or not self.head_done:
            self._framing = 0
        else:
            self._framing += len(content)
            if self._framing > FRAME_LIMIT and not self.complete:
                self.broken = True

    def _parse(self, content: memoryview) -> None:
        assert self._parser is not None
        try:
            self._parser.feed_data(content)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._spoilt()

    def _spoilt(self) -> None:
        self.keep = False
        self.broken = not self.complete  # what follows a whole answer does not spoil it

    def end(self, *, in_order: bool) -> None:
        """Nothing more comes; `in_order`: the peer said so."""
        self.keep = False
        if self.complete:
            return
        if in_order and self.head_done and self._until_end and not self.broken:
            self.complete = True
        else:
            self.broken = True

    def close(self) -> None:
        """Lets go of the parser, which holds on to this."""
        self._parser = None

    def take(self) -> bytes:
        """The body that came since the last time, b'' where none did."""
        pieces = self.pieces
        if not pieces:
            return b""
        self.pieces, self.size = [], 0
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    # --- called by the parser ---

    def on_message_begin(self) -> None:
        """Another answer begins."""
        if self.complete:
            raise _Refused

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header, or one trailer, which nobody needs."""
        if self.head_done:
            self._trailed = True
            return
        headers = self.headers
        headers.append((name, value))
        if len(headers) > MOST_HEADERS or name[-1] == _SPACE:  # which is not for the eye to see: is it that header, or is it not?
            raise _Refused
        length = len(name)
        if length == 14 and name.lower() == b"content-length":
            self._until_end = False
        elif length == 17 and name.lower() == b"transfer-encoding":
            if value.strip().lower() != b"chunked" or not self._until_end:
                raise _Refused  # sent twice, beside a length, or encoded in a way that nobody asked for
            self._until_end = False
        elif length == 16 and name.lower() == b"content-encoding":
            self.encoding = self.encoding + b"," + value if self.encoding else value
        elif length == 10 and name.lower() == b"keep-alive":
            self.kept_alive_s = _timeout(value)

    def on_headers_complete(self) -> None:
        """The end of a head."""
        assert self._parser is not None
        status: int = self._parser.get_status_code()
        if status < 200:
            if status < 100 or status == 101:  # nobody asked for another protocol
                raise _Refused
            self.headers, self._informal, self._until_end = [], True, True
            return
        self.status = status
        self.head_done = True
        if status in _BARE:
            self._until_end = False

    def on_body(self, piece: bytes) -> None:
        """Some of the body, without its framing."""
        self.pieces.append(piece)
        self.size += len(piece)

    def on_message_complete(self) -> None:
        """The end of an answer whose length was told."""
        if self._informal:
            self._informal = False
            return
        assert self._parser is not None
        self.complete = True
        self.keep = not self._trailed and bool(self._parser.should_keep_alive())


def _timeout(value: bytes) -> float | None:
    """The seconds of `timeout=N`."""
    for part in value.split(b","):
        name, _, number = part.partition(b"=")
        if name.strip().lower() == b"timeout" and number.strip().isdigit() and len(number) < 9:
            return float(number)
    return None
