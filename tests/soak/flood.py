"""As many requests as one worker can take: whole answers on connections that stay, streams read to their end, streams left after a word."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from tests.support.script import event

CLIENTS = 32
EVENTS, TOGETHER = 50, 5  # of a stream, and how many of them come in one piece
GAP_MS = 1
_HEAD = {"id": "chatcmpl-soak", "created": 1_750_000_000, "model": "soak"}
_USAGE = {"prompt_tokens": 11, "completion_tokens": EVENTS, "total_tokens": 11 + EVENTS}


class Kind(Enum):
    """What a client asks for, and what it does then."""

    WHOLE = "whole"
    STREAM = "stream"
    LEFT = "left"


@dataclass(frozen=True, slots=True)
class Amount:
    """How many of each."""

    whole: int
    streams: int
    left: int

    @property
    def all(self) -> int:
        """Of every kind."""
        return self.whole + self.streams + self.left

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.whole + other.whole, self.streams + other.streams, self.left + other.left)

    def __sub__(self, other: Amount) -> Amount:
        return Amount(self.whole - other.whole, self.streams - other.streams, self.left - other.left)

    def share(self, part: int, parts: int) -> Amount:
        """So many of so many equal parts."""
        return Amount(self.whole * part // parts, self.streams * part // parts, self.left * part // parts)

    def kinds(self) -> Iterator[Kind]:
        """So many of each, evenly mixed."""
        sent = dict.fromkeys(Kind, 0)
        wanted = {Kind.WHOLE: self.whole, Kind.STREAM: self.streams, Kind.LEFT: self.left}
        for number in range(1, self.all + 1):
            due = max(Kind, key=lambda kind: wanted[kind] * number / self.all - sent[kind])
            sent[due] += 1
            yield due


def answers(folder: Path) -> list[Path]:
    """What the provider says, as files for `bench.mock`: a whole answer, then the pieces of a stream."""
    choice = {"index": 0, "message": {"role": "assistant", "content": "pong"}, "finish_reason": "stop"}
    body = json.dumps({**_HEAD, "object": "chat.completion", "choices": [choice], "usage": _USAGE}).encode()
    whole = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    words = [_event([{"index": 0, "delta": {"content": f"word{number} "}, "finish_reason": None}]) for number in range(EVENTS)]
    pieces = [_chunk(b"".join(words[at : at + TOGETHER])) for at in range(0, EVENTS, TOGETHER)]
    pieces[0] = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n" + pieces[0]
    last = _event([{"index": 0, "delta": {}, "finish_reason": "stop"}]) + _event([], usage=_USAGE) + b"data: [DONE]\n\n"
    files = [folder / f"answer{number:02}" for number in range(len(pieces) + 2)]
    for file, content in zip(files, [whole, *pieces, _chunk(last) + b"0\r\n\r\n"], strict=True):
        file.write_bytes(content)
    return files


def _event(choices: list[object], **more: object) -> bytes:
    return event({**_HEAD, "object": "chat.completion.chunk", "choices": choices, **more})  # type: ignore[dict-item]


def _chunk(content: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(content), content)


class Flood:
    """The clients of one router. AssertionError where an answer is not what it should be."""

    def __init__(self, port: int, key: str) -> None:
        self._port = port
        self._requests = {kind: _request(key, stream=kind is not Kind.WHOLE) for kind in Kind}

    async def send(self, amount: Amount) -> None:
        """All of it; what was left may still be ending."""
        kinds = amount.kinds()
        async with asyncio.TaskGroup() as group:
            for _ in range(CLIENTS):
                group.create_task(self._client(kinds))

    async def _client(self, kinds: Iterator[Kind]) -> None:
        reader, writer = await self._connect()
        for kind in kinds:
            if kind is Kind.LEFT:
                await self._leave()
                continue
            writer.write(self._requests[kind])
            end = b"data: [DONE]" if kind is Kind.STREAM else b'"n4n"'
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 "), head
            body = await (reader.readuntil(b"0\r\n\r\n") if kind is Kind.STREAM else reader.readexactly(_length(head)))
            assert end in body, body
        writer.close()

    async def _leave(self) -> None:
        reader, writer = await self._connect()
        writer.write(self._requests[Kind.LEFT])
        got = await reader.readuntil(b"word0 ")
        assert got.startswith(b"HTTP/1.1 200 "), got
        writer.transport.abort()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self._port)


def _request(key: str, *, stream: bool) -> bytes:
    body = json.dumps({"model": "m", "stream": stream, "messages": [{"role": "user", "content": "ping " * 100}]}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: n4n\r\nauthorization: Bearer {key}\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _length(head: bytes) -> int:
    return int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
