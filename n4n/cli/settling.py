"""What `n4n up` decides before it starts anything: every port, every secret, and what runtime.json will say."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import cast

import n4n
from n4n.catalogs.simulated import SERVERS
from n4n.cli import ports, services
from n4n.cli.home import Home
from n4n.cli.ports import LOOPBACK, reachable
from n4n.runtime.settings import Settings


@dataclass(frozen=True, slots=True)
class Settled:
    """Settings with nothing left open but the stores' URLs. `moved_ports`: old ports that simulated providers had to leave."""

    settings: Settings
    sim_ports: Mapping[str, int]
    moved_ports: Mapping[str, int]


def settle(wanted: Settings, home: Home, *, with_sim: bool, patient: bool, keep_waiting: Callable[[], bool]) -> Settled:
    """StartFailed naming the flag when a port is taken; `patient`: by what an earlier run left behind, perhaps."""
    secrets = home.secrets()
    port = ports.settled(wanted.host, wanted.port, "--port", patient=patient, keep_waiting=keep_waiting)
    admin_port = ports.settled(wanted.admin_host, wanted.admin_port, "--admin-port", patient=patient, keep_waiting=keep_waiting)
    settings = replace(
        wanted,
        data_dir=str(home.path),
        port=port,
        admin_port=admin_port,
        metrics_port=_metrics_port(wanted, admin_port),
        prober_port=_prober_port(wanted, admin_port),
        admin_url=f"{reachable(wanted.admin_host)}:{admin_port}",
        admin_token=wanted.admin_token or secrets.admin_token,
        node_token=wanted.node_token or secrets.node_token,
        drain_sec=min(wanted.drain_sec, services.DRAIN_S),
        lame_duck_sec=0,  # no balancer stands in front of a laptop
    )
    before = home.sim_ports() if with_sim else {}
    now = _sim_ports(before, patient, keep_waiting) if with_sim else {}
    return Settled(settings, now, {name: port for name, port in before.items() if now.get(name) != port})


def with_prober(runtime: Mapping[str, object], settings: Settings) -> dict[str, object]:
    """The same once the prober answers too."""
    urls = cast(list[str], runtime["metrics_urls"])
    return {**runtime, "metrics_urls": [*urls, f"http://{reachable(settings.host)}:{settings.prober_port}/metrics"]}


def _metrics_port(wanted: Settings, admin_port: int) -> int:
    """The one that was asked for; else, where it is taken (by another n4n up), any free one, as nobody must type it."""
    if wanted.metrics_port == 0 or "N4N_METRICS_PORT" in os.environ:
        return wanted.metrics_port
    near = admin_port + 1 if admin_port < 65_535 else 0
    return near if near and ports.is_free(wanted.admin_host, near) else ports.any_free(wanted.admin_host)


def _prober_port(wanted: Settings, admin_port: int) -> int:
    """As for the control plane's metrics."""
    if not wanted.prober_port or "N4N_PROBER_PORT" in os.environ:
        return wanted.prober_port
    near = admin_port + 2 if admin_port < 65_534 else 0
    return near if near and ports.is_free(wanted.host, near) else ports.any_free(wanted.host)


def _sim_ports(before: Mapping[str, int], patient: bool, keep_waiting: Callable[[], bool]) -> dict[str, int]:
    now: dict[str, int] = {}
    for name in SERVERS:
        old = before.get(name)
        if old is not None and ports.becomes_free(LOOPBACK, old, patient=patient, keep_waiting=keep_waiting):
            now[name] = old
        else:
            now[name] = ports.lasting(LOOPBACK, {*now.values(), *before.values()})
    return now


def runtime_of(settings: Settings, base_url: str, api_key: str) -> dict[str, object]:
    """What other commands and scripts read: the contents of runtime.json."""
    metrics = [f"{base_url.removesuffix('/v1')}/metrics"]
    if settings.metrics_port:
        metrics.append(f"http://{reachable(settings.admin_host)}:{settings.metrics_port}/metrics")
    return {
        "base_url": base_url,
        "api_key": api_key,
        "admin_url": settings.admin_url,
        "admin_token": settings.admin_token,
        "database_url": settings.database_url.replace("postgresql+psycopg:", "postgresql:", 1),
        "redis_url": settings.redis_url,
        "metrics_urls": metrics,
        "pid": os.getpid(),
        "version": n4n.__version__,
    }
