"""A request as the scripted upstream saw it, and the reading of it off the wire."""

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from tests.support.script import Answer, Json


@dataclass(slots=True, eq=False)
class Call:
    """One request as it arrived. Times are `time.monotonic()` seconds, None while they have not come."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]  # as sent: order, spelling and repetitions kept
    body: bytes
    connection: int  # the connections of one upstream are counted from 1
    received_at: float
    finished_at: float | None = None  # the answer was played to its end
    peer_closed_at: float | None = None  # the peer closed its side before that
    billed: Mapping[str, Json] | None = None
    over: asyncio.Event = field(default_factory=asyncio.Event, repr=False)

    @property
    def json(self) -> dict[str, Json]:
        """The body's JSON object."""
        parsed = json.loads(self.body)
        assert isinstance(parsed, dict), f"a request body that is no JSON object: {self.body[:80]!r}"
        return parsed

    def header(self, name: str) -> str | None:
        """The first header of this name in any spelling."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)


Reply: TypeAlias = Answer | Callable[[Call], Answer]  # what to do, or how to find out from the call


def take_request(received: bytearray, connection: int) -> Call | None:
    """Takes the first request off the buffer; None (and an untouched buffer) while it is not complete."""
    end = received.find(b"\r\n\r\n")
    if end < 0:
        return None
    request_line, *lines = received[:end].decode("latin-1").split("\r\n")
    headers = tuple((name.strip(), value.strip()) for name, _, value in (line.partition(":") for line in lines))
    known = {name.lower(): value.lower() for name, value in headers}
    body, size = _body(received[end + 4 :], known)
    if body is None:
        return None
    del received[: end + 4 + size]
    method, path, _ = request_line.split(" ")
    return Call(method, path, headers, body, connection, received_at=time.monotonic())


def _body(rest: bytearray, headers: Mapping[str, str]) -> tuple[bytes | None, int]:
    """The body and how many bytes it took; None if more must come."""
    if headers.get("transfer-encoding") == "chunked":
        return _unchunked(rest)
    length = int(headers.get("content-length", "0"))
    return (bytes(rest[:length]), length) if len(rest) >= length else (None, 0)


def _unchunked(rest: bytearray) -> tuple[bytes | None, int]:
    body, at = b"", 0
    while (line_end := rest.find(b"\r\n", at)) >= 0:
        size = int(rest[at:line_end].partition(b";")[0], 16)
        start, at = line_end + 2, line_end + 2 + size + 2
        if len(rest) < at:
            break
        if size == 0:
            return body, at
        body += rest[start : start + size]
    return None, 0
