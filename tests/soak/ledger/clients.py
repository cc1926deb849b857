"""Mixed requests: every skin, streams and not, read to their end or left in every phase; what became of each, as its client saw it."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum

CLIENTS = 48
WHOLE_S = 40.0
SKINS = {
    "chat/completions": {"model": "m", "messages": [{"role": "user", "content": "ping " * 40}]},
    "completions": {"model": "m", "prompt": "ping " * 40},
    "responses": {"model": "m", "input": "ping " * 40},
    "messages": {"model": "m", "max_tokens": 900, "messages": [{"role": "user", "content": "ping " * 40}]},
    "embeddings": {"model": "vectors", "input": "ping " * 40},
}
_ENDS = {  # how a whole stream ends
    "chat/completions": b"data: [DONE]", "completions": b"data: [DONE]", "responses": b"response.completed", "messages": b"message_stop",
}  # fmt: skip


class Leaves(Enum):
    """When a client goes."""

    NEVER = "never"
    SENDING = "with half of the body"  # nothing is dispatched
    SENT = "at once"
    WAITING = "while it waits"
    READING = "in the middle of the answer"


class Saw(Enum):
    """What a client had in the end."""

    WHOLE = "the whole answer"
    ERROR = "an error"  # of n4n's own, whole
    BROKEN = "a broken connection"
    LEFT = "nothing more: it left"


@dataclass(slots=True)
class Request:
    """One request; times are `time.time()`."""

    id: str
    router: int
    skin: str
    stream: bool
    leaves: Leaves
    key: int
    began: float = 0.0
    ended: float = 0.0
    saw: Saw = Saw.LEFT
    told: str = ""


def requests(count: int, seed: int, keys: int) -> list[Request]:
    """So many; one in eight leaves in some phase."""
    draw = random.Random(seed)
    found = []
    for number in range(count):
        skin = draw.choices(tuple(SKINS), (50, 10, 15, 15, 10))[0]
        stream = skin != "embeddings" and draw.random() < 0.5
        leaves = draw.choice(tuple(Leaves)) if draw.random() < 0.16 else Leaves.NEVER
        found.append(Request(f"req-{seed}-{number}", number % 2, skin, stream, leaves, draw.randrange(keys)))
    return found


class Clients:
    """Sends to two routers. A router that is not there is waited for, so that every request meets one."""

    def __init__(self, ports: Sequence[int], keys: Sequence[str]) -> None:
        self._ports, self.keys = ports, keys
        self.sent: list[Request] = []

    async def send(self, wanted: Sequence[Request], clients: int = CLIENTS) -> None:
        """All of them."""
        left = iter(wanted)
        async with asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(self._client(left))

    async def _client(self, left: object) -> None:
        for one in left:  # type: ignore[attr-defined]
            await self._one(one)
            self.sent.append(one)

    async def _one(self, one: Request) -> None:
        reader, writer = await self._connected(one)
        one.began = time.time()
        try:
            async with asyncio.timeout(WHOLE_S):
                await self._ask(one, reader, writer)
        except TimeoutError:
            one.saw, one.told = Saw.BROKEN, f"nothing within {WHOLE_S:g} s"
        except OSError as error:
            one.saw, one.told = Saw.BROKEN, type(error).__name__
        one.ended = time.time()
        writer.transport.abort()

    async def _connected(self, one: Request) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        while True:
            with suppress(OSError):
                return await asyncio.open_connection("127.0.0.1", self._ports[one.router])
            await asyncio.sleep(0.05)

    async def _ask(self, one: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        content = json.dumps({**SKINS[one.skin], **({"stream": True} if one.stream else {})}).encode()
        head = (
            f"POST /v1/{one.skin} HTTP/1.1\r\nhost: n4n\r\nauthorization: Bearer {self.keys[one.key]}\r\nx-request-id: {one.id}\r\n"
            f"content-type: application/json\r\nconnection: close\r\ncontent-length: {len(content)}\r\n\r\n"
        ).encode()
        if one.leaves is Leaves.SENDING:
            writer.write(head + content[: len(content) // 2])
            await writer.drain()
            return
        writer.write(head + content)
        await writer.drain()
        if one.leaves is Leaves.SENT:
            return
        if one.leaves is Leaves.WAITING:
            await asyncio.sleep(0.004)
            return
        if one.leaves is Leaves.READING:
            await reader.read(200)
            return
        _judge(one, await reader.read(-1))


def _judge(one: Request, content: bytes) -> None:
    head, _, body = content.partition(b"\r\n\r\n")
    if not head:
        one.saw, one.told = Saw.BROKEN, "no answer"
    elif not head.startswith(b"HTTP/1.1 200 "):
        one.saw, one.told = Saw.ERROR, head[9:12].decode()
    elif one.stream and _ENDS[one.skin] in body[-700:]:
        one.saw = Saw.WHOLE
    elif one.stream:
        ended = body.endswith(b"0\r\n\r\n")
        one.saw, one.told = (Saw.ERROR if ended else Saw.BROKEN), "the stream broke off"
    else:
        with suppress(ValueError):
            json.loads(body)
            one.saw = Saw.WHOLE
            return
        one.saw, one.told = Saw.BROKEN, "half an answer"
