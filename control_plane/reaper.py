"""Closes as `unknown` what a router had under way that has been gone for a while: from what it told Redis, where its disk may be lost too.

Whatever comes later from that disk replaces these rows, and a row that is there already stays, so it does no harm to reap too early, twice,
or what was shipped a moment ago. Several control planes look; one at a time reaps.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from control_plane.ledger import Ledger
from control_plane.schema import DatabaseAway
from n4n.core.absence import Sighting, absent, looked
from n4n.core.errors import StoreUnavailable
from n4n.core.ledger import closed_as_unknown, read_rows
from n4n.runtime.open_attempts import LeftBehind

LOOK_S = 5.0
_log = logging.getLogger("n4n.control_plane")


class Reaper:
    """`after_s`: how long a router may say nothing; `clock`: monotonic seconds. `closed`: attempts since the start."""

    def __init__(self, left: LeftBehind, ledger: Ledger, *, after_s: float, clock: Callable[[], float]) -> None:
        self._left, self._ledger, self._after_s, self._clock = left, ledger, after_s, clock
        self._seen: Mapping[str, Sighting] = {}
        self.closed = 0

    async def keep(self) -> None:
        """Until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(min(LOOK_S, self._after_s / 4))

    async def look(self) -> None:
        """Once. Where Redis was away we do not know who was silent: everybody has the whole time again."""
        try:
            self._seen = looked(self._seen, await self._left.words(), self._clock())
            if gone := absent(self._seen, self._clock(), self._after_s):
                async with self._ledger.reaping() as ours:
                    for run in gone if ours else ():
                        await self._reap(run)
        except StoreUnavailable:
            self._seen = {}
        except DatabaseAway as error:
            _log.warning("attempts of routers that are gone are not closed yet: %s", error)

    async def _reap(self, run: str) -> None:
        node, closed = await self._left.node(run), 0
        async for lines in self._left.dispatches(run):
            rows, _ = read_rows(b"".join(closed_as_unknown(lines.values())))
            await self._ledger.take(rows)
            await self._left.closed(run, list(lines))
            closed += len(rows)
        await self._left.forget(run)
        self.closed += closed
        if closed:
            _log.warning(
                "the router %s (run %s) has not been heard of for %g s: %d attempts that it had under way, or not shipped yet, "
                "are closed as unknown; their rows replace that should they come", node, run, self._after_s, closed,
            )  # fmt: skip
