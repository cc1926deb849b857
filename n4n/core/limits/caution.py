"""How much of a limit is really there, at a provider that tells nothing until it refuses (Azure).

A refusal without a word about quotas takes three tenths of what was believed, once for all that were refused together; the rest comes back
slowly: additive increase, multiplicative decrease. Kept beside the account's buckets, so that all routers believe the same.
"""

from __future__ import annotations

import msgspec

CUT, LEAST = 0.7, 0.1
TOGETHER_MS = 5_000.0  # refusals that come so close to one another are one
RECOVERY_PER_MS = 0.05 / 60_000.0  # of the limit; from one cut it takes six minutes


class Caution(msgspec.Struct, frozen=True):
    """`part` of the limit was believed in at `since_ms`, when it was cut last."""

    part: float = 1.0
    since_ms: float = 0.0

    def at(self, now: float) -> float:
        """What is believed now, in (0, 1]."""
        return min(1.0, self.part + max(0.0, now - self.since_ms) * RECOVERY_PER_MS)

    def refused(self, now: float) -> Caution:
        """After a refusal."""
        if self.since_ms and now - self.since_ms < TOGETHER_MS:
            return self
        return Caution(max(LEAST, self.at(now) * CUT), now)
