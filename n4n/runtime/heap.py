"""Keeps Python's cycle collector away from large snapshots: walking one takes tens of milliseconds, in which no request moves.

A snapshot is made of values without cycles; counting references frees it, so the collector need never look at it.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_SELDOM = (10_000, 20, 20)  # objects, rounds, rounds: a request makes hundreds of objects and hardly ever a cycle


@contextmanager
def growing() -> Iterator[None]:
    """The collector rests while many lasting objects are made. Not to be nested: leaving wakes it."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def settle() -> None:
    """What is there now is not walked any more. Cycles that are garbage at this moment stay: only after large changes, which are rare."""
    gc.freeze()
    gc.set_threshold(*_SELDOM)
