"""Two n4ns side by side that differ in one thing: what that costs, and what it may."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

NAME = "n4n"
UNMETERED, SILENT, UNTRACED, TRACED = "n4n, not metered", "n4n, silent", "n4n, never traced", "n4n, 1 % traced"
_WITHOUT = Path(__file__).resolve().parent / "without"
CHANGED = {UNMETERED: _WITHOUT / "metering", SILENT: _WITHOUT / "lines", UNTRACED: _WITHOUT / "traces"}  # by what is in PYTHONPATH


@dataclass(frozen=True, slots=True)
class Pair:
    """`what` is there at `on` and not at `off`; answers per second of one over the other must be `least`."""

    name: str
    what: str
    on: str
    off: str
    least: float
    streams: bool = False

    @property
    def kinds(self) -> tuple[str, ...]:
        """Of answers that are measured."""
        return ("JSON", "SSE") if self.streams else ("JSON",)


PAIRS = (
    Pair("metering", "the ledger and exact counts", NAME, UNMETERED, 0.9, streams=True),
    Pair("told", "request log and metrics", NAME, SILENT, 0.9, streams=True),
    Pair("untraced", "traces, switched off", NAME, UNTRACED, 0.98),
    Pair("traced", "1 % of traces", TRACED, NAME, 0.97),
)
