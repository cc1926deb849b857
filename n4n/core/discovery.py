"""How a node follows one collection: parts are gathered, checked against what is held, and only a whole, matching set is offered.

```
IDLE      ──first part─────▶ GATHERING   a whole snapshot, or a change from exactly what is held
GATHERING ──next part──────▶ GATHERING   in order, under one heading
GATHERING ──repeated part──▶ GATHERING   ignored
GATHERING ──another's first▶ GATHERING   starts anew: what was gathered is thrown away
GATHERING ──last part──────▶ JUDGING     the sum is the announced one: offered to the caller, who compiles it
GATHERING ──last part──────▶ IDLE        the sum is wrong: Nack
JUDGING   ──accept─────────▶ IDLE        it is what is held now
JUDGING   ──refuse─────────▶ IDLE        Nack; the last good stays
any       ──gap, odd base──▶ LOST        this stream cannot bring us on: say what is held on a new one
LOST      ──part───────────▶ LOST        ignored
any       ──restart────────▶ IDLE        a new stream: half an update is forgotten, what is held is not
```

An update of one part goes from IDLE to JUDGING at once. What is held changes in `accept` and nowhere else, and to a map whose
checksum is the announced one, so that a mixture of two versions cannot come to be. The link's own rules stand below.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from n4n.core.checksum import Change, checksum_after, collection_checksum
from n4n.core.checksum import ResourceId as ResourceId

Resources = Mapping[ResourceId, bytes]
MOST_PARTS = 4096  # of under 1 MiB each
QUIET_HEARTBEATS = 3  # heads that we lack, told this often with nothing sent in between, mean that nothing will be sent


class Phase(Enum):
    """Where a collector stands."""

    IDLE = "idle"
    GATHERING = "gathering"
    JUDGING = "judging"
    LOST = "lost"


class IllegalEvent(Exception):
    """The collector's phase does not know this event; nothing was changed."""


class Unreadable(Exception):
    """A message of the stream cannot be read."""


@dataclass(frozen=True, slots=True)
class Held:
    """A version of a collection; version 0: none."""

    collection: int
    version: int = 0
    checksum: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """One part of an update. `base_version` 0: a whole snapshot, else a change from there; `checksum` is of the whole afterwards."""

    collection: int
    version: int
    checksum: str
    base_version: int = 0
    base_checksum: str = ""
    upserts: tuple[tuple[ResourceId, bytes], ...] = ()
    removed: tuple[ResourceId, ...] = ()
    part: int = 0
    parts: int = 1

    @property
    def heading(self) -> tuple[int, str, int, str, int]:
        """What all parts of one update share."""
        return self.version, self.checksum, self.base_version, self.base_checksum, self.parts

    @property
    def is_last(self) -> bool:
        """Whether the update is complete with this part."""
        return self.part + 1 == self.parts


@dataclass(frozen=True, slots=True)
class Heads:
    """A heartbeat: the newest version of each collection, and how many data planes are connected (0: not told)."""

    heads: tuple[Held, ...] = ()
    routers: int = 0


@dataclass(frozen=True, slots=True)
class More:
    """Kept; parts are missing yet."""


@dataclass(frozen=True, slots=True)
class Apply:
    """A whole, matching set: compile it, then `accept` or `refuse`. `changed`: what differs from what is held; None: it came whole."""

    version: int
    checksum: str
    resources: Resources
    changed: frozenset[ResourceId] | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class AlreadyHeld:
    """The end of an update to what is held already: acknowledge it again."""


@dataclass(frozen=True, slots=True)
class Ignore:
    """Nothing to do."""

    reason: str


@dataclass(frozen=True, slots=True)
class Nack:
    """This version is not used and what is held stays; the stream goes on. `field` is a path in the document or in the message."""

    version: int
    field: str
    reason: str


@dataclass(frozen=True, slots=True)
class NeedsNewStream:
    """This stream cannot bring us on: refuse the version, then open a new one and say there what is held."""

    version: int
    field: str
    reason: str


Decision = More | Apply | AlreadyHeld | Ignore | Nack | NeedsNewStream


@dataclass(frozen=True, slots=True)
class AtHead:
    """What is held is the newest."""


@dataclass(frozen=True, slots=True)
class Behind:
    """Something newer exists: on its way, or refused."""


class Collector:
    """The machine for one collection; see the picture above. Values only: it neither waits nor sends."""

    def __init__(self, collection: int, held: Held | None = None, resources: Resources | None = None) -> None:
        self.phase = Phase.IDLE
        self.held = held or Held(collection)
        self.resources: Resources = resources or {}
        self._gathered: list[Part] = []
        self._offered: Apply | None = None
        self._refused: Held | None = None
        self._quiet = 0

    def __repr__(self) -> str:
        return f"Collector({self.phase.value}, version={self.held.version}, parts={len(self._gathered)})"

    def receive(self, part: Part) -> Decision:
        """What to do about a part; an Apply must be answered by `accept` or `refuse` before the next part."""
        if self.phase is Phase.JUDGING:
            raise IllegalEvent("an offered version must be accepted or refused before the next part")
        self._quiet = 0
        if self.phase is Phase.LOST:
            return Ignore("this stream has been given up")
        fault = _fault(part)
        if fault is not None:
            self._forget()
            return fault
        if (part.version, part.checksum) == (self.held.version, self.held.checksum):
            return AlreadyHeld() if part.is_last else Ignore("this version is held already")
        return self._place(part)

    def accept(self) -> Held:
        """The offered version is good and is held from now on."""
        offered = self._take_offer()
        self.held = replace(self.held, version=offered.version, checksum=offered.checksum)
        self.resources = offered.resources
        self._refused = None
        return self.held

    def refuse(self, field: str, reason: str) -> Nack:
        """The offered version is no good; what was held stays."""
        offered = self._take_offer()
        self._refused = replace(self.held, version=offered.version, checksum=offered.checksum)
        return Nack(offered.version, field, reason)

    def restart(self) -> Held:
        """A new stream begins; returns what to say there."""
        self._forget()
        self._offered = None
        self._quiet = 0
        return self.held

    def heartbeat(self, head: Held) -> AtHead | Behind | NeedsNewStream:
        """Compares a head with what is held. A head that we lack, do not refuse and are not sent asks for a new stream."""
        if head == self.held or head.version == self.held.version == 0:
            self._quiet = 0
            return AtHead()
        if head.version == 0 or head == self._refused or self.phase in (Phase.JUDGING, Phase.LOST):
            return Behind()  # a control plane without any version has nothing to send
        self._quiet += 1
        if self._quiet < QUIET_HEARTBEATS:
            return Behind()
        return self._lose(head.version, "version", f"was told in {QUIET_HEARTBEATS} heartbeats but not sent")

    def _place(self, part: Part) -> Decision:
        due = len(self._gathered)
        same_update = due > 0 and self._gathered[0].heading == part.heading
        if same_update and part.part < due:
            return Ignore("this part has been received")
        if part.part == 0:
            self._forget()
            if part.base_version and part.version < self.held.version:
                return Ignore("a change to an older version than the one held")
            # A whole snapshot may be older than what is held: Postgres may have been restored, and it is the only truth.
            if part.base_version and (part.base_version, part.base_checksum) != (self.held.version, self.held.checksum):
                return self._lose(
                    part.version, "base_version", f"is a change from version {part.base_version}; version {self.held.version} is held"
                )
        elif not same_update or part.part != due:
            return self._lose(part.version, "part", f"part {part.part} of {part.parts} came where part {due} was due")
        self._gathered.append(part)
        self.phase = Phase.GATHERING
        return self._judge(part) if part.is_last else More()

    def _judge(self, last: Part) -> Apply | Nack:
        scratch = dict(self.resources) if last.base_version else {}
        changes: list[Change] = []
        for part in self._gathered:
            for name, body in part.upserts:
                changes.append((name, scratch.get(name), body))
                scratch[name] = body
            changes.extend((name, scratch.pop(name, None), None) for name in part.removed)
        self._forget()
        total = checksum_after(self.held.checksum, changes) if last.base_version else collection_checksum(scratch)
        if total != last.checksum:
            return Nack(last.version, "checksum", f"the resources add up to {total[:12]}…, not to the announced {last.checksum[:12]}…")
        changed = frozenset(name for name, _, _ in changes) if last.base_version else None
        self.phase = Phase.JUDGING
        self._offered = Apply(last.version, last.checksum, scratch, changed)
        return self._offered

    def _lose(self, version: int, field: str, reason: str) -> NeedsNewStream:
        self._forget()
        self.phase = Phase.LOST
        return NeedsNewStream(version, field, reason)

    def _forget(self) -> None:
        self._gathered = []
        self.phase = Phase.IDLE

    def _take_offer(self) -> Apply:
        if self._offered is None:
            raise IllegalEvent("no version has been offered")
        offered, self._offered = self._offered, None
        self.phase = Phase.IDLE
        return offered


def _fault(part: Part) -> Nack | None:
    if part.version < 1:
        return Nack(part.version, "version", "must be 1 or more")
    if not part.checksum:
        return Nack(part.version, "checksum", "is missing")
    if not 1 <= part.parts <= MOST_PARTS:
        return Nack(part.version, "parts", f"must be from 1 to {MOST_PARTS}, not {part.parts}")
    if not 0 <= part.part < part.parts:
        return Nack(part.version, "part", f"must be below {part.parts}, not {part.part}")
    if part.base_version >= part.version:
        return Nack(part.version, "base_version", f"must be below {part.version}, not {part.base_version}")
    return None


# The link. -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LinkRules:
    """When a link is given up and tried again; seconds."""

    heartbeat_s: float = 5.0  # how often the control plane speaks
    silence_s: float = 15.0  # three heartbeats: nothing heard for this long means a new channel
    connect_s: float = 5.0  # TCP and HTTP/2 preface of one try
    first_wait_s: float = 0.2
    longest_wait_s: float = 4.0  # so that a control plane which comes back is found within 5 s
    tries_per_s: float = 1.0  # on average, however short the links live
    burst: float = 3.0  # tries that may follow each other faster


@dataclass(frozen=True, slots=True)
class Tries:
    """Failed tries in a row, and how many tries may start at the instant `at` (monotonic seconds)."""

    failures: int = 0
    allowance: float = 2.0
    at: float = 0.0


def next_try(tries: Tries, now: float, draw: float, rules: LinkRules) -> tuple[Tries, float]:
    """Seconds to wait before the next try after one that ended at `now`; `draw` in [0, 1).

    The wait is drawn between the shortest and a ceiling that doubles up to the longest, so that routers which lost one control
    plane together do not come back together; the allowance keeps the average where links open and break at once.
    """
    ceiling = min(rules.longest_wait_s, rules.first_wait_s * 2.0 ** min(tries.failures + 1, 30))
    allowance = min(rules.burst, tries.allowance + max(0.0, now - tries.at) * rules.tries_per_s)
    drawn = rules.first_wait_s + draw * (ceiling - rules.first_wait_s)
    wait = max(drawn, (1.0 - allowance) / rules.tries_per_s)
    left = min(rules.burst, allowance + wait * rules.tries_per_s) - 1.0
    return Tries(tries.failures + 1, left, now + wait), wait


def answered(tries: Tries) -> Tries:
    """A control plane spoke: the next failure is a first one. The allowance is not refilled by it."""
    return replace(tries, failures=0)
