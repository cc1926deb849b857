"""`python -m health_prober`: one prober, configured by N4N_*."""

from __future__ import annotations

import asyncio
import sys

from n4n.core.errors import StartFailed
from n4n.runtime.logs import log_as_json
from n4n.runtime.settings import Settings, read_settings


def main(settings: Settings) -> int:
    """Runs until told to stop, then 0; StartFailed when it cannot start."""
    if not settings.node_token and not settings.tls_cert:
        raise StartFailed("N4N_NODE_TOKEN is empty; give the one that the control plane has, or a certificate with N4N_TLS_CERT")
    import uvloop

    from health_prober.app import run_prober

    log_as_json("prober", settings.log_level)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run_prober(settings))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(read_settings()))
    except StartFailed as error:
        sys.exit(f"n4n prober: {error}")
