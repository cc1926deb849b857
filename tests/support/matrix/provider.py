"""What the matrix needs of a provider: answers in its own bytes, and its own reading of what it was asked."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tests.support.call import Call as HttpCall
from tests.support.matrix.words import Ask, Object, Told
from tests.support.script import Answer, Headers, Raw, Rst, Status, Step, Whole

JSON, EVENTS = "application/json", "text/event-stream"


class Provider(Protocol):
    """One dialect, or one publisher of it. Faults are named by their class."""

    name: str
    dialect: str
    model: str  # its own name of it
    broken_class: str  # what `broken` is of
    signature: str | None  # what its reasoning is signed with; providers of one signature can read each other's

    def whole(self, told: Told) -> Answer:
        """An answer at once."""
        ...

    def stream(self, told: Told) -> Answer:
        """An answer in pieces."""
        ...

    def by_turns(self, told: Told) -> Answer | None:
        """An answer whose parts come by turns, numbered in its own way; None: each part comes at once."""
        ...

    def begun(self, text: str) -> Answer:
        """A stream that has told a text and goes on."""
        ...

    def broken(self) -> tuple[Step, ...]:
        """The error that a stream may hold."""
        ...

    def inside(self) -> Answer:
        """The same error in the place of a whole answer, with status 200."""
        ...

    def fault(self, kind: str, stream: bool) -> Answer:
        """An answer that is none."""
        ...

    def asked(self, call: HttpCall) -> Ask:
        """What it understood."""
        ...

    def tells(self, told: Told) -> Told:
        """What of an answer its words can hold."""
        ...

    def refuses(self) -> Told:
        """How it says that it will not answer, after it has begun to."""
        ...


def page(status: int, body: object, kind: str = JSON, headers: Mapping[str, str] | None = None) -> Answer:
    """A body with its length."""
    raw = body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode()
    return (Status(status), Headers((("content-type", kind), *(headers or {}).items())), Whole(raw))


def events(payloads: Sequence[bytes], kind: str = EVENTS) -> Answer:
    """Events, each in a write of its own."""
    return (Headers((("content-type", kind),)), *map(Raw, payloads))


def cut(answer: Answer) -> Answer:
    """The first half of a whole answer, then a reset."""
    (whole,) = [step.content for step in answer if isinstance(step, Whole)]
    rest = [step for step in answer if not isinstance(step, Whole)]
    return (*rest, Headers((("content-length", str(len(whole))),)), Raw(whole[: len(whole) // 2]), Rst())


def data(payload: object) -> bytes:
    """One event without a name."""
    return b"data: " + json.dumps(payload, ensure_ascii=False).encode() + b"\n\n"


def named(kind: str, **members: Any) -> bytes:
    """One event whose data repeats its name."""
    payload: Object = {"type": kind, **members}
    return f"event: {kind}\n".encode() + data(payload)


def in_row(parts: Sequence[Sequence[bytes]]) -> list[bytes]:
    """The events of each part after those of the one before."""
    return [event for events in parts for event in events]


def woven(parts: Sequence[Sequence[bytes]]) -> list[bytes]:
    """The first event of each part, then the second ones, and so on."""
    return [events[at] for at in range(max(map(len, parts))) for events in parts if at < len(events)]


def halves(text: str) -> tuple[str, str]:
    """A text in two pieces, the cut inside a word."""
    middle = len(text) // 2
    return text[:middle], text[middle:]
