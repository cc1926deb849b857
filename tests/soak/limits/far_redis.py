"""A way to Redis that can be made longer, in a process of its own so that nothing else does so. Its standard input says by how much."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.support.house import eventually, listens
from tests.support.store_proxy import store_proxy


@dataclass
class FarRedis:
    """The way. `url` leads through it."""

    url: str
    _process: subprocess.Popen[bytes]

    def add(self, delay_s: float) -> None:
        """So much to each direction from now on."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"%f\n" % delay_s)
        self._process.stdin.flush()


async def serve(target: int) -> None:
    """Tells its port, then serves until standard input ends."""
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
    async with store_proxy(target) as proxy:
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        print(proxy.port, flush=True)
        while line := await reader.readline():
            proxy.delay_s = float(line)


@contextmanager
def far_redis(target: int) -> Iterator[FarRedis]:
    """One to the Redis on this port, for as long as the block lasts."""
    command = [sys.executable, "-m", "tests.soak.limits.far_redis", str(target)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        port = int(process.stdout.readline())
        eventually(lambda: listens(port), "the way to Redis")
        try:
            yield FarRedis(f"redis://127.0.0.1:{port}", process)
        finally:
            process.stdin.close()
            process.wait(10)


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
