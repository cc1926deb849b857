"""A router in the test's own loop: the real engine and the real server on a free port, its catalog handed in."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from types import SimpleNamespace
from typing import cast

import aiohttp
from aiohttp import web

from data_plane.connections import Door
from data_plane.health import Health
from data_plane.idempotency import Once
from data_plane.meter import Meter
from data_plane.quota import Quotas
from data_plane.router import Router
from data_plane.tracing import Tracer
from data_plane.web import Web
from n4n.core.access import AccessSnapshot, Key
from n4n.core.catalog import compile_snapshot
from n4n.core.dialects.table import DIALECTS
from n4n.core.document import parse_document
from n4n.core.idempotency import LEASE_MS
from n4n.runtime.idempotency import Records
from n4n.runtime.limits import Limits, Sight
from n4n.runtime.records import LineWriter
from n4n.runtime.settings import Settings
from n4n.runtime.stores import Store
from n4n.runtime.telemetry import Instruments
from n4n.runtime.tracing import Tracing
from n4n.runtime.upstream import Upstream

SECRET = "s" * 43
KEY = f"sk-n4n-testtesttest-{SECRET}"
PROVIDER_SECRET = "sk-provider-canary"
Json = object


def catalog(*upstreams: str, model: Mapping[str, Json] | None = None, endpoint: Mapping[str, Json] | None = None) -> dict[str, object]:
    """A document with model `m` and endpoints e1, e2, … at these base URLs, asked in this order (their weights see to it)."""
    names = [f"e{index + 1}" for index in range(len(upstreams))]
    priced = {"price": {"input_per_1m": 2.5, "output_per_1m": 10}}
    return {
        "providers": {
            f"p{name}": {"dialect": "openai", "base_url": url, "allow_private": True} for name, url in zip(names, upstreams, strict=True)
        },
        "accounts": {f"a{name}": {"provider": f"p{name}", "credential": "env:CANARY"} for name in names},
        "models": {"m": {"strategy": "cost", **(model or {})}},
        "endpoints": {
            name: {
                "model": "m",
                "account": f"a{name}",
                "upstream_model": "scripted-model",
                **priced,
                "price": {"input_per_1m": 2.5 + index, "output_per_1m": 10 + index},
                **(endpoint or {}),
            }
            for index, name in enumerate(names)
        },
    }


class _Secrets:
    """Every account has the same canary."""

    def __init__(self, unresolved: frozenset[str]) -> None:
        self.usable = _Everything(unresolved)

    def reveal(self, _: str) -> str:
        return PROVIDER_SECRET


class _Everything:
    def __init__(self, but: frozenset[str]) -> None:
        self._but = but

    def __contains__(self, name: object) -> bool:
        return name not in self._but


@dataclass
class RunningRouter:
    """What a test needs of a running router."""

    base_url: str
    port: int
    http: aiohttp.ClientSession
    router: Router
    state: SimpleNamespace
    web: Web
    _read_fd: int
    door: Door
    key: str = KEY
    once: Mapping[str, int] = field(default_factory=dict)  # what became of requests with an idempotency key

    def headers(self, **more: str) -> dict[str, str]:
        """A valid key, and more headers with _ written as -."""
        return {"authorization": f"Bearer {self.key}", **{name.replace("_", "-"): value for name, value in more.items()}}

    def chat(self, body: Mapping[str, Json] | None = None, /, headers: Mapping[str, str] | None = None, **fields: Json) -> object:
        """POST /v1/chat/completions; use with `async with`."""
        asked = {"model": "m", "messages": [{"role": "user", "content": "ping"}], **(body or {}), **fields}
        return self.http.post(f"{self.base_url}/chat/completions", json=asked, headers={**self.headers(), **(headers or {})})

    def log(self) -> list[dict[str, Json]]:
        """The log lines so far that were not read before."""
        os.set_blocking(self._read_fd, False)
        text = b""
        while True:
            try:
                piece = os.read(self._read_fd, 1 << 16)
            except BlockingIOError:
                break
            if not piece:
                break
            text += piece
        return [json.loads(line) for line in text.splitlines()]

    async def logged(self, count: int = 1) -> list[dict[str, Json]]:
        """The next `count` log lines."""
        lines: list[dict[str, Json]] = []
        async with asyncio.timeout(5):
            while len(lines) < count:
                lines += self.log()
                await asyncio.sleep(0.005)
        return lines

    def use_key(self, public_id: str = "testtesttest", **fields: Json) -> None:
        """Gives the one key other rules, and perhaps another id, as a push does."""
        (only,) = self.state.access.keys.values()
        after = replace(only, public_id=public_id, **fields)  # type: ignore[arg-type]
        self.state.access = AccessSnapshot(self.state.access.version + 1, "a2", {public_id: after})
        self.key = f"sk-n4n-{public_id}-{SECRET}"

    def use(self, document: Mapping[str, Json], version: int) -> None:
        """Swaps the catalog, as a push does."""
        parsed, problems = parse_document(document)
        assert not problems, problems
        self.state.catalog = compile_snapshot(parsed, version=version, checksum=f"v{version}")


@cache
def instruments_of_tests() -> Instruments:
    """One set for all routers of a test run: each keeps files open."""
    return Instruments(1)


def _heard(router: Router, sight: Sight) -> None:
    router.health.heard(sight.name, sight.seconds, router.snapshot)


def _counted(counts: dict[str, int], outcome: str) -> None:
    counts[outcome] = counts.get(outcome, 0) + 1


@asynccontextmanager
async def running_router(
    document: Mapping[str, Json],
    *,
    key: Mapping[str, Json] | None = None,
    settings: Settings | None = None,
    unresolved: frozenset[str] = frozenset(),
    store: Store | None = None,
    name: str = "r1",
    lease_ms: float = LEASE_MS,
    tracing: Tracing | None = None,
) -> AsyncIterator[RunningRouter]:
    """The engine over `document`, serving on a free loopback port; `key` holds more fields of the one key."""
    loop = asyncio.get_running_loop()
    parsed, problems = parse_document(document)
    assert not problems, problems
    only = Key("testtesttest", "acme", hashlib.sha256(SECRET.encode()).digest(), **(key or {}))  # type: ignore[arg-type]
    state = SimpleNamespace(
        catalog=compile_snapshot(parsed, version=1, checksum="v1"), access=AccessSnapshot(1, "a1", {"testtesttest": only})
    )
    read_fd, write_fd = os.pipe()
    upstream = Upstream(time.monotonic)
    router = Router(
        follower=SimpleNamespace(state=state),  # type: ignore[arg-type]
        credentials=_Secrets(unresolved),  # type: ignore[arg-type]
        health=Health(time.monotonic, lambda: 0.5),
        upstream=upstream,
        dialects=DIALECTS,
        clock=time.monotonic,
    )
    if store is not None:
        limits = Limits(store, router=name, clock=time.monotonic, others=partial(_heard, router))
        router.quotas, router.health.announce = Quotas(limits, time.monotonic, lambda: 0.5), limits.announce
        router.health.shared.attach(store)
        router.health.keep_only(state.catalog)
        keeping = [asyncio.create_task(limits.keep()), asyncio.create_task(router.health.shared.keep())]
    once_counted: dict[str, int] = {}
    router.once = Once(Records(store, b"a secret", lease_ms), time.monotonic, lambda: 0.5, partial(_counted, once_counted))
    instruments = instruments_of_tests()
    tracer = None if tracing is None else Tracer(tracing, time.time)
    served = Web(router, Meter(instruments, LineWriter(write_fd, loop), tracer=tracer), settings or Settings())
    for page in (served._plain_page, served._open_page):
        page.dear_s = math.inf  # whoever asks sees what is, however much the tests before counted
    door = cast(Door, served.server())
    runner = web.ServerRunner(door)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        async with aiohttp.ClientSession() as http:
            yield RunningRouter(f"http://127.0.0.1:{port}/v1", port, http, router, state, served, read_fd, door, once=once_counted)
    finally:
        if store is not None:
            for task in keeping:
                task.cancel()
            limits.close()
        await runner.cleanup()
        await upstream.close()
        os.close(read_fd)
        os.close(write_fd)
