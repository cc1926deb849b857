"""Discovery.Watch: one stream per node, versions pushed as bytes that were encoded once, each answered by ACK or NACK.

A stream has no queue. It is woken when a head moves and sends the step from what its node holds to the head of that
moment, so a slow node skips versions and makes nobody wait. docs/discovery.md tells the protocol.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import grpc
from google.protobuf.message import Message

from control_plane.links import NONE, Held, Link
from control_plane.publisher import Publisher
from control_plane.refusals import InvalidRequest
from control_plane.roster import Presence, Roster
from control_plane.service.answers import refuse
from control_plane.service.updates import encode_heartbeat
from control_plane.tracing import Pushes, answered
from n4n.runtime.spans import Work
from n4n.runtime.wire import ACCESS, CATALOG
from n4n.v1 import discovery_pb2

PROBER = "prober"  # it calls providers and serves nobody: it is given no keys
ROLES = ("data-plane", PROBER)
_LAST_WRITE_S = 2.0  # how long a write that has begun may take once the stream is to end
_LAST_VERSION = 2**63 - 1  # what Postgres can hold
WatchContext = grpc.aio.ServicerContext[discovery_pb2.WatchRequest, bytes]


@dataclass(slots=True)
class Stream:
    """One node's stream. `closing`: say nothing more; a write that has begun is let finish, as grpc cannot take one back."""

    requests: AsyncIterator[discovery_pb2.WatchRequest]
    context: WatchContext
    presence: Presence
    links: Mapping[int, Link]
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    pushes: dict[int, Work] = field(default_factory=dict)  # what is under way, where traces are wanted
    closing: bool = False
    gone: bool = False

    async def write(self, encoded: bytes) -> None:
        """Sends a message, unless the stream is to end or the node is gone."""
        if self.closing:
            return
        try:
            await self.context.write(encoded)
        except (grpc.aio.InternalError, grpc.aio.UsageError):  # what grpc says of a call that is over
            self.gone = True
            self.close()

    def close(self) -> None:
        """Ends the speaking side at the next message."""
        self.closing = True
        self.wake.set()


class Discovery:
    """`heartbeat_s`: seconds between heartbeats on every stream."""

    def __init__(self, publisher: Publisher, roster: Roster, *, heartbeat_s: float, pushes: Pushes | None = None) -> None:
        self._publisher, self._pushes = publisher, pushes
        self._roster = roster
        self._heartbeat_s = heartbeat_s

    def handlers(self) -> grpc.GenericRpcHandler[Message, Message]:
        """What the server serves."""
        watch = grpc.stream_stream_rpc_method_handler(
            self.Watch, request_deserializer=discovery_pb2.WatchRequest.FromString, response_serializer=lambda encoded: encoded
        )
        return grpc.method_handlers_generic_handler("n4n.v1.Discovery", {"Watch": watch})

    async def Watch(self, requests: AsyncIterator[discovery_pb2.WatchRequest], context: WatchContext) -> None:
        """Until the node goes, says something out of turn, or this process stops."""
        first = await anext(aiter(requests), None)
        try:
            hello = _checked_hello(first)
        except InvalidRequest as refused:
            await refuse(context, refused)
        lines = {CATALOG} if hello.role == PROBER else set(self._publisher.lines)
        held: dict[int, Held] = {told.collection: (told.version, told.checksum) for told in hello.held if told.collection in lines}
        known = {collection: version for collection, (version, _) in held.items() if not self._is_foreign(collection, held[collection])}
        presence = self._roster.joined(hello.node, hello.role, hello.build, known)
        links = {collection: Link(held.get(collection, NONE)) for collection in sorted(lines)}
        stream = Stream(requests, context, presence, links)
        self._publisher.watch(stream.wake)
        try:
            fault = await self._converse(stream)
        finally:
            self._publisher.unwatch(stream.wake)
            self._roster.left(presence)
            for push in stream.pushes.values():
                answered(push, "left")
        if stream.gone or context.cancelled():
            raise asyncio.CancelledError  # as grpc is about to do: there is nobody to send a status to
        if fault:
            await refuse(context, InvalidRequest(fault))
        if self._publisher.stopping:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "this control plane is stopping; connect anew")

    def _is_foreign(self, collection: int, held: Held) -> bool:
        """Whether it has the head's number and other contents: a version of another history, which the node is about to leave."""
        line = self._publisher.lines.get(collection)
        return line is not None and line.head.held[0] == held[0] and line.head.held != held

    async def _converse(self, stream: Stream) -> str:
        """Speaks and listens at once; ends when either ends. What the node did wrong, or ''."""
        async with asyncio.TaskGroup() as group:
            listening = group.create_task(self._listen(stream))
            speaking = group.create_task(self._speak(stream))
            await asyncio.wait((listening, speaking), return_when=asyncio.FIRST_COMPLETED)
            stream.close()
            await asyncio.wait((speaking,), timeout=_LAST_WRITE_S)
            speaking.cancel()
            listening.cancel()
        return "" if listening.cancelled() else listening.result()

    async def _speak(self, stream: Stream) -> None:
        loop = asyncio.get_running_loop()
        beat_at = loop.time()
        while not self._is_over(stream):
            stream.wake.clear()
            for collection, link in stream.links.items():
                await self._offer(stream, collection, link)
            if loop.time() >= beat_at and not self._is_over(stream):
                beat_at = loop.time() + self._heartbeat_s
                await stream.write(encode_heartbeat(self._publisher.heads(), round(time.time() * 1000), self._roster.routers))
            with suppress(TimeoutError):
                async with asyncio.timeout_at(beat_at):
                    await stream.wake.wait()

    async def _offer(self, stream: Stream, collection: int, link: Link) -> None:
        if not link.due(self._publisher.lines[collection].head.held):
            return
        head, parts = await self._publisher.updates_from(collection, link.held)
        if self._pushes is not None:
            origin, versions = self._publisher.origins.get(collection), (link.held[0], head[0])
            stream.pushes[collection] = self._pushes.begin(collection, origin, stream.presence.node, versions, parts)
        link.sent(head)
        for part in parts:
            if self._is_over(stream):
                return
            await stream.write(part)

    def _is_over(self, stream: Stream) -> bool:
        return stream.closing or self._publisher.stopping

    async def _listen(self, stream: Stream) -> str:
        links = stream.links
        async for request in stream.requests:
            match request.WhichOneof("kind"):
                case "ack" if request.ack.collection in links:
                    self._acked(request.ack, links[request.ack.collection], stream)
                case "nack" if request.nack.collection in links:
                    self._nacked(request.nack, links[request.nack.collection], stream)
                case "hello":
                    return "hello: is the first message of a stream and comes once"
                case _:
                    return f"collection: an answer must name {CATALOG} (catalog) or {ACCESS} (access)"
            stream.wake.set()
        return ""

    def _acked(self, ack: discovery_pb2.Ack, link: Link, stream: Stream) -> None:
        awaited = link.awaits(ack.version)
        if link.acked(ack.version, ack.checksum):
            self._roster.acked(stream.presence, ack.collection, ack.version)
            answered(stream.pushes.pop(ack.collection, None), "acked")
        elif awaited:
            self._roster.nacked(stream.presence, ack.collection, ack.version, "checksum", "acknowledged with another checksum")
            answered(stream.pushes.pop(ack.collection, None), "refused", "checksum")

    def _nacked(self, nack: discovery_pb2.Nack, link: Link, stream: Stream) -> None:
        if link.nacked(nack.version, nack.field):
            self._roster.nacked(stream.presence, nack.collection, nack.version, nack.field, nack.reason)
            answered(stream.pushes.pop(nack.collection, None), "refused", nack.field)


def _checked_hello(first: discovery_pb2.WatchRequest | None) -> discovery_pb2.Hello:
    if first is None or first.WhichOneof("kind") != "hello":
        raise InvalidRequest("hello: must be the first message of a stream")
    hello = first.hello
    if not 0 < len(hello.node) <= 200 or not hello.node.isprintable():
        raise InvalidRequest("hello.node: must be the node's name, 1 to 200 printable characters")
    if hello.role not in ROLES:
        raise InvalidRequest(f"hello.role: must be one of {', '.join(ROLES)}")
    if len(hello.build) > 100 or not hello.build.isprintable():
        raise InvalidRequest("hello.build: must be a version, at most 100 printable characters")
    for told in hello.held:
        if told.version > _LAST_VERSION:
            raise InvalidRequest(f"hello.held: there cannot be a version {told.version}")
    return hello
