"""Plays the control plane to a router: passes a real one's stream on, and changes what the test says on the way."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

import grpc

from n4n.v1 import discovery_pb2
from tests.support.house import free_port

Change = Callable[[discovery_pb2.Update], None]


class Tamper:
    """`change` is applied to every update that passes; None: nothing is changed."""

    def __init__(self, target: str) -> None:
        self._target = target
        self.change: Change | None = None
        self.port = free_port()

    async def watch(self, requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext) -> AsyncIterator[bytes]:
        """Discovery.Watch, both ways."""
        metadata = [(name, value) for name, value in context.invocation_metadata() or () if name == "authorization"]
        async with grpc.aio.insecure_channel(self._target) as channel:
            call = channel.stream_stream("/n4n.v1.Discovery/Watch")(requests, metadata=metadata)
            async for raw in call:
                yield self._changed(raw)

    def _changed(self, raw: bytes) -> bytes:
        message = discovery_pb2.WatchResponse.FromString(raw)
        if self.change is None or message.WhichOneof("kind") != "update":
            return raw
        self.change(message.update)
        return message.SerializeToString()

    async def serve(self, started: threading.Event, stop: asyncio.Event) -> None:
        """Until `stop`."""
        server = grpc.aio.server()
        handler = grpc.stream_stream_rpc_method_handler(self.watch)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("n4n.v1.Discovery", {"Watch": handler}),))
        server.add_insecure_port(f"127.0.0.1:{self.port}")
        await server.start()
        started.set()
        await stop.wait()
        await server.stop(0)


@contextmanager
def tampering(target: str) -> Iterator[Tamper]:
    """A tampering control plane in front of a real one, on a thread of its own."""
    tamper, started, stop = Tamper(target), threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_until_complete, args=(tamper.serve(started, stop),))
    thread.start()
    assert started.wait(10)
    try:
        yield tamper
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
