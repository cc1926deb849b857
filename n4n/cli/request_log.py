"""Request logs as people have them: several files, rotated and compressed, mixed with other lines, behind a collector's prefix."""

from __future__ import annotations

import gzip
import io
import json
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, cast

import msgspec

from n4n.cli.output import Refused

Facts = Mapping[str, object]
_GZIP = b"\x1f\x8b"
_OTHERS = {b"\x28\xb5\x2f\xfd": "zstdcat", b"\xfd7zXZ": "xzcat", b"BZh": "bzcat"}  # first bytes, and who reads them


class _Attempt(msgspec.Struct):
    endpoint: str
    outcome: str
    ms: float


class _Routing(msgspec.Struct):
    catalog_version: int | None
    candidates_considered: int
    selected: str | None
    directives_applied: list[str]
    attempts: list[_Attempt]


class _Line(msgspec.Struct):
    """What every line of ours has, as it has it. Other programs have logs of their own, and the same request ids."""

    timestamp: datetime
    model: str | None
    tenant: str | None
    key_id: str | None
    routing: _Routing
    latency_ms: float
    overhead_ms: float
    status: int
    outcome: str
    eliminated: dict[str, int] = {}  # msgspec copies it
    warnings: list[str] = []


@dataclass
class Found:
    """What logs say of one request: its own lines, usually one, and what processes said about it. `first`, `last`: of all that was read."""

    lines: list[Facts] = field(default_factory=list)
    said: list[Facts] = field(default_factory=list)
    seen: int = 0  # request lines, anybody's
    first: str = ""
    last: str = ""

    @property
    def span(self) -> str:
        """From when to when the logs go."""
        times = [str((_object_in(line) or {}).get("timestamp", "?"))[:19] for line in (self.first, self.last)]
        return " to ".join(times)


def about(request_id: str, lines: Iterable[str]) -> Found:
    """What these lines tell of the request. Lines that are no JSON of ours are passed over."""
    found, written = Found(), json.dumps(request_id)[1:-1]
    for line in lines:
        if "routing" in line:
            found.seen, found.first, found.last = found.seen + 1, found.first or line, line
        if written not in line:
            continue
        told = _object_in(line) or {}
        if "routing" in told:
            if told.get("request_id") == request_id and _is_ours(told):
                found.lines.append(told)
        elif "level" in told and request_id in str(told.get("message", "")):
            found.said.append(told)
    return found


def _is_ours(told: Facts) -> bool:
    try:
        msgspec.convert(told, _Line)
    except msgspec.ValidationError:
        return False
    return True


def _object_in(line: str) -> Facts | None:
    """The JSON object of a line: the whole of it, what follows a prefix (docker compose, containerd), or Docker's own JSON around it."""
    begins = line.find("{")
    if begins < 0:
        return None
    try:
        told = json.loads(line[begins:])
        if isinstance(told, dict) and isinstance(told.get("log"), str) and "routing" not in told:
            told = json.loads(told["log"])
    except (ValueError, RecursionError):
        return None
    return cast(Facts, told) if isinstance(told, dict) else None


def lines_of(names: Iterable[str]) -> Iterator[str]:
    """All lines of all files, - for standard input, gzip or plain. Refused: one cannot be read."""
    for name in names:
        try:
            if name == "-":
                yield from _text(sys.stdin.buffer, name)
            else:
                with Path(name).open("rb") as opened:
                    yield from _text(opened, name)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise Refused(f"{name}: is not whole: its gzip ends early or is damaged; unpack what there is with zcat and give -") from error
        except OSError as error:
            raise Refused(f"{name}: cannot be read ({(error.strerror or str(error)).lower()})") from error


def _text(raw: BinaryIO, name: str) -> Iterator[str]:
    buffered = io.BufferedReader(cast(io.RawIOBase, raw)) if not isinstance(raw, io.BufferedReader) else raw
    head = buffered.peek(8)[:8]
    for begins, reader in _OTHERS.items():
        if head.startswith(begins):
            raise Refused(f"{name}: is compressed in a way that is not read here; say {reader} {name} | n4n logs explain REQUEST_ID -")
    stream = cast(BinaryIO, gzip.GzipFile(fileobj=buffered)) if head.startswith(_GZIP) else buffered
    yield from io.TextIOWrapper(stream, encoding="utf-8", errors="replace")
