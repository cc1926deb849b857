"""Cache marks: `cachePoint` blocks behind what they mark, at most four, none where the model takes none.

https://docs.aws.amazon.com/bedrock/latest/userguide/prompt-caching.html
"""

from __future__ import annotations

from collections.abc import Sequence

from n4n.core.dialects.bedrock.models import Traits
from n4n.core.dialects.bedrock.notes import Notes
from n4n.core.dialects.bedrock.words import Ending

MOST = 4
CACHE = b'{"cachePoint"'
_POINT = b'{"cachePoint":{"type":"default"}}'
_POINT_FOR_AN_HOUR = b'{"cachePoint":{"type":"default","ttl":"1h"}}'
_LONG = frozenset(("1h", "12h", "24h"))  # Anthropic's word, and OpenAI's for more than minutes


def mark(asked: Ending | None, traits: Traits, notes: Notes) -> list[bytes]:
    """The mark that `cache_control` or a breakpoint asks for, as a list of one block or none."""
    if asked is None:
        return []
    if not traits.caches:
        notes.left_out("cache_control", "takes no cache marks")
        return []
    if asked.ttl in _LONG and not traits.caches_an_hour:
        notes.left_out(f"ttl {asked.ttl} of cache_control", "caches for minutes only")
    return [_POINT_FOR_AN_HOUR if asked.ttl in _LONG and traits.caches_an_hour else _POINT]


def thinned(places: Sequence[list[bytes]], most: int = MOST) -> int:
    """Take marks away, in place, where there are more than `most` in all, and say how many: the first and the last ones stay.

    The first is what all conversations share, the last ones are where this one goes on.
    """
    found = [(blocks, at) for blocks in places for at, block in enumerate(blocks) if block.startswith(CACHE)]
    surplus = found[1 : len(found) - most + 1] if len(found) > most else []
    for blocks, at in reversed(surplus):
        del blocks[at]
    return len(surplus)
