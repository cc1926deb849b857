"""The far side of a control plane in tests: a control plane on free ports, calls with a token, and a bare watcher."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import grpc

from control_plane.app import control_plane
from n4n.core.catalog import collection_checksum
from n4n.runtime.settings import Settings
from n4n.runtime.wire import ACCESS, CATALOG
from n4n.v1 import access_pb2_grpc, catalog_pb2, catalog_pb2_grpc, discovery_pb2, discovery_pb2_grpc, fleet_pb2_grpc
from tests.support.catalogs import Raw

ADMIN, NODE = "the-admin-token", "the-node-token"
_CHANNEL = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", 64 * 1024 * 1024)]
Resources = dict[tuple[int, str], bytes]


@asynccontextmanager
async def a_plane(database_url: str, *, redis_url: str = "", heartbeat_s: float = 5.0, poll_s: float = 1.0) -> AsyncIterator[Calls]:
    """A control plane on a free port, and calls to it with the admin token."""
    settings = Settings(database_url=database_url, redis_url=redis_url, admin_port=0, metrics_port=0, admin_token=ADMIN, node_token=NODE)
    async with control_plane(settings, heartbeat_s=heartbeat_s, poll_s=poll_s) as running, calls(running.port) as admin:
        yield admin


@asynccontextmanager
async def calls(port: int, token: str | None = ADMIN) -> AsyncIterator[Calls]:
    """Calls over a channel of their own."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=_CHANNEL) as channel:
        yield Calls(port, channel, (("authorization", f"Bearer {token}"),) if token is not None else ())


class Calls:
    """The services of one control plane; a stub's call takes `metadata=calls.token`."""

    def __init__(self, port: int, channel: grpc.aio.Channel, token: tuple[tuple[str, str], ...]) -> None:
        self.port, self.channel = port, channel
        self.token = token
        self.catalog = catalog_pb2_grpc.CatalogStub(channel)
        self.access = access_pb2_grpc.AccessStub(channel)
        self.fleet = fleet_pb2_grpc.FleetStub(channel)
        self.discovery = discovery_pb2_grpc.DiscoveryStub(channel)

    async def apply(
        self,
        document: Raw | str,
        *,
        author: str = "ann",
        message: str = "",
        expect: int | None = None,
        dry: bool = False,
        shrink: bool = False,
    ) -> catalog_pb2.ApplyReply:
        """Catalog.Apply."""
        text = document if isinstance(document, str) else json.dumps(document)
        request = catalog_pb2.ApplyRequest(
            document_json=text, author=author, message=message, expect_version=expect, dry_run=dry, allow_shrink=shrink
        )
        reply: catalog_pb2.ApplyReply = await self.catalog.Apply(request, metadata=self.token)
        return reply


def detail(error: grpc.aio.AioRpcError) -> catalog_pb2.ErrorDetail:
    """What stands in a refusal's trailing metadata."""
    found: dict[str, bytes] = dict(error.trailing_metadata() or ())  # type: ignore[arg-type]
    return catalog_pb2.ErrorDetail.FromString(found["n4n-error-bin"])


@dataclass
class Watcher:
    """A node that does as it is told: holds what it acknowledged, and remembers every message."""

    call: grpc.aio.StreamStreamCall[discovery_pb2.WatchRequest, discovery_pb2.WatchResponse]
    held: dict[int, tuple[int, str, Resources]] = field(default_factory=dict)
    updates: list[discovery_pb2.Update] = field(default_factory=list)
    heartbeats: list[discovery_pb2.Heartbeat] = field(default_factory=list)
    reading: asyncio.Future[object] | None = None

    async def next(self, within_s: float = 5.0) -> discovery_pb2.WatchResponse:
        """The next message of any kind; TimeoutError."""
        self.reading = self.reading or asyncio.ensure_future(self.call.read())
        await asyncio.wait((self.reading,), timeout=within_s)  # a read that is cancelled would cancel the stream
        if not self.reading.done():
            raise TimeoutError
        message, self.reading = self.reading.result(), None
        assert isinstance(message, discovery_pb2.WatchResponse), "the stream ended"
        if message.HasField("update"):
            self.updates.append(message.update)
        else:
            self.heartbeats.append(message.heartbeat)
        return message

    async def next_update(self, collection: int = CATALOG, within_s: float = 5.0) -> list[discovery_pb2.Update]:
        """All parts of the next version of a collection; heartbeats and the other collection, acknowledged, are passed over."""
        parts: list[discovery_pb2.Update] = []
        until = asyncio.get_running_loop().time() + within_s
        while True:
            message = await self.next(until - asyncio.get_running_loop().time())
            if not message.HasField("update"):
                continue
            if message.update.collection != collection:
                await self.ack([message.update])
                continue
            parts.append(message.update)
            assert [part.part for part in parts] == list(range(len(parts)))
            if message.update.part + 1 == message.update.parts:
                return parts

    async def quiet(self, for_s: float) -> None:
        """Reads for a while in which no update may come."""
        before = len(self.updates)
        until = asyncio.get_running_loop().time() + for_s
        with suppress(TimeoutError):
            while True:
                await self.next(until - asyncio.get_running_loop().time())
        assert len(self.updates) == before, self.updates[before:]

    def resources(self, parts: list[discovery_pb2.Update]) -> Resources:
        """What the node would hold after the parts, whose sum must be the announced one."""
        last = parts[-1]
        held = self.held.get(last.collection, (0, "", {}))
        if last.base_version:
            assert (last.base_version, last.base_checksum) == held[:2]
        after: Resources = dict(held[2]) if last.base_version else {}
        for part in parts:
            for gone in part.removed:
                del after[(gone.kind, gone.name)]
            after |= {(resource.kind, resource.name): resource.body for resource in part.upserts}
        assert collection_checksum(after) == last.checksum
        return after

    async def ack(self, parts: list[discovery_pb2.Update]) -> Resources:
        """Applies and acknowledges a version."""
        last = parts[-1]
        after = self.resources(parts)
        self.held[last.collection] = (last.version, last.checksum, after)
        await self.say(ack=discovery_pb2.Ack(collection=last.collection, version=last.version, checksum=last.checksum))
        return after

    async def nack(self, parts: list[discovery_pb2.Update], field: str, reason: str) -> None:
        """Refuses a version and keeps what it has."""
        last = parts[-1]
        await self.say(nack=discovery_pb2.Nack(collection=last.collection, version=last.version, field=field, reason=reason))

    async def say(self, **kind: discovery_pb2.Hello | discovery_pb2.Ack | discovery_pb2.Nack) -> None:
        """Sends one message."""
        await self.call.write(discovery_pb2.WatchRequest(**kind))  # type: ignore[arg-type]


@asynccontextmanager
async def a_watcher(
    port: int, *, node: str = "router-1", held: dict[int, tuple[int, str, Resources]] | None = None, token: str = NODE
) -> AsyncIterator[Watcher]:
    """A stream that has said hello."""
    async with calls(port, token) as own:
        call = own.discovery.Watch(metadata=own.token)
        watcher = Watcher(call, dict(held or {}))
        hello = discovery_pb2.Hello(node=node, role="data-plane", build="0.1.0")
        for collection, (version, checksum, _) in watcher.held.items():
            hello.held.add(collection=collection, version=version, checksum=checksum)
        await watcher.say(hello=hello)
        try:
            yield watcher
        finally:
            call.cancel()
            if watcher.reading is not None:
                await asyncio.wait((watcher.reading,))


__all__ = ["ACCESS", "ADMIN", "CATALOG", "NODE", "Calls", "Watcher", "a_plane", "a_watcher", "calls", "detail"]
