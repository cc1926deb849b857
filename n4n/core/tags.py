"""Tags of a request: what its use is for, in the caller's words, for the ledger. `x-n4n-tags: team=search,env=prod`, or a key's own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

import msgspec

from n4n.core.errors import MalformedRequest

HEADER = "x-n4n-tags"
MOST = 8
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")
_VALUE = re.compile(r"[^\x00-\x1f\x7f,=\ud800-\udfff]{1,64}\Z")
_ENCODE = msgspec.json.Encoder(order="sorted").encode
Tags = tuple[tuple[str, str], ...]  # sorted by name


class BadTag(ValueError):
    """A tag is none; the message says what one is"""


def tags_of(told: Mapping[str, str]) -> Tags:
    """Checked and in order; BadTag."""
    if len(told) > MOST:
        raise BadTag(f"there may be {MOST} tags, not {len(told)}")
    for name, value in told.items():
        if not _NAME.match(name):
            raise BadTag("a tag's name must be 1 to 64 letters, digits, dots, underscores or hyphens")
        if not _VALUE.match(value):
            raise BadTag(f"the value of the tag {name} must be 1 to 64 characters, without commas and equals signs")
    return tuple(sorted(told.items()))


def parse(text: str) -> Tags:
    """`team=search,env=prod`; BadTag. An empty text has none."""
    found: dict[str, str] = {}
    for pair in text.split(",") if text.strip() else ():
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not equals:
            raise BadTag("tags are name=value pairs, comma separated, such as team=search,env=prod")
        if name in found:
            raise BadTag("a tag was given twice")
        found[name] = value
    return tags_of(found)


@lru_cache(4096)
def of_request(key: Tags, given: str | None) -> bytes:
    """A key's tags with the request's own over them, as a JSON object; empty: there are none. MalformedRequest."""
    try:
        tags = tags_of({**dict(key), **dict(parse(given or ""))})
    except BadTag as error:
        raise MalformedRequest(f"{HEADER}: {error}", param=HEADER) from error
    return _ENCODE(dict(tags)) if tags else b""
