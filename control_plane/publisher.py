"""What routers are to have, in memory: the head of each collection, and the ways that lead there from what a node holds.

A poll of Postgres every second is the truth; LISTEN/NOTIFY is only a doorbell that makes it come sooner. While Postgres is
away everything here stays as it is, and watchers go on being served.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping
from contextlib import aclosing, suppress

from control_plane.lines import Held, Line, different
from control_plane.refusals import NotFound
from control_plane.repository import Head, Repository
from control_plane.schema import DatabaseAway
from control_plane.stored import Reading, Unreadable
from control_plane.tracing import Origin, publishing
from n4n.core.checksum import ResourceId, collection_checksum
from n4n.core.tracing import read_parent
from n4n.runtime.spans import Tracer, Work
from n4n.runtime.wire import ACCESS, CATALOG

_BACKOFF_S = (0.2, 5.0)  # first and longest wait before Postgres is tried again
_REBUILD_S = 3.0  # a node waits no longer for its base to be looked up; it gets the whole
_INLINE = 500  # resources encoded on the loop, a few ms; more go to a thread
_log = logging.getLogger("n4n.control_plane")


class Publisher:
    """Follows Postgres and wakes the watchers when a head moves."""

    def __init__(self, repository: Repository, *, poll_s: float = 1.0, tracer: Tracer | None = None) -> None:
        self.catalog, self.access = Line(CATALOG), Line(ACCESS)
        self.lines: Mapping[int, Line] = {CATALOG: self.catalog, ACCESS: self.access}
        self.database = "ok"
        self.stopping = False
        self.origins: dict[int, Origin] = {}  # of the heads, where traces are wanted
        self._repository, self._tracer = repository, tracer
        self._poll_s = poll_s
        self._bell = asyncio.Event()
        self._watchers: set[asyncio.Event] = set()
        self._seen: dict[str, Head] = {}
        self._reading = Reading()
        self._rebuilding = {collection: asyncio.Lock() for collection in self.lines}
        self._encoding = {collection: asyncio.Lock() for collection in self.lines}

    def heads(self) -> Mapping[int, Held]:
        """The head of each collection; version 0 where there is none yet."""
        return {collection: line.head.held for collection, line in self.lines.items()}

    def watch(self, wake: asyncio.Event) -> None:
        """Sets `wake` whenever a head moves, until `unwatch`."""
        self._watchers.add(wake)

    def unwatch(self, wake: asyncio.Event) -> None:
        """Ends `watch`."""
        self._watchers.discard(wake)

    def ring(self) -> None:
        """Somebody committed: look now."""
        self._bell.set()

    def stop(self) -> None:
        """Tells every watcher that this process is going."""
        self.stopping = True
        self._wake()

    def _wake(self) -> None:
        for wake in self._watchers:
            wake.set()

    async def catch_up(self) -> None:
        """Reads whatever moved since the last look; DatabaseAway."""
        heads = await self._repository.heads()
        if heads["catalog"] != self._seen.get("catalog"):
            await self._load_catalog()
            self._seen["catalog"] = heads["catalog"]
        if heads["access"] != self._seen.get("access"):
            await self._load_access()

    async def _load_catalog(self) -> None:
        stored = await self._repository.stored_catalog()
        if stored is None:
            return
        work = publishing(self._tracer, CATALOG, stored.traceparent) if "catalog" in self._seen else None
        try:
            resources = await asyncio.to_thread(self._reading.resources, stored)
        except Unreadable as fault:
            _log.error("catalog version %d is not pushed, this n4n cannot read it: %s", stored.version, fault)
            if work is not None:
                work.fail("unreadable")
                work.end()
            return
        self.catalog.publish(stored.version, resources, round(stored.committed_at.timestamp() * 1000))
        self._published(CATALOG, work, stored.traceparent)
        self._wake()

    async def _load_access(self) -> None:
        """Only the keys that changed since the last look, or all where there was none or history is another."""
        state = await self._repository.access(self._seen.get("access"))
        if state.version == 0:
            return
        work = publishing(self._tracer, ACCESS) if "access" in self._seen else None
        at = round(state.committed_at.timestamp() * 1000)
        if state.changed_only:
            self.access.publish_changes(state.version, dict(state.encoded()), at)
        else:
            encoded = await asyncio.to_thread(lambda: {name: body for name, body in state.encoded() if body is not None})
            self.access.publish(state.version, encoded, at)
        self._published(ACCESS, work, None)
        self._seen["access"] = Head(state.version, state.committed_at)
        self._wake()

    def _published(self, collection: int, work: Work | None, traceparent: str | None) -> None:
        """Its span ends, and those of its pushes may begin."""
        if work is None:
            self.origins.pop(collection, None)
            return
        head = self.lines[collection].head
        version = head.held[0]
        work.told |= {"n4n.version": version, "n4n.resources": len(head.resources)}
        work.end()
        self.origins[collection] = Origin(version, work, read_parent(traceparent))

    # -- what a node needs -----------------------------------------------------------------------------------------

    async def updates_from(self, collection: int, held: Held) -> tuple[Held, tuple[bytes, ...]]:
        """The head and the parts that lead there from `held`: a delta from any version that Postgres has, else the whole."""
        line = self.lines[collection]
        if not line.knows(held) and self.database == "ok":
            with suppress(TimeoutError, DatabaseAway):
                async with asyncio.timeout(_REBUILD_S), self._rebuilding[collection]:
                    if not line.knows(held):
                        await self._rebuild(line, held)
        way = line.way(held)
        if len(way.names) <= _INLINE or line.encoded(way) is not None:
            return way.head.held, line.updates_from(held)
        async with self._encoding[collection]:
            way = line.way(held)
            parts = line.encoded(way)
            if parts is None:
                parts = await asyncio.to_thread(line.encode, way)
                line.keep(way, parts)
            return way.head.held, parts

    async def _rebuild(self, line: Line, held: Held) -> None:
        """After a restart nodes come with versions that this process has never seen: what has changed since, from Postgres."""
        before = line.head.held
        changed = await (self._catalog_since(held) if line is self.catalog else self._access_since(held))
        if changed is not None and line.head.held != before:  # a version came while Postgres was asked
            changed |= frozenset(line.way(before).names)
        line.remember(held, changed)

    async def _catalog_since(self, held: Held) -> frozenset[ResourceId] | None:
        try:
            stored = await self._repository.stored_catalog(held[0])
            resources = None if stored is None else await asyncio.to_thread(Reading().resources, stored)
        except (NotFound, Unreadable):
            return None
        if resources is None or collection_checksum(resources) != held[1]:
            return None
        return different(resources, self.catalog.head.resources)

    async def _access_since(self, held: Held) -> frozenset[ResourceId] | None:
        """Keys as they were are not kept, so the base's sum cannot be checked here. The node's own sum shows whether the delta fitted."""
        if held[0] > self.access.head.held[0]:
            return None
        since = await self._repository.access_at(held[0])
        state = None if since is None else await self._repository.access(since)
        if state is None or not state.changed_only:
            return None
        return frozenset(name for name, _ in state.encoded())

    # -- following Postgres ----------------------------------------------------------------------------------------

    async def follow(self) -> None:
        """Looks every second, or at once when the bell rings, for as long as it is awaited."""
        failures = 0
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._poll_s if not failures else backoff_s(failures)):
                    await self._bell.wait()
            self._bell.clear()
            try:
                await self.catch_up()
            except DatabaseAway as error:
                failures += 1
                self._note(str(error))
            else:
                failures = 0
                self._note("ok")

    async def listen(self) -> None:
        """Rings the bell at every NOTIFY, connecting anew for as long as it is awaited."""
        failures = 0
        while True:
            with suppress(DatabaseAway):
                async with aclosing(self._repository.doorbell()) as doorbell:
                    async for _ in doorbell:
                        failures = 0
                        self.ring()
            failures += 1
            await asyncio.sleep(backoff_s(failures))

    def _note(self, database: str) -> None:
        was, self.database = self.database, database
        if database == "ok" and was != "ok":
            _log.info("the database is back")
        elif database != "ok" and was == "ok":
            _log.warning("%s; watchers are served from memory until it is back", database)


def backoff_s(failures: int) -> float:
    """How long to wait after so many failures in a row: growing, jittered, a few seconds at most."""
    first, longest = _BACKOFF_S
    return random.uniform(0.5, 1.0) * min(longest, first * 2.0 ** min(failures, 10))
