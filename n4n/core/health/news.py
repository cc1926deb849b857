"""The signals of one endpoint between two words to the others: how calls ended, in order and run by run, and what they took."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from n4n.core.breaker import BreakerEvent, event_of
from n4n.core.health.signals import Signal, Source
from n4n.core.health.spread import MS, PER_S, Sample

MOST_RUNS = 128  # in a tenth of a second; what is more tells nothing new
MOST_FAILURES = 64  # of one run: then the score is at its floor
LETTERS: Mapping[BreakerEvent, str] = MappingProxyType({
    BreakerEvent.SUCCESS: "g", BreakerEvent.FAILURE: "b", BreakerEvent.HALF_FAILURE: "h", BreakerEvent.TRIAL_ABANDONED: "a",
})  # fmt: skip
EVENTS: Mapping[str, BreakerEvent] = MappingProxyType({letter: event for event, letter in LETTERS.items()})


class News(msgspec.Struct):
    """`runs`: a letter of `EVENTS`, in capitals for probes, and how often in a row; `good`: live successes after them."""

    runs: list[tuple[str, int]] = []  # a struct makes its own
    good: int = 0
    latency_count: int = 0
    latency_ms: float = 0.0  # sum
    ttft: Sample = msgspec.field(default_factory=lambda: Sample(MS))
    speed: Sample = msgspec.field(default_factory=lambda: Sample(PER_S))

    @property
    def course(self) -> list[tuple[str, int]]:
        """All runs, in order."""
        return [*self.runs, ("g", self.good)] if self.good else self.runs

    def went_well(self, latency_s: float | None, ttft_s: float | None, tokens_per_s: float | None) -> None:
        """One more live success: nearly every request."""
        self.good += 1
        if latency_s is not None:
            self.latency_count += 1
            self.latency_ms += latency_s * 1000
        if ttft_s is not None and ttft_s > 0:
            self.ttft.add(ttft_s * 1000)
        if tokens_per_s is not None and tokens_per_s > 0:
            self.speed.add(tokens_per_s)

    def add(self, signal: Signal) -> bool:
        """One more. True: others should learn of it at once, for it is no success."""
        live = signal.source is Source.LIVE
        if signal.failure is None:
            self.went_well(signal.latency_s, signal.ttft_s, signal.tokens_per_s)
            if not live:
                self.good -= 1
                self.happened(LETTERS[BreakerEvent.SUCCESS].upper())
            return False
        event = event_of(signal.failure, trial=signal.trial)
        if event is None:
            return False
        self.happened(LETTERS[event] if live else LETTERS[event].upper())
        return True

    def happened(self, letter: str) -> None:
        """One more event."""
        runs = self.runs
        if self.good:
            if len(runs) < MOST_RUNS:
                runs.append(("g", self.good))
            self.good = 0
        if runs and runs[-1][0] == letter:
            runs[-1] = (letter, runs[-1][1] + 1)
        elif len(runs) < MOST_RUNS:
            runs.append((letter, 1))
