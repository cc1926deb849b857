"""The gateway's own labels of requests and attempts. They need to differ, not to be secret."""

from __future__ import annotations

import os
from random import Random

_bits = Random(os.urandom(32)).getrandbits  # of this process: workers are started anew, never forked


def new_request_id() -> str:
    """A label for a request that came without one."""
    return f"req_{_bits(96):024x}"


def new_attempt_id() -> str:
    """A label of one dispatch, never made from what a client sent."""
    return f"att_{_bits(96):024x}"


def new_reservation_id() -> bytes:
    """A label of what one attempt reserves."""
    return _bits(96).to_bytes(12, "big")
