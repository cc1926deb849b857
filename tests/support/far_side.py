"""Both far sides of a router in a process of their own: a client that sends large bodies, and the providers that get them.

What they do with many MiB is no stall of the router's loop, and takes nothing from its interpreter. `FarSide` is the near end: it sends
orders as JSON lines, `python -m tests.support.far_side` carries them out.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import threading
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from typing import Any

from tests.support.matrix.table import PROVIDERS
from tests.support.matrix.words import Told
from tests.support.script import Answer, Headers, Raw, Status, Whole

MIB = 1 << 20
PICTURE = "PICTURE"  # stands in an order's body for base64 of so many MiB
FILLER = "z"
_CHUNK = 1 << 18


def picture(mib: int) -> str:
    """Base64 of a length in MiB, the same for the same length; without anything that JSON escapes."""
    seed = b"".join(sha256(b"%d" % at).digest() for at in range(3 * 1024 // 32 * 256))  # 768 KiB, so 1 MiB of base64
    return b64encode(seed).decode() * mib


class FarSide:
    """The near end."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self._process, self.port = process, port

    async def send(self, port: int, path: str, headers: Mapping[str, str], body: str, mib: int = 0, answer_mib: int = 0) -> dict[str, Any]:
        """One request: `status`, `text` (the first and last 4,000 characters), `size` and `filler` of the answer, and `seen` by providers:
        `path`, `size`, and whether the `picture` came whole. Providers answer `A picture.` and so many MiB of FILLER."""
        assert self._process.stdin is not None and self._process.stdout is not None
        order = {"port": port, "path": path, "headers": dict(headers), "body": body, "mib": mib, "answer_mib": answer_mib}
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        line = await self._process.stdout.readline()
        assert line, "the far side ended"
        told: dict[str, Any] = json.loads(line)
        return told


@asynccontextmanager
async def far_side() -> AsyncIterator[FarSide]:
    """The process, and the port at which PROVIDERS listen, each below its name."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "tests.support.far_side", stdin=pipe, stdout=pipe)
    assert process.stdin is not None and process.stdout is not None
    try:
        yield FarSide(process, int(await process.stdout.readline()))
    finally:
        process.stdin.close()
        await process.wait()


# ── in the other process


class _Providers:
    """Threads that read a request to its end and answer as the provider named by the path's first word does."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        self.picture = b""
        self.told = Told()
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port = self._door.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            sock, _ = self._door.accept()
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        with sock, sock.makefile("rb") as came:
            path, size = came.readline().split(b" ")[1].decode(), 0
            while (line := came.readline().strip()) != b"":
                name, _, value = line.partition(b":")
                size = int(value) if name.lower() == b"content-length" else size
            body = came.read(size)
            self.seen.append({"path": path, "size": len(body), "picture": bool(self.picture) and self.picture in body})
            provider = PROVIDERS[path.split("/")[1]]
            streams = b'"stream":true' in body or "tream" in path.rsplit("/", 1)[1]
            sock.sendall(_wire(provider.stream(self.told) if streams else provider.whole(self.told)))


def _wire(answer: Answer) -> bytes:
    status, headers, body = 200, [("connection", "close")], b""
    for step in answer:
        match step:
            case Status(code):
                status = code
            case Headers(pairs):
                headers += pairs
            case Raw(content) | Whole(content):
                body += content
            case _:
                raise AssertionError(f"a step that is not played here: {step}")
    head = "".join(f"{name}: {value}\r\n" for name, value in headers)
    return f"HTTP/1.1 {status} OK\r\n{head}\r\n".encode() + body


def _asked(order: dict[str, Any], body: bytes) -> dict[str, Any]:
    head = "".join(f"{name}: {value}\r\n" for name, value in order["headers"].items())
    start = f"POST {order['path']} HTTP/1.1\r\nhost: n4n\r\nconnection: close\r\ncontent-length: {len(body)}\r\n{head}\r\n".encode()
    pieces: list[bytes] = []
    with socket.create_connection(("127.0.0.1", order["port"])) as sock:
        with suppress(ConnectionError):  # it was refused before it had all come
            sock.sendall(start + body)
        with suppress(ConnectionError):
            while piece := sock.recv(_CHUNK):
                pieces.append(piece)
    answer = b"".join(pieces)
    text = answer.partition(b"\r\n\r\n")[2]
    shown = (text[:4000] + text[4000:][-4000:]).decode(errors="replace")
    return {"status": int(answer[9:12]), "text": shown, "size": len(text), "filler": text.count(FILLER.encode())}


def main() -> None:
    """Prints its port, then an answer for each order."""
    providers = _Providers()
    print(providers.port, flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        inner = picture(order["mib"])
        providers.picture = inner.encode()
        providers.seen, providers.told = [], Told("A picture." + FILLER * (order["answer_mib"] * MIB))
        told = _asked(order, order["body"].replace(PICTURE, inner).encode())
        print(json.dumps({**told, "seen": providers.seen}), flush=True)


if __name__ == "__main__":
    main()
