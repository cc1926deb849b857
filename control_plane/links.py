"""One collection on one Watch stream: what the node holds, what is under way to it, and whether something is due.

RESTING  ──head differs from held──▶ AWAITING   an update leads from what the node holds to the head
AWAITING ──ack──▶ RESTING                       the node holds what was sent
AWAITING ──nack──▶ REFUSED                      the node still holds what it held; this version is not sent again
AWAITING ──nack: a delta did not fit──▶ RESTING the node's base is not what we thought: the whole is due
REFUSED  ──head moved──▶ AWAITING               the next version goes out from what the node still holds

At most one version is under way: however often the head moves meanwhile, a slow node gets only the newest, next.
"""

from __future__ import annotations

from enum import Enum

Held = tuple[int, str]
NONE: Held = (0, "")
MISFITS = frozenset(("checksum", "base_version", "base_checksum"))  # NACK fields that speak of the delta, not of its content


class Phase(Enum):
    """Where the exchange about one collection stands."""

    RESTING = "resting"
    AWAITING = "awaiting"
    REFUSED = "refused"


class Link:
    """Decides; the stream sends. Answers that fit nothing under way change nothing."""

    def __init__(self, held: Held = NONE) -> None:
        self.phase = Phase.RESTING
        self.held = held
        self._sent = NONE

    def __repr__(self) -> str:
        return f"Link({self.phase.value}, held={self.held[0]}, sent={self._sent[0]})"

    def due(self, head: Held) -> bool:
        """Whether the head should go out now. Nothing is ever sent about an empty history (version 0)."""
        if self.phase is Phase.AWAITING or head[0] == 0:
            return False
        return head != (self.held if self.phase is Phase.RESTING else self._sent)

    def sent(self, head: Held) -> None:
        """All parts of `head` went out."""
        self.phase, self._sent = Phase.AWAITING, head

    def awaits(self, version: int) -> bool:
        """Whether an answer about this version is awaited."""
        return self.phase is Phase.AWAITING and version == self._sent[0]

    def acked(self, version: int, checksum: str) -> bool:
        """Whether the node now holds what was sent; an ACK of another checksum is a refusal."""
        if not self.awaits(version):
            return False
        if checksum != self._sent[1]:
            self.phase = Phase.REFUSED
            return False
        self.phase, self.held = Phase.RESTING, self._sent
        return True

    def nacked(self, version: int, field: str) -> bool:
        """Whether the NACK speaks of what is under way."""
        if not self.awaits(version):
            return False
        if field in MISFITS and self.held != NONE:
            self.phase, self.held = Phase.RESTING, NONE
        else:
            self.phase = Phase.REFUSED
        return True
