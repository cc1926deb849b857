"""However hostile what is sent: /metrics has the series of the catalog and of fixed words, and no more."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import suppress

import aiohttp
import grpc
import pytest
from google.protobuf.message import Message

from control_plane import gauges
from control_plane.app import control_plane
from n4n.core.skins.table import SKINS
from n4n.runtime.settings import Settings
from n4n.v1 import access_pb2, catalog_pb2, discovery_pb2, operations_pb2, usage_pb2
from tests.control_plane.client import ADMIN, NODE, Calls, calls
from tests.integration.test_traces import sent_to
from tests.support.answers import completion, error, sse, usage
from tests.support.catalogs import FULL
from tests.support.house import free_port
from tests.support.metrics import Page, scraped
from tests.support.otlp import receiver
from tests.support.router import RunningRouter, catalog, running_router
from tests.support.upstream import ScriptedUpstream

ROUND = 12  # of every kind of request, on every skin
HOSTILE_CALLS = 60
_numbers = itertools.count()


def odd(what: str) -> str:
    """A name that nobody sent before."""
    return f"{what}-{next(_numbers):06d}x"


def hostile_headers() -> Iterator[dict[str, str]]:
    """Each alone: what is refused hides what comes after it."""
    yield {"x-n4n-routing": f"region={odd('region')}"}
    yield {"x-n4n-routing": f"only=provider:{odd('provider')}"}
    yield {"x-n4n-routing": f"{odd('key')}=1"}
    yield {"x-routing-directive": f"require:{odd('endpoint')}"}
    yield {"x-n4n-priority": odd("priority")}
    yield {"x-n4n-tags": f"team={odd('tag')}"}
    yield {"x-request-id": odd("request"), "user-agent": odd("agent"), odd("x-header"): odd("value")}
    yield {"traceparent": f"00-{next(_numbers) + 1:032x}-{next(_numbers) + 1:016x}-01", "tracestate": f"{odd('vendor')}=1"}
    yield {"baggage": f"{odd('key')}={odd('value')}", "idempotency-key": odd("once")}
    yield {"authorization": f"Bearer sk-n4n-{next(_numbers):012d}-{'s' * 43}"}
    yield {"authorization": f"Bearer {odd('key')}"}
    yield {"anthropic-version": odd("version"), "cache-control": odd("cache")}


def body_of(path: str, model: str) -> dict[str, object]:
    said = {"messages": [{"role": "user", "content": "ping"}], "input": "ping", "prompt": "ping"}
    wanted = {"/v1/responses": ("input",), "/v1/completions": ("prompt",), "/v1/embeddings": ("input",)}.get(path, ("messages",))
    return {"model": model, "max_tokens": 5, **{name: said[name] for name in wanted}}


async def sent(house: RunningRouter, path: str, body: object, headers: dict[str, str], method: str = "POST") -> None:
    url = f"http://127.0.0.1:{house.port}{path}"
    async with house.http.request(method, url, json=body, headers={**house.headers(), **headers}) as answer:
        await answer.read()


async def hostile_round(house: RunningRouter) -> None:
    """Every kind of odd name once, on every skin and on none."""
    for path in (*SKINS, "/v1/messages/count_tokens", "/v1/route:explain"):
        for model in (odd("model"), f"tier/{odd('tier')}", f"{odd('provider')}/m", f"pe1/{odd('model')}", "m"):
            await sent(house, path, body_of(path, model), {})
        await sent(house, path, {**body_of(path, "m"), "models": [odd("model"), "m"], "user": odd("user"), odd("field"): 1}, {})
        await sent(house, path, {**body_of(path, "m"), "stream": True, "provider": {"only": [odd("provider")]}}, {})
        await sent(house, path, {**body_of(path, "m"), "stream": odd("bool"), "service_tier": odd("tier")}, {})
        await sent(house, f"{path}?x-n4n-routing=region%3D{odd('region')}&{odd('query')}=1", body_of(path, "m"), {})
        for headers in hostile_headers():
            await sent(house, path, body_of(path, "m"), headers)
    for path in (f"/{odd('path')}", f"/v1/models/{odd('model')}", f"/v1/{odd('path')}/completions", f"/metrics/{odd('path')}"):
        await sent(house, path, None, {}, "GET")
        await sent(house, path, {}, {}, odd("M").upper())
    house.use_key(public_id=f"{next(_numbers):012d}", tenant=odd("tenant"), tags=(("team", odd("team")),))


def words_of(page: Page) -> set[tuple[str, str]]:
    """Every name of a metric and every value of a label, bounds of buckets left out."""
    return {(name, f"{label}={value}") for name, labels in page.values for label, value in labels if label != "le"}


async def test_no_hostile_name_makes_a_series_of_a_router(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver() as made, sent_to(made, monkeypatch) as opened:
        async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url, upstream.base_url), tracing=opened) as house:
            upstream.script(then=lambda call: odd_answer(call.json))
            for _ in range(2):
                await hostile_round(house)
            before, sent_before = await scraped(house.http, house.port), next(_numbers)
            for _ in range(ROUND):
                await hostile_round(house)
            after, names = await scraped(house.http, house.port), next(_numbers) - sent_before
            text = await openmetrics(house.http, house.port)
    assert sorted(words_of(after) - words_of(before)) == []
    assert names > 1500
    assert len(after.values) - len(before.values) < 200  # other pairs of the same words, each with its buckets
    for word in ("model-0", "tier-0", "provider-0", "region-0", "tenant-0", "path-0", "user-0", "team-0", "agent-0", "code-0", "version-0"):
        assert word not in text, word


def odd_answer(asked: object) -> object:
    """Providers are hostile, too."""
    number, stream = next(_numbers), isinstance(asked, dict) and asked.get("stream") is True
    if number % 3 == 0:
        return error(400, code=odd("code"), message=odd("message"), type=odd("type"))
    if stream:
        return sse("a", "b", model=odd("model"), usage=usage(3, 2))
    return completion("pong", model=odd("model"), finish=odd("finish"), headers={odd("x-header"): "1"})


async def openmetrics(http: aiohttp.ClientSession, port: int) -> str:
    async with http.get(f"http://127.0.0.1:{port}/metrics", headers={"accept": "application/openmetrics-text"}) as answer:
        return await answer.text()


async def test_no_hostile_call_makes_a_series_of_a_control_plane(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gauges, "MOST_NODES", 20)
    settings = Settings(
        database_url=postgres_url, admin_port=0, metrics_port=free_port(), admin_token=ADMIN, node_token=NODE, alert_look_sec=1
    )
    async with control_plane(settings) as running, calls(running.port) as admin, calls(running.port, NODE) as node:
        async with aiohttp.ClientSession() as http, calls(running.port, "no-token") as stranger:
            await admin.apply(FULL)
            before = await once_watched(http, running.metrics_port, 0)
            for _ in range(HOSTILE_CALLS):
                await hostile_calls(admin, node, stranger)
            after = await once_watched(http, running.metrics_port, 20)
    grown = words_of(after) - words_of(before)
    assert {name for name, _ in grown} == {"n4n_node_lag_seconds", "n4n_node_refuses"}
    assert len(grown) == 2 * 20  # which have a bound of their own


async def once_watched(http: aiohttp.ClientSession, port: int, nodes: int) -> Page:
    """A page that tells what watchers saw, and so many nodes."""
    async with asyncio.timeout(20):
        while True:
            page = await scraped(http, port)
            if "n4n_model_candidates" in page.names() and sum(name == "n4n_node_refuses" for name, _ in page.values) >= nodes:
                return page
            await asyncio.sleep(0.1)


async def hostile_calls(admin: Calls, node: Calls, stranger: Calls) -> None:
    """A node's token, an operator's and none, with names that nobody knows."""
    vitals = operations_pb2.Vitals(
        node=odd("node"),
        run=odd("run"),
        waiting={odd("priority"): 3},
        candidates={odd("model"): 1},
        accounts_out=[
            {"provider": odd("provider"), "account": odd("account"), "reason": odd("reason")},
            {"provider": "acme", "account": "acme-main", "reason": odd("reason")},
        ],
        quotas=[{"provider": odd("provider"), "account": odd("account"), "limit_type": odd("limit"), "used": 0.99}],
    )
    await told(node, "Operations/Report", vitals)
    watch = node.discovery.Watch(metadata=node.token)
    await watch.write(discovery_pb2.WatchRequest(hello=discovery_pb2.Hello(node=odd("node"), role=odd("role"), build=odd("build"))))
    watch.cancel()
    await told(node, "Usage/Report", usage_pb2.UsageReport(node=odd("node"), source=odd("source"), offset=5, lines=odd("line").encode()))
    for call, request in (
        ("Access/ShowTenant", access_pb2.ShowTenantRequest(name=odd("tenant"))),
        (
            "Access/UpdateTenant",
            access_pb2.UpdateTenantRequest(name=odd("tenant"), settings={"priority": odd("high")}, fields=[odd("field")]),
        ),
        ("Access/CreateKey", access_pb2.CreateKeyRequest(tenant=odd("tenant"), settings={"models": [odd("model")]}, author=odd("author"))),
        ("Catalog/Validate", catalog_pb2.ValidateRequest(document_json=f'{{"{odd("field")}": {{"{odd("name")}": 1}}}}')),
        ("Usage/Query", usage_pb2.UsageQuery(by=odd("column"), only={odd("column"): odd("name")})),
        (f"Catalog/{odd('Method')}", catalog_pb2.ValidateRequest()),
    ):
        await told(admin, call, request)
        await told(stranger, call, request)


async def told(caller: Calls, call: str, request: Message) -> None:
    with suppress(grpc.aio.AioRpcError):
        await caller.channel.unary_unary(f"/n4n.v1.{call}")(request.SerializeToString(), metadata=caller.token)
