"""A fleet for alerts: a real control plane on a real PostgreSQL, its clock ahead of ours, and nodes that report over gRPC as routers do.

Time passes when a test says so. Whoever is told has three receivers over real HTTP: Slack's form, PagerDuty's and plain JSON.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import aiohttp
import grpc
import msgspec
import pytest
from aiohttp import web

from control_plane import app, budget_keeper
from control_plane.app import control_plane
from control_plane.watchers import Watchers
from n4n.core.alerts.watch import Notice
from n4n.core.ledger import SETTLED, Row
from n4n.runtime import wire
from n4n.runtime.settings import Settings
from n4n.runtime.vitals import Vitals
from n4n.v1 import usage_pb2
from tests.control_plane.client import ADMIN, NODE, Calls, calls
from tests.support.catalogs import Raw

ROUTING_KEY = "R0UT1NGKEYCANARY"
_USAGE, _REPORT = "/n4n.v1.Usage/Report", "/n4n.v1.Operations/Report"


@dataclass
class Sink:
    """A receiver that keeps what it is sent, and answers what it is told to."""

    url: str = ""
    got: list[dict[str, object]] = field(default_factory=list)
    status: int = 202


@asynccontextmanager
async def a_sink() -> AsyncIterator[Sink]:
    """On a free port."""
    sink = Sink()

    async def take(request: web.Request) -> web.Response:
        sink.got.append(await request.json())
        return web.Response(status=sink.status)

    site = web.Application()
    site.router.add_post("/hook", take)
    runner = web.AppRunner(site)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    sink.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    try:
        yield sink
    finally:
        await runner.cleanup()


@dataclass
class Ahead:
    """Our clock, and so much more."""

    by: timedelta = timedelta()

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.by


def a_row(at: datetime, number: int = 0, **more: object) -> Row:
    """A row of the ledger that ended well."""
    facts: dict[str, object] = {
        "attempt_id": f"att_{(round(at.timestamp() * 1e6) * 4096 + number % 4096) % (1 << 96):024x}",
        "started_us": round(at.timestamp() * 1e6), "request_id": f"req_{number}", "attempt_no": 1, "tenant": "acme", "key_id": "k",
        "endpoint": "e1", "provider": "p1", "account": "a1", "model": "m", "tier": "", "catalog_version": 1, "stream": True,
        "priority": "interactive", "state": "ok", "error_class": None, "status": 200, "prompt_tokens": 100, "cached_tokens": 0,
        "cache_write_tokens": 0, "completion_tokens": 50, "reasoning_tokens": 0, "counted_prompt_tokens": 100,
        "counted_completion_tokens": 50, "counted_by": "o200k", "estimated": False, "cost_usd": "0.001", "latency_ms": 800.0,
        "ttft_ms": 300.0,
    }  # fmt: skip
    return Row(**(facts | more))  # type: ignore[arg-type]


@dataclass
class Node:
    """A router as the control plane hears of it: counters of its process, and how it is."""

    name: str
    vitals: Vitals = field(default_factory=Vitals)
    run: int = 1

    def counts(self, **more: int) -> None:
        """Counters grow."""
        self.vitals = replace(self.vitals, **{name: getattr(self.vitals, name) + by for name, by in more.items()})

    def restarts(self) -> None:
        """A new process of the same name."""
        self.run += 1
        self.vitals = Vitals()


class AlertWorld:
    """What a scenario needs. `told`: what receivers took so far, as (alert, status, labels)."""

    def __init__(self, plane: Calls, channel: grpc.aio.Channel, watchers: Watchers, clock: Ahead, sinks: Sequence[Sink]) -> None:
        self.plane, self.watchers, self.clock = plane, watchers, clock
        self.slack, self.duty, self.plain = sinks
        self.nodes = [Node("r1"), Node("r2")]
        self._channel, self._offset = channel, 0
        self.http: aiohttp.ClientSession | None = None
        self.state = SimpleNamespace()  # of a scenario

    @property
    def now(self) -> datetime:
        """Here."""
        return self.clock()

    def passes(self, seconds: float) -> None:
        """Time."""
        self.clock.by += timedelta(seconds=seconds)

    async def words(self) -> None:
        """Every node tells how it is."""
        for node in self.nodes:
            call = self._channel.unary_unary(_REPORT, None, None)
            await call(wire.encode_vitals(node.name, f"run-{node.run}", node.vitals), metadata=_NODE)

    async def rows(self, rows: Iterable[Row]) -> None:
        """A router ships its part of the ledger."""
        lines = b"".join(SETTLED + wire_line(row) for row in rows)
        self._offset += len(lines)
        report = usage_pb2.UsageReport(node="r1", source="1", offset=self._offset, lines=lines)
        receipt = await self._channel.unary_unary(_USAGE, usage_pb2.UsageReport.SerializeToString, usage_pb2.UsageReceipt.FromString)(
            report, metadata=_NODE
        )
        assert not receipt.unreadable

    async def look(self) -> list[Notice]:
        """Looks, and tells whoever is to be told."""
        assert self.http is not None
        notices = await self.watchers.look()
        while await self.watchers.teller.tell_all(self.http):
            pass
        return notices

    @property
    def told(self) -> list[tuple[str, str, Mapping[str, str]]]:
        """In order."""
        return [(str(one["alert"]), str(one["status"]), one["labels"]) for one in self.plain.got]  # type: ignore[misc]


def wire_line(row: Row) -> bytes:
    """As a router writes it, without its first letter."""
    return msgspec.json.encode(row) + b"\n"


_NODE = (("authorization", f"Bearer {NODE}"),)


@asynccontextmanager
async def an_alert_world(
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
    document: Raw,
    *,
    redis_url: str = "",
    by: timedelta = timedelta(),
    hold: float = 1.0,
    metrics_port: int = 0,
) -> AsyncIterator[AlertWorld]:
    """The control plane with this catalog. `hold` scales every wait of the rules."""
    clock, made = Ahead(by), list[Watchers]()

    def watchers(*args: object, **more: object) -> Watchers:
        made.append(Watchers(*args, **{**more, "hold": hold}))  # type: ignore[arg-type]
        return made[-1]

    monkeypatch.setattr(app, "_now", clock)
    monkeypatch.setattr(app, "Watchers", watchers)
    monkeypatch.setattr(budget_keeper, "_FRESH_S", 0.0)
    async with a_sink() as slack, a_sink() as duty, a_sink() as plain, aiohttp.ClientSession() as http:
        hooks = f"slack={slack.url}, pagerduty={ROUTING_KEY}@{duty.url},json={plain.url}"
        settings = Settings(
            database_url=database_url, redis_url=redis_url, admin_port=0, metrics_port=metrics_port, admin_token=ADMIN, node_token=NODE,
            alert_webhooks=hooks, alert_look_sec=0,
        )  # fmt: skip
        async with (
            control_plane(settings, heartbeat_s=0.1, poll_s=0.1) as running,
            calls(running.port) as admin,
            grpc.aio.insecure_channel(f"127.0.0.1:{running.port}") as channel,
        ):
            await admin.apply(document)
            world = AlertWorld(admin, channel, made[0], clock, (slack, duty, plain))
            world.http = http
            await asyncio.sleep(0)
            yield world
