"""An event loop whose time leaps to the next timer instead of waiting for it: hours pass in milliseconds, and always in the same order."""

from __future__ import annotations

import asyncio
import selectors


class _Leaping(selectors.SelectSelector):
    """Never waits and knows no sockets: where the loop would sleep, its clock is put forward."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("everything waits for ever: no timer is set and nothing is ready")
        self.now += max(0.0, timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """For `asyncio.Runner(loop_factory=VirtualLoop)`. Nothing in it may use sockets or threads."""

    def __init__(self) -> None:
        self._leaping = _Leaping()
        super().__init__(self._leaping)

    def time(self) -> float:
        """Seconds of virtual time."""
        return self._leaping.now
