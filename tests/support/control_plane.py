"""A control plane by script: a real gRPC server that says what a test tells it to, also what no sound one would say."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Self

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import grpc

from n4n.core.catalog import collection_checksum
from n4n.core.document import parse_document
from n4n.runtime import wire
from n4n.runtime.wire import Resources
from n4n.v1 import discovery_pb2, types_pb2
from tests.support.catalogs import Raw

TOKEN = "node-token"
WAIT_S = 5.0
Context = grpc.aio.ServicerContext
Unary = Callable[[bytes, Context], Awaitable[bytes]]


def resources_of(raw: Raw) -> Resources:
    """A good document as resources."""
    document, problems = parse_document(raw)
    assert problems == []
    return wire.catalog_resources(document, {})


def update(
    version: int,
    resources: Resources,
    *,
    base: tuple[int, Resources] | None = None,
    parts: int = 1,
    checksum: str | None = None,
    collection: int = wire.CATALOG,
) -> list[bytes]:
    """A version as it travels: whole, or as a change from a base; in so many parts; with a wrong checksum if one is given."""
    before: Mapping[tuple[int, str], bytes] = base[1] if base else {}
    upserts = wire.to_messages({name: body for name, body in resources.items() if before.get(name) != body})
    removed = [
        types_pb2.ResourceName(kind=types_pb2.Kind.ValueType(kind), name=name) for kind, name in before if (kind, name) not in resources
    ]
    return [
        discovery_pb2.WatchResponse(
            update=discovery_pb2.Update(
                collection=collection,
                version=version,
                checksum=checksum or collection_checksum(resources),
                base_version=base[0] if base else 0,
                base_checksum=collection_checksum(before) if base else "",
                upserts=upserts[part::parts],
                removed=removed[part::parts],
                part=part,
                parts=parts,
            )
        ).SerializeToString()
        for part in range(parts)
    ]


def heartbeat(version: int, checksum: str, collection: int = wire.CATALOG) -> list[bytes]:
    """The head of a collection."""
    beat = discovery_pb2.Heartbeat()
    beat.heads.add(collection=collection, version=version, checksum=checksum)
    return [discovery_pb2.WatchResponse(heartbeat=beat).SerializeToString()]


class ScriptedControlPlane:
    """An async context manager. `unary`: answers by method path."""

    def __init__(self, *, unary: Mapping[str, Unary] | None = None) -> None:
        self.port = 0
        self.hellos: asyncio.Queue[discovery_pb2.Hello] = asyncio.Queue()
        self.answers: asyncio.Queue[discovery_pb2.Ack | discovery_pb2.Nack] = asyncio.Queue()
        self._unary = dict(unary or {})
        self._outboxes: set[asyncio.Queue[bytes]] = set()
        self._server: grpc.aio.Server | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.die()

    @property
    def target(self) -> str:
        """host:port."""
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Listens; on the same port as before, after `die`."""
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        handlers = {"Watch": grpc.stream_stream_rpc_method_handler(self._watch)}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("n4n.v1.Discovery", handlers),))
        for path, answer in self._unary.items():
            service, _, method = path.partition("/")
            unary = {method: grpc.unary_unary_rpc_method_handler(answer)}
            self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(f"n4n.v1.{service}", unary),))
        self.port = self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        await self._server.start()

    async def die(self) -> None:
        """Ends every stream and stops listening, without a word."""
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    def push(self, messages: list[bytes]) -> None:
        """To every open stream."""
        for outbox in self._outboxes:
            for message in messages:
                outbox.put_nowait(message)

    async def hello(self) -> discovery_pb2.Hello:
        """The next node that opens a stream."""
        async with asyncio.timeout(WAIT_S):
            return await self.hellos.get()

    async def ack(self) -> discovery_pb2.Ack:
        """The next answer, which must be an ACK."""
        answer = await self._answer()
        assert isinstance(answer, discovery_pb2.Ack), answer
        return answer

    async def nack(self) -> discovery_pb2.Nack:
        """The next answer, which must be a NACK."""
        answer = await self._answer()
        assert isinstance(answer, discovery_pb2.Nack), answer
        return answer

    async def _answer(self) -> discovery_pb2.Ack | discovery_pb2.Nack:
        async with asyncio.timeout(WAIT_S):
            return await self.answers.get()

    async def _watch(self, requests: object, context: Context) -> None:
        if ("authorization", f"Bearer {TOKEN}") not in tuple(context.invocation_metadata() or ()):
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "no valid token")
        outbox: asyncio.Queue[bytes] = asyncio.Queue()
        speaking = asyncio.create_task(self._speak(outbox, context))
        try:
            async for encoded in requests:  # type: ignore[attr-defined]
                request = discovery_pb2.WatchRequest.FromString(encoded)
                match request.WhichOneof("kind"):
                    case "hello":
                        self._outboxes.add(outbox)
                        self.hellos.put_nowait(request.hello)
                    case "ack":
                        self.answers.put_nowait(request.ack)
                    case "nack":
                        self.answers.put_nowait(request.nack)
        finally:
            self._outboxes.discard(outbox)
            speaking.cancel()
            await asyncio.gather(speaking, return_exceptions=True)

    async def _speak(self, outbox: asyncio.Queue[bytes], context: Context) -> None:
        while True:
            await context.write(await outbox.get())
