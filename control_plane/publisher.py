"""What routers are to have, in memory: the head of each collection, and the versions before it that a delta can start from.

A poll of Postgres every second is the truth; LISTEN/NOTIFY is only a doorbell that makes it come sooner. While Postgres is
away everything here stays as it is, and watchers go on being served.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Final

from control_plane.repository import Head, Repository
from control_plane.schema import DatabaseAway
from control_plane.service.updates import encode_update
from control_plane.versions import Version
from n4n.core.catalog import collection_checksum
from n4n.core.document import parse_document
from n4n.runtime.wire import ACCESS, CATALOG, Resources, access_resources, catalog_resources

Held = tuple[int, str]  # version, checksum
NONE: Held = (0, "")
RING: Final = 64
_BACKOFF_S = (0.2, 5.0)  # first and longest wait before Postgres is tried again
_log = logging.getLogger("n4n.control_plane")


@dataclass(frozen=True, slots=True, repr=False)
class Published:
    """One version of a collection as it travels."""

    held: Held
    resources: Resources
    committed_at_ms: int


class Line:
    """The versions of one collection that this process knows, newest last, and their encoded updates."""

    def __init__(self, collection: int) -> None:
        self.collection = collection
        self.head = Published(NONE, {}, 0)
        self._ring: deque[Published] = deque(maxlen=RING)
        self._encoded: dict[Held, tuple[bytes, ...]] = {}

    def publish(self, version: int, resources: Resources, committed_at_ms: int) -> None:
        """Makes a version the head. Bodies that did not change are kept once in memory."""
        before = self.head.resources
        shared = {key: before[key] if before.get(key) == body else body for key, body in resources.items()}
        self.head = Published((version, collection_checksum(shared)), shared, committed_at_ms)
        self._ring.append(self.head)
        self._encoded.clear()

    def updates_from(self, held: Held) -> tuple[bytes, ...]:
        """The parts that lead from `held` to the head: a delta where `held` is still known, else the whole. Encoded once."""
        base = next((state for state in self._ring if state.held == held), None)
        origin = NONE if base is None else base.held
        if origin not in self._encoded:
            self._encoded[origin] = self._encode(base)
        return self._encoded[origin]

    def _encode(self, base: Published | None) -> tuple[bytes, ...]:
        had = {} if base is None else base.resources
        upserts = {key: body for key, body in self.head.resources.items() if had.get(key) != body}
        removed = [key for key in had if key not in self.head.resources]
        origin = None if base is None else base.held
        return encode_update(self.collection, self.head.held, origin, upserts, removed, self.head.committed_at_ms)


class Publisher:
    """Follows Postgres and wakes the watchers when a head moves."""

    def __init__(self, repository: Repository, *, poll_s: float = 1.0) -> None:
        self.catalog, self.access = Line(CATALOG), Line(ACCESS)
        self.lines: Mapping[int, Line] = {CATALOG: self.catalog, ACCESS: self.access}
        self.database = "ok"
        self.stopping = False
        self._repository = repository
        self._poll_s = poll_s
        self._bell = asyncio.Event()
        self._watchers: set[asyncio.Event] = set()
        self._seen: dict[str, Head] = {}

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
            self._seen["access"] = heads["access"]

    async def _load_catalog(self) -> None:
        found = await self._repository.catalog()
        if found.info.version == 0:
            return
        resources = await asyncio.to_thread(_readable_resources, found)
        if resources is not None:
            self.catalog.publish(found.info.version, resources, round(found.info.committed_at.timestamp() * 1000))
            self._wake()

    async def _load_access(self) -> None:
        state = await self._repository.access()
        if state.version == 0:
            return
        resources = await asyncio.to_thread(lambda: access_resources(state.usable()))
        self.access.publish(state.version, resources, round(state.committed_at.timestamp() * 1000))
        self._wake()

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


def _readable_resources(found: Version) -> Resources | None:
    """The version's resources; None, and a line in the log, when a newer n4n wrote what this one cannot read."""
    document, problems = parse_document(found.content.document)
    if problems:
        _log.error("catalog version %d is not pushed, this n4n cannot read it: %s", found.info.version, problems[0])
        return None
    return catalog_resources(document, found.content.states)


def backoff_s(failures: int) -> float:
    """How long to wait after so many failures in a row: growing, jittered, a few seconds at most."""
    first, longest = _BACKOFF_S
    return random.uniform(0.5, 1.0) * min(longest, first * 2.0 ** min(failures, 10))
