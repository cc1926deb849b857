"""Idempotency keys: by what a request is known to all routers, what is kept of its answer, and how long somebody waits for it.

    FREE ──claim──▶ RUNNING ──complete──▶ DONE ──24 h──▶ FREE
                    RUNNING ──it failed, its client left, or its router died and the lease expired──▶ FREE: the next that asks executes

The record lies in Redis under a name from which nothing can be read; so does the fingerprint. Both, and the sealing of the answer, come
from one secret (n4n/runtime/sealing.py): routers with different secrets have different records and never meet.

The header is that of https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/, taken as it comes, quotes and all.
"""

from __future__ import annotations

import hmac
import re
import zlib
from collections.abc import Callable, Iterator

import msgspec

from n4n.core.errors import MalformedRequest

HEADER = "idempotency-key"
KEPT_MS = 24 * 3_600_000
LEASE_MS = 15_000.0  # a router that died keeps the others waiting for so long
MOST_BYTES = 4 << 20  # of an answer as it goes out; a larger one is not kept
MOST_SEALED = 512 << 10  # of an answer as it lies in Redis, compressed; a larger one is not kept
LONGEST_KEY = 255  # characters
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_FORMAT = b"\x01"
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.01, 0.25
_OF_ONE_ANSWER = (b"server:", b"x-request-id:", b"x-n4n-overhead-ms:", b"x-n4n-queue-ms:", b"x-ratelimit-")


class Known(msgspec.Struct, frozen=True):
    """By what a request is known: `name` is the record's, of tenant and key; `fingerprint` is of the path and the body."""

    name: str
    fingerprint: bytes


class Kept(msgspec.Struct, frozen=True, array_like=True):
    """An answer with status 200 as its client got it. `fields`: its header lines that are told again, each with its line end."""

    stream: bool
    fields: bytes
    body: bytes


class Mine(msgspec.Struct, frozen=True):
    """Nobody had it: whoever asked executes now."""


class Running(msgspec.Struct, frozen=True):
    """Somebody executes it."""


class Different(msgspec.Struct, frozen=True):
    """The key is in use for another request."""


class Done(msgspec.Struct, frozen=True):
    """It was executed; `sealed` is its answer."""

    sealed: bytes


Claim = Mine | Running | Different | Done
_DECODER = msgspec.msgpack.Decoder(Kept)


def check_key(key: str) -> None:
    """MalformedRequest for what is no key: 1 to 255 characters, none of which controls anything."""
    if not 0 < len(key) <= LONGEST_KEY or _CONTROL.search(key):
        raise MalformedRequest(f"{HEADER} must be 1 to {LONGEST_KEY} characters without control characters", param=HEADER)


def known_by(secret: bytes, tenant: str, key: str, path: str, body: bytes) -> Known:
    """The same for the same, on every router with this secret. `body`: as it was sent, decompressed."""
    name = hmac.digest(secret, _parted(b"key", _bytes(tenant), _bytes(key)), "sha256").hex()[:40]
    return Known(f"n4n:{{i:{name}}}", hmac.digest(secret, _parted(b"request", _bytes(path), body), "sha256"))


def packed(answer: Kept) -> bytes:
    """An answer as bytes, compressed."""
    return _FORMAT + zlib.compress(msgspec.msgpack.encode(answer), 1)


def unpacked(content: bytes) -> Kept:
    """What `packed` made; ValueError: it is something else."""
    if content[:1] != _FORMAT:
        raise ValueError("an answer in a format that this version does not know")
    stream = zlib.decompressobj()
    try:
        whole = stream.decompress(content[1:], 2 * MOST_BYTES)
        return _DECODER.decode(whole if stream.eof else b"")
    except (zlib.error, msgspec.MsgspecError) as error:
        raise ValueError("an answer that is damaged") from error


def lasting(fields: bytes) -> bytes:
    """The header lines that speak of the answer, without those that speak of how it was asked for this once."""
    return b"".join([line for line in fields.splitlines(keepends=True) if not line.startswith(_OF_ONE_ANSWER)])


def pauses(draw: Callable[[], float]) -> Iterator[float]:
    """How long to wait before asking again, each time, in seconds; without end. `draw`: numbers in [0, 1)."""
    pause = _FIRST_PAUSE_S
    while True:
        yield pause * (0.8 + 0.4 * draw())
        pause = min(_LONGEST_PAUSE_S, 2 * pause)


def _parted(*parts: bytes) -> bytes:
    """So that no two lists of parts are the same bytes."""
    return b"".join([len(part).to_bytes(8, "big") + part for part in parts])


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
