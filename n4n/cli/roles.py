"""`n4n control-plane`, `data-plane`, `prober`, `migrate`: one role in this process, configured by N4N_* or by flags that override them."""

from __future__ import annotations

import os
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Mapping
from dataclasses import fields, replace

from n4n.cli import values
from n4n.cli.output import progress
from n4n.cli.parser import Commands, Parser, example
from n4n.core.errors import StartFailed
from n4n.runtime.settings import Settings, read_settings

# What each setting means; secrets have no flag, because a process list shows flags.
_ABOUT: Mapping[str, str] = {
    "data_dir": "where this role keeps what it writes",
    "database_url": "PostgreSQL, postgresql://…",
    "redis_url": "Redis or Valkey, redis://… or unix://…",
    "host": "address the HTTP server listens on",
    "port": "port of the HTTP server",
    "workers": "worker processes",
    "worker": "run only this worker; 0 runs a supervisor and all workers",
    "counting": "1: be the process that counts tokens for the workers",
    "node": "stable name of this node in the fleet",
    "admin_host": "address the gRPC server listens on",
    "admin_port": "port of the gRPC server",
    "metrics_port": "port of /metrics; 0: none",
    "prober_port": "port of /metrics, /live and /ready; 0: none",
    "admin_url": "control planes, host:port, comma separated",
    "max_body_mib": "largest request body, in MiB",
    "max_connections": "open client connections of one worker",
    "header_timeout_sec": "how long a client may take to send its headers",
    "keep_alive_sec": "how long an idle client connection stays open",
    "slow_reader_sec": "a client that reads nothing for so long is closed",
    "drain_sec": "how long running requests may take after a stop",
    "lame_duck_sec": "how long, of that time, new connections are still accepted",
    "stale_after_sec": "a control link lost for longer is reported",
}
_CONTROL_PLANE = ("database_url", "redis_url", "admin_host", "admin_port", "metrics_port", "data_dir")
_DATA_PLANE = (
    "admin_url", "redis_url", "host", "port", "workers", "worker", "counting", "node", "data_dir", "max_body_mib", "max_connections",
    "header_timeout_sec", "keep_alive_sec", "slow_reader_sec", "drain_sec", "lame_duck_sec", "stale_after_sec",
)  # fmt: skip
_PROBER = ("admin_url", "redis_url", "host", "prober_port", "node", "data_dir", "stale_after_sec")
_MIGRATE = ("database_url",)


def add(commands: Commands) -> None:
    """Adds the four commands."""
    _add(
        commands, "control-plane", _CONTROL_PLANE, _run_control_plane,
        "run a control plane", "n4n control-plane --database-url postgresql://n4n@db/n4n --admin-port 9400",
    )  # fmt: skip
    _add(
        commands, "data-plane", _DATA_PLANE, _run_data_plane,
        "run a data plane: a supervisor and its workers", "n4n data-plane --admin-url control:9400 --port 8080 --workers 4",
    )  # fmt: skip
    _add(
        commands, "prober", _PROBER, _run_prober,
        "run a prober, which checks every model of every endpoint", "n4n prober --admin-url control:9400 --redis-url redis://redis:6379/0",
    )  # fmt: skip
    _add(
        commands, "migrate", _MIGRATE, _run_migrate,
        "bring the database schema to this version", "n4n migrate --database-url postgresql://n4n@db/n4n",
    )  # fmt: skip


def _add(commands: Commands, role: str, names: tuple[str, ...], run: Callable[[Settings], int], about: str, line: str) -> None:
    more = "Every flag is also a variable: --port is N4N_PORT; secrets (N4N_ADMIN_TOKEN, N4N_NODE_TOKEN) are variables only."
    parser = commands.add(role, about=about, more=more, epilog=example(line))
    _offer_settings(parser, names)
    parser.set_defaults(run=lambda args: run(settings_of(args, names)))


def _offer_settings(parser: Parser, names: tuple[str, ...]) -> None:
    for field in fields(Settings):
        if field.name in names:
            default = f" (default {field.default})" if field.default != "" else ""
            read: Callable[[str], int | str] = str
            if field.type == "int":
                read = values.port if field.name.endswith("port") else values.number if field.name == "workers" else _whole
            metavar = "N" if field.type == "int" else "TEXT"
            parser.add_argument(f"--{field.name.replace('_', '-')}", type=read, metavar=metavar, help=f"{_ABOUT[field.name]}{default}")


def _whole(text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) < 10:
        return int(text)
    raise ArgumentTypeError(f"{text!r} is not a whole number")


def settings_of(args: Namespace, names: tuple[str, ...], environ: Mapping[str, str] = os.environ) -> Settings:
    """Settings from the environment, overridden by the flags that were given."""
    given = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    return replace(read_settings(environ), **given)


def _run_control_plane(settings: Settings) -> int:
    from control_plane.__main__ import main

    return main(settings)


def _run_data_plane(settings: Settings) -> int:
    from data_plane.__main__ import main

    return main(settings)


def _run_prober(settings: Settings) -> int:
    from health_prober.__main__ import main

    return main(settings)


def _run_migrate(settings: Settings) -> int:
    from control_plane.schema import migrate

    if not settings.database_url:
        raise StartFailed("--database-url is missing: give postgresql://USER:PASSWORD@HOST:PORT/DATABASE, or set N4N_DATABASE_URL")
    with progress("bringing the schema up to date"):
        revision = migrate(settings.database_url)
    print(f"the schema is at revision {revision}")
    return 0
