"""What a router asks of the counting process, and what it answers: length (4 bytes, big-endian), then MessagePack."""

from __future__ import annotations

import msgspec

MOST_BYTES = 8 << 20  # of one message
LENGTH = 4


class Question(msgspec.Struct, frozen=True, array_like=True):
    """Count this: the request as it was sent to the provider, the answer in the pieces that came. `model`: the provider's name of it."""

    number: int  # the answer bears it
    model: str
    body: bytes
    pieces: list[bytes]


class Counted(msgspec.Struct, frozen=True, array_like=True):
    """Tokens. `exact` of a side: all of it was text whose tokens are known; pictures, sounds and tools are not. None: nothing to count."""

    number: int
    encoding: str
    prompt: int | None
    prompt_exact: bool
    output: int | None  # without reasoning
    output_exact: bool
    reasoning: int = 0


_ENCODE = msgspec.msgpack.Encoder().encode
_QUESTION, _COUNTED = msgspec.msgpack.Decoder(Question).decode, msgspec.msgpack.Decoder(Counted).decode


class Unreadable(Exception):
    """A message is none"""


def packed(message: Question | Counted) -> bytes:
    """As it travels."""
    told = _ENCODE(message)
    return len(told).to_bytes(LENGTH, "big") + told


def question(told: bytes) -> Question:
    """Of the bytes after the length; Unreadable."""
    try:
        return _QUESTION(told)
    except msgspec.DecodeError as error:
        raise Unreadable from error


def counted(told: bytes) -> Counted:
    """Of the bytes after the length; Unreadable."""
    try:
        return _COUNTED(told)
    except msgspec.DecodeError as error:
        raise Unreadable from error
