"""Values over time, the old ones fading: a moving average, and how many fell into buckets that grow by a fifth.

A quantile read off the buckets is at most a tenth off. n4n/runtime/health/lua/tell.lua does the same.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

import msgspec

BUCKETS, PER_OCTAVE = 64, 4
FADE_S = 300.0  # half of what was seen so long ago counts
SMOOTHING = 0.2  # of one value in the moving average
MOST_VALUES = 64  # between two words to the others
LEAST_MASS = 0.01  # of a bucket that is kept
MS, PER_S = 1.0, 0.25  # the lowest bounds: 1 ms to 65 s, and 0.25 to 16,384 tokens per second


class Sample(msgspec.Struct):
    """Values that came together, above 0."""

    lowest: float
    values: list[float] = []  # a struct makes its own

    def add(self, value: float) -> None:
        """One more; what is more than `MOST_VALUES` tells nothing new."""
        if len(self.values) < MOST_VALUES:
            self.values.append(value)

    @property
    def count(self) -> int:
        """How many."""
        return len(self.values)

    @property
    def mean(self) -> float:
        """Of at least one."""
        return sum(self.values) / len(self.values)

    @property
    def buckets(self) -> dict[int, int]:
        """How many fell into which."""
        return Counter(bucket_of(value, self.lowest) for value in self.values)


class Spread(msgspec.Struct, frozen=True):
    """`mean` None: nothing was measured. `masses`: how many values are in each bucket, as of `at`."""

    lowest: float
    mean: float | None = None
    at: float = 0.0
    masses: Mapping[int, float] = {}

    def with_sample(self, sample: Sample, now: float) -> Spread:
        """After values that came until now."""
        if not sample.count:
            return self
        fade = 2.0 ** (-max(0.0, now - self.at) / FADE_S)
        masses = {at: mass * fade for at, mass in self.masses.items() if mass * fade >= LEAST_MASS}
        for at, count in sample.buckets.items():
            masses[at] = masses.get(at, 0.0) + count
        came = sample.mean
        mean = came if self.mean is None else came + (self.mean - came) * (1.0 - SMOOTHING) ** sample.count
        return Spread(self.lowest, mean, max(self.at, now), masses)

    def quantile(self, part: float) -> float | None:
        """The value below which `part` of them lie; None: nothing was measured."""
        due = part * sum(self.masses.values())
        for at in sorted(self.masses):
            if due <= self.masses[at]:
                return self.lowest * float(2.0 ** ((at + due / self.masses[at]) / PER_OCTAVE))
            due -= self.masses[at]
        return self.lowest * float(2.0 ** ((max(self.masses) + 1) / PER_OCTAVE)) if self.masses else None  # a rounded sum


def bucket_of(value: float, lowest: float) -> int:
    """Where a value above 0 belongs."""
    return min(BUCKETS - 1, max(0, math.floor(math.log2(value / lowest) * PER_OCTAVE)))
