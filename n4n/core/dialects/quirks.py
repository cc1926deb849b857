"""What differs between providers that all speak chat completions, by the words of the catalog (`quirks` of a provider)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from n4n.core import json_bytes
from n4n.core.catalog import Endpoint
from n4n.core.dialects.marks import unmarked

# https://platform.openai.com/docs/api-reference/chat/create: up to four. Clients of chat know that; others may bring more.
MOST_STOPS = 4
_STOP = msgspec.json.Decoder(list[msgspec.Raw])
_LIMITS = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}  # the name that is known to the one that is not


def translated(given: Mapping[str, msgspec.Raw], endpoint: Endpoint, warnings: list[str]) -> dict[str, bytes]:
    """The members of a chat that was translated from another skin's words, without what only some of those who speak chat know."""
    quirks = endpoint.provider.quirks
    fields = dict[str, bytes](given) if "marks" in quirks else unmarked(given, keeps_reasoning="reasoning_content" in quirks)
    if "top_k" not in quirks and fields.pop("top_k", None) is not None:
        warnings.append(f"top_k was left out: endpoint {endpoint.id} has no word for it")
    stop = bytes(fields.get("stop", b""))
    if stop.startswith(b"["):
        words = _STOP.decode(stop)
        if len(words) > MOST_STOPS:
            fields["stop"] = json_bytes.encode(words[:MOST_STOPS])
            warnings.append(f"stop was shortened to {MOST_STOPS} texts: endpoint {endpoint.id} takes no more")
    return fields


def respell(fields: dict[str, bytes], quirks: frozenset[str]) -> None:
    """Members under the names that a provider knows, each in its place; who gave both names of the limit meant the known one."""
    for known, other in _LIMITS.items():
        if known in quirks and other in fields:
            _rename(fields, other, known)
    if "random_seed" in quirks and "seed" in fields:
        _rename(fields, "seed", "random_seed")


def _rename(fields: dict[str, bytes], name: str, known: str) -> None:
    value = fields.pop(name)
    if bytes(fields.get(known, b"null")) == b"null":
        fields[known] = value
