"""`python -m control_plane`: one control plane, configured by N4N_* variables, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from contextlib import suppress

import uvloop

from control_plane.app import control_plane
from control_plane.schema import migrate as bring_to_head
from n4n.core.errors import StartFailed
from n4n.runtime.logs import log_as_json
from n4n.runtime.settings import Settings, read_settings


def main(settings: Settings) -> int:
    """Serves until told to stop, then 0; StartFailed when it cannot start."""
    log_as_json("control-plane", settings.log_level)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_until_told(settings))
    return 0


def migrate(settings: Settings) -> int:
    """Brings the database to the newest revision and says which, then 0; StartFailed when it cannot."""
    print(f"the database is at schema revision {bring_to_head(settings.database_url)}")  # noqa: T201  # standard output is the contract
    return 0


async def _until_told(settings: Settings) -> None:
    serving = asyncio.create_task(_serve(settings))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _cancel_once, serving)
    with suppress(asyncio.CancelledError):
        await serving


def _cancel_once(serving: asyncio.Task[None]) -> None:
    """A terminal's Ctrl-C and the parent's SIGTERM often come both; the second must not cut the stop short."""
    if not serving.cancelling():
        serving.cancel()


async def _serve(settings: Settings) -> None:
    async with control_plane(settings):
        await asyncio.Event().wait()


if __name__ == "__main__":
    try:
        sys.exit(main(read_settings()))
    except StartFailed as error:
        sys.exit(f"n4n control-plane: {error}")
