"""The last good state on a router's own disk: written whole or not at all, and believed only if its checksum holds.

The file is one line, `n4n-snapshot FORMAT SHA256`, and then the bytes that the sum is of. It holds references to credentials
(env:, file:) and hashes of keys, never either in clear, and is readable by its owner only all the same.
"""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from n4n.core.discovery import Held, Resources, Unreadable
from n4n.runtime import wire

FORMAT = 1
_MAGIC = b"n4n-snapshot"
_ABANDONED_S = 60
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Saved:
    """What a file held; `saved_at_ms`: Unix time."""

    collections: tuple[tuple[Held, Resources], ...] = ()
    saved_at_ms: int = 0


def path_in(data_path: Path) -> Path:
    """Where a data dir keeps it. All workers of a machine share one file: each writes the whole of what it applied last."""
    return data_path / "router" / "catalog.snapshot"


def save(path: Path, collections: Sequence[tuple[Held, Resources]], saved_at_ms: int) -> None:
    """Replaces the file atomically, mode 0600; OSError when the disk refuses, and then the old file is untouched."""
    body = wire.encode_disk(collections, saved_at_ms)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mode 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(_header(FORMAT, body))
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
    _sync_folder(path.parent)


def load(path: Path) -> Saved:
    """What was saved; nothing, and one warning line, where the file is damaged, of a newer format or cannot be read. Never an error."""
    _sweep(path)
    try:
        content = path.read_bytes()
        collections, saved_at_ms = wire.decode_disk(_checked(content))
    except FileNotFoundError:
        return Saved()
    except (OSError, Unreadable) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        _log.warning("the snapshot %s is not used: %s; a control plane will send a new one", path, reason)
        return Saved()
    return Saved(tuple(collections), saved_at_ms)


def _checked(content: bytes) -> bytes:
    header, _, body = content.partition(b"\n")
    words = header.split(b" ")
    if len(words) != 3 or words[0] != _MAGIC or not words[1].isdigit() or len(words[1]) > 4:
        raise Unreadable("it does not begin as a snapshot does")
    if int(words[1]) > FORMAT:
        raise Unreadable(f"it is of format {int(words[1])}, which a newer n4n wrote")
    if header + b"\n" != _header(FORMAT, body):
        raise Unreadable("its checksum does not match, it is damaged")
    return body


def _header(number: int, body: bytes) -> bytes:
    return b"%b %d %b\n" % (_MAGIC, number, hashlib.sha256(body).hexdigest().encode())


def _sync_folder(folder: Path) -> None:
    """Makes the renaming itself last."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sweep(path: Path) -> None:
    """Takes away what a killed process left half written; another worker may be writing just now."""
    for left in path.parent.glob(f".{path.name}.*"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > _ABANDONED_S:
                left.unlink()
