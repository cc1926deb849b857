"""The steps that are not on every request's way, as commands for Redis, and its answers as values. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from struct import Struct
from typing import cast

from n4n.core.errors import StoreRefused
from n4n.core.limits.levels import LEASE_MS
from n4n.runtime.limits.packed import RENEW, SIGHT, Party, doubles
from n4n.runtime.stores import Command, Reply, Word

SIGHT_KEYS = ("n4n:{sight}:r", "n4n:{sight}:c")
_ENDED = Struct("<dd")


def was_open(id: bytes, reply: Reply) -> tuple[bool, float]:
    """What Redis answered to `settle`: whether the reservation was open, and Redis' time in ms. StoreRefused: it is no answer to this."""
    if not isinstance(reply, bytes) or not reply.startswith(id) or len(reply) != len(id) + _ENDED.size:
        raise StoreRefused("CROSSED", "settle")
    ended, now = _ENDED.unpack_from(reply, len(id))
    return ended == 1.0, now


def renew(
    party: Party, held: Mapping[bytes, bool], added: Sequence[float] = (), lease_ms: float = LEASE_MS, whole: Sequence[float] = ()
) -> Command:
    """`held`: reservations, and whether each is a stream; `added`: to every bucket, used while Redis was away; `whole`: instead, where it
    has lost what it knew before. Answers its time.
    """
    args: list[Word] = [party.spec, repr(lease_ms), doubles(added), doubles(whole)]
    for id, stream in held.items():
        args += (id, 1 if stream else 0)
    return RENEW.call(party.keys, args)


def sight(router: str, alive_ms: float, cooldowns: Mapping[str, float]) -> Command:
    """This router lives, and knows of these cooldowns (ms from now)."""
    args: list[Word] = [router, repr(alive_ms)]
    for name, ms in cooldowns.items():
        args += (name, repr(ms))
    return SIGHT.call(SIGHT_KEYS, args)


def seen(reply: Reply) -> tuple[int, dict[str, tuple[float, float]]]:
    """How many routers live, and what cools: until when on Redis' clock, and how long from now, in ms."""
    match reply:
        case [int(routers), bytes(now), *cooling]:
            return routers, dict(_cooling(float(now), cast(Sequence[bytes], cooling)))
        case _:
            raise StoreRefused("CROSSED", "sight")


def _cooling(now: float, told: Sequence[bytes]) -> Iterator[tuple[str, tuple[float, float]]]:
    for name, until in zip(told[::2], told[1::2], strict=True):
        yield name.decode(), (float(until), float(until) - now)
