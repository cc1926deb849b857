"""How long one step of a loop took: by CPU of its thread, and by the clock without the time that this process waited for a CPU.

So neither is longer where other programs are busy: https://docs.kernel.org/scheduler/sched-stats.html, /proc/<pid>/schedstat.
"""

from __future__ import annotations

import asyncio
import time
from asyncio import events
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

TICK_S = 0.01
TASKS = Path("/proc/self/task")


@dataclass
class Stalls:
    """The longest so far, in seconds."""

    step_cpu_s: float = 0.0
    gap_s: float = 0.0


def waited_for_cpu_s() -> float:
    """How long threads of this process were ready to run and had no CPU, all together; 0 where the kernel does not tell."""
    waited_ns = 0
    for thread in TASKS.iterdir() if TASKS.exists() else ():
        with suppress(FileNotFoundError, ProcessLookupError, IndexError):
            waited_ns += int((thread / "schedstat").read_text().split()[1])
    return waited_ns / 1e9


@asynccontextmanager
async def watched() -> AsyncIterator[Stalls]:
    """Watches the running loop, which has to be asyncio's own."""
    stalls, run = Stalls(), events.Handle._run

    def measured(handle: events.Handle) -> None:
        begun = time.thread_time()
        run(handle)
        stalls.step_cpu_s = max(stalls.step_cpu_s, time.thread_time() - begun)

    async def tick() -> None:
        while True:
            begun, waited = time.monotonic(), waited_for_cpu_s()
            await asyncio.sleep(TICK_S)
            stalls.gap_s = max(stalls.gap_s, time.monotonic() - begun - TICK_S - (waited_for_cpu_s() - waited))

    ticking = asyncio.create_task(tick())
    events.Handle._run = measured  # type: ignore[method-assign,assignment]
    try:
        yield stalls
    finally:
        events.Handle._run = run  # type: ignore[method-assign]
        ticking.cancel()
