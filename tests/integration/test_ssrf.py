"""No packet to an address inside the house: not by the catalog, not by a name that leads there, not by a redirect, not by a request.

Every connection that anything in this process makes is noted before it is made. A public address is led to a provider on loopback.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
import time
from asyncio.selector_events import BaseSelectorEventLoop
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from n4n.core.addresses import is_public
from n4n.core.chat import UpstreamRequest
from n4n.core.document import parse_document
from n4n.core.errors import FailureClass
from n4n.runtime import resolver
from n4n.runtime.resolver import Address, Names, NotPublic, public_socket
from n4n.runtime.upstream import Phases, Upstream, UpstreamFault
from tests.support.answers import completion
from tests.support.router import PROVIDER_SECRET, catalog, running_router
from tests.support.script import Headers, Raw, Status
from tests.support.upstream import ScriptedUpstream

PUBLIC, ELSEWHERE = "93.184.215.14", "2606:4700::1111"
FORBIDDEN = [
    "127.0.0.1", "127.1.2.3", "0.0.0.0", "10.0.0.1", "10.255.255.255", "172.16.0.1", "172.31.255.255", "192.168.0.1", "169.254.169.254",
    "169.254.170.2", "100.64.0.1", "100.100.100.200", "192.0.0.1", "192.0.0.192", "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1",
    "192.88.99.1", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255",
    "::", "::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::1", "100::1", "2001::1", "2001:db8::1",
    "2002:7f00:1::", "2002:a9fe:a9fe::1", "3fff::1", "5f00::1", "fc00::1", "fd00:ec2::254",
    "fe80::1", "fe80::a9fe:a9fe", "fec0::1", "ff02::1", "4000::1",
]  # fmt: skip
NUMBERS = ["2130706433", "0x7f000001", "0x7f.1", "017700000001", "0177.0.0.1", "127.1", "127.0.1", "0", "127.0.0.1."]  # read by C libraries
NAMES = ["localhost", "a.localhost", "metadata.google.internal", "printer.local", "redis", "wiki.corp.", "nas.lan"]


def family(address: str) -> socket.AddressFamily:
    """AF_INET or AF_INET6."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def in_url(address: str) -> str:
    """As it stands in a URL."""
    return f"[{address}]" if ":" in address else address


@dataclass
class Network:
    """What was connected to, and what names lead to. `canary`: a listener that nobody may reach."""

    attempts: list[str] = field(default_factory=list)
    names: dict[str, Sequence[str]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    canary: int = 0
    caught: int = 0
    provider: int = 0  # where public addresses are led

    async def look_up(self, name: str) -> list[Address]:
        """A fake of the system's resolver."""
        self.asked.append(name)
        return [(family(address), address) for address in self.names.get(name, ["127.0.0.1"])]


@pytest.fixture
async def network(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Network]:
    """This process's connections, watched."""
    seen = Network()
    connect = BaseSelectorEventLoop.sock_connect

    async def noted(loop: BaseSelectorEventLoop, sock: socket.socket, address: tuple[str, int]) -> None:
        seen.attempts.append(address[0])
        if is_public(ipaddress.ip_address(address[0])):
            address = ("127.0.0.1", seen.provider) if sock.family == socket.AF_INET else ("::1", seen.provider)
        await connect(loop, sock, address)

    async def caught(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.caught += 1
        writer.close()

    monkeypatch.setattr(BaseSelectorEventLoop, "sock_connect", noted)
    server = await asyncio.start_server(caught, "127.0.0.1", 0)
    seen.canary = server.sockets[0].getsockname()[1]
    async with server:
        yield seen
    assert seen.caught == 0, "the canary was reached"


@asynccontextmanager
async def upstream_on(network: Network) -> AsyncIterator[Upstream]:
    """A pool that asks the fake resolver."""
    upstream = Upstream(time.monotonic, network.look_up)
    yield upstream
    await upstream.close()


async def call(upstream: Upstream, url: str, *, allow_private: bool = False) -> int:
    """One call; its status."""
    request = UpstreamRequest(url, (("content-type", "application/json"),), b"{}", allow_private=allow_private)
    async with upstream.send(request, "req_1", Phases(1.0, 2.0, 2.0, time.monotonic() + 3)) as reply:
        await reply.read()
        return reply.status


async def refused(upstream: Upstream, url: str) -> str:
    """One call that must fail before anything was sent; its message."""
    with pytest.raises(UpstreamFault) as told:
        await call(upstream, url)
    assert told.value.failure.failure_class is FailureClass.SERVER_ERROR
    assert not told.value.failure.may_have_run
    return told.value.failure.message


# --- the catalog ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", [*map(in_url, FORBIDDEN), *NUMBERS, *NAMES])
def test_a_catalog_that_points_inside_is_refused(host):
    document = catalog(f"http://{host}:9/v1")
    document["providers"]["pe1"]["allow_private"] = False
    _, problems = parse_document(document)
    assert [problem.field for problem in problems] == ["providers.pe1.base_url"]


# --- the connection ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", FORBIDDEN)
async def test_a_name_that_leads_inside_is_not_followed(network, address):
    network.names["api.example.com"] = [address]
    async with upstream_on(network) as upstream:
        assert "inside this network" in await refused(upstream, f"http://api.example.com:{network.canary}/v1")
    assert (network.asked, network.attempts) == (["api.example.com"], [])


@pytest.mark.parametrize("address", [*FORBIDDEN, *NUMBERS, "fe80::1%25lo"])
async def test_an_address_inside_is_not_connected_to_even_if_the_catalog_had_let_it_pass(network, address):
    async with upstream_on(network) as upstream:
        await refused(upstream, f"http://{in_url(address)}:{network.canary}/v1")
    assert network.attempts == []


async def test_of_the_addresses_of_a_name_only_the_public_ones_are_tried(network):
    network.names["api.example.com"] = ["127.0.0.1", "::1", "10.0.0.1", PUBLIC, "169.254.169.254"]
    async with ScriptedUpstream() as provider, upstream_on(network) as upstream:
        network.provider = provider.port
        assert await call(upstream, f"http://api.example.com:{network.canary}/v1") == 200
    assert network.attempts == [PUBLIC]


async def test_all_public_addresses_are_tried_and_none_else(network):
    network.names["api.example.com"] = [ELSEWHERE, "::1", PUBLIC, "127.0.0.1"]
    async with ScriptedUpstream() as provider, upstream_on(network) as upstream:
        network.provider = provider.port  # which does not listen on ::1
        assert await call(upstream, f"http://api.example.com:{network.canary}/v1") == 200
    assert set(network.attempts) == {ELSEWHERE, PUBLIC}


async def test_a_name_that_changes_its_mind_is_checked_anew_for_every_connection(network, monkeypatch):
    monkeypatch.setattr(resolver, "FRESH_S", 0.0)
    url = f"http://api.example.com:{network.canary}/v1"
    network.names["api.example.com"] = [PUBLIC]
    async with ScriptedUpstream() as provider, upstream_on(network) as upstream:
        network.provider = provider.port
        provider.script(then=(Headers((("connection", "close"),)), *completion("pong")))
        assert await call(upstream, url) == 200
        network.names["api.example.com"] = ["127.0.0.1"]
        await refused(upstream, url)
        network.names["api.example.com"] = [PUBLIC]
        assert await call(upstream, url) == 200
    assert network.attempts == [PUBLIC, PUBLIC]
    assert len(network.asked) == 3


@pytest.mark.parametrize("address", FORBIDDEN)
def test_the_last_gate_sees_the_address_itself(address):
    with pytest.raises(NotPublic):
        public_socket((family(address), socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, 80)))


def test_the_last_gate_knows_no_other_kind_of_address():
    with pytest.raises(NotPublic):
        public_socket((socket.AF_UNIX, socket.SOCK_STREAM, 0, "", ("/run/docker.sock", 0)))
    with pytest.raises(NotPublic):
        public_socket((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("localhost", 80)))
    public_socket((socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (PUBLIC, 80))).close()


async def test_what_one_provider_may_is_not_lent_to_another_at_the_same_place(network):
    network.names["models.example.com"] = ["127.0.0.1"]
    async with ScriptedUpstream() as inside, upstream_on(network) as upstream:
        url = f"http://models.example.com:{inside.port}/v1"
        assert await call(upstream, url, allow_private=True) == 200
        await refused(upstream, url)
        assert await call(upstream, url, allow_private=True) == 200
        assert inside.connections == 1


async def test_a_request_through_the_router_is_told_what_is_wrong_without_the_address(network):
    network.names["api.example.com"] = ["169.254.169.254"]
    document = catalog(f"http://api.example.com:{network.canary}/v1", model={"retry": {"max_retries": 0}})
    document["providers"]["pe1"]["allow_private"] = False
    async with running_router(document) as house:
        house.router.upstream, outside = Upstream(time.monotonic, network.look_up), house.router.upstream
        async with house.chat() as answer:
            error = (await answer.json())["error"]
        (line,) = await house.logged()
        await house.router.upstream.close()
        house.router.upstream = outside
    assert (answer.status, error["code"]) == (502, "server_error")
    assert "allow_private" in str(line["routing"]["attempts"])
    assert "example.com" not in f"{error} {line}"
    assert "169.254" not in f"{error} {line}"


# --- redirects, proxies, and what a request may say ---------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("status", [300, 301, 302, 303, 305, 307, 308])
async def test_a_redirect_is_a_failed_attempt_and_is_never_followed(network, status, stream):
    leads = Headers(
        (("Location", f"http://127.0.0.1:{network.canary}/v1/chat/completions"), ("Refresh", f"0; url=http://127.0.0.1:{network.canary}"))
    )
    async with ScriptedUpstream() as moved, ScriptedUpstream() as other:
        moved.script(then=(Status(status), leads, Raw(b"moved")))
        async with running_router(catalog(moved.base_url, other.base_url)) as house, house.chat(stream=stream) as answer:
            await answer.read()
            (line,) = await house.logged()
    assert answer.status == 200
    assert "location" not in answer.headers
    assert [attempt["outcome"] for attempt in line["routing"]["attempts"]] == ["server_error", "ok"]
    assert len(moved.calls) == 1


async def test_proxies_and_netrc_of_the_environment_are_passed_over(network, monkeypatch, tmp_path):
    (tmp_path / "netrc").write_text("default login netrc-login password netrc-word\n")
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{network.canary}")
    monkeypatch.setenv("NETRC", os.fspath(tmp_path / "netrc"))
    async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url)) as house, house.chat() as answer:
        assert answer.status == 200
    assert "netrc" not in str(upstream.calls[0].headers)
    assert upstream.calls[0].header("authorization") == f"Bearer {PROVIDER_SECRET}"


async def test_nothing_in_a_request_moves_its_target(network):
    canary = f"http://127.0.0.1:{network.canary}/x"
    picture = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": canary}}, {"type": "text", "text": canary}]}
    mine = {"host": f"127.0.0.1:{network.canary}", "x-forwarded-host": canary, "x-original-url": canary, "location": canary}
    async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url)) as house:
        async with house.chat(messages=[picture], headers=mine) as answer:
            assert answer.status == 200
        for field_name in ("base_url", "api_base", "url", "endpoint", "callback_url", "proxy"):
            async with house.chat({field_name: canary}) as answer:
                assert answer.status in (200, 400)  # passed on as it is, or known to be an attempt
        for model in ("../../x", canary, "m?x=y", "m#x", "//127.0.0.1/x"):
            async with house.chat(model=model) as answer:
                assert answer.status == 404
    for sent in upstream.calls:
        assert sent.path == "/v1/chat/completions"
        assert sent.header("host") == f"127.0.0.1:{upstream.port}"
    assert set(network.attempts) == {"127.0.0.1"}


# --- look-ups ---------------------------------------------------------------------------------------------------


async def test_a_look_up_that_hangs_costs_its_own_request_a_little_time_and_others_none(network, monkeypatch):
    monkeypatch.setattr(resolver, "LOOK_UP_S", 0.1)
    network.names["good.example.com"] = [PUBLIC]
    hanging = asyncio.Event()

    async def look_up(name: str) -> list[Address]:
        if name == "bad.example.com":
            network.asked.append(name)
            await hanging.wait()
        return await network.look_up(name)

    async with ScriptedUpstream() as provider:
        network.provider = provider.port
        upstream, started = Upstream(time.monotonic, look_up), time.monotonic()
        slow = [asyncio.create_task(refused(upstream, "http://bad.example.com/v1")) for _ in range(20)]
        assert await call(upstream, "http://good.example.com/v1") == 200
        assert time.monotonic() - started < 0.1
        assert set(await asyncio.gather(*slow)) == {"the provider's name could not be resolved"}
        assert time.monotonic() - started < 1.0
        assert network.asked.count("bad.example.com") == 1, "one look-up for all who wait"
        await upstream.close()


async def test_a_name_server_that_is_away_is_answered_for_from_memory():
    now, answers = 0.0, [[(socket.AF_INET, PUBLIC)], OSError("away"), OSError("away"), [(socket.AF_INET, "1.1.1.1")]]

    async def look_up(_: str) -> list[Address]:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    names = Names(lambda: now, look_up)
    assert await names.addresses("a") == ((socket.AF_INET, PUBLIC),)
    now = resolver.FRESH_S - 1
    assert await names.addresses("a") == ((socket.AF_INET, PUBLIC),)
    assert len(answers) == 3
    now = resolver.STALE_S - 1
    assert await names.addresses("a") == ((socket.AF_INET, PUBLIC),)
    now = resolver.STALE_S + 1
    with pytest.raises(OSError, match="could not be resolved"):
        await names.addresses("a")
    assert await names.addresses("a") == ((socket.AF_INET, "1.1.1.1"),)
    await names.close()


async def test_the_systems_resolver_is_asked_by_default():
    names = Names(time.monotonic)
    assert "127.0.0.1" in {address for _, address in await names.addresses("localhost")}
    with pytest.raises(OSError, match="could not be resolved"):
        await names.addresses("no-such-name.invalid")
    await names.close()


async def test_memory_of_names_is_bounded(monkeypatch):
    monkeypatch.setattr(resolver, "MOST_NAMES", 3)
    asked: list[str] = []

    async def look_up(name: str) -> list[Address]:
        asked.append(name)
        return [(socket.AF_INET, PUBLIC)]

    names = Names(lambda: 0.0, look_up)
    for name in ("a", "b", "c", "d", "d", "a"):
        await names.addresses(name)
    assert asked == ["a", "b", "c", "d", "a"]


def test_there_are_as_many_forms_as_there_should_be():
    assert len(FORBIDDEN) + len(NUMBERS) + len(NAMES) >= 40
