"""A bad network between a store and its server: late, cut, stalled, garbled, or with TLS. Lives on the test's own loop."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tests.support.house import free_port


class _Way:
    """Bytes of one direction, in order, each `delay_s` later."""

    def __init__(self, proxy: StoreProxy, writer: asyncio.StreamWriter) -> None:
        self._proxy, self._writer = proxy, writer
        self._waiting: deque[tuple[float, bytes]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def take(self, piece: bytes) -> None:
        """Passes a piece on when its time has come; for ever late while the proxy is stalled."""
        self._waiting.append((asyncio.get_running_loop().time() + self._proxy.delay_s, piece))
        self.pass_on()

    def pass_on(self) -> None:
        """What is due."""
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting and not self._proxy.is_stalled:
            due, piece = self._waiting[0]
            if due > loop.time():
                self._timer = loop.call_at(due, self.pass_on)
                return
            self._waiting.popleft()
            if not self._writer.transport.is_closing():
                self._writer.write(piece)


class StoreProxy:
    """Listens on `port` and passes on to a server. `delay_s` is of each direction; `connections` counts those it took."""

    def __init__(self, target: int, tls: ssl.SSLContext | None = None) -> None:
        self.port, self._target, self._tls = free_port(), target, tls
        self.delay_s = 0.0
        self.is_stalled = False
        self.connections = 0
        self.garbage = b""  # what the next answer is replaced with
        self._ways: list[_Way] = []
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """Of the proxy."""
        return f"{'rediss' if self._tls else 'redis'}://127.0.0.1:{self.port}"

    def cut(self) -> None:
        """Resets all connections; new ones are taken."""
        for writer in self._open:
            writer.transport.abort()

    def stall(self) -> None:
        """Takes everything, passes nothing on."""
        self.is_stalled = True

    def flow(self) -> None:
        """Ends the stall."""
        self.is_stalled = False
        for way in self._ways:
            way.pass_on()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._open.add(writer)
        try:
            with suppress(OSError, asyncio.CancelledError):
                await self._passed(reader, writer)
        finally:
            self._open.discard(writer)
            writer.transport.abort()
            self._tasks.discard(task)

    async def _passed(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        there, back = _Way(self, far_writer), _Way(self, writer)
        self._ways += [there, back]
        try:
            pumps = [
                asyncio.create_task(self._pump(reader, there, spoil=False)),
                asyncio.create_task(self._pump(far_reader, back, spoil=True)),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
        finally:
            far_writer.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, way: _Way, *, spoil: bool) -> None:
        while piece := await reader.read(65_536):
            if spoil and self.garbage:
                piece, self.garbage = self.garbage, b""
            way.take(piece)

    async def stop(self) -> None:
        """Ends everything."""
        for task in (tasks := list(self._tasks)):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def store_proxy(target: int, tls: ssl.SSLContext | None = None) -> AsyncIterator[StoreProxy]:
    """A proxy before the server on the port `target`; with `tls` it speaks TLS to those who connect."""
    proxy = StoreProxy(target, tls)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", proxy.port, ssl=tls)
    try:
        yield proxy
    finally:
        server.close()
        await proxy.stop()
        await server.wait_closed()
