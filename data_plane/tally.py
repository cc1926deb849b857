"""How many connections each worker of a data plane holds: one word for each, in a page of memory that they all share, without locks.

A worker writes its own word alone, and a new one each time it looks at the queue, so that the others see that it is awake. A word that
nobody has written is 0: nobody is there, or takes nothing. A word is eight aligned bytes: whoever dies in the middle leaves no half of it.
"""

from __future__ import annotations

import mmap
import os
import tempfile

SLOTS = 8  # processes of one worker that are counted at a time: one that serves, and those before it on their way out
_WORD = 8
_COUNT, _LOOK = 0xFFFF_FFFF, 1 << 32


def shared_memory(workers: int) -> int:
    """A descriptor for workers to inherit. In memory, so that a full disk cannot kill who writes there."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("n4n-tally")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, workers * SLOTS * _WORD)
    return descriptor


def row_of(worker: int, slot: int) -> int | None:
    """Where this process of a worker (from 1 on) has its word; None: nowhere, there are too many of them."""
    return (worker - 1) * SLOTS + slot if slot < SLOTS else None


class Tally:
    """One process's view. `row`: its own word; None: it only reads, or is not counted."""

    def __init__(self, descriptor: int, row: int | None = None) -> None:
        self._words = memoryview(mmap.mmap(descriptor, os.fstat(descriptor).st_size)).cast("Q")
        self._row = row
        self._looks = 0
        self._overlooked: dict[int, int] = {}

    def __repr__(self) -> str:
        return f"<Tally: {', '.join(f'{row}: {(word & _COUNT) - 1}' for row, word in enumerate(self._words) if word)}; this is {self._row}>"

    def tell(self, held: int) -> None:
        """We are awake, and hold so many."""
        if self._row is not None:
            self._looks += 1
            self._words[self._row] = self._looks % _LOOK << 32 | held + 1

    def withdraw(self) -> None:
        """We take none."""
        if self._row is not None:
            self._words[self._row] = 0

    def bury(self, row: int | None) -> None:
        """The process of this row is gone."""
        if row is not None:
            self._words[row] = 0

    def ours(self, held: int) -> bool:
        """Whether the next connection is ours, who hold so many: nobody who is awake holds clearly fewer."""
        fewest = min((word & _COUNT for row, word in self._others() if self._overlooked.get(row) != word), default=held + 1) - 1
        return held <= fewest + max(1, fewest >> 4)

    def overlook(self) -> None:
        """Whoever takes part now and has not taken what waits is asleep: not waited for until it writes again."""
        self._overlooked = dict(self._others())

    def _others(self) -> list[tuple[int, int]]:
        return [(row, word) for row, word in enumerate(self._words.tolist()) if word and row != self._row]
