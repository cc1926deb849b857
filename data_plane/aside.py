"""Work on bodies of many MiB, in a thread beside the loop: one for each worker, so that such work is done one after the other.

None of it lets go of the interpreter within a step in C, but each of these takes milliseconds (n4n/core/large.py sees to it), and
between two of them the loop has its turn. What is smaller than LARGE never comes here and pays for one comparison.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class Aside:
    """The thread; it begins with the first piece of work."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="n4n-large")

    async def do(self, work: Callable[[], T]) -> T:
        """What `work` gives or raises. Where nobody waits for it any more it is not begun; what has begun runs to its end."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)
