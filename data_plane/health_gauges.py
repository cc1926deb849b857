"""What Prometheus sees of endpoints: score, breaker and pace of each one of the catalog, told once a second where they changed."""

from __future__ import annotations

import math

from data_plane.health import Health
from n4n.core.breaker import Breaker, phase
from n4n.core.catalog import Endpoint, Snapshot
from n4n.core.health.seen import Seen
from n4n.runtime.telemetry import Instruments

_STATES = {Breaker.CLOSED: 0.0, Breaker.HALF_OPEN: 0.5, Breaker.OPEN: 1.0}
_NOBODY = Seen()


class HealthGauges:
    """One per worker. Series are those of the catalog's endpoints; one that left it reads NaN."""

    def __init__(self, instruments: Instruments, health: Health) -> None:
        self._see, self._health = instruments, health
        self._shown: dict[str, Endpoint] = {}
        self._told = self._lost = 0

    def use(self, snapshot: Snapshot) -> None:
        """Another catalog."""
        for name, endpoint in self._shown.items():
            known = snapshot.endpoints.get(name)
            if known is None or _labels(known) != _labels(endpoint):
                self._see.endpoint_health.labels(*_labels(endpoint)).set(math.nan)
                self._see.endpoint_breaker.labels(*_labels(endpoint)).set(math.nan)
        self._shown = dict(snapshot.endpoints)
        self._health.changed.update(self._shown)

    def show(self, now: float) -> None:
        """What changed since the last time."""
        changed, self._health.changed = self._health.changed, set()
        for name in changed:
            endpoint = self._shown.get(name)
            if endpoint is not None:
                self._tell(endpoint, self._health.shared.seen.get(name, _NOBODY), now)
        shared = self._health.shared
        self._see.health_told.inc(shared.told - self._told)
        self._see.health_lost.inc(shared.lost - self._lost)
        self._told, self._lost = shared.told, shared.lost

    def _tell(self, endpoint: Endpoint, seen: Seen, now: float) -> None:
        labels, state = _labels(endpoint), phase(seen.breaker, now)
        self._see.endpoint_health.labels(*labels).set(self._health.shared.score(endpoint.id))
        self._see.endpoint_breaker.labels(*labels).set(_STATES[state])
        for quantile, ttft_ms, speed in (
            ("0.5", seen.ttft_p50_ms, seen.tokens_per_s_p50),
            ("0.95", seen.ttft_p95_ms, seen.tokens_per_s_p95),
        ):
            if ttft_ms is not None:
                self._see.endpoint_ttft.labels(*labels, quantile).set(ttft_ms / 1000)
            if speed is not None:
                self._see.endpoint_speed.labels(*labels, quantile).set(speed)
        if state is Breaker.OPEN:
            self._health.changed.add(endpoint.id)  # it will be half-open by time alone


def _labels(endpoint: Endpoint) -> tuple[str, str, str]:
    return endpoint.provider.name, endpoint.model, endpoint.id
