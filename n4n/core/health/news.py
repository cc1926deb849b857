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
    """`runs`: a letter of `EVENTS`, in capitals for probes, and how often in a row."""

    runs: list[tuple[str, int]] = []  # a struct makes its own
    latency_count: int = 0
    latency_ms: float = 0.0  # sum
    ttft: Sample = msgspec.field(default_factory=lambda: Sample(MS))
    speed: Sample = msgspec.field(default_factory=lambda: Sample(PER_S))

    def add(self, signal: Signal) -> bool:
        """One more. True: others should learn of it at once, for it is no success."""
        event = BreakerEvent.SUCCESS
        if signal.failure is not None:
            found = event_of(signal.failure, trial=signal.trial)
            if found is None:
                return False
            event = found
        letter = LETTERS[event]
        self.happened(letter if signal.source is Source.LIVE else letter.upper())
        if signal.failure is None:
            self._measured(signal)
        return event is not BreakerEvent.SUCCESS

    def happened(self, letter: str) -> None:
        """One more event."""
        runs = self.runs
        if runs and runs[-1][0] == letter:
            runs[-1] = (letter, runs[-1][1] + 1)
        elif len(runs) < MOST_RUNS:
            runs.append((letter, 1))

    def _measured(self, signal: Signal) -> None:
        if signal.latency_s is not None:
            self.latency_count += 1
            self.latency_ms += signal.latency_s * 1000
        if signal.ttft_s is not None and signal.ttft_s > 0:
            self.ttft.add(signal.ttft_s * 1000)
        if signal.tokens_per_s is not None and signal.tokens_per_s > 0:
            self.speed.add(signal.tokens_per_s)
