"""Which nodes are connected here and what each has applied; written to Postgres in batches, never by the stream itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from control_plane.repository import NodeRow, Repository
from control_plane.schema import DatabaseAway
from n4n.runtime.wire import ACCESS, CATALOG

_BATCH_S = 0.1  # how long news is gathered before it is written
_DATA_PLANE = "data-plane"
_GONE_AFTER = 3  # signs of life that a control plane did not write
_COLLECTION: Mapping[int, str] = {CATALOG: "version", ACCESS: "access version"}


@dataclass(frozen=True, slots=True, eq=False)
class Presence:
    """One stream's hold on a node; a node that connects anew replaces it."""

    node: str


class Roster:
    """The nodes of this control plane. `place` names this process in the `connected_to` column."""

    def __init__(self, repository: Repository, *, place: str, now: Callable[[], datetime], refresh_s: float = 5.0) -> None:
        self.nacks = 0
        self._repository = repository
        self._place = place
        self._now = now
        self._refresh_s = refresh_s
        self._rows: dict[str, NodeRow] = {}
        self._present: dict[str, Presence] = {}
        self._nacks: dict[str, dict[int, str]] = {}
        self._unwritten: set[str] = set()
        self._elsewhere = 0  # data planes that are connected to other control planes
        self._news = asyncio.Event()

    @property
    def connected(self) -> int:
        """How many nodes have a stream here."""
        return len(self._present)

    @property
    def routers(self) -> int:
        """How many data planes have a stream here, or had one to another control plane a moment ago."""
        return sum(self._rows[node].role == _DATA_PLANE for node in self._present) + self._elsewhere

    def rows(self) -> list[NodeRow]:
        """The nodes this process knows of, by name."""
        return [self._rows[name] for name in sorted(self._rows)]

    def joined(self, node: str, role: str, build: str, held: Mapping[int, int]) -> Presence:
        """A stream began; `held`: versions by collection."""
        presence = self._present[node] = Presence(node)
        self._nacks[node] = {}
        self._tell(NodeRow(node, role, build, self._place, held.get(CATALOG, 0), held.get(ACCESS, 0), self._now()))
        return presence

    def acked(self, presence: Presence, collection: int, version: int) -> None:
        """The node applied a version."""
        if self._present.get(presence.node) is not presence:
            return
        self._nacks[presence.node].pop(collection, None)
        row = replace(self._rows[presence.node], last_ack=self._now(), last_nack=self._refusals(presence.node))
        if collection == CATALOG:
            self._tell(replace(row, applied_version=version))
        else:
            self._tell(replace(row, access_version=version))

    def nacked(self, presence: Presence, collection: int, version: int, field: str, reason: str) -> None:
        """The node refused a version and keeps what it had."""
        self.nacks += 1
        if self._present.get(presence.node) is not presence:
            return
        told = ": ".join(part for part in (f"{_COLLECTION[collection]} {version}", field[:200], reason[:500]) if part)
        printable = "".join(c if c.isprintable() else " " for c in told)
        self._nacks[presence.node][collection] = " ".join(printable.split())
        self._tell(replace(self._rows[presence.node], last_nack=self._refusals(presence.node)))

    def _refusals(self, node: str) -> str:
        return "; ".join(text for _, text in sorted(self._nacks[node].items()))

    def left(self, presence: Presence) -> None:
        """A stream ended; nothing changes when the node has another one by now."""
        if self._present.get(presence.node) is presence:
            del self._present[presence.node]
            self._tell(replace(self._rows[presence.node], connected_to=None))

    def _tell(self, row: NodeRow) -> None:
        self._rows[row.node] = replace(row, last_seen=self._now())
        self._unwritten.add(row.node)
        self._news.set()

    async def keep(self) -> None:
        """Writes news as it comes and a sign of life of every connected node every few seconds, while it is awaited."""
        loop = asyncio.get_running_loop()
        refresh_at = loop.time() + self._refresh_s
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(refresh_at):
                    await self._news.wait()
                    await asyncio.sleep(_BATCH_S)
            if loop.time() >= refresh_at:
                refresh_at = loop.time() + self._refresh_s
                for node in self._present:
                    self._tell(self._rows[node])
            try:
                await self.flush()
                await self._look_elsewhere()
            except DatabaseAway:
                await asyncio.sleep(1)

    async def _look_elsewhere(self) -> None:
        now = self._now()
        fresh = timedelta(seconds=_GONE_AFTER * self._refresh_s)
        self._elsewhere = sum(
            row.role == _DATA_PLANE
            and row.connected_to not in (None, self._place)
            and row.node not in self._present
            and now - row.last_seen < fresh
            for row in await self._repository.known_nodes(now)
        )

    async def flush(self) -> None:
        """Writes what is not written yet; DatabaseAway, and it stays unwritten."""
        self._news.clear()
        batch, self._unwritten = self._unwritten, set()
        try:
            await self._repository.record_nodes(self._rows[node] for node in sorted(batch))
        except DatabaseAway:
            self._unwritten |= batch
            raise
        for node in batch - self._unwritten - self._present.keys():
            del self._rows[node], self._nacks[node]
