"""The follower: holds the catalog, and at a router the keys, that this node works from, and takes over new versions as they are pushed.

A version is compiled beside what is in use and swapped in by one assignment; what cannot be compiled is answered by a NACK and
the last good stays. Every accepted version goes to the disk, and a router starts from there while no control plane answers.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar, assert_never

from n4n.core.access import AccessSnapshot
from n4n.core.catalog import Snapshot
from n4n.core.discovery import (
    AlreadyHeld,
    Apply,
    AtHead,
    Behind,
    Collector,
    Decision,
    Heads,
    Held,
    Ignore,
    More,
    Nack,
    NeedsNewStream,
    Part,
    ResourceId,
    Resources,
)
from n4n.core.errors import CatalogRefused
from n4n.runtime import disk_snapshot, heap, wire
from n4n.runtime.control_link import Ack, Answer, Leave, Refuse
from n4n.runtime.credentials import Credentials, Resolution, accounts_of

INLINE_RESOURCES = 200  # up to so many are compiled at once (a few ms); more go to a thread, so that requests keep moving
_REASON = 1000  # characters of a NACK
_UNFORESEEN = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class State:
    """What a request is served from; replaced as a whole."""

    catalog: Snapshot | None = None
    access: AccessSnapshot | None = None


@dataclass(frozen=True, slots=True)
class Pace:
    """How often the follower looks and writes; seconds."""

    save_after_s: float = 0.3  # versions that follow each other closely are written once
    save_again_s: float = 5.0  # after the disk refused
    credential_files_s: float = 3.0
    stale_after_s: float = 900.0  # without word from a control plane for longer is reported


Compiled = wire.CatalogBuild | AccessSnapshot
T = TypeVar("T")


class Follower:
    """A `control_link.Receiver`. Plain attributes: `state`, `nacks`, `last_nack`; `version`, `checksum`, `age_s` of the catalog.

    `collections`: what this node wants of what is pushed; a prober needs no keys.
    """

    def __init__(
        self,
        path: Path,
        credentials: Credentials,
        *,
        pace: Pace,
        collections: Sequence[int] = (wire.CATALOG, wire.ACCESS),
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.state = State()
        self.heard: Callable[[AccessSnapshot | None, AccessSnapshot], None] = lambda before, after: None  # of keys that come into force
        self.nacks = 0
        self.last_nack = ""
        self.routers = 0  # that are connected to control planes, by the newest heartbeat; 0: none told
        self._build: wire.CatalogBuild | None = None  # of `state.catalog`
        self._path, self._credentials, self._pace = path, credentials, pace
        self._clock, self._wall = clock, wall
        self._collectors: dict[int, Collector] = {collection: Collector(collection) for collection in collections}
        self._confirmed_at = clock()
        self._unsaved = asyncio.Event()
        self._swapping = asyncio.Lock()
        self._reported_stale = False
        self._disk_problem = ""

    def __repr__(self) -> str:
        return f"Follower(version={self.version}, access={self.access_version}, nacks={self.nacks})"

    @property
    def version(self) -> int:
        """The catalog version in use; 0: none."""
        return self._held(wire.CATALOG).version

    @property
    def checksum(self) -> str:
        """Its checksum; empty: none."""
        return self._held(wire.CATALOG).checksum

    @property
    def access_version(self) -> int:
        """The version of the keys in use; 0: none."""
        return self._held(wire.ACCESS).version if wire.ACCESS in self._collectors else 0

    @property
    def age_s(self) -> float:
        """Seconds since a control plane last said that the catalog in use is the newest; what came from disk counts from its saving."""
        return max(0.0, self._clock() - self._confirmed_at)

    @property
    def stale(self) -> bool:
        """Whether that is longer ago than is normal."""
        return self.age_s > self._pace.stale_after_s

    def start_from_disk(self) -> None:
        """Takes up what was saved, if anything; before the loop serves, as it reads and compiles in place."""
        with heap.growing():
            self._take_up(disk_snapshot.load(self._path))
            if any(len(collector.resources) > INLINE_RESOURCES for collector in self._collectors.values()):
                heap.settle()

    def _take_up(self, saved: disk_snapshot.Saved) -> None:
        for held, resources in saved.collections:
            if held.collection not in self._collectors:
                continue
            try:
                wire.check_sum(resources, held.checksum)
                compiled = self._compile(held, resources)
                resolution = self._resolve(compiled)
            except (CatalogRefused, *_UNFORESEEN) as error:
                _log.warning("version %d on disk is not used: %s", held.version, _one_line(error))
                continue
            self._collectors[held.collection] = Collector(held.collection, held, resources)
            self._swap(compiled, resolution)
            _log.info("serving %s version %d from disk", _word(held.collection), held.version)
        if saved.collections:
            self._confirmed_at = self._clock() - max(0.0, self._wall() - saved.saved_at_ms / 1000)

    async def keep(self) -> None:
        """Saves to disk and looks after credential files and staleness, until cancelled; what is unsaved then is saved."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._keep_saved())
                group.create_task(self._keep_current())
        finally:
            if self._unsaved.is_set():
                await self._save()

    # What the control link asks and tells.

    def begin(self) -> Sequence[Held]:
        """A new stream opens: what is held."""
        return [collector.restart() for collector in self._collectors.values()]

    def lost(self) -> None:
        """The stream ended: half an update is worth nothing."""
        for collector in self._collectors.values():
            collector.restart()

    async def receive(self, message: Part | Heads) -> Sequence[Answer]:
        """What to answer to a part or a heartbeat."""
        if isinstance(message, Heads):
            self.routers = message.routers
            return [answer for head in message.heads for answer in self._compare(head)]
        collector = self._collectors.get(message.collection)
        if collector is None:
            return ()  # a collection of a newer version
        gathers = max(len(message.upserts), 0 if message.base_version and message.parts == 1 else len(collector.resources))
        decision: Decision = await _aside(gathers, lambda: collector.receive(message))
        return await self._decide(collector, decision)

    def _compare(self, head: Held) -> Sequence[Answer]:
        collector = self._collectors.get(head.collection)
        if collector is None:
            return ()
        match collector.heartbeat(head):
            case AtHead():
                if head.collection == wire.CATALOG:
                    self._confirmed_at = self._clock()
                return ()
            case Behind():
                return ()
            case NeedsNewStream() as lost:
                return (Leave(f"{_word(head.collection)} version {lost.version} {lost.reason}"),)
            case never:
                assert_never(never)

    async def _decide(self, collector: Collector, decision: Decision) -> Sequence[Answer]:
        collection = collector.held.collection
        match decision:
            case More() | Ignore():
                return ()
            case AlreadyHeld():
                return (Ack(collector.held),)
            case Apply():
                return (await self._take_over(collector, decision),)
            case Nack():
                return (self._refuse(collection, decision),)
            case NeedsNewStream(version, field, reason):
                refusal = self._refuse(collection, Nack(version, field, reason))
                return (refusal, Leave(f"{_word(collection)} version {version} cannot be put together: {field} {reason}"))
            case never:
                assert_never(never)

    async def _take_over(self, collector: Collector, offer: Apply) -> Answer:
        offered = Held(collector.held.collection, offer.version, offer.checksum)
        changed = len(offer.resources if offer.changed is None else offer.changed)
        async with self._swapping:
            with heap.growing():
                try:
                    compiled = await _aside(len(offer.resources), lambda: self._compile(offered, offer.resources, offer.changed))
                    resolution = await asyncio.to_thread(self._resolve, compiled)
                except CatalogRefused as refused:
                    field, reason = _first_and_rest(refused)
                    return self._refuse(offered.collection, collector.refuse(field, reason))
                except _UNFORESEEN as error:  # a fault of ours in compiling must cost a NACK, not the traffic
                    _log.exception("version %d cannot be compiled", offer.version)
                    return self._refuse(offered.collection, collector.refuse("", f"cannot be compiled: {type(error).__name__}"))
                held = collector.accept()
                self._swap(compiled, resolution)
                if changed > INLINE_RESOURCES:
                    heap.settle()
        if held.collection == wire.CATALOG:
            self._confirmed_at = self._clock()
        self._unsaved.set()
        _log.info("serving %s version %d", _word(held.collection), held.version)
        return Ack(held)

    def _refuse(self, collection: int, nack: Nack) -> Refuse:
        self.nacks += 1
        self.last_nack = f"{_word(collection)} version {nack.version}: {nack.field}: {nack.reason}"
        _log.error("refused %s; version %d stays in use", self.last_nack, self._held(collection).version)
        return Refuse(collection, nack)

    # What is in use.

    def _held(self, collection: int) -> Held:
        return self._collectors[collection].held

    def _compile(self, held: Held, resources: Resources, changed: frozenset[ResourceId] | None = None) -> Compiled:
        """Beside what is in use, of which whatever did not change is taken over."""
        if held.collection == wire.CATALOG:
            return wire.build_catalog(resources, version=held.version, checksum=held.checksum, before=self._build)
        return wire.build_access(resources, version=held.version, checksum=held.checksum, before=self.state.access, changed=changed)

    def _resolve(self, compiled: Compiled) -> Resolution | None:
        return self._credentials.resolve(accounts_of(compiled.snapshot)) if isinstance(compiled, wire.CatalogBuild) else None

    def _swap(self, compiled: Compiled, resolution: Resolution | None) -> None:
        """Between two requests: one assignment for what they read, and the credentials that belong to it."""
        if resolution is not None:
            self._credentials.use(resolution)
        if isinstance(compiled, wire.CatalogBuild):
            self._build = compiled
            self.state = replace(self.state, catalog=compiled.snapshot)
        else:
            before, self.state = self.state.access, replace(self.state, access=compiled)
            self.heard(before, compiled)

    async def _keep_current(self) -> None:
        while True:
            await asyncio.sleep(self._pace.credential_files_s)
            self._report_staleness()
            async with self._swapping:
                catalog = self.state.catalog
                if catalog is not None and not await asyncio.to_thread(self._credentials.is_current):
                    self._credentials.use(await asyncio.to_thread(self._credentials.resolve, accounts_of(catalog)))

    def _report_staleness(self) -> None:
        if self.stale and not self._reported_stale:
            _log.warning("no control plane has confirmed catalog version %d for %d s; it stays in use", self.version, self.age_s)
        self._reported_stale = self.stale

    # The disk.

    async def _keep_saved(self) -> None:
        while True:
            await self._unsaved.wait()
            await asyncio.sleep(self._pace.save_after_s)
            if not await self._save():
                await asyncio.sleep(self._pace.save_again_s)

    async def _save(self) -> bool:
        self._unsaved.clear()
        collections = [(collector.held, collector.resources) for collector in self._collectors.values() if collector.held.version]
        try:
            await asyncio.to_thread(disk_snapshot.save, self._path, collections, round(self._wall() * 1000))
        except OSError as error:
            self._unsaved.set()
            self._report_disk(error.strerror or type(error).__name__)
            return False
        self._disk_problem = ""
        return True

    def _report_disk(self, problem: str) -> None:
        if problem != self._disk_problem:
            _log.warning("cannot save to %s: %s; this router could not start while the control plane is away", self._path, problem)
        self._disk_problem = problem


async def _aside(size: int, step: Callable[[], T]) -> T:
    return step() if size <= INLINE_RESOURCES else await asyncio.to_thread(step)


def _first_and_rest(refused: CatalogRefused) -> tuple[str, str]:
    """The first problem's field, and what is wrong there and elsewhere."""
    first, *rest = refused.problems
    return first.field, "; ".join((first.message, *map(str, rest)))[:_REASON]


def _word(collection: int) -> str:
    return "catalog" if collection == wire.CATALOG else "access"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:_REASON]
