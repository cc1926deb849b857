"""The checksum of a collection: a sum over its resources, so that a change of ten among 100,000 costs ten.

Each resource is hashed by itself (SHA-256 over kind, name and body) and the hashes are added modulo 2^256. So order does not matter,
and what a change takes away and puts in its place can be taken from the sum and added to it. It finds accidents: lost, doubled and
mixed-up resources. Against somebody who makes up resources to fit a sum stands the token or the certificate of the stream, not this.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

ResourceId = tuple[int, str]  # kind, name
Change = tuple[ResourceId, bytes | None, bytes | None]  # which resource, its body before and after; None: absent
_MODULUS = 1 << 256
_NOTHING = int.from_bytes(hashlib.sha256(b"n4n collection").digest(), "big")  # of an empty collection; 0 would look like a mistake


def collection_checksum(resources: Mapping[ResourceId, bytes]) -> str:
    """Checksum of a whole collection; 64 hex digits."""
    return f"{(_NOTHING + sum(_digest(name, body) for name, body in resources.items())) % _MODULUS:064x}"


def checksum_after(before: str, changes: Iterable[Change]) -> str:
    """The checksum of a collection that had `before`, once the changes are made; ValueError when `before` is no checksum."""
    total = int(before, 16)
    for name, old, new in changes:
        if old is not None:
            total -= _digest(name, old)
        if new is not None:
            total += _digest(name, new)
    return f"{total % _MODULUS:064x}"


def _digest(resource: ResourceId, body: bytes) -> int:
    kind, name = resource
    encoded = name.encode()
    return int.from_bytes(hashlib.sha256(b"%d %d %b %d %b" % (kind, len(encoded), encoded, len(body), body)).digest(), "big")
