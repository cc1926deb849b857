"""`n4n sim`: one simulated provider on a loopback port, the llmock package in a process of its own, so that it can be killed."""

from __future__ import annotations

import signal
from argparse import Namespace
from importlib.util import find_spec

from n4n.cli import values
from n4n.cli.output import Refused
from n4n.cli.parser import Commands, example
from n4n.runtime.logs import log_as_json

LATENCY_MS = 40  # before an answer begins
CHUNK_DELAY_MS = 15  # between two chunks of a stream
MISSING = "the llmock package is not installed: pip install 'n4n[sim]'"


def is_installed() -> bool:
    """Whether the extra `sim` is there."""
    return find_spec("llmock") is not None


def add(commands: Commands) -> None:
    """Adds the command."""
    parser = commands.add(
        "sim",
        about="run one simulated provider, as `n4n up --sim` starts several",
        more="It listens on 127.0.0.1 until it is stopped. Kill one for a failover; runtime.json of `n4n up --sim` tells the process ids.",
        epilog=example("n4n sim --name sim-east --port 20101"),
    )
    parser.add_argument("--name", type=values.name, required=True, help="its name, shown in the process list")
    parser.add_argument("--port", type=values.port, required=True, help="where it listens; 0 takes a free one")
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    """Serves until a signal comes."""
    if not is_installed():
        raise Refused(MISSING)
    from llmock.chaos import ChaosSettings, StreamChaos
    from llmock.testing import LLMockServer

    log_as_json("sim", "warning")
    stop = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    signal.pthread_sigmask(signal.SIG_BLOCK, stop)
    server = LLMockServer(port=args.port, chaos=ChaosSettings(latency_ms=LATENCY_MS))
    server.state.stream_chaos = StreamChaos(chunk_delay_ms=CHUNK_DELAY_MS)
    try:
        server.start()
    except OSError as error:
        raise Refused(f"--port {args.port}: {(error.strerror or str(error)).lower()}; choose another") from error
    print(f"{args.name} answers on {server.base_url('openai')}", flush=True)
    signal.sigwait(stop)
    return 0
