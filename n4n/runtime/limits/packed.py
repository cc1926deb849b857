"""Subjects as the bytes that a script takes, made once for as long as their numbers stand; and its answers, taken apart.

All numbers are little-endian doubles, as Lua's `struct` reads them. A subject is four of them (buckets, most running, most streams, 1 where
leases are kept; -1: no limit), and each bucket its code and three: unit, capacity, what drains per ms. A bucket is 25 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from struct import Struct

from n4n.core.errors import StoreRefused
from n4n.core.limits.headers import LimitFields
from n4n.core.limits.levels import CONCURRENCY, COOLDOWN, STREAMS, Levels, Refusal, Settlement
from n4n.core.limits.subjects import Draw, Rate, Subject
from n4n.runtime.stores import Command, Script


def script_of(name: str) -> Script:
    return Script(name, files("n4n.runtime.limits").joinpath("lua", f"{name}.lua").read_text())


RESERVE, SETTLE, RENEW, SIGHT = (script_of(name) for name in ("reserve", "settle", "renew", "sight"))
_HEAD, _BUCKET = Struct("<dddd"), Struct("<cddd")
_DRAWN, _ENDED = b"\r\n$40\r\n", b"\r\n$48\r\n"  # what stands before the numbers: their bytes
ID_BYTES = 12
_PLACES = {-1: COOLDOWN, -2: CONCURRENCY, -3: STREAMS}


class Known:
    """What Redis told of one subject last. `used` by bucket; `at_ms` on the router's clock; None: it never did."""

    __slots__ = ("__weakref__", "at_ms", "used")

    def __init__(self) -> None:
        self.used: tuple[float, ...] | None = None
        self.at_ms = 0.0


class Party:
    """Subjects that are asked together, all or none; the first one's leases tell which reservations are open.

    A reservation, named by 12 bytes, is settled with the party it was made with, whatever the subjects' numbers are by then.
    """

    __slots__ = ("_answer", "_reserve", "_settle", "_size", "_slices", "fields", "keys", "knowns", "name", "spec", "subjects")

    def __init__(self, subjects: Sequence[Subject], knowns: Sequence[Known] = ()) -> None:
        """`knowns`: where what is told of each subject is noted."""
        self.subjects = tuple(subjects)
        self.name = self.subjects[0].keys[0]
        self.knowns = tuple(knowns)
        self.spec = b"".join([_subject(one, leases=at == 0) for at, one in enumerate(self.subjects)])
        self.keys = [key for one in self.subjects for key in one.keys]
        self._answer = Struct(f"<{4 + sum(2 + len(one.buckets) for one in self.subjects)}d")
        self._size = ID_BYTES + self._answer.size
        self._slices: list[slice] = []
        at = 4
        for one in self.subjects:
            self._slices.append(slice(at + 2, at + 2 + len(one.buckets)))
            at += 2 + len(one.buckets)
        self.fields = [LimitFields(one) for one in self.subjects]
        self._reserve = _prepared(RESERVE, self.keys, self.spec, 5)
        self._settle = _prepared(SETTLE, self.keys, self.spec, 6)

    def __repr__(self) -> str:
        return f"<Party {' and '.join(f'{one.whose} {one.name}' for one in self.subjects)}>"

    def reserve(self, id: bytes, draw: Draw, lease_ms: float) -> Command:
        """RESERVE, for one reservation. Every request pays for this: one call builds it from what stands."""
        made, head = self._reserve
        packed = made.pack(head, id, _DRAWN, 1.0, draw.tokens, draw.reserve, draw.stream, lease_ms, b"\r\n")
        return Command(packed, self.name, "reserve", RESERVE)

    def settle(self, id: bytes, draw: Draw, told: Settlement, numbers: tuple[float, ...] = ()) -> Command:
        """SETTLE, for one reservation; `numbers`: as it was answered, which matters to budgets alone."""
        (made, head), took = self._settle, told.took
        ended = 1.0, draw.tokens, took.requests, took.tokens, told.until_ms, draw.stream + 2 * told.refused
        if not told.floors:
            return Command(made.pack(head, id, _ENDED, *ended, b"\r\n"), self.name, "settle", SETTLE)
        floors = doubles([told.floors.get(bucket.name, 0.0) for bucket in self.subjects[0].buckets])
        return SETTLE.call(self.keys, [self.spec, id, Struct("<6d").pack(*ended), floors])

    def read(self, reply: object, id: bytes) -> tuple[float, ...]:
        """What a reservation was answered, as numbers. StoreRefused: it is no answer to this."""
        if not isinstance(reply, bytes) or len(reply) != self._size or not reply.startswith(id):
            raise StoreRefused("CROSSED", "reserve")
        return self._answer.unpack_from(reply, ID_BYTES)

    def note(self, numbers: tuple[float, ...], now_ms: float) -> None:
        """Remembers what was told."""
        for known, used in zip(self.knowns, self._slices, strict=True):
            known.used, known.at_ms = numbers[used], now_ms

    def used(self, numbers: tuple[float, ...], at: int = 0) -> tuple[float, ...]:
        """What is used of each bucket of one subject."""
        return numbers[self._slices[at]]

    def levels(self, numbers: tuple[float, ...]) -> tuple[Levels, ...]:
        """Of all subjects."""
        return tuple(Levels(numbers[used], int(numbers[used.start - 2]), int(numbers[used.start - 1])) for used in self._slices)

    def refusal(self, numbers: tuple[float, ...]) -> Refusal:
        """Of an answer whose first number is not 0."""
        whose, short = int(numbers[0]) - 1, int(numbers[1])
        bucket = _PLACES[short] if short < 0 else self.subjects[whose].buckets[short - 1].name
        return Refusal(bucket, whose, numbers[2], self.levels(numbers))


def flags_of(draw: Draw, told: Settlement) -> int:
    """What is said of a reservation with one number: 1 for a stream, 2 more where it was refused without a word."""
    return draw.stream + 2 * told.refused


def doubles(numbers: Sequence[float]) -> bytes:
    """One after the other."""
    return Struct(f"<{len(numbers)}d").pack(*numbers)


def _prepared(script: Script, keys: Sequence[str], spec: bytes, numbers: int) -> tuple[Struct, bytes]:
    """A command whose last two words are a reservation and so many numbers: how it is put together, and all before the reservation."""
    told = (b"EVALSHA", script.sha, b"%d" % len(keys), *[key.encode() for key in keys], spec)
    head = b"*%d\r\n%b$%d\r\n" % (len(told) + 2, b"".join([b"$%d\r\n%b\r\n" % (len(word), word) for word in told]), ID_BYTES)
    return Struct(f"<{len(head)}s{ID_BYTES}s7s{numbers}d2s"), head


def _subject(subject: Subject, *, leases: bool) -> bytes:
    most, streams = subject.concurrency, subject.streams
    counted = leases or most is not None or streams is not None
    head = _HEAD.pack(len(subject.buckets), -1 if most is None else most, -1 if streams is None else streams, counted)
    return head + b"".join([_bucket(one) for one in subject.buckets])


def _bucket(bucket: Rate) -> bytes:
    return _BUCKET.pack(bucket.code.encode(), bucket.unit, bucket.capacity, bucket.per_ms)
