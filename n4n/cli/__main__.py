"""The `n4n` command: finds the subcommand, runs it, and turns what went wrong into one line and an exit status (0, 1 or 2)."""

from __future__ import annotations

import os
import sys
from argparse import RawDescriptionHelpFormatter
from collections.abc import Sequence

import n4n
from n4n.cli import (
    alerts,
    audit,
    bench,
    budgets,
    catalog,
    endpoint,
    explain,
    health,
    keys,
    logs,
    nodes,
    roles,
    sim,
    sla,
    status,
    tenants,
    up,
    usage,
)
from n4n.cli.output import Refused, complain
from n4n.cli.parser import Commands, Parser, example
from n4n.core.errors import StartFailed

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # before grpc is imported: its core's own lines are no JSON, and what fails is raised too
REFUSED, INTERRUPTED = 1, 130
FURNISH = "furnish"  # a part of `n4n up`, for no person to type


def parser() -> Parser:
    """The whole command line."""
    top = Parser(
        prog="n4n",
        description="An LLM gateway that a team runs itself.",
        epilog=example("n4n up --sim", "n4n catalog show", "n4n COMMAND -h"),
        allow_abbrev=False,
        formatter_class=RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"n4n {n4n.__version__}")
    commands = Commands(top)
    groups = (
        up, status, catalog, endpoint, keys, tenants, budgets, explain, health, bench,
        usage, sla, alerts, audit, logs, nodes, roles, sim,
    )  # fmt: skip
    for group in groups:
        group.add(commands)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if given == [FURNISH]:
            return _furnish()
        args = parser().parse_args(given)
        return int(args.run(args))
    except Refused as refused:
        complain(*refused.lines)
        return refused.status
    except StartFailed as failed:
        complain(str(failed))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader of a pipe, such as head, had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return REFUSED


def _furnish() -> int:
    from n4n.cli.furnish import run

    return run()


if __name__ == "__main__":
    sys.exit(main())
