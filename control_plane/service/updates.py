"""Encodes what a Watch stream carries: a version in parts under 1 MiB, and the heartbeat. Bytes, made once for all watchers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from n4n.runtime.wire import Resources, to_messages
from n4n.v1 import discovery_pb2, types_pb2

PART_BYTES = 900_000  # what one part may hold; the rest of a MiB is for framing
_FRAME = 32  # bytes around one resource, at most


def encode_update(
    collection: int,
    head: tuple[int, str],
    base: tuple[int, str] | None,
    upserts: Resources,
    removed: Sequence[tuple[int, str]],
    committed_at_ms: int,
) -> tuple[bytes, ...]:
    """All parts of an update to `head` (version, checksum), a delta from `base` or a whole snapshot, each a WatchResponse."""
    parts = list(_parts(upserts, removed))
    encoded = []
    for number, (added, gone) in enumerate(parts):
        update = discovery_pb2.Update(
            collection=cast(types_pb2.Collection, collection),
            version=head[0],
            checksum=head[1],
            upserts=added,
            removed=gone,
            part=number,
            parts=len(parts),
            committed_at_ms=committed_at_ms,
        )
        if base is not None:
            update.base_version, update.base_checksum = base
        encoded.append(discovery_pb2.WatchResponse(update=update).SerializeToString())
    return tuple(encoded)


def _parts(
    upserts: Resources, removed: Sequence[tuple[int, str]]
) -> Iterator[tuple[list[types_pb2.Resource], list[types_pb2.ResourceName]]]:
    added: list[types_pb2.Resource] = []
    gone: list[types_pb2.ResourceName] = []
    size = 0
    names = [types_pb2.ResourceName(kind=cast(types_pb2.Kind, kind), name=name) for kind, name in sorted(removed)]
    items: list[types_pb2.Resource | types_pb2.ResourceName] = [*names, *to_messages(upserts)]
    for item in items:
        cost = item.ByteSize() + _FRAME
        if size and size + cost > PART_BYTES:
            yield added, gone
            added, gone, size = [], [], 0
        size += cost
        if isinstance(item, types_pb2.Resource):
            added.append(item)
        else:
            gone.append(item)
    yield added, gone


def encode_heartbeat(heads: Mapping[int, tuple[int, str]], sent_at_ms: int, routers: int = 0) -> bytes:
    """The heads of all collections, as a WatchResponse; `routers`: how many data planes are connected, 0: not known."""
    beat = discovery_pb2.Heartbeat(sent_at_ms=sent_at_ms, routers=routers)
    for collection, (version, checksum) in sorted(heads.items()):
        beat.heads.add(collection=cast(types_pb2.Collection, collection), version=version, checksum=checksum)
    return discovery_pb2.WatchResponse(heartbeat=beat).SerializeToString()
