"""The mark in front of sealed reasoning that tells where it can be opened: `n4n.o1.` and eight digits. See dialects/origins.py."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from hashlib import blake2b

MARK = b"n4n.o1."
IN_TEXT = re.compile(r"n4n\.o1\.([0-9a-f]{8})\.")
_IN_BODY = re.compile(rb"n4n\.o1\.([0-9a-f]{8})\.")
NOBODY: frozenset[str] = frozenset()


def digits(name: str) -> str:
    """Eight digits that stand for a name, which itself is nobody's business."""
    return blake2b(name.encode(), digest_size=4).hexdigest()


def origins_in(body: bytes) -> frozenset[str]:
    """The digits in a request's body."""
    return frozenset(found.decode() for found in _IN_BODY.findall(body)) if MARK in body else NOBODY


def marks_of(entries: Iterable[Mapping[str, object]]) -> str:
    """The marks within entries of `reasoning_details`, each once, for in front of where these are wrapped: there they are seen."""
    found = (IN_TEXT.match(data) for entry in entries if isinstance(data := entry.get("data"), str))
    return "".join(dict.fromkeys(one[0] for one in found if one is not None))
