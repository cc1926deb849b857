"""One worker of a data plane, alone, that also tells its tasks: `python -m tests.soak.counted_worker FILE`, with N4N_WORKER=1."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import uvloop

from data_plane.app import run_worker
from n4n.runtime.settings import read_settings

EVERY_S = 0.1


async def serve(path: Path) -> None:
    """Until it is told to stop."""
    telling = asyncio.create_task(_tell(path), name="telling")
    try:
        await run_worker(read_settings())
    finally:
        telling.cancel()


async def _tell(path: Path) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    while True:
        os.pwrite(file, b"%6d" % len(asyncio.all_tasks()), 0)  # one write of always as much: never half there
        await asyncio.sleep(EVERY_S)


if __name__ == "__main__":
    uvloop.run(serve(Path(sys.argv[1])))
