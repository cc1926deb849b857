"""The tests' own balancer keeps the rules of the one in production: fewest connections, /ready, and one kind of second try."""

from __future__ import annotations

import asyncio

from tests.support.answers import hang_before_headers
from tests.support.balancer import Balancer, running_balancer
from tests.support.house import free_port
from tests.support.raw import RawClient
from tests.support.router import KEY, catalog, running_router
from tests.support.upstream import ScriptedUpstream, running_upstream

MODELS = b"GET /v1/models HTTP/1.1\r\nHost: n4n\r\nAuthorization: Bearer " + KEY.encode() + b"\r\n\r\n"


class Member:
    """A member that holds what it gets; not ready when told so."""

    def __init__(self) -> None:
        self.ready, self.held = True, 0
        self.port = 0

    async def __aenter__(self) -> Member:
        self.server = await asyncio.start_server(self._connected, "127.0.0.1", self.port)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.server.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await reader.readline()
        if b"/ready" in line:
            writer.write(b"HTTP/1.1 %d x\r\ncontent-length: 0\r\n\r\n" % (200 if self.ready else 503))
        else:
            self.held += 1
            while piece := await reader.read(1000):
                writer.write(piece)
        writer.close()


async def echo(port: int, word: bytes = b"echo\n") -> RawClient:
    """A client that has sent a first line and had another one echoed."""
    client = await RawClient.to(port)
    client.send(b"hold\n" + word)
    assert await asyncio.wait_for(client.reader.readline(), 5) == word
    return client


async def test_a_new_connection_goes_where_the_fewest_are():
    async with Member() as a, Member() as b, Balancer([a.port, b.port]) as balancer:
        clients = [await echo(balancer.port) for _ in range(6)]
        assert (a.held, b.held) == (3, 3)
        for client in clients:
            client.writer.close()


async def test_a_member_that_drains_keeps_what_it_has_and_gets_nothing_new():
    async with Member() as a, Member() as b, Balancer([a.port, b.port]) as balancer:
        kept = await echo(balancer.port)
        first, other = (a, b) if a.held else (b, a)
        first.ready = False
        await balancer.settled(*(member is other for member in (a, b)))
        clients = [await echo(balancer.port) for _ in range(4)]
        assert (first.held, other.held) == (1, 4)
        kept.send(b"still here\n")
        assert await asyncio.wait_for(kept.reader.readline(), 5) == b"still here\n"
        for client in (kept, *clients):
            client.writer.close()


async def test_a_refused_connection_is_tried_elsewhere_and_one_that_breaks_is_not():
    gone = Member()
    async with gone, Member() as there, Balancer([gone.port, there.port]) as balancer:
        broken = await echo(balancer.port)
        held = gone.held
        gone.server.close()
        member = next(one for one in balancer.members if one.port == gone.port)
        member.ready = True  # it was, a moment ago
        clients = [await echo(balancer.port) for _ in range(3)]
        assert there.held == 3 + (1 - held)
        assert member.refused >= 1
        for client in (broken, *clients):
            client.writer.close()


async def test_nobody_ready_is_a_closed_connection():
    async with Balancer([free_port()]) as balancer:
        async with await RawClient.to(balancer.port) as client:
            assert await client.closed()
        assert balancer.turned_away == 1


async def test_a_client_that_goes_is_gone_for_the_provider_too():
    async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url)) as house, Balancer([house.port]) as balancer:
        upstream.script(hang_before_headers())
        body = b'{"model":"m","messages":[{"role":"user","content":"ping"}]}'
        async with await RawClient.to(balancer.port) as client:
            client.send(
                MODELS[:-2].replace(b"GET /v1/models", b"POST /v1/chat/completions") + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
            )
            call = await upstream.arrived()
        await upstream.closed(call, within=0.5)


def test_it_can_stand_beside_a_test_without_a_loop():
    with running_upstream(), running_balancer([free_port()]) as balancer:
        balancer.add(free_port())
        balancer.settled(False, False)
        assert [member.ready for member in balancer.members] == [False, False]
        assert balancer.port
