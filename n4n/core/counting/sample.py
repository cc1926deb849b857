"""Which answers are counted whatever their usage: a fixed share of attempts, told by their ids, so that any log shows which they were."""

from __future__ import annotations

from zlib import crc32

ONE_IN = 50
_SEED = 0x6E346E


def is_sampled(attempt_id: str, one_in: int) -> bool:
    """Whether this attempt is one of the share; 1: every one is, 0: none."""
    return one_in > 0 and crc32(attempt_id.encode(), _SEED) % one_in == 0
