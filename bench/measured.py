"""What a bench has seen: plain values, one list of turns per peer and trial, from which all tables are made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TypeVar

from bench.load import Outcome
from bench.pairs import Pair

T = TypeVar("T")
CALM = 0.10  # of one CPU: a turn in which others took more is disturbed


@dataclass(frozen=True, slots=True)
class Run:
    """One turn of one peer under load.

    CPU seconds of all its processes, and of those that answer requests (`worker_seconds`); resident memory of the latter; what share
    of a CPU programs took that are no part of the bench.
    """

    outcome: Outcome
    cpu_seconds: float
    worker_seconds: float
    mib: float
    foreign: float

    @property
    def rate(self) -> float:
        """Good answers per second."""
        return self.outcome.requests / self.outcome.seconds

    @property
    def busy(self) -> float:
        """What share of one CPU those took that answer: where it is far below 1, the load was the limit and not the peer."""
        return self.worker_seconds / self.outcome.seconds

    @property
    def cpu_us(self) -> float:
        """Microseconds of CPU per good answer, all processes."""
        return self.cpu_seconds / max(1, self.outcome.requests) * 1e6

    @property
    def worker_us(self) -> float:
        """The same of those that answer."""
        return self.worker_seconds / max(1, self.outcome.requests) * 1e6


@dataclass(frozen=True, slots=True)
class Low:
    """One turn of one peer at low load: milliseconds of whole answers, without and with it between."""

    direct_p50: float
    direct_p95: float
    p50: float
    p95: float

    @property
    def added_p50(self) -> float:
        """What it adds."""
        return self.p50 - self.direct_p50

    @property
    def added_p95(self) -> float:
        """What it adds."""
        return self.p95 - self.direct_p95


@dataclass(frozen=True, slots=True)
class Began:
    """One turn of one peer with some streams at once: milliseconds to the first event, without and with it between."""

    direct_p50: float
    direct_p95: float
    p50: float
    p95: float
    rate: float
    incomplete: int


@dataclass(frozen=True, slots=True)
class Guarded:
    """One turn: milliseconds to the first content with guard and without; what the guard's rule itself takes, seen at the upstream."""

    on: float
    off: float
    rule: float

    @property
    def beyond(self) -> float:
        """What the guard adds to its rule."""
        return self.on - self.off - self.rule


@dataclass(frozen=True, slots=True)
class Shares:
    """One turn of an n4n with all CPUs shared: its run, and what each worker had of the connections and of the CPU time."""

    run: Run
    connections: Sequence[int]
    cpu: Sequence[float]


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident memory of a worker, after so many requests, and after many more of them and streams that were broken off."""

    first_requests: int
    first_mib: float
    requests: int
    broken_off: int
    mib: float


@dataclass(frozen=True, slots=True)
class Planned:
    """One turn: microseconds of CPU of a whole request of n4n, and of a plan with ten candidates at few models and at many."""

    request_us: float
    few_us: float
    many_us: float

    @property
    def share(self) -> float:
        """The decision's part of a request."""
        return self.few_us / max(1e-9, self.request_us)

    @property
    def growth(self) -> float:
        """What a large catalog makes of it."""
        return self.many_us / self.few_us


@dataclass(frozen=True, slots=True)
class Translated:
    """One turn of a skin before a dialect: microseconds of CPU for a request with its whole answer, and with a stream."""

    whole_us: float
    stream_us: float


@dataclass(slots=True)
class Measured:
    """Everything, by trial and peer."""

    loads: dict[str, dict[str, list[Run]]] = field(default_factory=dict)
    low: dict[str, list[Low]] = field(default_factory=dict)
    began: dict[str, list[Began]] = field(default_factory=dict)
    guard: list[Guarded] = field(default_factory=list)
    workers: dict[str, list[Shares]] = field(default_factory=dict)
    paired: dict[str, dict[str, dict[str, list[Run]]]] = field(default_factory=dict)  # by pair, kind of answer and peer
    translated: dict[str, list[Translated]] = field(default_factory=dict)  # by `skin ▸ dialect`
    memory: list[Memory] = field(default_factory=list)
    plans: list[Planned] = field(default_factory=list)

    def pairs(self, pair: Pair, kind: str) -> list[tuple[Run, Run]]:
        """The turns of both that followed each other: on, off."""
        runs = self.paired.get(pair.name, {}).get(kind, {})
        return [(on, off) for on, off in zip(runs.get(pair.on, ()), runs.get(pair.off, ()), strict=False) if off.rate]

    def rate(self, trial: str, peer: str) -> float | None:
        """The median of its answers per second; None where it was not measured."""
        return middle(calm(self.loads.get(trial, {}).get(peer, ())), lambda run: run.rate)

    def worker_us(self, trial: str, peer: str) -> float | None:
        """The median of its CPU per answer."""
        return middle(calm(self.loads.get(trial, {}).get(peer, ())), lambda run: run.worker_us)


Runs = Mapping[str, Sequence[Run]]  # peer ▸ its runs


def middle(turns: Sequence[T], value: Callable[[T], float]) -> float | None:
    """The median of a value over turns; None of none."""
    return median(map(value, turns)) if turns else None


def calm(turns: Sequence[Run]) -> Sequence[Run]:
    """Those that nobody disturbed; all where there are none."""
    return [run for run in turns if run.foreign <= CALM] or turns
