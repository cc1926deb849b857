"""The words of an upstream's script: one frozen step for each thing a provider may do to a request.

An answer is a tuple of steps, played from left to right for one request. The head of the response leaves with the
first step that needs it, made from the `Status` and `Headers` steps before it: chunked, unless those headers say how
the body is framed (`content-length`, `transfer-encoding` or `connection: close`); `Whole` brings its own length.
An answer that runs to its end closes a chunked body properly and keeps the connection; `Fin`, `Rst` and `Hang` do not.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"


class Gate:
    """Holds an answer back until the test opens it, so that no test has to guess a time. Opens from any thread."""

    def __init__(self) -> None:
        self._open = False
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def open(self) -> None:
        """Lets every answer that waits here, or comes here later, go on."""
        self._open = True
        for loop, event in self._waiting:
            loop.call_soon_threadsafe(event.set)

    async def passed(self) -> None:
        """Returns once the gate is open."""
        event = asyncio.Event()
        self._waiting.append((asyncio.get_running_loop(), event))
        if self._open:
            event.set()
        await event.wait()


@dataclass(frozen=True, slots=True)
class Status:
    """The status line's code (200 if no step says so)."""

    code: int


@dataclass(frozen=True, slots=True)
class Headers:
    """Response headers, added in order and sent as written."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Head:
    """The head now, before there is any body."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """One server-sent event with this JSON as its data."""

    json: Json


@dataclass(frozen=True, slots=True)
class Raw:
    """These bytes as part of the body, framed as the head promised."""

    content: bytes


@dataclass(frozen=True, slots=True)
class Whole:
    """These bytes as the entire body, with their `content-length`."""

    content: bytes


@dataclass(frozen=True, slots=True)
class Wire:
    """These bytes on the socket as they are: no head, no framing. For broken HTTP."""

    content: bytes


@dataclass(frozen=True, slots=True)
class Slice:
    """From here on writes of at most `size` bytes (0: no limit), `gap` seconds apart; cuts heads and framing too."""

    size: int
    gap: float = 0.0


@dataclass(frozen=True, slots=True)
class Sleep:
    """Nothing for so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing until the test opens the gate."""

    gate: Gate


@dataclass(frozen=True, slots=True)
class Rst:
    """What was written leaves, then the connection is reset."""


@dataclass(frozen=True, slots=True)
class Fin:
    """The connection is closed in order, whatever the body still owes."""


@dataclass(frozen=True, slots=True)
class Hang:
    """Nothing more, ever: the connection stays open until the peer closes it (`Call.peer_closed_at` says when)."""


@dataclass(frozen=True, slots=True)
class EchoHeaders:
    """A chat completion whose text is the request's headers as JSON: `[[name, value], …]` as they arrived."""


@dataclass(frozen=True, slots=True)
class Bill:
    """From here on the provider charges this usage for the call (`Call.billed`), whether or not anybody reads on."""

    usage: Mapping[str, Json] = field(default_factory=dict)


Step: TypeAlias = Status | Headers | Head | Chunk | Raw | Whole | Wire | Slice | Sleep | Wait | Rst | Fin | Hang | EchoHeaders | Bill
Answer: TypeAlias = tuple[Step, ...]


def event(content: Json) -> bytes:
    """One server-sent event as providers write it: a `data:` line and an empty line."""
    return b"data: " + compact(content) + b"\n\n"


def compact(content: Json) -> bytes:
    """JSON without spaces, in UTF-8."""
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()
