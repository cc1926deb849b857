"""`n4n up`: the command's flags. What it does is in machine.py, imported only when it runs."""

from __future__ import annotations

from argparse import Namespace

from n4n.cli import values
from n4n.cli.parser import Commands, example


def add(commands: Commands) -> None:
    """Adds the command."""
    parser = commands.add(
        "up",
        about="run n4n on this machine: stores, control plane, data plane and prober",
        more="Ctrl-C stops everything it started; the next start on the same data directory finds everything again.",
        epilog=example("n4n up --sim", "OPENAI_API_KEY=… n4n up --port 8080", "n4n up --catalog catalog.yaml --data-dir /var/lib/n4n"),
    )
    parser.add_argument("--sim", action="store_true", help="start simulated providers and a catalog that points at them; needs no key")
    parser.add_argument(
        "--catalog", metavar="FILE", help="apply this catalog instead of the built-in one (`n4n catalog builtin` prints that)"
    )
    parser.add_argument("--port", type=values.port, help="port of the HTTP API (default 8080; 0 takes a free one)")
    parser.add_argument("--admin-port", type=values.port, help="port of the control plane's gRPC (default 9400; 0 takes a free one)")
    parser.add_argument("--workers", type=values.number, metavar="N", help="worker processes of the data plane (default 1)")
    parser.add_argument("--data-dir", metavar="DIR", help="where everything is kept (default .n4n)")
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    """Runs until it is stopped."""
    from n4n.cli.machine import run_machine

    return run_machine(args)
