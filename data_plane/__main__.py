"""`python -m data_plane`: the supervisor of a data plane; with N4N_WORKER one of its workers, with N4N_COUNTING what counts for them."""

from __future__ import annotations

import asyncio
import logging
import os
import sys

from data_plane.metrics_folder import metrics_folder
from n4n.core import otel
from n4n.core.errors import StartFailed
from n4n.runtime.logs import fields, log_as_json
from n4n.runtime.settings import Settings, read_settings

log = logging.getLogger("n4n.data_plane")


def main(settings: Settings) -> int:
    """Runs until told to stop, then 0; StartFailed when it cannot start. The supervisor never imports grpc."""
    log_as_json("data-plane", settings.log_level)
    if settings.counting:
        from data_plane.counting_process import main as count_tokens

        return count_tokens(settings)
    if not settings.worker:
        from data_plane.listeners import check_free
        from data_plane.own_folder import own_folder
        from data_plane.supervisor import supervise
        from n4n.runtime.stores.place import settings_of

        if not settings.node_token and not settings.tls_cert:
            raise StartFailed("N4N_NODE_TOKEN is empty; give the one that the control plane has, or a certificate with N4N_TLS_CERT")
        otel.check(os.environ)  # said once and here, and not by every worker again and again; so is the next
        if settings.redis_url:
            settings_of(settings.redis_url)
        check_free(settings.host, settings.port)
        with own_folder(settings.data_path):
            return supervise(settings)
    if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(metrics_folder(settings.data_path))
    import uvloop

    from data_plane.app import run_worker

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run_worker(settings))
    except StartFailed as failed:
        if not settings.report_fd:  # nobody but a supervisor sees this, and its log is lines of JSON
            raise
        log.error("worker %d cannot start: %s", settings.worker, failed, extra=fields(code="worker_cannot_start"))
        return 1
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(read_settings()))
    except StartFailed as error:
        sys.exit(f"n4n data-plane: {error}")
