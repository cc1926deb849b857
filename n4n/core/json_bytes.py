"""JSON as bytes: take an object apart into its raw members, put it together again, never re-encoding what does not change."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import lru_cache
from typing import NoReturn

import msgspec

Members = dict[str, msgspec.Raw]
encode = msgspec.json.Encoder().encode
_MEMBERS = msgspec.json.Decoder(Members)
_ANY = msgspec.json.Decoder()


class NotJson(ValueError):
    """The bytes are not one JSON value in UTF-8."""


def members(raw: bytes) -> Members:
    """The members of one JSON object, each as the bytes it was written in; of a repeated name the last one. Raises NotJson."""
    try:
        return _MEMBERS.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise NotJson(str(error)) from error


def loose_members(raw: bytes) -> Members:
    """As `members`, also where a string holds half a surrogate pair; then the values are re-encoded. Raises NotJson."""
    try:
        return members(raw)
    except NotJson:
        whole = parse(raw)
    if not isinstance(whole, dict):
        raise NotJson("not an object")
    return {name: msgspec.Raw(dump(value)) for name, value in whole.items()}


def join(fields: Iterable[tuple[str, bytes]]) -> bytes:
    """One JSON object of these members; the values are JSON already."""
    pieces: list[bytes] = []
    for name, value in fields:
        pieces += (_opening(name), value)
    return b"{%b}" % b"".join(pieces)[1:]


@lru_cache(4096)
def _opening(name: str) -> bytes:
    """What stands in front of a member's value. Most are fields of an API; what clients invent is bounded."""
    return b",%b:" % encode(name)


def is_object(raw: bytes | None) -> bool:
    """Whether a member is an object (a Raw cannot be indexed, a view of it can)."""
    return raw is not None and bytes(memoryview(raw)[:1]) == b"{"


def parse(raw: bytes) -> object:
    """One JSON value. Half surrogate pairs in escapes, which some models emit, are let through. Raises NotJson."""
    try:
        return _ANY.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        return json.loads(bytes(raw).decode(), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise NotJson(str(error)) from error


def dump(value: object) -> bytes:
    """The shortest JSON of a parsed value, raw JSON in it as it is; half surrogate pairs leave as the escapes they came as."""
    try:
        return encode(value)
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"), default=_parsed).encode()


def _parsed(raw: msgspec.Raw) -> object:
    return json.loads(bytes(raw))


def _refuse(name: str) -> NoReturn:
    raise NotJson(f"{name} is no JSON number")
