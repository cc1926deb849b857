"""How `n4n up` starts each of its programs: command line, environment, log file, and how long each may take to stop."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import IO

from n4n.cli.house import Program, Running, Service
from n4n.cli.notices import notice
from n4n.runtime.embedded import start_postgres, start_valkey
from n4n.runtime.process import own_command, spawn
from n4n.runtime.settings import CREDENTIAL_PREFIXES, Settings

CONTROL_PLANE, DATA_PLANE, PROBER, POSTGRES, VALKEY = "control-plane", "data-plane", "prober", "postgres", "valkey"
STORES_RANK, CONTROL_RANK, SIM_RANK, DATA_RANK = range(4)  # data plane and prober stop first, what they need after them
DRAIN_S = 4  # at a laptop's Ctrl-C; a fleet's routers take N4N_DRAIN_SEC
DATA_STOP_S, SIM_STOP_S, CONTROL_STOP_S, STORE_STOP_S = 6.0, 1.0, 3.0, 4.0  # 14 s at worst
SIM_KEY = "N4N_SIM_KEY"
_OWN_NAME = re.compile(r"\An4n( [a-z-]+)?: ")


def postgres(folder: Path) -> Service:
    """The embedded PostgreSQL."""
    return Service(POSTGRES, partial(start_postgres, folder, tell=_tell), STORES_RANK, STORE_STOP_S)


def valkey(folder: Path) -> Service:
    """The embedded Valkey."""
    return Service(VALKEY, partial(start_valkey, folder, tell=_tell), STORES_RANK, STORE_STOP_S)


def _tell(line: str) -> None:
    notice(line, "embedded_store")


def control_plane(settings: Settings) -> Service:
    """The control plane; it brings its schema up to date by itself."""
    start = partial(_start, CONTROL_PLANE, log_path(settings, CONTROL_PLANE), environ_of(settings))
    return Service(CONTROL_PLANE, start, CONTROL_RANK, CONTROL_STOP_S)


def data_plane(settings: Settings) -> Service:
    """The data plane's supervisor; its request log is our standard output. It learns neither the database nor the operator's token."""
    known = replace(settings, database_url="", admin_token="")
    start = partial(_start, DATA_PLANE, log_path(settings, DATA_PLANE), environ_of(known))
    return Service(DATA_PLANE, start, DATA_RANK, DATA_STOP_S)


def prober(settings: Settings) -> Service:
    """The prober. It learns neither the database nor the operator's token."""
    known = replace(settings, database_url="", admin_token="")
    start = partial(_start, PROBER, log_path(settings, PROBER), environ_of(known))
    return Service(PROBER, start, DATA_RANK, DATA_STOP_S)


def simulated(name: str, port: int, settings: Settings) -> Service:
    """A simulated provider. Killing one is a rehearsal, so it stays dead."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("N4N_")}
    start = partial(_start, "sim", log_path(settings, name), environ, "--name", name, "--port", str(port))
    return Service(name, start, SIM_RANK, SIM_STOP_S, restarted=False)


def _start(role: str, log: Path, environ: Mapping[str, str], *arguments: str) -> Running:
    with open_log(log) as file:
        output = None if role == DATA_PLANE else file
        return Program(spawn(role, own_command(role, *arguments), environ=environ, output=output, errors=file))


def log_path(settings: Settings, name: str) -> Path:
    """Where a program's messages go."""
    return settings.data_path / f"{name}.log"


def open_log(path: Path) -> IO[bytes]:
    """A fresh log, 0600; the one before is kept as `.log.old`."""
    if path.exists():
        path.replace(path.with_suffix(".log.old"))
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600), "ab", buffering=0)


def last_words(path: Path) -> str:
    """The last line of a log, empty when it holds none."""
    try:
        lines = path.read_bytes()[-4096:].decode("utf-8", "replace").split("\n")
    except OSError:
        return ""
    spoken = [line.strip() for line in lines if line.strip()]
    return _OWN_NAME.sub("", _message(spoken[-1])) if spoken else ""


def _message(line: str) -> str:
    """What a line of JSON says, with what the exception in it was; another line as it is."""
    try:
        told = json.loads(line)
        return ": ".join([told["message"], *told.get("exception", "").splitlines()[-1:]])
    except (ValueError, TypeError, KeyError):
        return line


def environ_of(settings: Settings, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment of a child: ours, with every setting said, and with forks safe beside gRPC threads."""
    kept = {name: value for name, value in environ.items() if not name.startswith("N4N_") or name.startswith(CREDENTIAL_PREFIXES)}
    told = {f"N4N_{field.name.upper()}": str(getattr(settings, field.name)) for field in fields(Settings)}
    return {SIM_KEY: "sim", **kept, **told, "GRPC_ENABLE_FORK_SUPPORT": "0"}
