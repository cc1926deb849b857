"""Two workers of a real data plane share clients fairly, and what happens to connections when one of them dies, stands still or goes."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import aiohttp
import pytest

from data_plane.intake import TELL_S
from tests.soak.load import TEXT, Load, steady
from tests.soak.report import in_flight
from tests.soak.upstream import steady_upstream
from tests.support.fleet import Fleet, Role, eventually, ready, running_fleet
from tests.support.house import command_line
from tests.support.router import catalog

CONNECTIONS = 128
BODY = b'{"model": "m", "messages": [{"role": "user", "content": "ping"}]}'


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    """The base URL of a provider for steady load."""
    with steady_upstream() as base_url:
        yield base_url


@pytest.fixture
def fleet(tmp_path: Path, postgres_url: str, upstream: str) -> Iterator[Fleet]:
    """A control plane with a catalog."""
    with running_fleet(tmp_path, postgres_url) as running:
        running.control_plane()
        eventually(lambda: running.n4n("catalog", "history", check=False).returncode == 0, "the control plane")
        running.apply(catalog(upstream))
        yield running


@pytest.fixture
def key(fleet: Fleet) -> str:
    """The first key, without which no router is ready."""
    return fleet.create_key()


@pytest.fixture
def router(fleet: Fleet, key: str) -> Role:
    """Two workers that serve."""
    one = fleet.data_plane("router", CANARY="sk-provider-canary", N4N_WORKERS="2")
    both_serve(one)
    return one


def both_serve(router: Role, count: int = 2) -> None:
    eventually(lambda: router.errors.count(" serves on ") >= count, "both workers")
    eventually(lambda: ready(router), "the router")


def url(router: Role) -> str:
    return f"http://127.0.0.1:{router.environ['N4N_PORT']}"


def connect(router: Role) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", int(router.environ["N4N_PORT"])))
    sock.settimeout(10)
    return sock


def ask(sock: socket.socket, key: str) -> bytes:
    """One request; the status line."""
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: n4n\r\nauthorization: Bearer {key}\r\ncontent-length: {len(BODY)}\r\n\r\n"
    sock.sendall(head.encode() + BODY)
    got = b""
    while TEXT.encode() not in got:
        piece = sock.recv(65536)
        assert piece, got
        got += piece
    return got.partition(b"\r\n")[0]


def held(router: Role) -> Counter[int]:
    """How many client connections each worker holds, from the kernel's tables."""
    port = int(router.environ["N4N_PORT"])
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    ours = {row[9] for row in rows if row[1].endswith(f":{port:04X}") and row[3] == "01"}
    counts = Counter[int](dict.fromkeys(router.workers(), 0))
    for worker in list(counts):
        for entry in Path(f"/proc/{worker}/fd").iterdir():
            with suppress(OSError):
                counts[worker] += os.readlink(entry).removeprefix("socket:[").rstrip("]") in ours
    return counts


def shares_of(router: Role, key: str, count: int) -> list[int]:
    """How many of so many new connections each worker has taken, all of which it answers."""
    with ExitStack() as stack:
        clients = [stack.enter_context(connect(router)) for _ in range(count)]
        assert {ask(client, key) for client in clients[:: count // 8]} == {b"HTTP/1.1 200 OK"}
        eventually(lambda: sum(held(router).values()) == count, "all to be accepted")
        shares = held(router)
    eventually(lambda: not sum(held(router).values()), "all to be gone")
    time.sleep(2 * TELL_S)
    return list(shares.values())


def test_each_of_two_workers_has_its_share_of_the_connections(router: Role, key: str) -> None:
    trials = [shares_of(router, key, CONNECTIONS) for _ in range(5)]

    fair = [shares for shares in trials if all(0.4 * CONNECTIONS <= count <= 0.6 * CONNECTIONS for count in shares)]
    assert len(fair) >= 4, f"{trials}: one may meet a worker that the machine did not let run for a while"


def test_a_killed_worker_loses_what_it_had_in_flight_and_nothing_else(router: Role, key: str) -> None:
    with steady(url(router), key, rate=100) as load:
        eventually(lambda: len(load.sent) > 100, "some load")
        for pid in router.workers():
            before = len(load.sent)
            killed_at = time.monotonic()
            os.kill(pid, signal.SIGKILL)
            eventually(lambda pid=pid: len(router.workers()) == 2 and pid not in router.workers(), "its successor")
            eventually(lambda before=before: len(load.sent) > before + 150, "more load")
            unexcused = [one for one in load.sent[before:] if one.fault and not in_flight(one, killed_at)]
            assert unexcused == []
            both_serve(router, router.errors.count(" ended with ") + 2)
        later = len(load.sent)
        eventually(lambda: len(load.sent) > later + 50, "more load")
        assert [one for one in load.sent[later:] if one.fault] == []
    eventually(lambda: not sum(held(router).values()), "all to be gone")
    eventually(lambda: min(shares_of(router, key, 24)) >= 8, "the successors to take part")


def test_a_worker_that_stands_still_gets_no_connection_and_nobody_waits_for_it(router: Role, key: str) -> None:
    still, other = router.workers()
    with ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(connect(router))
        eventually(lambda: sum(held(router).values()) == 4, "all to be accepted")
        before = held(router)[still]
        os.kill(still, signal.SIGSTOP)
        try:
            begun = time.monotonic()
            clients = [stack.enter_context(connect(router)) for _ in range(50)]
            assert {ask(client, key) for client in clients} == {b"HTTP/1.1 200 OK"}
            took = time.monotonic() - begun
            during = held(router)
        finally:
            os.kill(still, signal.SIGCONT)
        assert during[still] == before
        assert took < 50 * 0.15, "each takes some 25 ms with its provider"

        for _ in range(40):
            ask(stack.enter_context(connect(router)), key)
        after = held(router)
        assert after[still] - before > after[other] - during[other], "who has fewer catches up"


async def one_connection_each(load: Load, stop: asyncio.Event) -> Counter[str]:
    """Requests that each come on a connection of their own; how they ended."""
    ends = Counter[str]()

    async def client() -> None:
        connector = aiohttp.TCPConnector(force_close=True)
        async with aiohttp.ClientSession(connector=connector, headers={"authorization": f"Bearer {load.key}"}) as http:
            while not stop.is_set():
                try:
                    async with http.post(f"{load.url}/v1/chat/completions", data=BODY) as answer:
                        await answer.read()
                        ends[str(answer.status)] += 1
                except (OSError, aiohttp.ClientError) as error:
                    ends[repr(error)] += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(16):
            group.create_task(client())
    return ends


async def test_workers_are_replaced_and_told_to_go_without_a_refused_connection(router: Role, key: str) -> None:
    stop = asyncio.Event()
    load = asyncio.create_task(one_connection_each(Load(url(router), key, 0), stop))
    for _ in range(2):
        await asyncio.to_thread(router.replace_workers)
    one = router.workers()[-1]
    os.kill(one, signal.SIGTERM)
    await asyncio.to_thread(eventually, lambda: not command_line(one), "it to go")
    stop.set()
    ends = await load

    assert set(ends) == {"200"}
    assert ends["200"] > 500
