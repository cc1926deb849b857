"""What one worker takes: with the built-in catalog, for each open stream, for each idle connection."""

from __future__ import annotations

import json
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from n4n.catalogs.builtin import whole_document
from tests.support.answers import completion, hang_after, sse
from tests.support.fleet import Fleet, Role, eventually, ready, running_fleet
from tests.support.memory import KIB, MIB, footprint
from tests.support.router import catalog
from tests.support.upstream import HostedUpstream, running_upstream

STREAMS, IDLE = 1000, 2000


@pytest.fixture
def upstream() -> Iterator[HostedUpstream]:
    """A provider whose streams begin and do not end."""
    with running_upstream() as running:
        running.script(then=hang_after(*(f"released{number} " for number in range(8))))
        yield running


@pytest.fixture
def fleet(tmp_path: Path, postgres_url: str, upstream: HostedUpstream) -> Iterator[Fleet]:
    """A control plane with the built-in catalog, and a model of the provider's."""
    with running_fleet(tmp_path, postgres_url) as running:
        running.control_plane()
        eventually(lambda: running.n4n("catalog", "history", check=False).returncode == 0, "the control plane")
        whole, ours = whole_document(), catalog(upstream.base_url)
        running.apply({kind: {**part, **ours.get(kind, {})} for kind, part in whole.items()})  # type: ignore[dict-item]
        yield running


@pytest.fixture
def key(fleet: Fleet) -> str:
    """The first key."""
    return fleet.create_key()


@pytest.fixture
def router(fleet: Fleet, key: str) -> Role:
    """A router with one worker, whose shell allows 1,024 open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    try:
        one = fleet.data_plane("router", CANARY="sk-provider-canary", N4N_DRAIN_SEC="1")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    eventually(lambda: ready(one), "the router")
    return one


def connect(router: Role) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", int(router.environ["N4N_PORT"])))
    sock.settimeout(10)
    return sock


def until(sock: socket.socket, text: bytes) -> None:
    got = b""
    while text not in got:
        piece = sock.recv(65536)
        assert piece, got
        got = got[-len(text) :] + piece


def request(key: str, *, stream: bool = True) -> bytes:
    body = json.dumps({"model": "m", "stream": stream, "messages": [{"role": "user", "content": "ping"}]}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: n4n\r\nauthorization: Bearer {key}\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def test_a_worker_keeps_within_its_memory(router: Role, key: str) -> None:
    """110 MB with the built-in catalog, 40 KiB for each open stream, 20 KiB for each connection that waits for its next request."""
    (worker,) = router.workers()

    def stream(stack: ExitStack) -> None:
        sock = stack.enter_context(connect(router))
        sock.sendall(request(key))
        until(sock, b"released7")

    def idle(stack: ExitStack) -> None:
        sock = stack.enter_context(connect(router))
        sock.sendall(b"GET /ready HTTP/1.1\r\nhost: n4n\r\n\r\n")
        until(sock, b"ok\n")

    with ExitStack() as stack:
        stream(stack)
        idle(stack)
        begun = footprint(worker)
        for _ in range(IDLE):
            idle(stack)
        waiting = footprint(worker)
        for _ in range(STREAMS):
            stream(stack)
        streaming = footprint(worker)

    per_connection = (waiting.resident - begun.resident) / IDLE
    per_stream = (streaming.resident - waiting.resident) / STREAMS
    told = f"{begun.resident / 1e6:.1f} MB; {per_connection / KIB:.1f} KiB a connection; {per_stream / KIB:.1f} KiB a stream"
    assert begun.resident <= 110e6, told
    assert per_connection <= 20 * KIB, told
    assert per_stream <= 40 * KIB, told
    assert streaming.threads == begun.threads


@pytest.mark.parametrize("form", ["stream", "whole"])
def test_answers_of_four_mebibytes_leave_no_memory_behind(router: Role, key: str, upstream: HostedUpstream, form: str) -> None:
    """aiohttp #4453 and open-webui #24928 (case 27): one `data:` line, or one body, of 4 MiB, thirty times."""
    (worker,) = router.workers()
    text = "x" * (4 * MIB)
    upstream.script(then=sse(text) if form == "stream" else completion(text))

    def ask() -> int:
        with connect(router) as sock:
            sock.sendall(request(key, stream=form == "stream"))
            until(sock, b"[DONE]" if form == "stream" else b'"n4n":')
        return footprint(worker).resident

    begun = footprint(worker).resident
    after = [ask() for _ in range(30)]

    assert max(after) - begun < 64 * MIB, after
    assert min(after[15:]) - min(after[:15]) < 20 * MIB, "the allocator keeps one such block or two, not fifteen"
