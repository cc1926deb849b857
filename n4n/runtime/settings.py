"""Configuration from N4N_* environment variables, read once into a frozen value; flags of the command override it.

A misspelt or malformed N4N_* name stops the start. `N4N_TEST_*` belongs to the tests and is passed over, as are names
that the catalog's `env:` credentials use (they only need to exist when an account names them).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from n4n.core import schema
from n4n.core.errors import StartFailed

CREDENTIAL_PREFIXES = ("N4N_TEST_", "N4N_KEY_", "N4N_SIM_KEY")


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting and its default; the variable is N4N_ and the field's name in capitals."""

    data_dir: str = ".n4n"
    database_url: str = ""  # postgresql://…; `n4n up` starts its own PostgreSQL where it is empty
    redis_url: str = ""  # redis:// or unix://; `n4n up` starts its own Valkey where it is empty
    host: str = "127.0.0.1"  # where the data plane listens; the compose file sets 0.0.0.0
    port: int = 8080
    workers: int = 1
    worker: int = 0  # which worker this process is; 0: the supervisor of all
    # The next seven are said by a supervisor to its workers.
    listen_fd: int = 0  # the listening socket it inherits; 0: it opens its own
    tally_fd: int = 0  # the memory in which workers see how many connections each holds; 0: it has the socket for itself
    report_fd: int = 0  # the pipe on which it says that it serves, lives, leaves; 0: it has no supervisor
    slot: int = 0  # tells apart the processes of one worker while one takes over from another
    takes_over: int = 0  # 1: one that serves is still there, so accept nothing before you are ready
    counting_socket: str = ""  # where the counting process of this node listens; empty: there is none
    counting: int = 0  # 1: this process is it
    node: str = ""  # the node's stable name; empty: <host name>-<worker>
    admin_host: str = "127.0.0.1"  # where the control plane's gRPC listens
    admin_port: int = 9400
    metrics_port: int = 9401  # the control plane's /metrics; 0: none
    prober_port: int = 9402  # a prober's /metrics, /live and /ready, on `host`; 0: none
    probers: int = 1  # 1: `n4n up` starts a prober; 0: none, and health is known from traffic alone
    admin_url: str = ""  # control planes, host:port, comma separated: for the command and for routers
    admin_token: str = ""  # may do everything; the control plane and the command. Of both several, comma separated: see bearer.py
    node_token: str = ""  # may watch the catalog and report usage, nothing else; the control plane and routers
    tls_cert: str = ""  # a PEM file: what this program shows to the other planes; with tls_key
    tls_key: str = ""
    tls_ca: str = ""  # a PEM file: by whom the others' certificates must be signed
    seal_key: str = ""
    egress_proxy: str = ""  # http://[USER:PASSWORD@]HOST:PORT for calls to providers; empty: none
    upstream_connections: int = 10_000  # open connections of one worker to one provider's host; as many as from clients, 0: no bound
    max_body_mib: int = 32
    max_connections: int = 10_000  # open client connections of one worker
    header_timeout_sec: int = 10
    body_timeout_sec: int = 30  # for a request body, and one second more for every KiB that came
    keep_alive_sec: int = 75
    slow_reader_sec: int = 60
    drain_sec: int = 60
    lame_duck_sec: int = 3  # a balancer that checks /ready every second has noticed by then
    stale_after_sec: int = 900  # a control link lost for longer is reported
    lost_router_sec: int = 90  # a router that is not heard of in Redis for longer is lost, and its open attempts are closed; 0: never
    alert_webhooks: str = ""  # whom a control plane tells of alerts: slack=URL, pagerduty=ROUTING_KEY, json=URL, comma separated
    alert_look_sec: int = 15  # how often it looks whether something is wrong; 0: never
    vitals_sec: int = 5  # how often a router tells a control plane how it is, at most 30; 0: never
    log_level: str = "info"  # of what a process says of itself: debug, info, warning or error
    log_one_in: int = 1  # of the requests that ended well and at once, one in so many has a line; all others always have
    background_reserve_percent: int = 20  # of every account's limits, which background requests leave to interactive ones
    best_effort_reserve_percent: int = 50  # the same, of best_effort requests
    usage_keep_days: int = 400  # single rows of the usage ledger; their sums are kept; 0: for ever
    usage_disk_mib: int = 2048  # of one worker, for usage that no control plane has taken yet
    count_one_in: int = 50  # of the answers whose usage is in order, one in so many is counted too; 0: nothing is counted on this node

    def __post_init__(self) -> None:
        """StartFailed where a control plane is named without its port: gRPC would silently take 443."""
        for target in self.control_planes:
            if not target.startswith("unix:") and not target.rpartition(":")[2].isdigit():
                wrong = f"{target[:80]!r} has no port (a control plane's is 9400)"
                raise StartFailed(f"N4N_ADMIN_URL must be HOST:PORT, several with commas; {wrong}")

    def __repr__(self) -> str:
        """Without secrets, so that a settings value may be logged."""
        hidden = {"database_url", "redis_url", "admin_token", "node_token", "seal_key", "egress_proxy", "alert_webhooks"}
        shown = (f"{f.name}={'…' if f.name in hidden and getattr(self, f.name) else repr(getattr(self, f.name))}" for f in fields(self))
        return f"Settings({', '.join(shown)})"

    @property
    def data_path(self) -> Path:
        """The data directory, absolute."""
        return Path(self.data_dir).expanduser().resolve()

    @property
    def control_planes(self) -> tuple[str, ...]:
        """gRPC targets, host:port."""
        return tuple(part.strip() for part in self.admin_url.split(",") if part.strip())


def read_settings(environ: Mapping[str, str] = os.environ) -> Settings:
    """Settings from N4N_* variables; StartFailed in one line when a name or value is wrong."""
    known = {f"N4N_{f.name.upper()}": f for f in fields(Settings)}
    values: dict[str, str | int] = {}
    for name, text in environ.items():
        if not name.startswith("N4N_") or name.startswith(CREDENTIAL_PREFIXES):
            continue
        if name not in known:
            raise StartFailed(f"{name} is not a setting{schema.nearest(name, known)}; docs/operations.md lists them")
        read = _int if known[name].type == "int" else str
        values[known[name].name] = _read(name, text, read)
        if name.endswith("_PORT") and int(values[known[name].name]) > 65_535:
            raise StartFailed(f"{name} must be a port, 0 to 65535, not {text[:40]!r}")
    return Settings(**values)  # type: ignore[arg-type]  # the loop keeps each value in its field's type


def _read(name: str, text: str, read: Callable[[str], str | int]) -> str | int:
    try:
        return read(text)
    except ValueError as error:
        raise StartFailed(f"{name} must be a whole number, not {text[:40]!r}") from error


def _int(text: str) -> int:
    value = int(text)
    if value < 0:
        raise ValueError(text)
    return value
