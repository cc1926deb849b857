"""The control plane's /metrics: read from the running parts at the moment of a scrape."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from control_plane.budget_keeper import BudgetKeeper
from control_plane.publisher import Publisher
from control_plane.reaper import Reaper
from control_plane.roster import Roster
from control_plane.service.usage import Usage
from control_plane.watchers import Watchers
from n4n.core.alerts.facts import Facts
from n4n.core.errors import StartFailed

MOST_REACHED = 1000  # budgets that a scrape tells of
MOST_NODES = 1000  # likewise, those that are connected before others


class Gauges(Collector):
    """A few numbers about the push, budgets that are half spent, and what watchers saw; labels are names of catalog, tenants and nodes."""

    def __init__(
        self, publisher: Publisher, roster: Roster, budgets: BudgetKeeper, watchers: Watchers, usage: Usage, reaper: Reaper | None
    ) -> None:
        self._publisher, self._roster, self._budgets, self._watchers = publisher, roster, budgets, watchers
        self._usage, self._reaper = usage, reaper

    def collect(self) -> Iterator[Metric]:
        """Called by the scrape's own thread; it only reads."""
        catalog, access = self._publisher.catalog.head, self._publisher.access.head
        age = max(0.0, time.time() - catalog.committed_at_ms / 1000) if catalog.held[0] else 0.0
        yield GaugeMetricFamily("n4n_catalog_version", "Catalog version that is pushed", catalog.held[0])
        yield GaugeMetricFamily("n4n_catalog_age_seconds", "Time since the pushed catalog version was committed", age)
        yield GaugeMetricFamily("n4n_access_version", "Access version that is pushed", access.held[0])
        yield CounterMetricFamily("n4n_catalog_nack", "Versions that nodes refused", self._roster.nacks)
        yield GaugeMetricFamily("n4n_nodes_connected", "Nodes with a stream to this control plane", self._roster.connected)
        yield CounterMetricFamily("n4n_budget_alerts", "Levels of budgets that were told", self._budgets.alerts)
        yield CounterMetricFamily("n4n_budget_seeds", "Owners of budgets whose spending was told to Redis", self._budgets.seeded)
        reached = GaugeMetricFamily(
            "n4n_budget_level_reached", "Budgets at 50, 80 or 100 per cent of their window", labels=("tenant", "budget", "level")
        )
        for (tenant, budget, level), count in list(self._budgets.reached.items())[:MOST_REACHED]:
            reached.add_metric((tenant, budget, str(level)), count)
        yield reached
        yield GaugeMetricFamily("n4n_database_up", "1 while Postgres answers", float(self._publisher.database == "ok"))
        yield CounterMetricFamily("n4n_usage_rows", "Rows of the ledger that routers brought, repeated ones too", self._usage.taken)
        yield CounterMetricFamily("n4n_usage_unreadable", "Lines of routers that were no rows", self._usage.unreadable)
        closed = 0 if self._reaper is None else self._reaper.closed
        yield CounterMetricFamily("n4n_usage_closed", "Attempts of lost routers that were closed as unknown", closed)
        facts = self._watchers.known
        if facts is not None:
            yield from _of_the_fleet(facts)


def _of_the_fleet(facts: Facts) -> Iterator[Metric]:
    models = facts.models
    yield _labelled("n4n_model_candidates", "Usable endpoints, where fewest are", ("model",), [((m.model,), m.candidates) for m in models])
    yield _labelled("n4n_model_endpoints", "Endpoints in the catalog", ("model",), [((m.model,), m.endpoints) for m in models])
    shares = [((provider, model.model), share) for model in models for provider, share in model.weights.items()]
    yield _labelled("n4n_provider_weight_share", "Of a model, by weights, where they decide", ("provider", "model"), shares)
    out = [(account, 1.0) for account in facts.accounts_out]
    yield _labelled("n4n_account_out", "1 while a provider refuses it", ("provider", "account", "reason"), out)
    nodes = sorted(facts.nodes, key=lambda node: (not node.connected, node.node))[:MOST_NODES]
    yield _labelled("n4n_node_lag_seconds", "Behind the catalog", ("node",), [((node.node,), node.lag_s) for node in nodes])
    refusing = [((node.node,), float(node.refuses)) for node in nodes]
    yield _labelled("n4n_node_refuses", "1 while it refused the last version", ("node",), refusing)


def _labelled(name: str, told: str, labels: Sequence[str], values: Iterable[tuple[Sequence[str], float]]) -> Metric:
    family = GaugeMetricFamily(name, told, labels=labels)
    for of, value in values:
        family.add_metric(of, value)
    return family


@contextmanager
def metrics_server(host: str, port: int, gauges: Gauges) -> Iterator[int]:
    """Serves /metrics while inside; the port it listens on, 0 when `port` is 0 and nothing is served."""
    if port == 0:
        yield 0
        return
    registry = CollectorRegistry(auto_describe=False)
    registry.register(gauges)
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise StartFailed(
            f"/metrics cannot listen on {host}:{port} ({error.strerror}); free the port or choose another with N4N_METRICS_PORT"
        ) from error
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
