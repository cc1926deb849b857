"""Every metric of a prober, in one table. Labels are bounded sets: names from the catalog and fixed words."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, generate_latest

OUTCOMES = ("ok", "ill", "limited", "account_out", "gone", "misconfigured", "unclear", "spared", "no_credential")
_LATENCY = (0.05, 0.1, 0.2, 0.4, 0.8, 1.5, 3, 5, 10)


class Instruments:
    """One per process."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry(auto_describe=False)
        self.probes = Counter("n4n_probes", "Probes, by what came of them.", ("provider", "outcome"), registry=registry)
        self.latency = Histogram(
            "n4n_probe_latency_seconds", "Of probes that were answered.", ("provider",), buckets=_LATENCY, registry=registry
        )
        self.up = Gauge("n4n_probe_up", "1 if the last probe of it was answered.", ("endpoint", "model"), registry=registry)
        self.cost = Counter("n4n_probe_cost_usd", "What probes cost at catalog prices.", ("provider",), registry=registry)
        self.budget = Gauge("n4n_probe_budget_used_ratio", "Of today's money, by all probers.", ("provider",), registry=registry)
        self.stretch = Gauge("n4n_probe_stretch", "How many times longer than planned intervals are.", ("provider",), registry=registry)
        self.tasks = Gauge("n4n_probe_tasks", "This prober's share of all tasks.", registry=registry)
        self.members = Gauge("n4n_probers", "Probers that live, as this one knows.", registry=registry)
        self.findings = Gauge("n4n_probe_finding", "1 while it stands.", ("kind", "about"), registry=registry)
        self.balance = Gauge("n4n_account_balance_usd", "What is left on a prepaid account.", ("account",), registry=registry)
        self.capability = Gauge("n4n_capability_score", "Of the last few checks.", ("endpoint", "capability"), registry=registry)
        self.version = Gauge("n4n_catalog_version", "Catalog version in use.", registry=registry)
        self.age = Gauge("n4n_catalog_age_seconds", "Since the head was last confirmed.", registry=registry)
        self.nacks = Counter("n4n_catalog_nack", "Pushed versions refused.", registry=registry)
        self.store_up = Gauge("n4n_store_up", "Whether Redis can be used, 1 or 0.", registry=registry)
        self.usage_waiting = Gauge("n4n_usage_waiting_bytes", "Of the ledger, not taken by a control plane yet.", registry=registry)

    def collect(self) -> Iterable[Metric]:
        """As they stand now."""
        return self._registry.collect()

    def exposition(self) -> bytes:
        """In Prometheus' text format."""
        return generate_latest(self._registry)
