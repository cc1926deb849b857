"""How a data plane starts, is replaced and goes: nobody who asks it anything loses an answer."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.soak.load import Load, percentile, steady
from tests.soak.upstream import steady_upstream
from tests.support.answers import hang_after
from tests.support.fleet import Fleet, Role, eventually, ready, running_fleet
from tests.support.house import bare_environ, command_line, free_port, listens
from tests.support.router import catalog
from tests.support.upstream import running_upstream

CREDENTIAL = {"CANARY": "sk-provider-canary"}


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


def url(router: Role) -> str:
    return f"http://127.0.0.1:{router.environ['N4N_PORT']}"


def router_of(fleet: Fleet, name: str = "router", **settings: str) -> Role:
    router = fleet.data_plane(name, **CREDENTIAL, **settings)
    eventually(lambda: ready(router), "the router")
    return router


def status_of(router: Role, path: str) -> int:
    """0: nobody answers."""
    try:
        with urllib.request.urlopen(url(router) + path, timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:
        return 0


def asks(load: Load, more: int = 50) -> None:
    """Waits until so many more requests have ended."""
    count = len(load.sent)
    eventually(lambda: len(load.sent) >= count + more, "more requests")


def test_a_rolling_restart_under_load_fails_no_request(fleet: Fleet) -> None:
    key, router = fleet.create_key(), router_of(fleet, N4N_WORKERS="2")
    before = router.workers()
    with steady(url(router), key) as load:
        asks(load)
        for _ in range(3):
            router.replace_workers()
        asks(load)
        assert set(router.workers()).isdisjoint(before) or len(router.workers()) > 2
    assert load.failed == []
    assert router.stop() == 0


def test_a_successor_starts_with_the_version_that_was_in_use(fleet: Fleet, upstream: str) -> None:
    key, router = fleet.create_key(), router_of(fleet)
    with steady(url(router), key) as load:
        asks(load)
        for model in ("a", "b", "c"):
            fleet.apply(catalog(upstream) | {"models": {"m": {"strategy": "cost", "aliases": [model]}}})
            router.replace_workers()
        asks(load)
    versions = [one.version for one in sorted(load.sent, key=lambda one: one.at)]
    assert load.failed == []
    assert max(versions) == 4
    assert sum(later < earlier for earlier, later in pairwise(versions)) <= 3, "but for those sent while it changed"


@pytest.mark.parametrize("who", [{"N4N_WORKERS": "2"}, {"N4N_WORKER": "1"}], ids=["supervisor", "worker alone"])
def test_a_stop_resets_nobody(fleet: Fleet, who: dict[str, str]) -> None:
    key, router = fleet.create_key(), router_of(fleet, N4N_LAME_DUCK_SEC="1", **who)
    with steady(url(router), key, rate=100) as load:
        asks(load)
        told = time.monotonic()
        assert router.stop() == 0
        ended = time.monotonic()
    served = [one for one in load.between(told, ended) if not one.fault]

    assert 1 < ended - told < 10
    assert max(one.at for one in served) > told + 0.8, "new connections were accepted during the lame-duck time"
    assert {one.fault.partition(":")[0] for one in load.failed} <= {"ClientConnectorError"}, "refused, which a balancer repeats elsewhere"
    assert all("Connect call failed" in one.fault for one in load.failed)


def connect(router: Role) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", int(router.environ["N4N_PORT"])))
    sock.settimeout(10)
    return sock


def head(key: str, size: int) -> bytes:
    return f"POST /v1/chat/completions HTTP/1.1\r\nhost: n4n\r\nauthorization: Bearer {key}\r\ncontent-length: {size}\r\n\r\n".encode()


BODY = b'{"model": "m", "messages": [{"role": "user", "content": "ping"}]}'


def answer(sock: socket.socket, until: bytes = b"word9") -> bytes:
    """What comes until a text of the answer has come, or the end."""
    got = b""
    while until not in got and (piece := sock.recv(65536)):
        got += piece
    return got


def test_a_request_whose_body_is_under_way_and_one_on_an_idle_connection_are_served_during_a_drain(fleet: Fleet) -> None:
    key, router = fleet.create_key(), router_of(fleet, N4N_LAME_DUCK_SEC="2")
    assert router.process is not None
    with connect(router) as slow, connect(router) as idle:
        idle.sendall(head(key, len(BODY)) + BODY)
        first = answer(idle)
        slow.sendall(head(key, len(BODY)) + BODY[:10])
        router.process.send_signal(signal.SIGTERM)
        eventually(lambda: status_of(router, "/ready") == 503, "/ready to say so", within=1)
        assert status_of(router, "/live") == 200

        idle.sendall(head(key, len(BODY)) + BODY)
        slow.sendall(BODY[10:])
        second, late = answer(idle), answer(slow)
        assert idle.recv(1) == b"", "the answer closes"

    assert b"connection: close" not in first.lower()
    for got in (second, late):
        assert got.startswith(b"HTTP/1.1 200 ")
        assert b"connection: close" in got.lower()
    assert router.process.wait(10) == 0


def test_who_was_let_in_last_is_served_although_the_request_comes_late(fleet: Fleet) -> None:
    key, router = fleet.create_key(), router_of(fleet)
    assert router.process is not None
    port = int(router.environ["N4N_PORT"])
    with connect(router) as sock:
        router.process.send_signal(signal.SIGTERM)
        eventually(lambda: not listens(port), "the sockets to close", within=5)
        sock.sendall(head(key, len(BODY)) + BODY)
        got = answer(sock)

    assert got.startswith(b"HTTP/1.1 200 ")
    assert router.process.wait(10) == 0


def test_a_stream_finishes_and_one_that_does_not_is_told_so(fleet: Fleet) -> None:
    key = fleet.create_key()
    with running_upstream() as hanging:
        hanging.script(then=hang_after(*("released " for _ in range(8))))
        fleet.apply(catalog(hanging.base_url))
        router = router_of(fleet, N4N_DRAIN_SEC="2")
        assert router.process is not None
        with connect(router) as sock:
            streaming = BODY[:-1] + b', "stream": true}'
            sock.sendall(head(key, len(streaming)) + streaming)
            begun = answer(sock, b"released")
            told = time.monotonic()
            router.process.send_signal(signal.SIGTERM)
            rest = answer(sock, b"never")
            took = time.monotonic() - told
        assert router.process.wait(10) == 0

    assert b"released" in begun
    assert 1.9 < took < 4.5
    assert b'"code":"draining"' in rest
    assert b'"finish_reason":"error"' in rest
    assert rest.endswith(b"0\r\n\r\n")


def test_asked_twice_it_ends_at_once(fleet: Fleet) -> None:
    fleet.create_key()
    router = router_of(fleet, N4N_LAME_DUCK_SEC="20")
    assert router.process is not None
    pids = router.workers()
    router.process.send_signal(signal.SIGTERM)
    eventually(lambda: status_of(router, "/ready") == 503, "/ready to say so", within=2)

    router.process.send_signal(signal.SIGTERM)

    assert router.process.wait(5) == 137
    eventually(lambda: not any(command_line(pid) for pid in pids), "the workers to be gone", within=2)


def test_ready_and_answers_need_nothing_remote(fleet: Fleet) -> None:
    key = fleet.create_key()
    nobody = f"redis://127.0.0.1:{free_port()}"
    router = router_of(fleet, N4N_REDIS_URL=nobody)
    fleet.roles[0].kill()

    with steady(url(router), key) as load:
        asks(load)
        router.replace_workers()
        asks(load)
        assert status_of(router, "/ready") == 200
    assert load.failed == []


def test_the_workers_of_a_killed_supervisor_finish_and_leave_the_port_to_the_next(fleet: Fleet) -> None:
    key, router = fleet.create_key(), router_of(fleet, N4N_WORKERS="2", N4N_LAME_DUCK_SEC="4")  # more than the next start waits
    pids = router.workers()
    with connect(router) as sock:
        streaming = BODY[:-1] + b', "stream": true}'
        sock.sendall(head(key, len(streaming)) + streaming)
        begun = answer(sock, b"word0")
        router.kill()
        router.start()
        rest = answer(sock, b"[DONE]")
    eventually(lambda: ready(router), "the next start", within=10)

    assert b"word0" in begun and b"[DONE]" in rest
    eventually(lambda: not any(command_line(pid) for pid in pids), "the old workers to be gone", within=10)
    assert len(router.workers()) == 2


def test_a_worker_that_is_told_to_go_is_replaced_before_it_goes(fleet: Fleet) -> None:
    key, router = fleet.create_key(), router_of(fleet)
    (before,) = router.workers()
    with steady(url(router), key) as load:
        asks(load)
        os.kill(before, signal.SIGTERM)
        eventually(lambda: not command_line(before), "it to go")
        asks(load)
    assert load.failed == []
    assert len(router.workers()) == 1


def test_a_port_that_is_taken_is_one_line(fleet: Fleet) -> None:
    fleet.create_key()
    router = router_of(fleet)
    environ = {**bare_environ(), **{name: value for name, value in router.environ.items() if name != "ROLE"}}
    second = subprocess.run([sys.executable, "-m", "n4n", "data-plane"], env=environ, capture_output=True, text=True, timeout=20)

    assert second.returncode == 1
    (line,) = second.stderr.splitlines()
    assert line.startswith(f"n4n: cannot listen on 127.0.0.1:{router.environ['N4N_PORT']}: Address already in use; ")


def test_versions_are_applied_under_load_without_a_stall(fleet: Fleet, upstream: str) -> None:
    key, router = fleet.create_key(), router_of(fleet)
    with steady(url(router), key) as load:
        asks(load, 100)
        quiet_until = time.monotonic()
        for number in range(8):
            fleet.apply(catalog(upstream) | {"models": {"m": {"strategy": "cost", "aliases": [f"name-{number}"]}}})
        asks(load)
    busy = [one.first_s for one in load.sent if one.at >= quiet_until and not one.stream]
    quiet = [one.first_s for one in load.sent if one.at < quiet_until and not one.stream]
    assert load.failed == []
    assert max(one.version for one in load.sent) == 9
    assert percentile(busy, 0.9) < percentile(quiet, 0.5) + 0.05


def test_a_worker_allows_itself_the_open_files_that_its_connections_need():
    import resource
    import subprocess
    import sys

    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]));"
        "from data_plane.app import make_room; from n4n.runtime.settings import Settings; make_room(Settings(max_connections=1000));"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    )
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert int(done.stdout) == (2500 if hard == resource.RLIM_INFINITY else min(2500, hard))
