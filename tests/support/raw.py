"""A client that sends bytes as they are and reads answers off the wire strictly: one that is not plain HTTP/1.1 fails the test."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass

PATIENCE_S = 5.0


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """One answer. `headers` by lower-case name; a name that came twice is not plain."""

    version: str
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> dict[str, object]:
        """The `error` of an answer in our shape."""
        assert self.headers["content-type"].startswith("application/json"), self.headers
        found = json.loads(self.body)["error"]
        assert set(found) == {"message", "type", "param", "code", "n4n"}, found
        return found


class RawClient:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def to(cls, port: int) -> RawClient:
        """Connects to a loopback port."""
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 20))

    async def __aenter__(self) -> RawClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.transport.abort()
        await asyncio.sleep(0)

    def send(self, content: bytes) -> None:
        """Sends; does not wait."""
        self.writer.write(content)

    async def answer(self, *, to_head: bool = False, within: float = PATIENCE_S) -> RawAnswer | None:
        """The next answer; None when the server closed instead."""
        async with asyncio.timeout(within):
            head = await self._head()
            if not head:
                return None
            line, *fields = head[:-4].decode("latin-1").split("\r\n")
            version, status, _ = line.split(" ", 2)
            pairs = [field.split(": ", 1) for field in fields]
            headers = {name.lower(): value for name, value in pairs}
            assert len(headers) == len(pairs), f"a header came twice: {fields}"
            body = b"" if to_head or status == "100" else await self._body(headers)
        return RawAnswer(version, int(status), headers, body)

    async def closed(self, within: float = PATIENCE_S) -> bool:
        """Waits until the server closes; AssertionError when it sends more."""
        async with asyncio.timeout(within):
            try:
                more = await self.reader.read(1000)
            except ConnectionError:
                return True
        assert more == b"", f"more than the planned answers: {more!r}"
        return True

    async def _head(self) -> bytes:
        try:
            return await self.reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as error:
            if error.partial:
                raise AssertionError(f"half an answer: {error.partial[:200]!r}") from error
            return b""

    async def _body(self, headers: dict[str, str]) -> bytes:
        if headers.get("transfer-encoding") == "chunked":
            body = b""
            while size := int(await self.reader.readuntil(b"\r\n"), 16):
                body += (await self.reader.readexactly(size + 2))[:-2]
            assert await self.reader.readexactly(2) == b"\r\n"
            return body
        return await self.reader.readexactly(int(headers["content-length"]))
