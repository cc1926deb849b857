"""Every metric of a router, in one table. Workers share files in one folder, so that any worker answers for its node.

`PROMETHEUS_MULTIPROC_DIR` must be set before this module is imported; the supervisor does so. Labels are bounded sets:
names from the catalog and fixed words. Children are kept, so that counting costs a dictionary look-up.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, multiprocess, values

from n4n.core import gen_ai
from n4n.runtime.node_metrics import NodeMetrics

EXEMPLARS = "exemplars-"
STATUSES = ("success", "rate_limited", "error", "cancelled", "rejected")


def files_of(worker: int, slot: int) -> str:
    """Names the files of one process: a successor never writes into those of the worker that it takes over from."""
    return f"{worker}.{slot}" if slot else f"{worker}"


def metrics_here() -> Path:
    """The folder that the workers of this node share."""
    return Path(os.environ["PROMETHEUS_MULTIPROC_DIR"])


def exemplar_file(worker: int, slot: int) -> Path:
    """Where one process leaves its exemplars (n4n.runtime.exemplars)."""
    return metrics_here() / f"{EXEMPLARS}{files_of(worker, slot)}"


class Distribution(Histogram):
    """A histogram that takes many values at once: the library's own way counts one by one, in a file."""

    def take(self, ordered: Sequence[float], total: float) -> None:
        """Values in their order, and their sum."""
        seen = 0
        for bound, bucket in zip(self._upper_bounds, self._buckets, strict=True):
            upto = bisect_right(ordered, bound, seen)
            if upto > seen:
                bucket.inc(upto - seen)
                seen = upto
                if seen == len(ordered):
                    break
        self._sum.inc(total)

    @property
    def bounds(self) -> Sequence[float]:
        """Of its buckets, that of the last one included."""
        return self._upper_bounds

    @property
    def name(self) -> str:
        """Of the whole metric."""
        return str(self._name)

    @property
    def label_names(self) -> tuple[str, ...]:
        """In the order in which values are given."""
        return tuple(self._labelnames)


class Instruments:
    """The router's instruments. One per process. The bounds of its distributions stand beside them, in seconds."""

    # Half as long again at most, where most answers are: alerts compare percentiles, which are no finer than this.
    LATENCY = (0.05, 0.1, 0.2, 0.3, 0.45, 0.7, 1, 1.5, 2.25, 3.5, 5, 7.5, 11, 17, 25, 40, 60, 120, 300, 600)
    TTFT = (0.05, 0.1, 0.15, 0.2, 0.3, 0.45, 0.7, 1, 1.5, 2.25, 3.5, 5, 7.5, 11, 17, 30, 60)
    OVERHEAD = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.125, 0.25, 0.5, 1)
    QUEUED = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 3, 5)
    DEPTHS = (0, 1, 2, 3, 5)  # changes of endpoint, no seconds
    PART = (0.00001, 0.00002, 0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.25, 1)

    def __init__(self, worker: int, slot: int = 0) -> None:
        mine = files_of(worker, slot)
        values.ValueClass = values.MultiProcessValue(process_identifier=lambda: mine)  # type: ignore[no-untyped-call]
        self.exemplars = exemplar_file(worker, slot)
        registry = CollectorRegistry(auto_describe=False)
        by_model = ("provider", "model", "tier")
        self.requests = Counter("llm_requests", "Requests ended, by outcome.", (*by_model, "status"), registry=registry)
        self.latency = Distribution("llm_request_latency_seconds", "Whole requests.", by_model, buckets=self.LATENCY, registry=registry)
        self.ttft = Distribution(
            "llm_ttft_seconds", "Until the first token the client sees.", by_model, buckets=self.TTFT, registry=registry
        )
        self.fallbacks = Distribution(
            "llm_fallback_depth", "Changes of endpoint per request.", ("tier",), buckets=self.DEPTHS, registry=registry
        )
        self.tokens = Counter("llm_tokens", "Tokens, by direction.", ("provider", "model", "direction"), registry=registry)
        self.cost = Counter("llm_cost_usd", "Cost at catalog prices.", ("provider", "model"), registry=registry)
        self.overhead = Distribution("n4n_overhead_seconds", "Not spent waiting for a provider.", buckets=self.OVERHEAD, registry=registry)
        self.part = Distribution(
            "n4n_overhead_part_seconds", "Of one request in 17 that ended well, what each part of the way took.", ("part",),
            buckets=self.PART, registry=registry,
        )  # fmt: skip
        self.attempts = Counter("n4n_attempts", "Attempts, by outcome.", ("provider", "outcome"), registry=registry)
        self.injected = Counter("n4n_injected_faults", "Attempts that a fault of the catalog befell.", ("endpoint",), registry=registry)
        self.log_dropped = Counter("n4n_log_lines_dropped", "Log lines lost because their reader stalled.", registry=registry)
        self.nacks = Counter("n4n_catalog_nack", "Pushed versions refused.", registry=registry)
        self.version = Gauge("n4n_catalog_version", "Catalog version in use.", multiprocess_mode="liveall", registry=registry)
        self.age = Gauge("n4n_catalog_age_seconds", "Since the head was last confirmed.", multiprocess_mode="livemax", registry=registry)
        self.usage_waiting = Gauge(
            "n4n_usage_waiting_bytes", "Of the ledger, not taken by a control plane yet.", multiprocess_mode="livesum", registry=registry
        )
        self.usage_dropped = Counter("n4n_usage_lines_dropped", "Of the ledger, lost for want of room.", registry=registry)
        self.counted = Counter("n4n_answers_counted", "Answers whose tokens n4n counted itself.", registry=registry)
        self.uncounted = Counter("n4n_answers_not_counted", "Those that it should have counted, by why not.", ("why",), registry=registry)
        self.compared = Counter(
            "n4n_compared_tokens",
            "Of answers counted exactly: reported and counted, by whose vocabulary.",
            ("endpoint", "direction", "by", "vocabulary"),
            registry=registry,
        )
        self.queue = Gauge(
            "llm_queue_depth", "Requests that wait for quota.", ("priority",), multiprocess_mode="livesum", registry=registry
        )
        self.queued = Distribution(
            "llm_queue_seconds", "Waited for quota, of those that did.", ("priority",), buckets=self.QUEUED, registry=registry
        )
        self.quota = Gauge(
            "llm_quota_utilization_ratio", "Used of an account's limit, as last known; of several models' the most.",
            ("provider", "account", "limit_type"), multiprocess_mode="livemax", registry=registry,
        )  # fmt: skip
        self.store_up = Gauge("n4n_store_up", "0 while Redis cannot be used, else 1.", multiprocess_mode="livemin", registry=registry)
        of_endpoint = ("provider", "model", "endpoint")
        self.endpoint_health = Gauge(
            "llm_endpoint_health", "Score: what is left of a weight.", of_endpoint, multiprocess_mode="livemin", registry=registry
        )
        self.endpoint_breaker = Gauge(
            "n4n_endpoint_breaker", "0 closed, 0.5 half open, 1 open.", of_endpoint, multiprocess_mode="livemax", registry=registry
        )
        self.endpoint_ttft = Gauge(
            "n4n_endpoint_ttft_seconds", "First tokens lately, all routers and probes.", (*of_endpoint, "quantile"),
            multiprocess_mode="livemax", registry=registry,
        )  # fmt: skip
        self.endpoint_speed = Gauge(
            "n4n_endpoint_tokens_per_second", "Of streams lately, all routers.", (*of_endpoint, "quantile"),
            multiprocess_mode="livemin", registry=registry,
        )  # fmt: skip
        self.health_told = Counter("n4n_health_told", "Steps in which health was told to Redis.", registry=registry)
        self.health_lost = Counter("n4n_health_lost", "Steps that Redis did not take; they count here alone.", registry=registry)
        self.limits_alone = Counter("n4n_limits_without_store", "Reservations decided without Redis.", registry=registry)
        self.idempotent = Counter(
            "n4n_idempotent_requests", "Requests with an idempotency key, by what became of them.", ("outcome",), registry=registry
        )
        self.inversions = Counter(
            "n4n_priority_inversions", "Lower-class requests served while interactive ones waited for the same quota.", registry=registry
        )
        self.unpriced = Counter("n4n_unpriced_attempts", "Answers without a price.", ("provider", "model"), registry=registry)
        of_model = ("gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model")
        self.served = Distribution(
            "gen_ai_server_request_duration_seconds", "Whole requests, as clients see them.", (*of_model, "error_type"),
            buckets=gen_ai.DURATIONS, registry=registry,
        )  # fmt: skip
        self.first_token = Distribution(
            "gen_ai_server_time_to_first_token_seconds", "Of streams that ended well.", of_model,
            buckets=gen_ai.FIRST_TOKENS, registry=registry,
        )  # fmt: skip
        self.per_token = Distribution(
            "gen_ai_server_time_per_output_token_seconds", "After the first one, of streams that ended well.", of_model,
            buckets=gen_ai.PER_TOKEN, registry=registry,
        )  # fmt: skip
        self.called = Distribution(
            "gen_ai_client_operation_duration_seconds", "Attempts: one call of a provider each.", (*of_model, "error_type"),
            buckets=gen_ai.DURATIONS, registry=registry,
        )  # fmt: skip
        self.usage = Distribution(
            "gen_ai_client_token_usage", "Tokens of an answer.", (*of_model, "gen_ai_token_type"), buckets=gen_ai.TOKENS, registry=registry
        )
        self.streams = Gauge("n4n_active_streams", "Streams open now.", multiprocess_mode="livesum", registry=registry)


def exposition() -> bytes:
    """The metrics of every worker of this node in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(NodeMetrics(metrics_here()))
    return generate_latest(registry)


def forget_worker(worker: int, slot: int = 0) -> None:
    """Drops the gauges and exemplars of a worker process that ended; called by the supervisor."""
    exemplar_file(worker, slot).unlink(missing_ok=True)
    multiprocess.mark_process_dead(files_of(worker, slot), os.environ["PROMETHEUS_MULTIPROC_DIR"])  # type: ignore[no-untyped-call]
