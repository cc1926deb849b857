"""One collection as it is pushed: its head, what changed since each version a node may hold, and the encoded updates.

Of earlier versions only the names of what changed are kept, so that remembering 64 of them costs little even where there are 100,000 keys.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from control_plane.service.updates import encode_update
from n4n.core.checksum import Change, ResourceId, checksum_after, collection_checksum
from n4n.runtime.wire import Resources

Held = tuple[int, str]  # version, checksum
NONE: Held = (0, "")
RING: Final = 64  # versions that this process saw, the head among them
_REBUILT = 16  # bases that were looked up in Postgres


@dataclass(frozen=True, slots=True, repr=False)
class Published:
    """One version of a collection as it travels."""

    held: Held
    resources: Resources
    committed_at_ms: int


@dataclass(frozen=True, slots=True, repr=False)
class Way:
    """What leads from a base to a head: the names of what changed, or, from NONE, of all."""

    head: Published
    base: Held
    names: Collection[ResourceId]


class Line:
    """The head of one collection and the ways that lead to it."""

    def __init__(self, collection: int) -> None:
        self.collection = collection
        self.head = Published(NONE, {}, 0)
        self._steps: deque[tuple[Held, frozenset[ResourceId]]] = deque(maxlen=RING - 1)  # what changed with the version after a base
        self._rebuilt: OrderedDict[Held, frozenset[ResourceId] | None] = OrderedDict()  # None: Postgres does not know this base
        self._encoded: dict[Held, tuple[bytes, ...]] = {}

    def publish(self, version: int, resources: Resources, committed_at_ms: int) -> None:
        """Makes a version the head. Bodies that did not change are kept once in memory."""
        before = self.head.resources
        shared = {name: before[name] if before.get(name) == body else body for name, body in resources.items()}
        held = version, collection_checksum(shared)
        self._advance(Published(held, shared, committed_at_ms), different(before, shared))

    def publish_changes(self, version: int, changed: Mapping[ResourceId, bytes | None], committed_at_ms: int) -> None:
        """Makes the head with these resources replaced or, where None, taken away, the head."""
        before, after = self.head.resources, dict(self.head.resources)
        changes: list[Change] = []
        for name, body in changed.items():
            if before.get(name) == body:
                continue
            changes.append((name, before.get(name), body))
            if body is None:
                del after[name]
            else:
                after[name] = body
        held = version, checksum_after(self.head.held[1], changes)
        self._advance(Published(held, after, committed_at_ms), frozenset(name for name, _, _ in changes))

    def _advance(self, head: Published, changed: frozenset[ResourceId]) -> None:
        if head.held != self.head.held:
            self._steps.append((self.head.held, changed))
            self._rebuilt = OrderedDict((base, None if since is None else since | changed) for base, since in self._rebuilt.items())
        self.head = head
        self._encoded.clear()

    def knows(self, held: Held) -> bool:
        """Whether there is no need to look in Postgres for this base."""
        return held == NONE or held in self._rebuilt or any(base == held for base, _ in self._steps)

    def remember(self, base: Held, changed: frozenset[ResourceId] | None) -> None:
        """A base that Postgres told of: what the head has changed since; None: no such version, its nodes get the whole."""
        self._rebuilt[base] = changed
        self._encoded.pop(base, None)
        while len(self._rebuilt) > _REBUILT:
            self._rebuilt.popitem(last=False)

    def _changed_since(self, base: Held) -> frozenset[ResourceId] | None:
        changed: set[ResourceId] = set()
        for held, step in reversed(self._steps):
            changed |= step
            if held == base != NONE:
                return frozenset(changed)
        return self._rebuilt.get(base)

    def way(self, held: Held) -> Way:
        """From `held` to the head: a delta where that base is known, else the whole."""
        changed = self._changed_since(held)
        return Way(self.head, NONE, self.head.resources) if changed is None else Way(self.head, held, changed)

    def encoded(self, way: Way) -> tuple[bytes, ...] | None:
        """Its parts, if they have been encoded before."""
        return self._encoded.get(way.base) if way.head is self.head else None

    def keep(self, way: Way, parts: tuple[bytes, ...]) -> None:
        """The same bytes go to every other node that holds the same."""
        if way.head is self.head:
            self._encoded[way.base] = parts

    def encode(self, way: Way) -> tuple[bytes, ...]:
        """Its parts; may run on another thread, as a way does not change."""
        upserts = {name: way.head.resources[name] for name in way.names if name in way.head.resources}
        removed = [name for name in way.names if name not in way.head.resources]
        base = None if way.base == NONE else way.base
        return encode_update(self.collection, way.head.held, base, upserts, removed, way.head.committed_at_ms)

    def updates_from(self, held: Held) -> tuple[bytes, ...]:
        """The parts that lead from `held` to the head, encoded once."""
        way = self.way(held)
        parts = self.encoded(way)
        if parts is None:
            parts = self.encode(way)
            self.keep(way, parts)
        return parts


def different(before: Resources, after: Resources) -> frozenset[ResourceId]:
    """The names of what is not the same in both."""
    changed = {name for name, body in after.items() if before.get(name) != body}
    changed.update(name for name in before if name not in after)
    return frozenset(changed)
