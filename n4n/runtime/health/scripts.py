"""The steps of shared health as commands for Redis, and its answers as values. No I/O but reading the scripts once.

One hash tag for all of it, so that news of many endpoints are one step and what changed since is one question.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import cast

import msgspec

from n4n.core.breaker import Breaker, BreakerState
from n4n.core.errors import StoreRefused
from n4n.core.health.news import News
from n4n.core.health.seen import Seen
from n4n.core.health.spread import Sample
from n4n.core.health.standing import Policies
from n4n.runtime.stores import Command, Reply, Script, Word


def _script(name: str) -> Script:
    return Script(f"health {name}", files("n4n.runtime.health").joinpath("lua", f"{name}.lua").read_text())


TELL, LOOK, TRIAL, COOL, COOLING_NOW = (_script(name) for name in ("tell", "look", "trial", "cool", "cooling"))
# What a script writes only the same script reads: while a fleet changes versions, each of the two keeps what it knows to itself.
CHANGES, COUNT, ENTRY = (f"n4n:{{health}}:{TELL.sha[:8].decode()}:{what}" for what in ("changes", "count", "e:"))
COOLING = "n4n:{sight}:c"  # where routers look for what cools: n4n/runtime/limits
MOST_TOLD = 64  # endpoints in one step: a millisecond or so of Redis' time
MOST_READ = 256
_BREAKERS = {"c": Breaker.CLOSED, "o": Breaker.OPEN, "h": Breaker.HALF_OPEN}
_FIELDS = msgspec.msgpack.Decoder(list[float | str | bool])


class Answer(msgspec.Struct, frozen=True):
    """What Redis knows. `generation`: of its memory, another one after it was lost; `number`: of the last change that is told."""

    generation: bytes
    number: int
    seen: Mapping[str, Seen]
    free: bool = False


def tell(news: Mapping[str, tuple[News, Policies]], jitter: float) -> Command:
    """News of at most `MOST_TOLD` endpoints. Told again they count again."""
    args: list[Word] = [repr(jitter)]
    for name, (one, policies) in news.items():
        runs = " ".join([f"{letter}{count}" for letter, count in one.course])
        latency = f"{one.latency_count} {one.latency_ms / one.latency_count!r}" if one.latency_count else ""
        args += (name, _policy(policies), runs, latency, _sample(one.ttft), _sample(one.speed))
    return TELL.call((CHANGES, COUNT, *(ENTRY + name for name in news)), args)


def look(number: int) -> Command:
    """What changed since that number; at most `MOST_READ` at once."""
    return LOOK.call((CHANGES, COUNT), (number, MOST_READ, ENTRY))


def take_trial(endpoint: str, policies: Policies) -> Command:
    """The one trial of a half-open breaker."""
    return TRIAL.call((CHANGES, COUNT, ENTRY + endpoint), (endpoint, repr(float(policies.breaker.recovery_timeout_sec))))


def cool(cooldowns: Mapping[str, float]) -> Command:
    """Cooldowns for every router, in seconds from now, named as n4n/runtime/limits names them; of several the longest wins."""
    args: list[Word] = []
    for name, seconds in cooldowns.items():
        args += (name, repr(seconds * 1000))
    return COOL.call((COOLING,), args)


def cooling() -> Command:
    """What cools now."""
    return COOLING_NOW.call((COOLING,))


def cools(reply: Reply) -> dict[str, float]:
    """Of what cools, by the names of `cool`, for how many seconds from now. StoreRefused: it is no answer to this."""
    match reply:
        case [bytes(now), *told]:
            pairs = zip(cast(Sequence[bytes], told[::2]), cast(Sequence[bytes], told[1::2]), strict=True)
            return {name.decode(): (float(until) - float(now)) / 1000 for name, until in pairs}
        case _:
            raise StoreRefused("CROSSED", "health")


def answered(reply: Reply, now: float) -> Answer:
    """What Redis answered, its times as such of a clock that says `now`. StoreRefused: it is no answer to this."""
    match reply:
        case [bytes(generation), int(number), bytes(told_at), *rest]:
            free = bool(rest.pop()) if len(rest) % 2 else False
            return Answer(generation, number, dict(_entries(rest, float(told_at) - now)), free)
        case _:
            raise StoreRefused("CROSSED", "health")


def _entries(rest: Sequence[Reply], ahead: float) -> Iterator[tuple[str, Seen]]:
    for name, fields in zip(rest[::2], rest[1::2], strict=True):
        if isinstance(name, bytes) and isinstance(fields, bytes):
            try:
                yield name.decode(), _seen(_FIELDS.decode(fields), ahead)
            except (ValueError, TypeError, KeyError, msgspec.DecodeError):
                continue  # somebody else wrote it: as good as nothing known


def _seen(fields: list[float | str | bool], ahead: float) -> Seen:
    """`ahead`: how far Redis' clock is before ours."""
    score, ceiling, at, kept, until, opened, good_at, *measured, usual = fields
    breaker = BreakerState(_BREAKERS[str(kept)], (), int(opened), float(until) - ahead)
    latency, ttft, ttft50, ttft95, speed, speed50, speed95 = (None if one is False else float(one) for one in measured)
    good = float(good_at) - ahead if good_at else None
    return Seen(
        float(score), float(ceiling), float(at) - ahead, good, breaker, latency, ttft, ttft50, ttft95, speed, speed50, speed95, float(usual)
    )


@lru_cache(4096)
def _policy(policies: Policies) -> str:
    health, breaker = policies.health, policies.breaker
    numbers = (
        health.live_weight, health.probe_weight, health.half_life_sec, health.neutral, health.floor, health.step_sec,
        health.step_successes, breaker.failure_threshold, breaker.window_sec, breaker.recovery_timeout_sec, int(breaker.consecutive),
    )  # fmt: skip
    return " ".join(map(repr, numbers))


def _sample(sample: Sample) -> str:
    if not sample.count:
        return ""
    buckets = " ".join([f"{at}:{count}" for at, count in sample.buckets.items()])
    return f"{sample.count} {sample.mean!r} {buckets}"
