"""What is usual: the last seven days, summed up in pieces. A piece that is over is asked for once and kept, so that no look takes long."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from control_plane import traffic
from control_plane.traffic import ANEW, Reading, Sums
from n4n.core.alerts.facts import Traffic

WEEK: Final = timedelta(days=7)
PIECE: Final = timedelta(hours=6)
LATELY: Final = timedelta(minutes=15)  # which is what alerts compare with it
AGAIN: Final = timedelta(hours=1)  # the piece that runs is summed up so often
MOST_S: Final = 2.0  # that one look spends on this; the next goes on
_EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Usual:
    """By (provider, model), and tokens reported and counted by (endpoint, direction)."""

    traffic: Mapping[tuple[str, str], Traffic] = field(default_factory=dict)
    compared: Mapping[tuple[str, str], tuple[int, int]] = field(default_factory=dict)


class Week:
    """`at` each look. Nothing is usual before all seven days were seen."""

    def __init__(self) -> None:
        self._pieces: dict[datetime, Sums] = {}
        self._known = Usual()
        self._due: datetime | None = None

    def __repr__(self) -> str:
        return f"<Week: {len(self._pieces)} pieces, next at {self._due}>"

    async def at(self, reading: Reading, now: datetime) -> Usual:
        """As of an hour ago at most, once there is anything. DatabaseAway."""
        if self._due is not None and now < self._due:
            return self._known
        oldest, began = await traffic.oldest(reading), time.monotonic()
        until, since = now - LATELY, now - WEEK
        first = _EPOCH + (max(since, oldest or until) - _EPOCH) // PIECE * PIECE
        asked, running = 0, list[Sums]()
        wanted = [first + number * PIECE for number in range((until - first) // PIECE + 1)]
        for start in wanted:
            if start in self._pieces:
                continue
            if asked and time.monotonic() - began > MOST_S:
                return self._known
            asked += 1
            found = await traffic.sums(reading, max(start, since), min(start + PIECE, until))
            if start + PIECE <= now - ANEW:
                self._pieces[start] = found
            else:
                running.append(found)
        self._pieces = {start: sums for start, sums in self._pieces.items() if start in wanted}
        whole = traffic.added([*self._pieces.values(), *running])
        self._known = Usual({(one.provider, one.model): one for one in whole.traffic()}, whole.compared)
        self._due = now + AGAIN if self._known.traffic else None
        return self._known
