"""The counts of finished requests: added up in plain numbers, told to the instruments a few times a second.

An instrument's value lives in a file that all workers share, where one change costs more than all that is done here for a
request. What was not told yet when a worker is killed is lost to the metrics, and to nothing else.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Sequence

from prometheus_client import Counter

from data_plane.record import Record
from n4n.runtime.telemetry import Distribution, Instruments

TOLD_EVERY_S = 0.25


class Sum:
    """What is to be added to one counter."""

    __slots__ = ("_counter", "value")

    def __init__(self, counter: Counter) -> None:
        self._counter, self.value = counter, 0.0

    def tell(self) -> None:
        """Adds it."""
        if self.value:
            value, self.value = self.value, 0.0
            self._counter.inc(value)


class Spread:
    """What is to be added to one histogram."""

    __slots__ = ("_bounds", "_counts", "_empty", "_histogram", "_total")

    def __init__(self, histogram: Distribution, bounds: Sequence[float]) -> None:
        self._histogram, self._bounds = histogram, bounds
        self._empty = [0] * (len(bounds) + 1)
        self._counts, self._total = self._empty.copy(), 0.0

    def observe(self, value: float) -> None:
        """One more value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value

    def tell(self) -> None:
        """Adds them."""
        if self._counts != self._empty:
            counts, total = self._counts, self._total
            self._counts, self._total = self._empty.copy(), 0.0
            self._histogram.add(counts, total)


class Route:
    """What is counted of the requests that one provider answered, with one model, asked for as one tier."""

    __slots__ = ("_ended", "_labels", "_see", "cost", "fallbacks", "latency", "tokens_in", "tokens_out", "ttft", "unpriced")

    def __init__(self, see: Instruments, labels: tuple[str, str, str]) -> None:
        provider, model, tier = self._labels = labels
        self._see, self._ended = see, dict[str, Sum]()
        self.latency = Spread(see.latency.labels(*labels), see.LATENCY)
        self.ttft = Spread(see.ttft.labels(*labels), see.TTFT)
        self.fallbacks = Spread(see.fallbacks.labels(tier), see.DEPTHS)
        self.tokens_in, self.tokens_out = (
            Sum(see.tokens.labels(provider, model, "input")),
            Sum(see.tokens.labels(provider, model, "output")),
        )
        self.cost = Sum(see.cost.labels(provider, model))
        self.unpriced = Sum(see.unpriced.labels(provider, model))

    def ended(self, outcome: str) -> Sum:
        """The requests that ended in this way."""
        known = self._ended.get(outcome)
        if known is None:
            known = self._ended[outcome] = Sum(self._see.requests.labels(*self._labels, outcome))
        return known

    def tell(self) -> None:
        """To the instruments."""
        for count in (*self._ended.values(), self.tokens_in, self.tokens_out, self.cost, self.unpriced):
            count.tell()
        for spread in (self.latency, self.ttft, self.fallbacks):
            spread.tell()


class Totals:
    """Of this process, since its start; what the control plane hears of requests. Those that were refused as wrong are none of it."""

    __slots__ = ("changes", "ended", "failed", "fell_back")

    def __init__(self) -> None:
        self.ended = self.failed = self.fell_back = self.changes = 0

    def add(self, record: Record) -> None:
        """One request that ended."""
        if record.outcome == "rejected":
            return
        self.ended += 1
        if record.outcome == "error":
            self.failed += 1
        if record.fallback_attempts:
            self.fell_back += 1
            self.changes += record.fallback_attempts


class Counts:
    """All of a worker's. Labels are names of the catalog and fixed words, so their number is bounded."""

    def __init__(self, see: Instruments, dropped: Callable[[], int]) -> None:
        """`dropped`: how many log lines were lost so far."""
        self._see, self._dropped, self._told_dropped = see, dropped, 0
        self._routes: dict[tuple[str, str, str], Route] = {}
        self._attempts: dict[tuple[str, str], Sum] = {}
        self._overhead = Spread(see.overhead, see.OVERHEAD)
        self._queued: dict[str, Spread] = {}
        self._streams = 0
        self._timer: asyncio.TimerHandle | None = None
        self.totals = Totals()

    def stream_opened(self) -> None:
        """A stream to a client begins; it ends with its record."""
        self._streams += 1
        self._soon()

    def add(self, record: Record) -> None:
        """One request that ended."""
        endpoint, plan = record.selected, record.plan
        tier = (plan.target.tier or "") if plan is not None else ""
        labels: tuple[str, str, str]
        if endpoint is not None:
            labels = (endpoint.provider.name, endpoint.model, tier)
        else:
            labels = ("", plan.model.id if plan is not None else "", tier)
        route = self._routes.get(labels)
        if route is None:
            route = self._routes[labels] = Route(self._see, labels)
        if record.interrupt is not None:
            self._streams -= 1
        route.ended(record.outcome).value += 1
        self.totals.add(record)
        route.latency.observe(record.elapsed_s)
        self._overhead.observe(record.overhead_s)
        if record.queued_s:
            self._waited(record.priority).observe(record.queued_s)
        if record.attempts:
            route.fallbacks.observe(record.fallback_attempts)
            for attempt in record.attempts:
                self._attempted((attempt.endpoint.provider.name, attempt.outcome)).value += 1
        if record.ttft_s is not None:
            route.ttft.observe(record.ttft_s)
        usage = record.usage
        if usage is not None:
            route.tokens_in.value += usage.prompt_tokens
            route.tokens_out.value += usage.completion_tokens
        if record.cost_usd:
            route.cost.value += float(record.cost_usd)
        elif record.cost_usd is None and usage is not None:
            route.unpriced.value += 1
        if self._timer is None:
            self._soon()

    def _attempted(self, labels: tuple[str, str]) -> Sum:
        known = self._attempts.get(labels)
        if known is None:
            known = self._attempts[labels] = Sum(self._see.attempts.labels(*labels))
        return known

    def _waited(self, priority: str) -> Spread:
        known = self._queued.get(priority)
        if known is None:
            known = self._queued[priority] = Spread(self._see.queued.labels(priority), self._see.QUEUED)
        return known

    def _soon(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(TOLD_EVERY_S, self.tell)

    def tell(self) -> None:
        """To the instruments, all that was counted."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for route in self._routes.values():
            route.tell()
        for attempts in self._attempts.values():
            attempts.tell()
        for spread in (self._overhead, *self._queued.values()):
            spread.tell()
        if self._streams:
            self._see.streams.inc(self._streams)
            self._streams = 0
        if (dropped := self._dropped()) > self._told_dropped:
            self._see.log_dropped.inc(dropped - self._told_dropped)
            self._told_dropped = dropped
