"""What the catalog says of a body, laid over what a dialect has made: objects member by member, anything else whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from n4n.core import json_bytes


def lay_over(fields: dict[str, bytes], body: Mapping[str, object]) -> None:
    """An endpoint's `body` into the members of a request, in place. Both are JSON; the endpoint's values win."""
    for name, value in body.items():
        fields[name] = _merged(fields.get(name), value)


def _merged(under: bytes | None, over: object) -> bytes:
    if under is not None and isinstance(over, Mapping) and json_bytes.is_object(under):
        known: dict[str, bytes] = dict(json_bytes.members(under))
        lay_over(known, cast(Mapping[str, object], over))
        return json_bytes.join(known.items())
    return json_bytes.dump(over)
