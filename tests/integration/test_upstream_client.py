"""The upstream client on real sockets: what aiohttp's client makes of the same answers, connections that are lent again, deadlines, TLS,
the egress proxy."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest
import uvloop

from n4n.core.chat import UpstreamRequest
from n4n.core.errors import FailureClass, StartFailed
from n4n.runtime.tls import TlsFiles
from n4n.runtime.upstream import ANSWER_LIMIT, Phases, Upstream, UpstreamFault, pool
from n4n.runtime.upstream.connection import State
from n4n.runtime.upstream.faults import BAD_HEADER, BROKE_OFF, INSIDE, LATE, NO_ADDRESS, NO_ANSWER, NOT_SECURE, PROXY_REFUSED, REFUSED
from tests.support import answers
from tests.support.answers import completion, sse
from tests.support.certificates import Authority, needs_openssl, new_authority
from tests.support.http_answers import BROKEN, CASES, NONE, sized
from tests.support.script import Fin, Gate, Hang, Head, Headers, Raw, Rst, Sleep, Status, Wait, Whole, Wire
from tests.support.upstream import ScriptedUpstream, running_upstream

HEADERS = (("content-type", "application/json"), ("authorization", "Bearer sk-canary"))
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def phases(connect: float = 2.0, first: float = 2.0, idle: float = 2.0, total: float = 5.0) -> Phases:
    """Deadlines in seconds from now."""
    return Phases(connect, first, idle, time.monotonic() + total)


def ask(url: str, body: bytes = b"{}", *, inside: bool = True) -> UpstreamRequest:
    """A request."""
    return UpstreamRequest(url + "/chat/completions", HEADERS, body, allow_private=inside)


@asynccontextmanager
async def client(**more: object) -> AsyncIterator[Upstream]:
    """The client, closed in the end."""
    upstream = Upstream(time.monotonic, **more)  # type: ignore[arg-type]
    try:
        yield upstream
    finally:
        async with asyncio.timeout(2):
            await upstream.close()


async def call(upstream: Upstream, url: str, *, inside: bool = True, within: Phases | None = None) -> tuple[int, bytes]:
    """Status and body of one call."""
    async with upstream.send(ask(url, inside=inside), "req_1", within or phases()) as reply:
        return reply.status, await reply.read()


async def failed(upstream: Upstream, url: str, *, inside: bool = True, within: Phases | None = None) -> tuple[str, bool]:
    """How a call fails: the message, and whether the request may have run."""
    with pytest.raises(UpstreamFault) as told:
        await call(upstream, url, inside=inside, within=within)
    failure = told.value.failure
    assert failure.failure_class is (FailureClass.TIMEOUT if failure.message in LATE.values() else FailureClass.SERVER_ERROR)
    return failure.message, failure.may_have_run


async def request_of(reader: asyncio.StreamReader) -> bytes:
    """One request with its body."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = next((int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
    return head + await reader.readexactly(length)


@asynccontextmanager
async def serving(handler: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """A server by hand; its port."""

    async def handled(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handler(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handled, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await asyncio.sleep(0.01)


# --- beside aiohttp's client -------------------------------------------------------------------------------------


async def by_ours(upstream: Upstream, url: str) -> tuple[object, ...]:
    """What our client makes of an answer."""
    try:
        async with upstream.send(ask(url), "req_1", phases()) as reply:
            headers = dict(reply.headers)
            try:
                return reply.status, await reply.read(), headers
            except UpstreamFault as fault:
                return reply.status, BROKEN if fault.failure.failure_class is FailureClass.SERVER_ERROR else "", headers
    except UpstreamFault as fault:
        return 0, NONE if (fault.failure.message, fault.failure.may_have_run) == (NO_ANSWER, True) else "", {}


async def by_aiohttp(http: aiohttp.ClientSession, url: str) -> tuple[object, ...]:
    """What aiohttp's client makes of it, set up for the same task."""
    try:
        async with http.post(url + "/chat/completions", data=b"{}", headers=dict(HEADERS), allow_redirects=False) as answer:
            headers = {name.lower(): value for name, value in answer.headers.items()}
            try:
                return answer.status, await answer.read(), headers
            except aiohttp.ClientError:
                return answer.status, BROKEN, headers
    except (aiohttp.ClientError, ValueError):
        return 0, NONE, {}


async def test_an_answer_means_what_aiohttps_client_takes_it_for():
    now: list[bytes] = []

    async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(now[0])
        await writer.drain()

    differences = {}
    http = aiohttp.ClientSession(max_line_size=16 << 10, max_field_size=64 << 10)
    async with serving(answered) as port, client() as upstream, http:
        url = f"http://127.0.0.1:{port}/v1"
        for name, case in CASES.items():
            now[:] = [case.raw]
            ours, theirs = await by_ours(upstream, url), await by_aiohttp(http, url)
            assert ours[:2] == (case.status, NONE if not case.status else BROKEN if case.body is None else case.body), name
            if case.aiohttp:
                assert ours != theirs, f"{name}: no difference any more"
            elif ours != theirs and (ours[1], theirs[1]) != (BROKEN, NONE):  # there a body that breaks off in the first read hides the head
                differences[name] = (ours, theirs)
    assert differences == {}
    gc.collect()


# --- what is sent -------------------------------------------------------------------------------------------------


async def test_a_request_leaves_in_one_piece_with_its_own_headers():
    async with ScriptedUpstream() as provider, client() as upstream:
        for number in (1, 2):
            async with upstream.send(ask(provider.base_url, b'{"a":1}'), f"req_{number}", phases()) as reply:
                await reply.read()
        for sent, number in zip(provider.calls, (1, 2), strict=True):
            assert (sent.method, sent.path, sent.body) == ("POST", "/v1/chat/completions", b'{"a":1}')
            assert sent.headers == (
                ("host", f"127.0.0.1:{provider.port}"), *HEADERS, ("accept-encoding", "identity"), ("x-request-id", f"req_{number}"),
                ("content-length", "7"),
            )  # fmt: skip
        assert provider.connections == 1


async def test_a_large_body_arrives_whole():
    body = b"x" * (5 << 20)
    async with ScriptedUpstream() as provider, client() as upstream:
        provider.script((Whole(b"ok"),))
        async with upstream.send(ask(provider.base_url, body), "req_1", phases()) as reply:
            assert await reply.read() == b"ok"
        assert provider.calls[0].body == body


@pytest.mark.parametrize("key", ["sk-\r\nx: y", "sk-\n", "sk-\0"])
async def test_a_key_that_would_be_a_header_of_its_own_is_not_sent(key):
    async with ScriptedUpstream() as provider, client() as upstream:
        bad = UpstreamRequest(provider.base_url, (("authorization", key),), b"{}", allow_private=True)
        for request, request_id in ((bad, "req_1"), (ask(provider.base_url), "req_\r\nx: y"), (ask(provider.base_url), "é")):
            with pytest.raises(UpstreamFault) as told:
                async with upstream.send(request, request_id, phases()):
                    pass
            assert (told.value.failure.message, told.value.failure.may_have_run) == (BAD_HEADER, False)
        assert provider.connections == 0


@pytest.mark.parametrize(
    "url",
    [
        "ftp://a",
        "http://",
        "http://a:0",
        "http://a:x",
        "http://a:70000",
        "http://a b",
        "http://a/\r\nx",
        "http://a..b",
        "x",
        "http://[::g]",
    ],
)
async def test_an_address_that_is_none_is_told(url):
    async with client() as upstream:
        assert await failed(upstream, url) == (NO_ADDRESS, False)


# --- connections are lent again -----------------------------------------------------------------------------------


async def test_the_connection_used_last_is_lent_first():
    async with ScriptedUpstream() as provider, client() as upstream:
        both = Gate()
        provider.script((Wait(both), *completion("a")), (Wait(both), *completion("b")))
        calls = [asyncio.create_task(call(upstream, provider.base_url)) for _ in range(2)]
        await provider.arrived(2)
        both.open()
        await asyncio.gather(*calls)
        for _ in range(5):
            await call(upstream, provider.base_url)
        assert provider.connections == 2
        assert len({one.connection for one in provider.calls[2:]}) == 1


@pytest.mark.parametrize("how", ["stream", "whole", "error"])
async def test_a_connection_is_lent_again_after(how):
    async with ScriptedUpstream() as provider, client() as upstream:
        provider.script(then={"stream": sse("a", "b"), "whole": completion("a"), "error": answers.error(500)}[how])
        for _ in range(3):
            await call(upstream, provider.base_url)
        assert provider.connections == 1


async def test_an_answer_left_just_before_its_end_keeps_its_connection_and_one_left_earlier_does_not():
    async with ScriptedUpstream() as provider, client() as upstream:
        provider.script((*answers.partial("a"), Sleep(0.02), Raw(b"data: [DONE]\n\n")), answers.hang_after("a"))
        for _ in range(2):
            async with upstream.send(ask(provider.base_url), "req_1", phases()) as reply:
                await reply.next()
            await asyncio.sleep(0.06)
        assert provider.connections == 1
        await provider.closed(provider.calls[1])
        await call(upstream, provider.base_url)
        assert provider.connections == 2


async def test_a_connection_that_the_provider_closed_unseen_is_replaced_and_the_request_runs_once():
    """The provider goes and comes while our loop stands still: nothing but the socket knows."""
    with running_upstream() as provider:
        async with client() as upstream:
            for _ in range(5):
                assert (await call(upstream, provider.base_url))[0] == 200
                provider.stop()
                provider.start()
            assert len(provider.calls) == 5
            assert provider.connections == 5


async def test_a_provider_that_closes_after_the_request_had_come_is_not_asked_again():
    for leaves in ((Fin(),), (Rst(),)):
        async with ScriptedUpstream() as provider, client() as upstream:
            provider.script(completion("a"), leaves)
            assert (await call(upstream, provider.base_url))[0] == 200
            assert await failed(upstream, provider.base_url) == (NO_ANSWER, True)
            assert (len(provider.calls), provider.connections) == (2, 1)


async def test_a_connection_that_is_gone_when_it_is_written_to_is_replaced_once(monkeypatch):
    """The last moment, between looking at a socket and writing to it: nothing of the request has left."""
    async with ScriptedUpstream() as provider, client() as upstream:
        await call(upstream, provider.base_url)
        (one,) = upstream._pools.values()
        idle = next(iter(one._idle))
        monkeypatch.setattr(type(idle), "looks_usable", True)
        idle._transport.close()
        assert (await call(upstream, provider.base_url))[0] == 200
        assert (len(provider.calls), provider.connections) == (2, 2)


@pytest.mark.parametrize("comes", [sized(b"stolen"), b"x", b"", None])
async def test_what_comes_before_its_request_has_left_is_nobodys_answer(comes):
    """Bytes, the provider's end, or the loss of the connection, in the very turn of the loop in which the request is to leave."""
    async with ScriptedUpstream() as provider, client() as upstream:
        await call(upstream, provider.base_url)
        (one,) = upstream._pools.values()
        idle = next(iter(one._idle))
        one.taken += 1  # as where another call runs: one that is alone leaves at once
        calling = asyncio.create_task(call(upstream, provider.base_url))
        while idle.state is not State.LEAVING:  # noqa: ASYNC110
            await asyncio.sleep(0)
        one.taken -= 1
        if comes is None:
            idle.connection_lost(None)
        elif comes:
            idle.get_buffer(-1)[: len(comes)] = comes
            idle.buffer_updated(len(comes))
        else:
            idle.eof_received()
        status, body = await calling
        assert (status, b"stolen" in body) == (200, False)
        assert (len(provider.calls), provider.connections) == (2, 2)


async def test_a_request_that_is_alone_leaves_at_once_and_not_on_a_connection_that_was_spoilt():
    async with ScriptedUpstream() as provider, client() as upstream:
        await call(upstream, provider.base_url)
        (one,) = upstream._pools.values()
        for spoil in (False, True):
            idle = next(iter(one._idle))
            if spoil:
                idle._transport.get_extra_info("socket").shutdown(socket.SHUT_RD)  # the socket says so, the loop has not looked yet
            calling = asyncio.create_task(call(upstream, provider.base_url))
            while idle in one._idle:  # noqa: ASYNC110
                await asyncio.sleep(0)
            assert idle.sent is not spoil
            assert (await calling)[0] == 200
        assert (len(provider.calls), provider.connections) == (3, 2)


async def test_a_request_whose_caller_left_in_the_same_turn_is_not_sent():
    async with ScriptedUpstream() as provider, client() as upstream:
        await call(upstream, provider.base_url)
        (one,) = upstream._pools.values()
        idle = next(iter(one._idle))
        one.taken += 1
        calling = asyncio.create_task(call(upstream, provider.base_url))
        while idle.state is not State.LEAVING:  # noqa: ASYNC110
            await asyncio.sleep(0)
        one.taken -= 1
        idle.abort()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        assert (await call(upstream, provider.base_url))[0] == 200
        assert len(provider.calls) == 2


@pytest.mark.parametrize("more", [b"x", sized(b"stolen"), b"\r\n"])
async def test_bytes_behind_an_answer_are_nobodys_answer(more):
    raw = sized(b"mine")
    async with ScriptedUpstream() as provider, client() as upstream:
        provider.script((Wire(raw + more),), (Wire(raw), Sleep(0.02), Wire(more)), then=(Wire(raw),))
        for _ in range(3):
            assert await call(upstream, provider.base_url) == (200, b"mine")
            await asyncio.sleep(0.05)
        assert len(provider.calls) == 3
        assert provider.connections == (3 if more != b"\r\n" else 2)


async def test_an_answer_before_its_request_was_taken_ends_the_connection():
    taken: list[int] = []

    async def hasty(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        taken.append(1)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(sized(b"too large", status=b"413 P"))
        await asyncio.sleep(0.2)

    async with serving(hasty) as port, client() as upstream:
        for _ in range(2):
            async with upstream.send(ask(f"http://127.0.0.1:{port}", b"x" * (30 << 20)), "req_1", phases()) as reply:
                assert (reply.status, await reply.read()) == (413, b"too large")
        assert len(taken) == 2


async def test_idle_connections_are_closed_after_a_while(monkeypatch):
    monkeypatch.setattr(pool, "KEEP_ALIVE_S", 0.1)
    async with ScriptedUpstream() as provider, client() as upstream:
        await call(upstream, provider.base_url)
        async with asyncio.timeout(2):
            while upstream._pools:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await call(upstream, provider.base_url)
        assert provider.connections == 2


async def test_a_provider_that_says_how_long_it_keeps_connections_is_believed():
    async with ScriptedUpstream() as provider, client() as upstream:
        short, long = Headers((("keep-alive", "timeout=1"),)), Headers((("keep-alive", "timeout=60"),))
        provider.script((short, *completion("a")), (long, *completion("a")), completion("a"))
        for _ in range(3):
            await call(upstream, provider.base_url)
        assert [one.connection for one in provider.calls] == [1, 2, 2]


async def test_connections_to_what_left_the_catalog_close_when_their_requests_end():
    async with ScriptedUpstream() as stays, ScriptedUpstream() as goes, client() as upstream:
        gate = Gate()
        goes.script(completion("a"), (Wait(gate), *completion("b")))
        await asyncio.gather(call(upstream, stays.base_url), call(upstream, goes.base_url))
        running = asyncio.create_task(call(upstream, goes.base_url))
        await goes.arrived(2)
        upstream.keep_only([(stays.base_url, True), (stays.base_url, False)])
        gate.open()
        assert (await running)[0] == 200
        async with asyncio.timeout(2):
            while len(upstream._pools) > 1:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await call(upstream, stays.base_url)
        assert (stays.connections, goes.connections) == (1, 1)
        upstream.keep_only([(stays.base_url, True)])
        await call(upstream, goes.base_url)  # a plan of the catalog before may still ask
        upstream.keep_only([(goes.base_url, True)])
        await call(upstream, goes.base_url)
        assert goes.connections == 2


# --- the bound ----------------------------------------------------------------------------------------------------


async def test_no_more_connections_than_the_bound_and_whoever_waits_comes_in_turn():
    async with ScriptedUpstream() as provider, client(most=2) as upstream:
        gate = Gate()
        provider.script(then=(Wait(gate), *completion("a")))
        calls = [asyncio.create_task(call(upstream, provider.base_url)) for _ in range(20)]
        await provider.arrived(2)
        await asyncio.sleep(0.05)
        assert len(provider.calls) == 2
        gate.open()
        assert {status for status, _ in await asyncio.gather(*calls)} == {200}
        assert provider.connections == 2


async def test_whoever_waits_longer_than_a_connection_may_take_is_told_and_nothing_was_sent():
    async with ScriptedUpstream() as provider, client(most=1) as upstream:
        provider.script(then=answers.hang_before_headers())
        running = asyncio.create_task(call(upstream, provider.base_url))
        await provider.arrived(1)
        assert await failed(upstream, provider.base_url, within=phases(connect=0.1)) == (LATE["connect"], False)
        assert await failed(upstream, provider.base_url, within=phases(first=0.1)) == (LATE["first_token"], False)
        assert await failed(upstream, provider.base_url, within=phases(total=0.1)) == (LATE["total"], False)
        assert len(provider.calls) == 1
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_slot_is_never_lost():
    """Failures, cancelled waits, cancelled calls and closed connections, over and over, within a bound of two."""
    async with ScriptedUpstream() as provider, client(most=2) as upstream:
        provider.script(then=lambda one: ((Fin(),), (Rst(),), completion("a"), (Sleep(0.01), *sse("a")))[len(provider.calls) % 4])
        calls = [asyncio.create_task(call(upstream, provider.base_url, within=phases(connect=30, first=30, total=60))) for _ in range(200)]
        for number, one in enumerate(calls):
            if number % 3 == 0:
                one.cancel()
            if number % 10 == 0:
                await asyncio.sleep(0.002)
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(one) for one in found} <= {tuple, UpstreamFault, asyncio.CancelledError}
        provider.script(then=completion("a"))
        both = await asyncio.gather(*[call(upstream, provider.base_url) for _ in range(10)])
        assert {status for status, _ in both} == {200}
        (one,) = upstream._pools.values()
        assert one.taken <= 2, repr(one)


async def test_a_provider_that_is_away_takes_no_slot():
    async with ScriptedUpstream() as provider, client(most=1) as upstream:
        url = provider.base_url
        await provider.stop()
        for _ in range(5):
            assert await failed(upstream, url) == (REFUSED, False)
        await provider.start()
        assert (await call(upstream, url))[0] == 200


# --- time ---------------------------------------------------------------------------------------------------------


async def test_each_phase_has_its_deadline():
    async with ScriptedUpstream() as provider, client() as upstream:
        url = provider.base_url
        provider.script((Hang(),), (Head(), Raw(b"a"), Hang()), (Head(), Hang()), (Hang(),))
        assert await failed(upstream, url, within=phases(first=0.1)) == (LATE["first_token"], True)
        assert await failed(upstream, url, within=phases(idle=0.1)) == (LATE["idle"], True)
        assert await failed(upstream, url, within=phases(total=0.1)) == (LATE["total"], True)
        assert await failed(upstream, url, within=phases(total=0.1)) == (LATE["total"], True)
        assert await failed(upstream, url, within=phases(total=-1)) == (LATE["total"], False)
        for one in provider.calls:
            await provider.closed(one)
        assert len(provider.calls) == 4


async def test_idle_is_counted_from_the_last_piece():
    async with ScriptedUpstream() as provider, client() as upstream:
        provider.script((Head(), *[step for _ in range(8) for step in (Sleep(0.05), Raw(b"a"))]))
        assert await call(upstream, provider.base_url, within=phases(idle=0.2)) == (200, b"a" * 8)


async def test_however_fast_an_answer_comes_its_deadline_holds():
    async def gushing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 10_000)
            await writer.drain()

    async with serving(gushing) as port, client() as upstream:
        began = time.monotonic()
        async with upstream.send(ask(f"http://127.0.0.1:{port}"), "req_1", phases(total=0.3)) as reply:
            with pytest.raises(UpstreamFault, match=LATE["total"]):
                await reply.read(1 << 40)
        assert time.monotonic() - began < 1
        async with upstream.send(ask(f"http://127.0.0.1:{port}"), "req_1", phases()) as reply:
            with pytest.raises(UpstreamFault, match="larger than 1000000 bytes"):
                await reply.read(1_000_000)
        assert ANSWER_LIMIT == 64 << 20


async def test_waiting_a_while_for_the_next_piece_loses_nothing():
    async with ScriptedUpstream() as provider, client() as upstream:
        provider.script((Head(), Sleep(0.1), Raw(b"a"), Sleep(0.1), Raw(b"b")))
        async with upstream.send(ask(provider.base_url), "req_1", phases()) as reply:
            seen: list[bytes | None] = []
            while not seen or seen[-1] != b"":
                asked = time.monotonic()
                piece = await reply.next(asked + 0.03)
                if piece is None:
                    assert 0.02 < time.monotonic() - asked < 0.09
                seen.append(piece)
            assert [piece for piece in seen if piece] == [b"a", b"b"]
            assert seen.count(None) >= 4
            assert reply.waited_s >= 0.2


@pytest.mark.parametrize("stage", [(Hang(),), (Head(), Hang()), (Head(), Raw(b"a"), Hang())], ids=["head", "body", "in the body"])
async def test_a_cancelled_call_closes_its_connection_at_once(stage):
    async with ScriptedUpstream() as provider, client() as upstream:
        provider.script(stage)
        running = asyncio.create_task(call(upstream, provider.base_url))
        sent = await provider.arrived()
        await asyncio.sleep(0.02)
        left = time.monotonic()
        running.cancel()
        assert await provider.closed(sent) - left < 0.5
        with pytest.raises(asyncio.CancelledError):
            await running


async def test_a_reader_that_lags_stops_the_provider():
    sent = 0

    async def gushing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await request_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n")
        for _ in range(1000):
            writer.write(b"x" * 100_000)
            await writer.drain()
            sent += 100_000

    async with serving(gushing) as port, client() as upstream:
        async with upstream.send(ask(f"http://127.0.0.1:{port}"), "req_1", phases(total=30)) as reply:
            await asyncio.sleep(0.3)
            assert sent < 20_000_000
            assert reply._connection.answer.size < 300_000
            size = 0
            while piece := await reply.next():
                size += len(piece)
        assert size == 100_000_000


async def test_an_answer_that_breaks_off_gives_what_came_first():
    async with ScriptedUpstream() as provider, client() as upstream:
        provider.script((Head(), Raw(b"a"), Fin()), (Head(), Raw(b"a"), Rst()), (Status(500), Head(), Raw(b"oh"), Fin()))
        for _ in range(2):
            async with upstream.send(ask(provider.base_url), "req_1", phases()) as reply:
                assert await reply.next() == b"a"
                with pytest.raises(UpstreamFault, match=BROKE_OFF):
                    await reply.next()
        async with upstream.send(ask(provider.base_url), "req_1", phases()) as reply:
            assert (reply.status, await reply.read_error()) == (500, b"oh")


async def test_what_is_read_after_the_call_is_nobodys():
    async with ScriptedUpstream() as provider, client() as upstream:
        async with upstream.send(ask(provider.base_url), "req_1", phases()) as reply:
            await reply.read()
        with pytest.raises(AttributeError):
            await reply.next()


# --- TLS ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Whom the client trusts."""
    return new_authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def trusted(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> Authority:
    """The machine's only authority, for as long as the test lasts."""
    monkeypatch.setenv("SSL_CERT_FILE", authority.ca)
    monkeypatch.setenv("SSL_CERT_DIR", "/nowhere")
    return authority


def shown(cert: str, key: str) -> ssl.SSLContext:
    """A server that shows this certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context


class Seen:
    """A server that keeps what it was sent."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.raw = sized(b"safe")

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            self.requests.append(await request_of(reader))
            writer.write(self.raw)


@needs_openssl
async def test_a_provider_with_a_good_certificate_is_spoken_to_over_one_connection(trusted):
    files, seen = trusted.certified("good"), Seen()
    async with serving(seen, shown(files.cert, files.key)) as port, client() as upstream:
        for _ in range(3):
            assert await call(upstream, f"https://127.0.0.1:{port}/v1") == (200, b"safe")
        (one,) = upstream._pools.values()
        assert (len(seen.requests), one.taken) == (3, 1)


@needs_openssl
@pytest.mark.parametrize("bad", ["another host", "expired", "signed by itself", "another authority"])
async def test_a_provider_with_a_bad_certificate_is_sent_nothing(bad, trusted, tmp_path):
    match bad:
        case "another host":
            files = trusted.certified("other", "IP:127.0.0.2,DNS:localhost")
        case "expired":
            files = trusted.expired("expired")
        case "signed by itself":
            alone = new_authority(tmp_path / "alone", "127.0.0.1")
            files = TlsFiles(alone.ca, alone.ca_key)
        case _:
            files = new_authority(tmp_path / "else").certified("good")
    seen = Seen()
    async with serving(seen, shown(files.cert, files.key)) as port, client() as upstream:
        assert await failed(upstream, f"https://127.0.0.1:{port}/v1") == (NOT_SECURE, False)
        assert not upstream._pools
    assert seen.requests == []


@needs_openssl
async def test_plain_and_secure_are_not_taken_for_each_other(trusted):
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hello.append(await reader.read(1 << 16))
        writer.write(sized(b"no", status=b"400 B"))

    hello: list[bytes] = []
    files, seen = trusted.certified("good"), Seen()
    async with serving(plain) as port, client() as upstream:
        assert await failed(upstream, f"https://127.0.0.1:{port}") == (NOT_SECURE, False)
        assert hello[0][:1] == b"\x16"
        assert b"canary" not in hello[0]
    async with serving(seen, shown(files.cert, files.key)) as port, client() as upstream:
        assert await failed(upstream, f"http://127.0.0.1:{port}") == (NO_ANSWER, True)
        assert seen.requests == []


async def test_a_handshake_that_hangs_ends_with_the_time_to_connect():
    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async with serving(silent) as port, client() as upstream:
        began = time.monotonic()
        assert await failed(upstream, f"https://127.0.0.1:{port}", within=phases(connect=0.1)) == (LATE["connect"], False)
        assert time.monotonic() - began < 1
        assert not upstream._pools


async def _everything(files: TlsFiles) -> None:
    """Whole, in pieces, pausing, cancelled, broken off: on TLS and without it."""
    seen = Seen()
    seen.raw = sized(b"x" * 3_000_000)
    for tls in (None, shown(files.cert, files.key)):
        async with serving(seen, tls) as port, client() as upstream:
            url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
            for _ in range(3):
                async with upstream.send(ask(url, b"y" * 300_000), "req_1", phases()) as reply:
                    await asyncio.sleep(0.02)
                    assert len(await reply.read()) == 3_000_000
            (one,) = upstream._pools.values()
            assert one.taken == 1
            running = asyncio.create_task(call(upstream, url))
            await asyncio.sleep(0.001)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            many = await asyncio.gather(*[call(upstream, url) for _ in range(20)])
            assert {len(body) for _, body in many} == {3_000_000}
    async with ScriptedUpstream() as provider, client() as upstream:
        provider.script((Hang(),), (Head(), Raw(b"a"), Rst()), (Fin(),), then=sse("a", "b", gap=0.002))
        assert await failed(upstream, provider.base_url, within=phases(first=0.05)) == (LATE["first_token"], True)
        assert await failed(upstream, provider.base_url) == (BROKE_OFF, True)
        assert await failed(upstream, provider.base_url) == (NO_ANSWER, True)
        for _ in range(5):
            assert (await call(upstream, provider.base_url))[1].endswith(b"data: [DONE]\n\n")
        assert provider.connections == 4


@needs_openssl
@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_both_event_loops_do_the_same(run, trusted):
    run(_everything(trusted.certified("good")))


# --- names and the egress proxy -----------------------------------------------------------------------------------


async def test_the_next_address_is_tried_when_one_refuses(monkeypatch):
    async def look_up(_: str) -> list[tuple[object, str]]:
        return [(family, address) for family, address in ((2, "127.0.0.2"), (10, "::1"), (2, "127.0.0.1"))]

    async with ScriptedUpstream() as provider, client(look_up=look_up) as upstream:
        began = time.monotonic()
        assert (await call(upstream, f"http://provider.example:{provider.port}/v1"))[0] == 200
        assert time.monotonic() - began < 1
        assert provider.calls[0].header("host") == f"provider.example:{provider.port}"


class Proxy:
    """An egress proxy: notes heads, leads every tunnel to one place, answers plain requests itself."""

    def __init__(self, leads_to: int = 0, refuses: bytes = b"") -> None:
        self.heads: list[bytes] = []
        self.leads_to, self.refuses = leads_to, refuses

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await request_of(reader)
            self.heads.append(head)
            if self.refuses:
                writer.write(sized(b"no", status=self.refuses))
                return
            if not head.startswith(b"CONNECT"):
                writer.write(sized(b"by proxy"))
                continue
            there, back = await asyncio.open_connection("127.0.0.1", self.leads_to)
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            both = [asyncio.create_task(_copied(*way)) for way in ((reader, back), (there, writer))]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            back.close()
            await asyncio.gather(*both, return_exceptions=True)
            return


async def _copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while content := await reader.read(1 << 16):
        writer.write(content)
    writer.close()


@pytest.mark.parametrize("account", ["", "us%40er:pa%3Ass@"])
async def test_a_plain_request_goes_to_the_proxy_with_the_whole_address(account):
    proxy = Proxy()
    async with serving(proxy) as port, client(proxy=f"http://{account}127.0.0.1:{port}") as upstream:
        for _ in range(2):
            assert await call(upstream, "http://api.example.com/v1", inside=False) == (200, b"by proxy")
    for head in proxy.heads:
        assert head.startswith(b"POST http://api.example.com/v1/chat/completions HTTP/1.1\r\nhost: api.example.com\r\n")
        assert (b"\r\nproxy-authorization: Basic dXNAZXI6cGE6c3M=\r\n" in head) == bool(account)


@needs_openssl
async def test_a_secure_request_goes_through_a_tunnel_that_sees_neither_key_nor_path(trusted):
    files, seen = trusted.certified("far", "DNS:api.example.com"), Seen()
    async with serving(seen, shown(files.cert, files.key)) as far:
        proxy = Proxy(far)
        async with serving(proxy) as port, client(proxy=f"http://u:p@127.0.0.1:{port}") as upstream:
            for _ in range(2):
                assert await call(upstream, "https://api.example.com/v1", inside=False) == (200, b"safe")
            assert await failed(upstream, "https://other.example.com/v1", inside=False) == (NOT_SECURE, False)
    target = b"CONNECT api.example.com:443 HTTP/1.1\r\nhost: api.example.com:443\r\nproxy-authorization: Basic dTpw\r\n\r\n"
    assert proxy.heads[0] == target
    assert len(proxy.heads) == 2
    assert len(seen.requests) == 2
    assert all(head.startswith(b"POST /v1/chat/completions HTTP/1.1\r\n") and b"Basic" not in head for head in seen.requests)


@pytest.mark.parametrize("status", [b"403 F", b"407 P", b"502 B"])
async def test_a_proxy_that_refuses_is_named(status):
    proxy = Proxy(refuses=status)
    async with serving(proxy) as port, client(proxy=f"http://127.0.0.1:{port}") as upstream:
        assert await failed(upstream, "https://api.example.com/v1", inside=False) == (PROXY_REFUSED, False)
        assert not upstream._pools
        if status.startswith(b"407"):
            assert await failed(upstream, "http://api.example.com/v1", inside=False) == (PROXY_REFUSED, False)
    async with client(proxy=f"http://127.0.0.1:{port}") as upstream:
        assert await failed(upstream, "https://api.example.com/v1", inside=False) == (PROXY_REFUSED, False)


async def test_what_may_be_inside_goes_there_directly_and_nothing_else_goes_inside():
    proxy = Proxy()
    async with ScriptedUpstream() as provider, serving(proxy) as port, client(proxy=f"http://127.0.0.1:{port}") as upstream:
        assert (await call(upstream, provider.base_url))[0] == 200
        for place in (provider.base_url, "https://169.254.169.254/", "http://[::1]:9/"):
            assert await failed(upstream, place, inside=False) == (INSIDE, False)
        assert len(provider.calls) == 1
    assert proxy.heads == []


@pytest.mark.parametrize(
    "url", ["https://proxy:1", "proxy:3128", "socks5://proxy:1", "http://", "http://proxy:1/path", "http://proxy:x", "http://p:1?q"]
)
async def test_a_proxy_that_cannot_be_used_stops_the_start(url):
    with pytest.raises(StartFailed, match="N4N_EGRESS_PROXY"):
        Upstream(time.monotonic, proxy=url)
