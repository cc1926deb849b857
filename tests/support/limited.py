"""Routers that keep limits, over a Redis of their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

from n4n.runtime.limits.packed import RENEW, RESERVE, SETTLE, SIGHT
from tests.support.router import RunningRouter, catalog, running_router
from tests.support.store import open_store
from tests.support.valkey import ValkeyServer, running_valkey


@contextmanager
def redis_for_limits(folder: Path) -> Iterator[ValkeyServer]:
    """A server that knows the scripts already: else the first settlement comes after what follows it."""
    with running_valkey(folder) as running:
        with running.client() as client:
            for script in (RESERVE, SETTLE, RENEW, SIGHT):
                client.script_load(script.source.decode())
        yield running


def document(*urls: str, limits: Mapping[str, object] | None = None, **more: object) -> dict[str, object]:
    """Model `m`, each of whose accounts has these limits."""
    made = catalog(*urls, **more)  # type: ignore[arg-type]
    for account in made["accounts"].values():  # type: ignore[attr-defined]
        account["limits"] = limits or {}
    return made


@asynccontextmanager
async def routers_of(
    server: ValkeyServer, made: Mapping[str, object], count: int = 1, **limits: int
) -> AsyncIterator[tuple[RunningRouter, ...]]:
    """So many routers, and one key with these limits."""
    async with AsyncExitStack() as stack:
        running = []
        for number in range(count):
            store = await stack.enter_async_context(open_store(server.url, deadline_s=0.5))
            name = f"r{number}"
            running.append(await stack.enter_async_context(running_router(made, key={"limits": limits}, store=store, name=name)))
        yield tuple(running)


async def asked(router: RunningRouter, /, headers: Mapping[str, str] | None = None, **fields: object) -> tuple[int, Mapping[str, str], str]:
    """Status, headers and body of one chat."""
    async with router.chat(fields, headers) as response:  # type: ignore[attr-defined]
        return response.status, response.headers, await response.text()


def at_rest(server: ValkeyServer) -> bool:
    """No reservation is open in Redis."""
    with server.client() as client:
        return not list(client.scan_iter("n4n:*:l"))


async def wait_for(holds: Callable[[], object]) -> None:
    """Until it holds."""
    async with asyncio.timeout(5):
        while not holds():  # noqa: ASYNC110  # another process changes it
            await asyncio.sleep(0.01)
