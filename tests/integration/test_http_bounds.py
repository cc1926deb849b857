"""The bounds of the server: slow heads, slow bodies, slow readers, too many clients, bodies that swell, and memory that does not grow."""

from __future__ import annotations

import asyncio
import gzip
import os
import select
import socket
import subprocess
import sys
import time
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from data_plane.bodies import BodyBounds, Inflate
from data_plane.connections import Connection, Head, Unread
from n4n.core.errors import BodyTooLarge
from n4n.runtime.settings import Settings
from tests.support.answers import completion, partial
from tests.support.raw import RawClient
from tests.support.router import KEY, catalog, running_router
from tests.support.script import Hang, Raw, Status, event
from tests.support.upstream import ScriptedUpstream

AUTH = b"Authorization: Bearer " + KEY.encode() + b"\r\n"
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: n4n\r\n" + AUTH
ASKED = b'{"model":"m","messages":[{"role":"user","content":"ping"}]}'
STREAMED = ASKED[:-1] + b',"stream":true}'
QUICK = Settings(header_timeout_sec=1, body_timeout_sec=1, slow_reader_sec=1, keep_alive_sec=2)
MIB = 1 << 20


def ask(body: bytes = ASKED, *fields: bytes) -> bytes:
    """A chat request."""
    return HEAD + b"".join(field + b"\r\n" for field in fields) + b"Content-Length: %d\r\n\r\n" % len(body) + body


# --- slow clients ----------------------------------------------------------------------------------------------


async def test_a_head_that_does_not_end_in_time_is_408_also_when_it_drips():
    async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url), settings=QUICK) as house:
        async with await RawClient.to(house.port) as client:
            answer, started = None, time.monotonic()
            client.send(HEAD)
            while answer is None:
                client.send(b"A: b\r\n")
                try:
                    answer = await client.answer(within=0.1)
                except TimeoutError:
                    continue
            assert (answer.status, answer.error["code"], answer.headers["connection"]) == (408, "request_timeout", "close")
            assert await client.closed()
            assert 0.9 < time.monotonic() - started < 2.0
        (line,) = await house.logged()
    assert (line["status"], line["outcome"], line["error"]) == (408, "rejected", "request_timeout")
    assert upstream.connections == 0


async def test_a_connection_that_says_nothing_is_closed_without_a_word():
    async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url), settings=QUICK) as house:
        async with await RawClient.to(house.port) as client:
            assert await client.closed(within=2.0)


async def test_the_next_head_on_a_connection_is_timed_from_its_first_byte():
    async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url), settings=QUICK) as house:
        async with await RawClient.to(house.port) as client:
            client.send(ask())
            assert (await client.answer()).status == 200
            with pytest.raises(TimeoutError):
                await client.answer(within=1.3)  # idle for longer than a head may take is no fault
            client.send(ask()[:40])
            assert (await client.answer(within=2.0)).status == 408
            assert await client.closed()
    assert len(upstream.calls) == 1


async def test_a_half_sent_head_behind_a_request_does_not_disturb_its_answer():
    async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url), settings=QUICK) as house:
        upstream.script((*partial("one ", "two ", "three ", "four "), Hang()))
        async with await RawClient.to(house.port) as client:
            client.send(ask(STREAMED))
            assert (await client.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
            client.send(ask()[:40])
            assert b"408" not in await _within(1.5, client.reader)


async def _within(seconds: float, reader: asyncio.StreamReader) -> bytes:
    """What comes in this time."""
    received = b""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while piece := await reader.read(1000):
                received += piece
    return received


async def test_an_idle_connection_is_closed_after_its_time():
    async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url), settings=QUICK) as house:
        async with await RawClient.to(house.port) as client:
            client.send(ask())
            assert (await client.answer()).status == 200
            answered = time.monotonic()
            assert await client.closed()
            assert 1.5 < time.monotonic() - answered < 3.5


@pytest.mark.parametrize("framing", [b"Content-Length: 500\r\n\r\n{", b"Transfer-Encoding: chunked\r\n\r\n1f4\r\n{"])
async def test_a_body_that_does_not_come_is_408(framing):
    async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url), settings=QUICK) as house:
        async with await RawClient.to(house.port) as client:
            client.send(HEAD + framing)
            answer = await client.answer(within=2.0)
            assert (answer.status, answer.error["code"], answer.headers["connection"]) == (408, "request_timeout", "close")
    assert upstream.connections == 0


async def test_a_body_that_keeps_coming_has_more_time():
    bounds = Settings(body_timeout_sec=1)
    async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url), settings=bounds) as house:
        async with await RawClient.to(house.port) as client:
            padded = ASKED[:-1] + b',"metadata":{"a":"' + b"x" * 6000 + b'"}}'
            client.send(HEAD + b"Content-Length: %d\r\n\r\n" % len(padded))
            for start in range(0, len(padded), 1500):
                client.send(padded[start : start + 1500])
                await asyncio.sleep(0.35)
            assert (await client.answer()).status == 200
    assert len(upstream.calls) == 1


# --- how much --------------------------------------------------------------------------------------------------


async def test_a_length_over_the_bound_is_413_before_a_byte_of_it_came():
    async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url)) as house:
        async with await RawClient.to(house.port) as client:
            client.send(HEAD + b"Content-Length: %d\r\n\r\n" % (32 * MIB + 1))
            answer = await client.answer()
    assert (answer.status, answer.error["code"], answer.headers["connection"]) == (413, "request_too_large", "close")
    assert upstream.connections == 0


async def test_chunks_are_counted_as_they_come():
    async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url), settings=Settings(max_body_mib=1)) as house:
        async with await RawClient.to(house.port) as client:
            client.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
            for _ in range(17):
                client.send(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
            answer = await client.answer()
    assert (answer.status, answer.headers["connection"]) == (413, "close")
    assert upstream.connections == 0


async def test_who_is_unknown_is_refused_before_its_body_is_taken():
    async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url)) as house:
        async with await RawClient.to(house.port) as client:
            client.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: n4n\r\nContent-Length: %d\r\n\r\n" % (30 * MIB))
            answer = await client.answer()
    assert (answer.status, answer.headers["connection"]) == (401, "close")


@pytest.mark.parametrize(
    ("coding", "content"),
    [
        (b"gzip", gzip.compress(ASKED, mtime=0)),
        (b"deflate", zlib.compress(ASKED)),
        (b"deflate", zlib.compress(ASKED, wbits=-15)),
        (b"identity", ASKED),
    ],
)
async def test_a_compressed_body_is_read(coding, content):
    async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url)) as house:
        async with await RawClient.to(house.port) as client:
            client.send(ask(content, b"Content-Encoding: " + coding))
            assert (await client.answer()).status == 200
    assert upstream.calls[0].json["messages"] == [{"role": "user", "content": "ping"}]
    assert upstream.calls[0].header("content-encoding") is None


@pytest.mark.parametrize(
    "spoilt", [gzip.compress(ASKED, mtime=0)[:-1], gzip.compress(ASKED, mtime=0) + b"more", gzip.compress(ASKED, mtime=0) * 2]
)
async def test_a_broken_compressed_body_is_400(spoilt):
    async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url)) as house:
        async with await RawClient.to(house.port) as client:
            client.send(ask(spoilt, b"Content-Encoding: gzip"))
            assert (await client.answer()).status == 400
    assert upstream.connections == 0


async def test_a_body_that_swells_to_10_gb_is_413_and_does_not_stop_the_loop():
    packer = zlib.compressobj(9, wbits=31)
    block = packer.compress(bytes(8 * MIB)) + packer.flush(zlib.Z_FULL_FLUSH)
    again = packer.compress(bytes(8 * MIB)) + packer.flush(zlib.Z_FULL_FLUSH)  # the same bytes each time from now on
    bomb = block + again * 1279
    assert len(bomb) < 12 * MIB
    async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url)) as house:
        async with await RawClient.to(house.port) as client:
            client.send(ask(bomb, b"Content-Encoding: gzip"))
            answer = await client.answer()
    assert (answer.status, answer.error["code"]) == (413, "request_too_large")
    assert upstream.connections == 0


def test_decompressing_stops_one_piece_after_the_bound():
    bomb = zlib.compress(bytes(64 * MIB))
    pieces = Inflate(gzip=False, bounds=BodyBounds(2 * MIB, 1)).pieces(bomb)
    assert [len(next(pieces)), len(next(pieces))] == [MIB, MIB]
    with pytest.raises(BodyTooLarge):
        next(pieces)


# --- how many --------------------------------------------------------------------------------------------------


async def test_one_client_too_many_is_told_503_at_once_and_the_others_go_on():
    bounds = Settings(max_connections=2)
    async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url), settings=bounds) as house:
        async with await RawClient.to(house.port) as first, await RawClient.to(house.port) as second:
            for client in (first, second):
                client.send(ask())
                assert (await client.answer()).status == 200
            async with await RawClient.to(house.port) as third:
                answer = await third.answer()
                assert (answer.status, answer.error["code"]) == (503, "too_many_connections")
                assert (answer.headers["retry-after"], answer.headers["connection"]) == ("1", "close")
                third.send(ask())
                assert await third.closed()
            async with house.chat() as refused:
                assert refused.status == 503
            first.send(ask())
            assert (await first.answer()).status == 200
        async with asyncio.timeout(5):
            while (await _status(house)) != 200:  # noqa: ASYNC110  # until the router has seen the others go
                await asyncio.sleep(0.01)


async def _status(house) -> int:
    async with aiohttp.ClientSession() as http:
        async with http.get(f"{house.base_url}/models", headers=house.headers()) as answer:
            return answer.status


# --- slow readers and memory ------------------------------------------------------------------------------------


class Flood:
    """An upstream that sends as fast as it is read: so many bytes of events. What it has got rid of is in `sent`."""

    def __init__(self, size: int) -> None:
        self.size, self.sent, self.closed_at = size, 0, 0.0
        self.base_url = ""

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        chunk = event({"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": "x" * 4000}}]})
        framed = b"%x\r\n%b\r\n" % (len(chunk), chunk)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        try:
            while self.sent < self.size:
                writer.write(framed)
                await writer.drain()
                self.sent += len(framed)
        except ConnectionError:
            pass
        finally:
            self.closed_at = time.monotonic()
            writer.close()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Flood]:
        """Listens; small buffers, so that what is not read stays here."""
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 << 10)
        sock.bind(("127.0.0.1", 0))
        server = await asyncio.start_server(self._connected, sock=sock)
        self.base_url = f"http://127.0.0.1:{sock.getsockname()[1]}/v1"
        async with server:
            yield self


@asynccontextmanager
async def deaf(port: int, content: bytes) -> AsyncIterator[socket.socket]:
    """A client that asks and reads nothing, its receive buffer small."""
    loop = asyncio.get_running_loop()
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 10)
    sock.setblocking(False)
    try:
        await loop.sock_connect(sock, ("127.0.0.1", port))
        await loop.sock_sendall(sock, content)
        yield sock
    finally:
        sock.close()


def resident_kib() -> int:
    """Memory of this process now."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError("no VmRSS")


async def standstill(flood: Flood) -> int:
    """Waits until the flood is not read from any more; how much of it was."""
    seen = -1
    async with asyncio.timeout(5):
        while flood.sent == 0 or flood.sent != seen:
            seen = flood.sent
            await asyncio.sleep(0.15)
    return seen


async def test_a_client_that_reads_nothing_stops_the_reading_of_its_provider():
    flood = Flood(200 * MIB)
    async with flood.running(), running_router(catalog(flood.base_url)) as house:
        async with house.chat() as warm:
            await warm.read()
        flood.sent, before = 0, resident_kib()
        async with deaf(house.port, ask(STREAMED)):
            taken = await standstill(flood)
            grown = resident_kib() - before
    assert taken < 16 * MIB, "kernel buffers of both connections, and ours"
    assert grown < 4 * 1024, f"{grown} KiB"


async def test_a_client_that_reads_nothing_is_closed_after_its_time_and_so_is_its_provider():
    flood = Flood(200 * MIB)
    async with flood.running(), running_router(catalog(flood.base_url), settings=QUICK) as house:
        async with deaf(house.port, ask(STREAMED)) as sock:
            await standstill(flood)
            (line,) = await house.logged()
            assert line["outcome"] == "cancelled"
            async with asyncio.timeout(2):
                while not flood.closed_at:  # noqa: ASYNC110  # it is told by a plain attribute
                    await asyncio.sleep(0.01)
            with pytest.raises(ConnectionError):  # reset: what it never read is not kept for it
                await _drained(sock)


async def _drained(sock: socket.socket) -> bytes:
    """All that still comes."""
    received = b""
    async with asyncio.timeout(5):
        while piece := await asyncio.get_running_loop().sock_recv(sock, 1 << 16):
            received += piece
    return received


async def test_a_whole_answer_that_nobody_reads_is_given_up_too():
    async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url), settings=QUICK) as house:
        upstream.script(completion("x" * (12 * MIB)))
        async with deaf(house.port, ask()) as sock:
            await house.logged()
            poll = select.poll()
            poll.register(sock, 0)
            async with asyncio.timeout(4):
                while not poll.poll(0):  # noqa: ASYNC110  # neither reset nor hung up
                    await asyncio.sleep(0.02)
            with pytest.raises(ConnectionError):
                await _drained(sock)


async def test_a_slow_reader_that_reads_gets_everything():
    async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url), settings=QUICK) as house:
        upstream.script(completion("x" * (6 * MIB)))
        async with deaf(house.port, ask(ASKED, b"Connection: close")) as sock:
            size, loop, started = 0, asyncio.get_running_loop(), time.monotonic()
            while piece := await loop.sock_recv(sock, 1 << 20):
                size += len(piece)
                if time.monotonic() - started < 2.5:  # longer than one who reads nothing may take
                    await asyncio.sleep(0.1)
    assert size > 6 * MIB


# --- the provider's side ----------------------------------------------------------------------------------------


async def provider(handler) -> tuple[web.AppRunner, str]:
    """A provider by aiohttp, for what the scripted one does not do."""
    app = web.Application()
    app.router.add_post("/v1/chat/completions", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}/v1"


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
async def test_an_answer_that_swells_is_a_failed_attempt_and_memory_stays(coding):
    packer = zlib.compressobj(9, wbits=31 if coding == "gzip" else 15)
    bomb = b"".join(packer.compress(bytes(8 * MIB)) for _ in range(12)) + packer.flush()

    async def swelling(_: web.Request) -> web.Response:
        return web.Response(body=bomb, headers={"content-type": "application/json", "content-encoding": coding})

    runner, url = await provider(swelling)
    async with running_router(catalog(url, model={"retry": {"max_retries": 0}})) as house:
        before = resident_kib()
        async with house.chat() as answer:
            error = (await answer.json())["error"]
        assert resident_kib() - before < 160 * 1024, "the bound of one answer is 64 MiB"
    await runner.cleanup()
    assert (answer.status, error["code"]) == (502, "server_error")


async def test_what_a_provider_sends_after_its_answer_is_nobodys_answer():
    whole = b'{"id":"c","choices":[{"index":0,"message":{"role":"assistant","content":"%b"},"finish_reason":"stop"}]}'
    poison = whole % b"poison"
    extra = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(poison), poison)
    asked = 0

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        while await _request(reader):
            asked += 1
            good = whole % b"good"
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(good), good))
            writer.write(extra if asked % 2 else b"")
            await writer.drain()
            if not asked % 2:
                await asyncio.sleep(0.02)
                writer.write(extra)
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    async with server, running_router(catalog(url)) as house:
        for _ in range(6):
            async with house.chat() as answer:
                assert (await answer.json())["choices"][0]["message"]["content"] == "good"
            await asyncio.sleep(0.05)
    assert asked == 6


async def _request(reader: asyncio.StreamReader) -> bool:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return False
    length = next(int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
    await reader.readexactly(length)
    return True


NOT_OURS = {
    "set-cookie": "a=b",
    "openai-organization": "org-secret",
    "cf-ray": "8f",
    "x-ratelimit-limit-requests": "10",
    "x-request-id": "theirs",
    "via": "1.1 theirs",
    "x-n4n-endpoint": "theirs",
    "access-control-allow-origin": "*",
    "location": "http://elsewhere",
    "strict-transport-security": "max-age=1",
    "trailer": "x",
    "alt-svc": "h3",
    "x-should-retry": "true",
}
PLANNED = {
    "server",
    "date",
    "content-type",
    "content-length",
    "transfer-encoding",
    "connection",
    "cache-control",
    "x-accel-buffering",
    "retry-after",
    "x-should-retry",
    "x-request-id",
    "x-n4n-provider",
    "x-n4n-endpoint",
    "x-n4n-model",
    "x-n4n-fallback-attempts",
    "x-n4n-overhead-ms",
    "x-n4n-catalog-version",
    "x-n4n-usage-cost-usd",
    "x-n4n-cache-status",
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("status", [200, 400, 429, 500])
async def test_of_a_providers_headers_only_the_planned_ones_reach_the_client(status, stream):
    async def answering(request: web.Request) -> web.Response:
        if status != 200:
            return web.json_response({"error": {"message": "no"}}, status=status, headers=NOT_OURS)
        body = await request.json()
        if body.get("stream"):
            chunk = {"id": "c", "choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": "stop"}]}
            return web.Response(body=event(chunk) + b"data: [DONE]\n\n", headers={**NOT_OURS, "content-type": "text/event-stream"})
        choice = {"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}
        return web.json_response({"id": "c", "choices": [choice]}, headers={**NOT_OURS, "cache-control": "private"})

    runner, url = await provider(answering)
    async with running_router(catalog(url, model={"retry": {"max_retries": 0}})) as house, house.chat(stream=stream) as answer:
        await answer.read()
        told = {name.lower(): value for name, value in answer.headers.items()}
    await runner.cleanup()
    assert told.keys() <= PLANNED
    assert not {"org-secret", "a=b", "theirs", "8f"} & set(told.values())
    if status == 200 and not stream:
        assert told["cache-control"] == "private"


async def test_a_header_of_the_provider_that_could_split_an_answer_is_dropped():
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncache-control: no-store\r\n\tx: y\r\ncontent-length: %d\r\n\r\n%b"
    body = b'{"id":"c","choices":[{"index":0,"message":{"role":"assistant","content":"x"},"finish_reason":"stop"}]}'

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await _request(reader):
            writer.write(head % (len(body), body))
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    async with server, running_router(catalog(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")) as house:
        async with house.chat() as answer:
            assert answer.status == 200
    assert "x" not in answer.headers


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("fault", [500, 429, 401])
async def test_every_attempt_is_sent_its_own_headers_and_none_of_the_clients(fault, stream):
    mine = {"cookie": "a=b", "connection": "keep-alive, x-hop", "x-hop": "1", "te": "trailers", "x-api-key": "k", "via": "1.1 me", "a": "b"}
    async with ScriptedUpstream() as e1, ScriptedUpstream() as e2:
        e1.script(then=(Status(fault), Raw(b"{}")))
        async with running_router(catalog(e1.base_url, e2.base_url)) as house, house.chat(stream=stream, headers=mine) as answer:
            await answer.read()
    assert answer.status == 200
    assert [len(one.calls) for one in (e1, e2)] == [1, 1]
    for call in (*e1.calls, *e2.calls):
        names = [name.lower() for name, _ in call.headers]
        assert sorted(names) == ["accept", "accept-encoding", "authorization", "content-length", "content-type", "host", "x-request-id"]


# --- what this stands on ----------------------------------------------------------------------------------------


def test_a_head_is_found_however_it_is_cut():
    head = b"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"
    for step in range(1, len(head) + 1):
        watched = Head()
        for at in range(0, len(head), step):
            assert not watched.done
            watched.received(head[at : at + step], now=float(at))
        assert watched.done
        assert watched.since == 0.0
        assert not watched.late(1000.0, 1.0)


def test_who_reads_nothing_is_told_from_who_reads_slowly():
    unread = Unread()
    for now in range(10):
        unread.seen(1000 - now, float(now))
        assert not unread.stuck(float(now), 2.0)
    unread.seen(2000, 10.0)
    unread.seen(2000, 11.0)
    assert unread.stuck(11.0, 2.0)
    unread.moved()
    unread.seen(2000, 11.5)
    assert not unread.stuck(13.0, 2.0)


def test_aiohttp_has_the_public_methods_that_the_connection_stands_on():
    for name in (
        "connection_made",
        "connection_lost",
        "data_received",
        "resume_writing",
        "finish_response",
        "handle_error",
        "log_exception",
    ):
        assert callable(getattr(web.RequestHandler, name)), name
        assert name in Connection.__dict__, name


def test_what_aiohttp_cannot_parse_is_logged_nowhere_with_its_bytes():
    script = """
import asyncio, os, sys
from tests.support.raw import RawClient
from tests.support.router import catalog, running_router
async def main():
    async with running_router(catalog("http://127.0.0.1:1/v1")) as house:
        for content in (b"GET / HTTP/1.1\\r\\nAuthorization: Bearer sk-n4n-canary\\x01\\r\\n\\r\\n", b"sk-n4n-canary\\r\\n\\r\\n"):
            async with await RawClient.to(house.port) as client:
                client.send(content)
                assert (await client.answer()).status == 400
asyncio.run(main(), debug=True)
"""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", "import logging; logging.basicConfig(level=logging.DEBUG)\n" + script]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    assert "canary" not in done.stdout + done.stderr
