"""What the log of a control plane says of Redis: once that it cannot be used, and once that it can be again."""

from __future__ import annotations

import logging

from n4n.core.breaker import Breaker

_log = logging.getLogger("n4n.control_plane")


class StoreWords:
    """Hears what becomes of the store, as often as it is tried."""

    def __init__(self) -> None:
        self._away = self._leaves = False

    def leaves(self) -> None:
        """From here on it is we who close it."""
        self._leaves = True

    def told(self, state: Breaker, reason: str) -> None:
        """The store is in another state now; `reason` names no address and no password."""
        if state is Breaker.CLOSED and self._away:
            self._away = False
            _log.info("Redis can be used again")
        elif state is Breaker.OPEN and not (self._away or self._leaves):
            self._away = True
            _log.warning("Redis cannot be used: budgets are not compared with the ledger and lost routers not found meanwhile: %s", reason)
