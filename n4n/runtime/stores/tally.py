"""Whether a server that answers late, or some calls not at all, is still worth asking. No I/O.

Counted from the first miss: once `span_s` has passed with at least `LEAST` outcomes, it trips if half of them are misses, else a new count
begins. So a pause of a deadline or two (a fork, a slow script) trips nothing; a server that stands still does, and so does one that is just
too slow for the deadline though it answers everything.
"""

from __future__ import annotations

from dataclasses import dataclass

LEAST = 4


@dataclass(slots=True)
class Tally:
    """Answers in time are added to `hits` as they come; a miss is told with its time, seconds on one clock."""

    span_s: float
    hits: int = 0
    misses: int = 0
    since: float = 0.0

    def missed(self, calls: int, now: float) -> bool:
        """True: it trips."""
        if not self.misses:
            self.hits, self.since = 0, now
        self.misses += calls
        if now - self.since < self.span_s or self.hits + self.misses < LEAST:
            return False
        if self.misses >= self.hits:
            return True
        self.misses = 0
        return False
