"""The steps of a limit as commands for Redis, and its answers as values. No I/O but reading the scripts once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import cast

from n4n.core.errors import StoreRefused
from n4n.core.limits.levels import LEASE_MS, Grant, Levels, Refusal, Settlement
from n4n.core.limits.subjects import Draw, Subject
from n4n.runtime.stores import Command, Reply, Script, Word


def _script(name: str) -> Script:
    return Script(name, files("n4n.runtime.limits").joinpath("lua", f"{name}.lua").read_text())


_text = lru_cache(8192)(repr)  # limits and rates are the same again and again; ten of them are in every step
RESERVE, SETTLE, RENEW, SIGHT = (_script(name) for name in ("reserve", "settle", "renew", "sight"))
SIGHT_KEYS = ("n4n:{sight}:r", "n4n:{sight}:c")


def reserve(id: str, subject: Subject, draw: Draw, lease_ms: float = LEASE_MS) -> Command:
    """Everything or nothing. It may be sent twice only under two ids."""
    most, streams = subject.concurrency, subject.streams
    args: list[Word] = [id, _text(lease_ms), -1 if most is None else most, -1 if streams is None else streams, 1 if draw.stream else 0]
    for rate in subject.rates:
        args += (rate.name, _text(draw.amount(rate)), _text(draw.room(rate)), _text(rate.per_ms))
    return RESERVE.call(subject.keys, args)


def reserved(id: str, subject: Subject, reply: Reply) -> Grant | Refusal:
    """What Redis answered. StoreRefused: it is no answer to this."""
    match reply:
        case [bytes(whose), bytes(bucket), bytes(wait), int(running), int(streams), bytes(), *used] if whose == id.encode():
            told = {rate.name: float(cast(bytes, level)) for rate, level in zip(subject.rates, used, strict=True)}
            levels = Levels(told, running, streams)
            return Refusal(bucket.decode(), float(wait), levels) if bucket else Grant(id, levels)
        case _:
            raise StoreRefused("CROSSED", "reserve")


def time_of(reply: Reply) -> float:
    """Redis' time in an answer to `reserve` or `settle`, in ms."""
    assert isinstance(reply, list)
    return float(cast(bytes, reply[5] if len(reply) > 3 else reply[2]))


def settle(id: str, subject: Subject, told: Settlement) -> Command:
    """Once; again, it changes nothing but the corrections."""
    args: list[Word] = [id, _text(told.until_ms)]
    for rate in subject.rates:
        args += (rate.name, _text(told.refunds.get(rate.name, 0.0)), _text(told.floors.get(rate.name, 0.0)), _text(rate.per_ms))
    return SETTLE.call(subject.keys, args)


def renew(subject: Subject, held: Mapping[str, bool], added: Mapping[str, float], lease_ms: float = LEASE_MS) -> Command:
    """`held`: reservations, and whether each is a stream; `added`: what was used while Redis was away."""
    args: list[Word] = [_text(lease_ms), len(subject.rates)]
    for rate in subject.rates:
        args += (rate.name, _text(added.get(rate.name, 0.0)), _text(rate.per_ms))
    for id, stream in held.items():
        args += (id, 1 if stream else 0)
    return RENEW.call(subject.keys, args)


def sight(router: str, alive_ms: float, cooldowns: Mapping[str, float]) -> Command:
    """This router lives, and knows of these cooldowns (ms from now)."""
    args: list[Word] = [router, _text(alive_ms)]
    for name, ms in cooldowns.items():
        args += (name, _text(ms))
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
