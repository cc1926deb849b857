"""A control plane one version ahead and a router one version behind, as in every rolling upgrade: unknown words are passed over.

The newer protocol is made here: the descriptors of today with fields, a kind, a collection and a message more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message

from n4n.core.catalog import collection_checksum
from n4n.runtime import disk_snapshot, wire
from n4n.v1 import access_pb2, discovery_pb2, types_pb2
from tests.control_plane.client import ACCESS, CATALOG, NODE, a_plane
from tests.integration.test_discovery_client import router, serving, until
from tests.support.catalogs import FULL, SMALL, changed
from tests.support.control_plane import ScriptedControlPlane, resources_of, update

STRING, UINT64 = descriptor_pb2.FieldDescriptorProto.TYPE_STRING, descriptor_pb2.FieldDescriptorProto.TYPE_UINT64
NEW_FIELDS: Mapping[str, Mapping[str, int]] = {
    "Endpoint": {"carbon_budget": STRING},
    "Price": {"batch_per_1m": STRING},
    "Model": {"personality": STRING},
    "Provider": {"motto": STRING},
    "Key": {"mood": STRING},
    "Resource": {"trace": STRING},
    "Update": {"signature": STRING, "expires_at_ms": UINT64},
    "Heartbeat": {"load": UINT64},
    "Held": {"epoch": UINT64},
    "Hello": {"favourite_colour": STRING},
}
NEW_KIND, NEW_COLLECTION = 42, 9


def next_protocol() -> Mapping[str, type[Message]]:
    """The messages of version N+1 by name."""
    pool = descriptor_pool.DescriptorPool()
    for module in (types_pb2, discovery_pb2):
        file = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        for message in file.message_type:
            for number, (name, kind) in enumerate(NEW_FIELDS.get(message.name, {}).items()):
                label = descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL
                message.field.add(name=name, number=1000 + number, type=kind, label=label)  # type: ignore[arg-type]
        for enum, value in (("Kind", NEW_KIND), ("Collection", NEW_COLLECTION)):
            for described in file.enum_type:
                if described.name == enum:
                    described.value.add(name=f"{enum.upper()}_OF_TOMORROW", number=value)
        for message in file.message_type:
            if message.name == "WatchResponse":
                message.field.add(
                    name="farewell", number=1000, type=descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE, label=1, oneof_index=0,
                    type_name=".n4n.v1.Heartbeat",
                )  # fmt: skip
        pool.Add(file)
    names = ["WatchRequest", "WatchResponse", *NEW_FIELDS]
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"n4n.v1.{name}")) for name in names}


NEW: Mapping[str, Any] = next_protocol()


def of_tomorrow(resources: wire.Resources) -> wire.Resources:
    """The same entries as version N+1 writes them, and one of a kind that is not known today."""
    message_of = {types_pb2.KIND_ENDPOINT: "Endpoint", types_pb2.KIND_MODEL: "Model", types_pb2.KIND_PROVIDER: "Provider"}
    written = dict(resources)
    for (kind, name), body in resources.items():
        if kind in message_of:
            told = NEW[message_of[kind]].FromString(body)
            (field,) = NEW_FIELDS[message_of[kind]]
            setattr(told, field, "new")
            if kind == types_pb2.KIND_ENDPOINT:
                told.price.batch_per_1m = "0.1"
            written[(kind, name)] = told.SerializeToString()
    written[(NEW_KIND, "something")] = b"\x0a\x03new"
    return written


def pushed(version: int, resources: wire.Resources, base: tuple[int, wire.Resources] | None = None) -> list[bytes]:
    """An update with every field that version N+1 would fill."""
    told = []
    for encoded in update(version, resources, base=base):
        message = NEW["WatchResponse"].FromString(encoded)
        message.update.signature, message.update.expires_at_ms = "s", 7
        for one in message.update.upserts:
            one.trace = "t"
        told.append(message.SerializeToString())
    return told


def other_words() -> list[bytes]:
    """What a router of today has no word for."""
    farewell, collection, beat = NEW["WatchResponse"](), NEW["WatchResponse"](), NEW["WatchResponse"]()
    farewell.farewell.load = 3
    collection.update.collection, collection.update.version, collection.update.checksum = NEW_COLLECTION, 5, "c"
    collection.update.parts = 1
    beat.heartbeat.load = 9
    beat.heartbeat.heads.add(collection=NEW_COLLECTION, version=5, checksum="c", epoch=1)
    return [message.SerializeToString() for message in (farewell, collection, beat)]


async def test_a_router_follows_a_newer_control_plane_and_keeps_its_bytes_over_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "catalog.snapshot"
    first, second = of_tomorrow(resources_of(SMALL)), of_tomorrow(resources_of(changed(SMALL, "endpoints", "acme-small", "weight", to=2)))
    async with ScriptedControlPlane() as plane:
        async with router(plane.target, path=path) as (follower, _):
            await serving(plane, 1, first)
            plane.push([*other_words(), *pushed(2, second, base=(1, first))])
            ack = await plane.ack()
            assert (ack.version, ack.checksum) == (2, collection_checksum(second)), "the sum is over bytes, unknown fields and all"
            assert follower.state.catalog is not None and follower.state.catalog.endpoints["acme-small"].weight == 2
            assert follower.nacks == 0
            await until(lambda: path.exists() and disk_snapshot.load(path).collections[0][0].version == 2)
        async with router(plane.target, path=path) as (again, _):
            hello = await plane.hello()
            assert again.version == 2 and hello.held[0].checksum == collection_checksum(second)
            ((_, resources),) = disk_snapshot.load(path).collections
            assert NEW["Endpoint"].FromString(resources[(types_pb2.KIND_ENDPOINT, "acme-small")]).carbon_budget == "new"
            plane.push(pushed(3, of_tomorrow(resources_of(FULL)), base=(2, second)))
            assert (await plane.ack()).version == 3


async def test_keys_of_a_newer_control_plane_are_let_in(tmp_path: Path) -> None:
    key = NEW["Key"](tenant="acme", secret_sha256=b"s" * 32, mood="good")
    keys = {wire.key_resource("abcdef012345"): key.SerializeToString(), (NEW_KIND, "x"): b"?"}
    async with ScriptedControlPlane() as plane, router(plane.target, path=tmp_path / "catalog.snapshot") as (follower, _):
        await serving(plane)
        plane.push(update(1, keys, collection=wire.ACCESS))
        assert (await plane.ack()).checksum == collection_checksum(keys)
        assert follower.state.access is not None and set(follower.state.access.keys) == {"abcdef012345"}


@asynccontextmanager
async def raw_watch(port: int, *messages: Message) -> AsyncIterator[grpc.aio.StreamStreamCall[bytes, bytes]]:
    """A stream on which these have been said, byte for byte."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.stream_stream("/n4n.v1.Discovery/Watch")(metadata=(("authorization", f"Bearer {NODE}"),))
        for message in messages:
            await call.write(message.SerializeToString())
        yield call
        call.cancel()


async def next_update(call: grpc.aio.StreamStreamCall[bytes, bytes]) -> discovery_pb2.Update:
    """The next that is no heartbeat."""
    async with asyncio.timeout(5):
        while True:
            told = discovery_pb2.WatchResponse.FromString(await call.read())
            if told.HasField("update"):
                return told.update


def acknowledged(told: discovery_pb2.Update) -> bytes:
    ack = discovery_pb2.Ack(collection=told.collection, version=told.version, checksum=told.checksum)
    return discovery_pb2.WatchRequest(ack=ack).SerializeToString()


async def test_a_newer_router_is_served_by_the_control_plane_of_today(postgres_url: str) -> None:
    hello = NEW["WatchRequest"]()
    hello.hello.node, hello.hello.role, hello.hello.build, hello.hello.favourite_colour = "newer", "data-plane", "9.0", "green"
    hello.hello.held.add(collection=NEW_COLLECTION, version=3, checksum="c", epoch=4)
    async with a_plane(postgres_url) as plane, raw_watch(plane.port, hello) as call:
        for weight in (1, 2):
            await plane.apply(changed(SMALL, "endpoints", "acme-small", "weight", to=weight))
            told = await next_update(call)
            assert (told.version, told.base_version) == (weight, weight - 1)
            await call.write(acknowledged(told))


async def test_a_router_one_version_behind_is_served_without_what_it_never_says(postgres_url: str) -> None:
    """Its hello has a name and a role and nothing else, and it knows no collection but the catalog."""
    hello = discovery_pb2.WatchRequest(hello=discovery_pb2.Hello(node="old", role="data-plane"))
    async with a_plane(postgres_url) as plane, raw_watch(plane.port, hello) as call:
        await plane.access.CreateKey(access_pb2.CreateKeyRequest(tenant="acme"), metadata=plane.token)
        assert (await next_update(call)).collection == ACCESS
        for weight in (1, 2):
            await plane.apply(changed(SMALL, "endpoints", "acme-small", "weight", to=weight))
            told = await next_update(call)
            assert (told.collection, told.version, told.base_version) == (CATALOG, weight, weight - 1)
            await call.write(acknowledged(told))
