"""Commands as the bytes that travel, made once per call, and scripts that are known by their hash. No I/O."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple, cast

from hiredis import pack_command

Word = bytes | str | int


class Command(NamedTuple):
    """One command. `key` decides the node of a cluster; None: any node. `script` is what to run where the server does not know it."""

    packed: bytes
    key: bytes | str | None
    name: str
    script: Script | None = None


class Script:
    """A Lua script and its hash. `name` is for errors; keys of one call share a hash tag."""

    __slots__ = ("_head", "_start", "name", "sha", "source")

    def __init__(self, name: str, source: str) -> None:
        self.name, self.source = name, source.encode()
        self.sha = hashlib.sha1(self.source, usedforsecurity=False).hexdigest().encode()
        self._start = b"$7\r\nEVALSHA\r\n$40\r\n%b\r\n" % self.sha
        self._head = b"$4\r\nEVAL\r\n$%d\r\n%b\r\n" % (len(self.source), self.source)

    def __repr__(self) -> str:
        return f"Script({self.name!r})"

    def packed(self, keys: Sequence[bytes | str], args: Sequence[Word]) -> bytes:
        """EVALSHA, encoded."""
        return cast(bytes, pack_command((b"EVALSHA", self.sha, len(keys), *keys, *args)))  # type: ignore[arg-type]  # any length

    def with_source(self, packed: bytes) -> bytes:
        """The same call as EVAL, which also teaches the server the script."""
        return packed.replace(self._start, self._head, 1)

    def call(self, keys: Sequence[bytes | str], args: Sequence[Word] = ()) -> Command:
        """A call for a pipeline."""
        return Command(self.packed(keys, args), keys[0] if keys else None, self.name, self)


def pack(*words: Word) -> bytes:
    """A command, encoded: an array of bulk strings (RESP2)."""
    return cast(bytes, pack_command(words))  # type: ignore[arg-type]  # any length


def command(name: bytes, *words: Word) -> Command:
    """A command whose first argument is its key, if it has any arguments."""
    key = words[0] if words else None
    return Command(pack(name, *words), key if not isinstance(key, int) else str(key), name.decode())
