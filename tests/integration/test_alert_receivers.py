"""Receivers of alerts that are slow, hang, talk nonsense, send elsewhere or are gone; what is told of them, and how often they are told."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import aiohttp
import grpc
import psycopg
import pytest
from sqlalchemy import text

from control_plane import telling, webhooks
from control_plane.ledger import Ledger
from control_plane.schema import migrate
from control_plane.watchers import Watchers
from control_plane.webhooks import webhooks_of
from n4n.core.alerts.facts import NodeFacts
from n4n.runtime import wire
from n4n.runtime.vitals import Vitals
from n4n.v1 import operations_pb2
from tests.control_plane.client import NODE
from tests.integration.test_watchers import Around, Clock, a_ledger
from tests.support.alert_world import a_sink, an_alert_world
from tests.support.catalogs import SMALL
from tests.support.stores import libpq_url

SECRET = "T0KENCANARY"
Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
ILL = NodeFacts("r1", refuses=True)


@asynccontextmanager
async def raw(answer: bytes | None) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A receiver that says these bytes whatever it is asked, or nothing; its URL, and what it was asked."""
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next((int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")), 0)
            asked.append(head + await reader.readexactly(length))
            if answer is None:
                await reader.read()  # until it gives up
            else:
                writer.write(answer)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):  # the loop ends
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/services/{SECRET}?key={SECRET}", asked


def watchers_of(ledger: Ledger, around: Around, setting: str, clock: Clock) -> Watchers:
    return Watchers(ledger.reading, around, webhooks_of(setting), clock)


NONSENSE = {
    "no HTTP at all": b"\x00\xff\xfe nonsense\r\n\r\n",
    "a status that is none": b"HTTP/1.1 9999 What\r\n\r\n",
    "a refusal": b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n",
    "a redirect to the inside": b"HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/latest/meta-data\r\ncontent-length: 0\r\n\r\n",
    "a redirect that keeps the method": b"HTTP/1.1 307 Temporary Redirect\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
    "a header without end": b"HTTP/1.1 200 OK\r\nx: " + b"y" * 100_000,
    "an end before it began": b"",
}


@pytest.mark.parametrize("kind", NONSENSE)
async def test_nonsense_is_no_receipt_and_nothing_of_its_address_is_told(
    kind: str, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    clock, around = Clock(), Around(those=[ILL])
    async with a_ledger(postgres_url, clock) as ledger, raw(NONSENSE[kind]) as (url, asked), aiohttp.ClientSession() as http:
        watchers = watchers_of(ledger, around, f"slack={url},pagerduty={SECRET}@{url}", clock)
        await watchers.look()
        assert await watchers.teller.tell_all(http) == 2
        assert await watchers.teller.tell_all(http) == 0  # not at once again
        clock.now += timedelta(seconds=3)
        assert await watchers.teller.tell_all(http) == 2
        assert len(asked) == 4
        async with ledger.reading() as connection:
            kept = str((await connection.execute(text("SELECT told FROM alert_notices"))).all())
            kept += str((await connection.execute(text("SELECT receiver, key FROM alert_deliveries"))).all())
    assert SECRET not in caplog.text + kept + repr(watchers.teller._webhooks)
    assert "could not be told to slack-" in caplog.text


async def test_a_receiver_that_hangs_holds_up_neither_the_others_nor_a_connection_to_the_database(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "SEND_S", 30.0)
    clock, around = Clock(), Around(those=[replace(ILL, node=f"r{number}") for number in range(20)])
    async with a_ledger(postgres_url, clock) as ledger, raw(None) as (url, asked), a_sink() as well:
        watchers = watchers_of(ledger, around, f"json={url},json={well.url}", clock)
        await watchers.look()
        telling_them = asyncio.create_task(watchers.teller.keep())
        async with asyncio.timeout(10):
            while len(well.got) < 20 or not asked:  # noqa: ASYNC110  # it is a socket that fills them
                await asyncio.sleep(0.02)
        query = text("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'")
        async with asyncio.timeout(5):
            while True:  # the last of the receipts are being written down
                async with ledger.reading() as connection:
                    if not (await connection.execute(query)).scalar_one():
                        break
        telling_them.cancel()
        await asyncio.gather(telling_them, return_exceptions=True)
    assert len(well.got) == 20


async def test_the_end_is_never_told_before_the_beginning(postgres_url: str) -> None:
    clock, around = Clock(), Around(those=[ILL])
    async with a_ledger(postgres_url, clock) as ledger, a_sink() as sink, aiohttp.ClientSession() as http:
        watchers = watchers_of(ledger, around, f"pagerduty=KEY@{sink.url}", clock)
        sink.status = 503
        await watchers.look()
        for _ in range(4):  # the next try is minutes away
            await watchers.teller.tell_all(http)
            clock.now += timedelta(seconds=61)
        around.those = []
        clock.now += timedelta(seconds=61)
        [over] = await watchers.look()
        assert over.resolved
        sink.status, tried = 202, len(sink.got)
        assert await watchers.teller.tell_all(http) == 0
        clock.now += timedelta(minutes=5)
        while await watchers.teller.tell_all(http):
            pass
    assert [one["event_action"] for one in sink.got[tried:]] == ["trigger", "resolve"]
    assert len({one["dedup_key"] for one in sink.got}) == 1


async def test_two_control_planes_tell_once_and_one_that_died_meanwhile_is_stood_in_for(postgres_url: str) -> None:
    clock, around = Clock(), Around(those=[replace(ILL, node=f"r{number}") for number in range(12)])
    async with a_ledger(postgres_url, clock) as ledger, a_sink() as sink, aiohttp.ClientSession() as http:
        setting = f"json={sink.url}"
        one, two = (watchers_of(ledger, around, setting, clock) for _ in range(2))
        await one.look()
        while sum(await asyncio.gather(*(who.teller.tell_all(http) for who in (one, two)))):
            pass
        assert sorted(str(told["key"]) for told in sink.got) == sorted(f"N4nCatalogRefused/node=r{number}" for number in range(12))
        around.those = [replace(ILL, node="r99")]
        clock.now += timedelta(seconds=15)
        await one.look()
        async with ledger.reading() as connection:  # it took the notice, and died
            values = {"now": clock.now, "leased": clock.now + telling.LEASE, "receiver": webhooks_of(setting)[0].name, "most": 9}
            assert len((await connection.execute(text(telling._TAKE), values)).all()) == 1
        assert await two.teller.tell_all(http) == 0
        clock.now += telling.LEASE
        assert await two.teller.tell_all(http) == 1
    assert sink.got[-1]["labels"] == {"node": "r99"}


async def test_what_another_version_was_still_to_tell_is_told(postgres_url: str) -> None:
    clock = Clock()
    async with a_sink() as sink, aiohttp.ClientSession() as http:
        [receiver] = webhooks_of(f"json={sink.url}")
        migrate(postgres_url, to="0013")
        with psycopg.connect(libpq_url(postgres_url)) as before:
            query = "INSERT INTO alert_notices (at, due, told, pending, tries) VALUES (%s, %s, %s, %s, 2)"
            told = json.dumps({"alert": "N4nStoreAway", "key": "N4nStoreAway/node=r1"})
            before.execute(query, (clock.now, clock.now, told, json.dumps([receiver.name])))
        async with a_ledger(postgres_url, clock) as ledger:
            watchers = watchers_of(ledger, Around(), f"json={sink.url}", clock)
            assert await watchers.teller.tell_all(http) == 1
            assert await watchers.teller.tell_all(http) == 0
    assert [one["alert"] for one in sink.got] == ["N4nStoreAway"]


async def test_names_call_nobody_and_long_keys_stay_apart(postgres_url: str) -> None:
    clock, around = Clock(), Around(those=[replace(ILL, node="<!channel>&" + "n" * 180), replace(ILL, node="<!channel>&" + "n" * 181)])
    around.spent = [("t" * 200, "b" * 200 + last, 80) for last in "xy"]
    async with a_ledger(postgres_url, clock) as ledger, a_sink() as slack, a_sink() as duty, aiohttp.ClientSession() as http:
        watchers = watchers_of(ledger, around, f"slack={slack.url},pagerduty=KEY@{duty.url}", clock)
        await watchers.look()
        while await watchers.teller.tell_all(http):
            pass
    assert not any("<" in str(one["text"]) for one in slack.got)
    keys = {str(one["dedup_key"]) for one in duty.got}
    assert len(keys) == 4
    assert max(map(len, keys)) <= 255


async def test_a_node_that_tells_nonsense_is_refused_or_cut_and_nobody_stops_looking(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with an_alert_world(postgres_url, monkeypatch, SMALL) as world:
        channel = world._channel
        report = channel.unary_unary("/n4n.v1.Operations/Report", None, None)
        token = (("authorization", f"Bearer {NODE}"),)
        wild = operations_pb2.Vitals(
            node="r1", run="a\0b" * 200, ended=2**64 - 1, usage_waiting_bytes=2**64 - 1, waiting={"inter\0active": 2**32 - 1},
            candidates={"m\0": 1}, store_up=True,
        )  # fmt: skip
        for used in (float("nan"), float("inf"), 1e308):
            wild.quotas.add(provider="p\0", account="a" * 10_000, limit_type="t", used=used)
        wild.accounts_out.add(provider="p", account="\ud7ff\0", reason="auth")
        for _ in range(2):
            await report(wild.SerializeToString(), metadata=token)
            await world.look()
        for node in ("", "n" * 201, "r\0", "r\n1"):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await report(wire.encode_vitals(node, "run", Vitals()), metadata=token)
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        await world.look()
        known = world.watchers.known
    assert known is not None
    assert [node.usage_waiting_bytes for node in known.nodes] == [1 << 60]
    assert [len(quota.account) for quota in known.quotas] == [200]
    assert json.dumps([one["labels"] for one in world.plain.got])


def test_who_is_named_twice_is_told_once() -> None:
    assert len(webhooks_of("json=https://a.example, json=https://a.example,slack=https://a.example")) == 2


@pytest.mark.parametrize(
    "setting",
    [f"slack=https://example.org:99999/{SECRET}", f"json=https://[::1/{SECRET}", f"json=https:///{SECRET}", f"pagerduty={SECRET}@nowhere"],
)
def test_an_address_that_is_none_stops_the_start_without_being_told(setting: str) -> None:
    from n4n.core.errors import StartFailed

    with pytest.raises(StartFailed) as refused:
        webhooks_of(setting)
    assert SECRET not in str(refused.value)
