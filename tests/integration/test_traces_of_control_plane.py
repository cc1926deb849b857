"""Traces of a real control plane at a receiver: what an apply did, whom it reached, what the ledger took; and what leaves none."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import aiohttp
import grpc
import psycopg
import pytest

from control_plane.watchers import Watchers
from control_plane.webhooks import webhooks_of
from n4n.cli.__main__ import main
from n4n.core.alerts.facts import NodeFacts
from n4n.core.tracing import Parent, traceparent
from n4n.runtime.control_client import ControlClient, ControlRefused
from n4n.runtime.spans import Tracer
from n4n.runtime.tracing import tracing_of
from n4n.v1 import usage_pb2
from tests.control_plane.client import ADMIN, NODE, Calls, a_plane, a_watcher, calls
from tests.core.test_ledger import settled
from tests.integration.test_watchers import Around, Clock, a_ledger
from tests.support.catalogs import SMALL, Raw, changed
from tests.support.otlp import Receiver, Seen, receiver
from tests.support.stores import libpq_url

PARENT = Parent(0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7, sampled=True, state="ci=7")
PRICE = changed(SMALL, "endpoints", "acme-small", "price", to={"input_per_1m": 2.5})


@pytest.fixture
def came(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """A receiver to which every process that a test starts inside itself sends its traces, all of them."""
    with receiver() as made:
        for name, value in made.environ().items():
            monkeypatch.setenv(name, value)
        yield made


async def seen(came: Receiver, wanted: Callable[[Seen], bool], count: int = 1, within_s: float = 10.0) -> list[Seen]:
    """The spans of a kind, once there are so many, oldest first."""
    async with asyncio.timeout(within_s):
        while sum(map(wanted, came.spans)) < count:  # noqa: ASYNC110  # threads fill it
            await asyncio.sleep(0.02)
    return sorted(filter(wanted, came.spans), key=lambda span: span.start_ns)


def named(*names: str) -> Callable[[Seen], bool]:
    return lambda span: span.name in names


def operator(plane: Calls, parent: Parent | None = PARENT) -> ControlClient:
    return ControlClient([f"127.0.0.1:{plane.port}"], ADMIN, parent=parent)


async def applied(client: ControlClient, document: Raw) -> None:
    await client.apply(json.dumps(document), author="ann-of-the-canaries", message="why-of-the-canaries")


async def test_an_apply_is_part_of_the_callers_trace_and_tells_its_pieces(came: Receiver, postgres_url: str) -> None:
    async with a_plane(postgres_url) as plane, operator(plane) as client:
        await applied(client, SMALL)
        [server] = await seen(came, named("n4n.v1.Catalog/Apply"))
    pieces = [span for span in came.spans if span.parent_id == server.span_id]
    assert [span.name for span in sorted(pieces, key=lambda span: span.start_ns)] == ["catalog validate", "catalog write", "catalog commit"]
    assert (server.kind, server.trace_id, server.parent_id) == ("SERVER", f"{PARENT.trace_id:032x}", f"{PARENT.span_id:016x}")
    assert (server.state, server.failed, server.resource["service.name"]) == ("ci=7", False, "n4n-control-plane")
    assert server.attributes == {
        "rpc.system.name": "grpc",
        "rpc.method": "n4n.v1.Catalog/Apply",
        "rpc.response.status_code": "OK",
        "n4n.catalog_version": 1,
        "n4n.endpoints": 1,
        "n4n.unchanged": False,
        "n4n.changes": 4,
    }
    assert all(server.start_ns <= span.start_ns <= span.end_ns <= server.end_ns for span in pieces)
    assert b"canaries" not in came.raw


async def test_the_command_hands_on_whose_part_it_is(
    came: Receiver, postgres_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with a_plane(postgres_url) as plane:
        told = {"N4N_ADMIN_URL": f"127.0.0.1:{plane.port}", "N4N_ADMIN_TOKEN": ADMIN, "N4N_DATA_DIR": str(tmp_path)}
        context = {"TRACEPARENT": traceparent(PARENT.trace_id, PARENT.span_id, sampled=True), "TRACESTATE": PARENT.state}
        for name, value in (told | context).items():
            monkeypatch.setenv(name, value)
        assert await asyncio.to_thread(main, ["catalog", "history"]) == 0
        [server] = await seen(came, named("n4n.v1.Catalog/History"))
    assert (server.trace_id, server.parent_id, server.state) == (f"{PARENT.trace_id:032x}", f"{PARENT.span_id:016x}", PARENT.state)


async def test_a_version_that_goes_out_links_to_the_apply_and_tells_each_nodes_answer(came: Receiver, postgres_url: str) -> None:
    async with a_plane(postgres_url) as plane, operator(plane) as client:
        await applied(client, SMALL)
        async with a_watcher(plane.port, node="router-1") as one, a_watcher(plane.port, node="two words") as two:
            await asyncio.gather(one.ack(await one.next_update()), two.ack(await two.next_update()))
            await applied(client, PRICE)
            parts = await one.next_update()
            await asyncio.gather(one.ack(parts), two.nack(await two.next_update(), "endpoints.acme-small.price", "why-of-the-canaries"))
            pushes = await seen(came, lambda span: span.name == "n4n push" and span.attributes["n4n.catalog_version"] == 2, 2)
    [_, apply] = await seen(came, named("n4n.v1.Catalog/Apply"), 2)
    [publish] = [span for span in came.spans if span.name == "n4n publish" and span.attributes["n4n.version"] == 2]
    assert publish.links == [(apply.trace_id, apply.span_id)]
    assert (publish.attributes["n4n.collection"], publish.trace_id != apply.trace_id) == ("catalog", True)
    for push in pushes:
        assert (push.trace_id, push.parent_id, push.links) == (publish.trace_id, publish.span_id, publish.links)
        assert (push.attributes["n4n.base_version"], push.attributes["n4n.parts"]) == (1, 1)
    acked, refused = sorted(pushes, key=lambda span: str(span.attributes["n4n.answer"]))
    assert (acked.attributes["n4n.node"], acked.attributes["n4n.answer"], acked.failed) == ("router-1", "acked", False)
    assert (refused.attributes["n4n.answer"], refused.failed) == ("refused", True)
    assert refused.attributes["n4n.field"] == "endpoints.acme-small.price"
    assert "n4n.node" not in refused.attributes  # it may be anything
    assert b"canaries" not in came.raw


async def test_what_another_control_plane_publishes_links_to_the_apply_too(came: Receiver, postgres_url: str) -> None:
    async with a_plane(postgres_url) as plane, a_plane(postgres_url) as other, operator(plane, None) as client:
        async with a_watcher(other.port) as watcher:
            await applied(client, SMALL)
            await watcher.ack(await watcher.next_update())
            [push] = await seen(came, named("n4n push"))
            publishes = await seen(came, named("n4n publish"), 2)
    [apply] = await seen(came, named("n4n.v1.Catalog/Apply"))
    assert push.links == [(apply.trace_id, apply.span_id)]
    assert {tuple(span.links) for span in publishes} == {((apply.trace_id, apply.span_id),)}
    assert len({span.trace_id for span in (*publishes, apply)}) == 3


async def test_a_node_that_leaves_before_it_answers_is_told_so(came: Receiver, postgres_url: str) -> None:
    async with a_plane(postgres_url) as plane, operator(plane) as client:
        await applied(client, SMALL)
        async with a_watcher(plane.port) as watcher:
            await watcher.next_update()
        [push] = await seen(came, named("n4n push"))
    assert (push.attributes["n4n.answer"], push.failed) == ("left", False)


async def test_what_nobody_chose_is_kept_where_it_was_refused(came: Receiver, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
    async with a_plane(postgres_url) as plane, operator(plane, None) as client:
        await applied(client, SMALL)
        with pytest.raises(ControlRefused):
            await client.apply('{"why-of-the-canaries": 1}', author="ann")
        with pytest.raises(ControlRefused):
            await client.rollback(77, author="ann")
        apply, rollback = await seen(came, lambda span: span.kind == "SERVER", 2)
    assert apply.attributes | {"n4n.problems": 1} == {
        "rpc.system.name": "grpc",
        "rpc.method": "n4n.v1.Catalog/Apply",
        "rpc.response.status_code": "INVALID_ARGUMENT",
        "error.type": "INVALID_ARGUMENT",
        "n4n.refused": "invalid_catalog",
        "n4n.problems": 1,
    }
    assert (rollback.attributes["n4n.refused"], rollback.attributes["rpc.response.status_code"]) == ("not_found", "NOT_FOUND")
    assert not apply.failed  # the document was wrong, the control plane was not
    assert {span.name for span in came.spans} == {"n4n.v1.Catalog/Apply", "catalog validate", "n4n.v1.Catalog/Rollback"}
    assert b"canaries" not in came.raw


async def test_a_caller_without_a_token_leaves_no_span_and_chooses_nothing(came: Receiver, postgres_url: str) -> None:
    sampled = ("traceparent", traceparent(PARENT.trace_id, PARENT.span_id, sampled=True))
    async with a_plane(postgres_url) as plane, calls(plane.port, "wrong") as stranger:
        for method in ("Catalog/Get", "Canary/Unknown"):
            call = stranger.channel.unary_unary(f"/n4n.v1.{method}")
            with pytest.raises(grpc.aio.AioRpcError):
                await call(b"", metadata=(*stranger.token, sampled))
        async with operator(plane) as client:
            await client.history()
        await seen(came, named("n4n.v1.Catalog/History"))
    assert [span.name for span in came.spans] == ["n4n.v1.Catalog/History"]


async def test_what_the_ledger_takes_is_counted_in_its_span(came: Receiver, postgres_url: str) -> None:
    async with a_plane(postgres_url) as plane, calls(plane.port, NODE) as node:
        report = node.channel.unary_unary("/n4n.v1.Usage/Report", usage_pb2.UsageReport.SerializeToString)
        unknown = settled(3, state="unknown")
        for lines in (settled(1) + settled(2) + unknown + b"torn\n", settled(2) + settled(3) + settled(4)):
            await report(usage_pb2.UsageReport(node="canary", source="canary", offset=1, lines=lines), metadata=node.token)
        first, second = await seen(came, named("ledger take"), 2)
        served, _ = await seen(came, named("n4n.v1.Usage/Report"), 2)
    told = {"n4n.rows": 3, "n4n.rows_new": 3, "n4n.rows_replaced": 0, "n4n.rows_doubled": 0, "n4n.rows_too_old": 0}
    assert first.attributes == told
    assert second.attributes == told | {"n4n.rows_new": 1, "n4n.rows_replaced": 1, "n4n.rows_doubled": 1}
    assert (served.attributes["n4n.rows"], served.attributes["n4n.lines_unreadable"]) == (3, 1)
    assert first.parent_id == served.span_id
    assert b"canary" not in came.raw


async def test_a_call_with_many_replies_is_one_span_to_its_end(came: Receiver, postgres_url: str) -> None:
    async with a_plane(postgres_url) as plane, calls(plane.port, NODE) as node, operator(plane) as client:
        report = node.channel.unary_unary("/n4n.v1.Usage/Report", usage_pb2.UsageReport.SerializeToString)
        now_us = time.time_ns() // 1000
        lines = b"".join(settled(n, started_us=now_us - 60_000_000 + n, endpoint=f"e{n % 2}") for n in range(4))
        await report(usage_pb2.UsageReport(node="r", source="s", offset=1, lines=lines), metadata=node.token)
        prices = {"endpoints": {"e0": {"price": {"input_per_1m": 1, "output_per_1m": 2}}}}
        rating = [one async for one in client.rerate("anew", 0, author="ann-canary", prices_json=json.dumps(prices["endpoints"]))][-1]
        assert (rating.rows, rating.kept) == (4, 2)
        with pytest.raises(ControlRefused):
            _ = [one async for one in client.rerate("anew", 0, author="ann-canary", prices_json=json.dumps(prices["endpoints"]))]
        well, refused = await seen(came, named("n4n.v1.Usage/Rerate"), 2)
    assert well.attributes == {
        "rpc.system.name": "grpc",
        "rpc.method": "n4n.v1.Usage/Rerate",
        "rpc.response.status_code": "OK",
        "n4n.rows": 4,
        "n4n.rows_kept": 2,
        "n4n.rows_unpriced": 0,
    }
    assert (refused.attributes["rpc.response.status_code"], refused.attributes["n4n.refused"]) == ("ALREADY_EXISTS", "label_taken")
    assert b"canary" not in came.raw


async def test_what_breaks_inside_a_call_is_a_failure_of_ours(came: Receiver, postgres_url: str) -> None:
    async with a_plane(postgres_url) as plane, operator(plane) as client:
        with psycopg.connect(libpq_url(postgres_url), autocommit=True) as connection:
            connection.execute("ALTER TABLE catalog_versions RENAME TO elsewhere")
        with pytest.raises(ControlRefused):
            await client.history()
        [server] = await seen(came, named("n4n.v1.Catalog/History"))
    assert server.failed
    assert postgres_url.encode() not in came.raw


async def test_without_a_receiver_no_work_is_ever_made(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    monkeypatch.setattr("n4n.runtime.spans.Work.__init__", lambda self, *given, **more: made.append(self))
    async with a_plane(postgres_url) as plane, operator(plane) as client, a_watcher(plane.port) as watcher:
        await applied(client, SMALL)
        await watcher.ack(await watcher.next_update())
    assert made == []


async def test_an_alert_on_its_way_to_a_receiver_is_a_trace_without_its_address(
    came: Receiver, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")  # what a receiver did not take is kept all the same
    opened = tracing_of(os.environ, "control-plane", "c1")
    assert opened is not None
    around, hooks = Around(those=[NodeFacts("r1", refuses=True)]), webhooks_of(f"json=http://127.0.0.1:{came.http_port}/canary")
    async with a_ledger(postgres_url, Clock()) as ledger, aiohttp.ClientSession() as http:
        watchers = Watchers(ledger.reading, around, hooks, Clock(), tracer=Tracer(opened, time.time_ns))
        await watchers.look()
        assert await watchers.teller.tell_all(http) == 1
        [told, *_] = await seen(came, named("n4n alert"))
    await asyncio.to_thread(opened.close)
    assert [span.name for span in came.spans] == ["n4n alert"]
    assert told.attributes == {
        "n4n.alert": "N4nCatalogRefused",
        "n4n.alert.status": "firing",
        "n4n.receiver": hooks[0].name,
        "n4n.tries": 1,
        "error.type": "not_taken",
    }
    assert told.failed
    assert b"canary" not in came.raw
