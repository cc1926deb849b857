"""What happens during the run, and when: one fault after the other, each waited for before the next, so that a failure has one cause."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of everything. `seconds`: the least time under load; `outage_s`: how long the killed control plane stays away."""

    seconds: float
    versions: int = 100
    outage_s: float = 60.0
    rolls: int = 10  # of every router, by SIGTERM and by the rolling restart
    rate: float = 50.0

    @classmethod
    def of_minutes(cls, minutes: float) -> Plan:
        """The plan of the acceptance for ten minutes, less of it for less time."""
        share = min(1.0, minutes / 10)
        return cls(minutes * 60, max(10, round(100 * share)), max(3.0, 60 * share), max(1, round(10 * share)))
