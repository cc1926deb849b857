"""What a prober serves: /live, /ready and /metrics, nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from health_prober.instruments import Instruments
from n4n.core.errors import StartFailed

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@asynccontextmanager
async def served(host: str, port: int, instruments: Instruments, ready: Callable[[], bool]) -> AsyncIterator[int]:
    """Serves while inside; the port it listens on, 0 where `port` is 0 and nothing is served. StartFailed: the port is taken."""

    async def live(_: web.Request) -> web.Response:
        return web.json_response({"status": "live"})

    async def is_ready(_: web.Request) -> web.Response:
        return web.json_response({"status": "ready"}) if ready() else web.json_response({"status": "no catalog yet"}, status=503)

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=instruments.exposition(), headers={"content-type": METRICS_TYPE})

    if not port:
        yield 0
        return
    app = web.Application()
    app.add_routes([web.get("/live", live), web.get("/ready", is_ready), web.get("/metrics", metrics)])
    runner = web.AppRunner(app, access_log=None, handle_signals=False)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            why = error.strerror or str(error)
            raise StartFailed(
                f"the prober cannot listen on {host}:{port} ({why}); free the port or choose another with N4N_PROBER_PORT"
            ) from error
        yield port
    finally:
        await runner.cleanup()
