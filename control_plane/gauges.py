"""The control plane's /metrics: read from the running parts at the moment of a scrape."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from control_plane.publisher import Publisher
from control_plane.roster import Roster
from n4n.core.errors import StartFailed


class Gauges(Collector):
    """A few numbers about the push; labels are none."""

    def __init__(self, publisher: Publisher, roster: Roster) -> None:
        self._publisher = publisher
        self._roster = roster

    def collect(self) -> Iterator[Metric]:
        """Called by the scrape's own thread; it only reads."""
        catalog, access = self._publisher.catalog.head, self._publisher.access.head
        age = max(0.0, time.time() - catalog.committed_at_ms / 1000) if catalog.held[0] else 0.0
        yield GaugeMetricFamily("n4n_catalog_version", "Catalog version that is pushed", catalog.held[0])
        yield GaugeMetricFamily("n4n_catalog_age_seconds", "Time since the pushed catalog version was committed", age)
        yield GaugeMetricFamily("n4n_access_version", "Access version that is pushed", access.held[0])
        yield CounterMetricFamily("n4n_catalog_nack", "Versions that nodes refused", self._roster.nacks)
        yield GaugeMetricFamily("n4n_nodes_connected", "Nodes with a stream to this control plane", self._roster.connected)
        yield GaugeMetricFamily("n4n_database_up", "1 while Postgres answers", float(self._publisher.database == "ok"))


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
