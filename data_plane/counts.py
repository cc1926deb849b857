"""The counts of finished requests: added up in plain numbers, told to the instruments a few times a second.

An instrument's value lives in a file that all workers share, where one change costs more than all that is done here for a
request. What was not told yet when a worker is killed is lost to the metrics, and to nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import cast

from prometheus_client import Counter

from data_plane.record import Record
from n4n.core.catalog import Endpoint
from n4n.core.gen_ai import NOBODY, provider_name
from n4n.runtime.exemplars import Exemplars
from n4n.runtime.telemetry import Distribution, Instruments

TOLD_EVERY_S = 0.25
Into = Callable[[], Distribution]


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
    """Values for histograms, each of which is made with its first value. They are kept as they come and find their buckets when they
    are told: in order, all of them cost less than each by itself."""

    __slots__ = ("_histograms", "_into", "_values", "observe")

    def __init__(self, *into: Into) -> None:
        self._into, self._histograms = into, tuple[Distribution, ...]()
        self._values: list[float] = []
        self.observe = self._values.append  # one more value

    def tell(self) -> tuple[int, float]:
        """Adds them; how many they were, and their sum."""
        values = self._values
        count, total = len(values), sum(values)
        if count:
            self._histograms = self._histograms or tuple([made() for made in self._into])
            values.sort()
            for histogram in self._histograms:
                histogram.take(values, total)
            values.clear()
        return count, total


class Counted:
    """Durations, and how many there are."""

    __slots__ = ("_counter", "_made", "_took", "add")

    def __init__(self, counter: Callable[[], Counter], *into: Into) -> None:
        self._made, self._counter = counter, cast(Counter | None, None)
        self._took = Spread(*into)
        self.add = self._took.observe  # one more, in seconds

    def tell(self) -> None:
        """To the instruments."""
        count, _ = self._took.tell()
        if count:
            if self._counter is None:
                self._counter = self._made()
            self._counter.inc(count)


RouteKey = tuple[str, str, str, str, str]  # provider, model, tier, operation, the name that was asked for
CallsKey = tuple[str, str, str, str]  # provider, model, its name there, operation


class Route:
    """What is counted of the requests that one provider answered, with one model, asked for in one way."""

    __slots__ = ("_ended", "_see", "fallbacks", "first_token", "labels", "of_model", "per_token", "succeeded", "ttft")

    def __init__(self, see: Instruments, key: RouteKey, endpoint: Endpoint | None) -> None:
        provider, model, tier, operation, asked = key
        self._see, self.labels, self._ended = see, (provider, model, tier), dict[tuple[str, str], Counted]()
        name = NOBODY if endpoint is None else provider_name(provider, endpoint.provider.dialect)
        self.of_model = (operation, name, asked) if operation else None
        self.fallbacks = Spread(partial(see.fallbacks.labels, tier))
        self.ttft = Spread(partial(see.ttft.labels, *self.labels))
        self.first_token, self.per_token = self.ttft, Spread()  # of streams that ended well
        if self.of_model is not None:
            self.first_token = Spread(partial(see.ttft.labels, *self.labels), partial(see.first_token.labels, *self.of_model))
            self.per_token = Spread(partial(see.per_token.labels, *self.of_model))
        self.succeeded = self.ended("success", "")

    def ended(self, outcome: str, error: str) -> Counted:
        """The requests that ended in this way."""
        known = self._ended.get((outcome, error))
        if known is None:
            into: list[Into] = [partial(self._see.latency.labels, *self.labels)]
            if self.of_model is not None:
                into.append(partial(self._see.served.labels, *self.of_model, error))
            known = self._ended[outcome, error] = Counted(partial(self._see.requests.labels, *self.labels, outcome), *into)
        return known

    def tell(self) -> None:
        """To the instruments."""
        for ended in self._ended.values():
            ended.tell()
        for spread in (self.fallbacks, self.ttft, self.first_token, self.per_token):
            spread.tell()


class Calls:
    """What is counted of the attempts at one model of one provider."""

    __slots__ = ("_ended", "_of_model", "_provider", "_see", "_tokens", "cost", "succeeded", "tokens_in", "tokens_out", "unpriced")

    def __init__(self, see: Instruments, endpoint: Endpoint, operation: str) -> None:
        provider, model = endpoint.provider.name, endpoint.model
        self._see, self._provider, self._ended = see, provider, dict[str, Counted]()
        name = provider_name(provider, endpoint.provider.dialect)
        self._of_model = (operation, name, endpoint.upstream_model) if operation else None
        self._tokens = [(self._usage(way), see.tokens.labels(provider, model, way)) for way in ("input", "output")]
        self.tokens_in, self.tokens_out = [spread for spread, _ in self._tokens]
        self.cost = Sum(see.cost.labels(provider, model))
        self.unpriced = Sum(see.unpriced.labels(provider, model))
        self.succeeded = self.ended("ok")

    def _usage(self, way: str) -> Spread:
        return Spread() if self._of_model is None else Spread(partial(self._see.usage.labels, *self._of_model, way))

    def ended(self, outcome: str) -> Counted:
        """The attempts that ended in this way."""
        known = self._ended.get(outcome)
        if known is None:
            error, into = "" if outcome == "ok" else outcome, list[Into]()
            if self._of_model is not None:
                into.append(partial(self._see.called.labels, *self._of_model, error))
            known = self._ended[outcome] = Counted(partial(self._see.attempts.labels, self._provider, outcome), *into)
        return known

    def tell(self) -> None:
        """To the instruments."""
        for ended in self._ended.values():
            ended.tell()
        for spread, counter in self._tokens:
            count, total = spread.tell()
            if count:
                counter.inc(total)
        self.cost.tell()
        self.unpriced.tell()


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
        self._routes: dict[RouteKey, Route] = {}
        self._calls: dict[CallsKey, Calls] = {}
        self._overhead = Spread(lambda: see.overhead)
        self._queued: dict[str, Spread] = {}
        self._parts = [Spread(partial(see.part.labels, part)) for part in ("auth", "plan", "reserve", "connect", "translate", "write")]
        self._streams = 0
        self._exemplars = Exemplars(see.exemplars)
        self._timer: asyncio.TimerHandle | None = None
        self.totals = Totals()

    def stream_opened(self) -> None:
        """A stream to a client begins; it ends with its record."""
        self._streams += 1
        self._soon()

    def add(self, record: Record) -> Route:
        """One request that ended; with which others it counts."""
        attempts, plan = record.attempts, record.plan
        endpoint = attempts[-1].endpoint if attempts else None
        target = record.target if plan is None else plan.target
        tier, asked = ("", "") if target is None else (target.tier or "", target.name)
        key: RouteKey
        if endpoint is not None:
            key = (endpoint.provider.name, endpoint.model, tier, record.operation, asked)
        else:
            model = plan.model.id if plan is not None else "" if target is None else target.models[0]
            key = ("", model, tier, record.operation, asked)
        route = self._routes.get(key)
        if route is None:
            route = self._routes[key] = Route(self._see, key, endpoint)
        elapsed_s, ttft_s, succeeded = record.elapsed_s, record.ttft_s, record.outcome == "success"
        if succeeded:
            route.succeeded.add(elapsed_s)
        else:
            route.ended(record.outcome, record.error_code or record.outcome).add(elapsed_s)
        self._overhead.observe(record.overhead_s if record.reply is not None else max(0.0, elapsed_s - record.waited_s))
        self.totals.add(record)
        if record.interrupt is not None:
            self._streams -= 1
        if record.queued_s:
            self._waited(record.priority).observe(record.queued_s)
        if ttft_s is not None:
            (route.first_token if succeeded and record.stream else route.ttft).observe(ttft_s)
        if attempts:
            route.fallbacks.observe(record.fallback_attempts)
            self._called(record, route, elapsed_s)
        if record.parts is not None and succeeded:
            parts = record.parts
            told = (parts.auth_s, parts.plan_s, record.reserved_s, parts.connect_s, parts.translate_s, parts.write_s)
            for spread, seconds in zip(self._parts, told, strict=True):
                spread.observe(seconds)
        if self._timer is None:
            self._soon()
        return route

    def traced(self, record: Record, route: Route) -> None:
        """A trace of it was kept: it stands for the buckets that it fell into."""
        if record.trace is None:
            return
        see, note, took_s = self._see, self._exemplars.note, record.elapsed_s
        trace, at = (record.trace.trace_id, record.trace.span_id), record.wall + took_s
        note(see.latency, route.labels, took_s, trace, at)
        note(see.overhead, (), record.overhead_s, trace, at)
        if record.ttft_s is not None:
            note(see.ttft, route.labels, record.ttft_s, trace, at)
        if route.of_model is not None:
            error = "" if record.outcome == "success" else record.error_code or record.outcome
            note(see.served, (*route.of_model, error), took_s, trace, at)

    def _called(self, record: Record, route: Route, elapsed_s: float) -> None:
        """What its attempts took, and what the last of them cost."""
        usage, operation = record.usage, record.operation
        for attempt in record.attempts:
            calls = self._calls_of(attempt.endpoint, operation)
            took_s = (record.started + elapsed_s if attempt.ended is None else attempt.ended) - attempt.started
            if attempt.outcome == "ok":
                calls.succeeded.add(took_s)
            else:
                calls.ended(attempt.outcome).add(took_s)
            if attempt.injected:
                self._see.injected.labels(attempt.endpoint.id).inc()
        if usage is None:
            return
        tokens = usage.completion_tokens
        calls.tokens_in.observe(usage.prompt_tokens)
        calls.tokens_out.observe(tokens)
        if record.cost_usd is None:
            calls.unpriced.value += 1
        else:
            calls.cost.value += float(record.cost_usd)
        if record.stream and tokens > 1 and record.ttft_s is not None and record.outcome == "success":
            route.per_token.observe((elapsed_s - record.ttft_s) / (tokens - 1))

    def _calls_of(self, endpoint: Endpoint, operation: str) -> Calls:
        key = (endpoint.provider.name, endpoint.model, endpoint.upstream_model, operation)
        known = self._calls.get(key)
        if known is None:
            known = self._calls[key] = Calls(self._see, endpoint, operation)
        return known

    def _waited(self, priority: str) -> Spread:
        known = self._queued.get(priority)
        if known is None:
            known = self._queued[priority] = Spread(partial(self._see.queued.labels, priority))
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
        for calls in self._calls.values():
            calls.tell()
        for spread in (self._overhead, *self._queued.values(), *self._parts):
            spread.tell()
        self._exemplars.tell()
        if self._streams:
            self._see.streams.inc(self._streams)
            self._streams = 0
        if (dropped := self._dropped()) > self._told_dropped:
            self._see.log_dropped.inc(dropped - self._told_dropped)
            self._told_dropped = dropped
