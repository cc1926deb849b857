"""The lists of GET /v1/models as Anthropic's clients expect them, made of the lists that every skin shares.

https://platform.claude.com/docs/en/api/models/list: pages of 20, from 1 to 1,000, by the id before or after them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from n4n.core.errors import MalformedRequest

Object = dict[str, object]
UNKNOWN = "1970-01-01T00:00:00Z"  # when a model was released: the catalog does not say
_PAGE, _LONGEST = 20, 1_000


def model(entry: Mapping[str, object]) -> Object:
    """One model of the shared list (`id`, `n4n`)."""
    told = entry.get("n4n")
    known = cast(Mapping[str, object], told) if isinstance(told, Mapping) else {}
    return {
        "type": "model",
        "id": entry["id"],
        "display_name": entry["id"],
        "created_at": UNKNOWN,
        "lifecycle": "active",
        "max_input_tokens": known.get("context_window"),
        "max_tokens": known.get("max_output_tokens"),
        "n4n": told,
    }


def page(listed: Mapping[str, object], *, limit: str | None = None, after_id: str | None = None, before_id: str | None = None) -> Object:
    """One page of the shared list (`data`); the parameters as the query has them. Raises MalformedRequest."""
    entries = cast(Sequence[Mapping[str, object]], listed["data"])
    ids = [str(entry["id"]) for entry in entries]
    size = _size(limit)
    if after_id is not None:
        start = _place(ids, after_id, "after_id") + 1
        shown, more = entries[start : start + size], start + size < len(entries)
    elif before_id is not None:
        end = _place(ids, before_id, "before_id")
        shown, more = entries[max(0, end - size) : end], end > size
    else:
        shown, more = entries[:size], size < len(entries)
    made = [model(entry) for entry in shown]
    return {
        "data": made,
        "has_more": more,
        "first_id": made[0]["id"] if made else None,
        "last_id": made[-1]["id"] if made else None,
    }


def _size(limit: str | None) -> int:
    if limit is None:
        return _PAGE
    if not limit.isascii() or not limit.isdecimal() or not 1 <= int(limit[:6]) <= _LONGEST:
        raise MalformedRequest(f"limit must be a whole number from 1 to {_LONGEST}", param="limit")
    return int(limit)


def _place(ids: list[str], name: str, param: str) -> int:
    try:
        return ids.index(name)
    except ValueError as error:
        raise MalformedRequest(f"{param} names no model of this list; GET /v1/models lists them", param=param) from error
