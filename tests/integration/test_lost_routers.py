"""A machine that is lost with its disk, and one that only stood still: what the ledger says of what they had under way."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import redis

from tests.integration.test_usage_outages import CREDENTIAL, counted, sums_agree, total
from tests.support.answers import completion
from tests.support.fleet import Fleet, Role, ask, eventually, ready, running_fleet
from tests.support.router import catalog
from tests.support.script import Gate, Wait
from tests.support.upstream import HostedUpstream, running_upstream


@pytest.fixture
def upstream() -> Iterator[HostedUpstream]:
    with running_upstream() as running:
        yield running


@pytest.fixture
def fleet(tmp_path: Path, postgres_url: str, redis_url: str, upstream: HostedUpstream) -> Iterator[Fleet]:
    with running_fleet(tmp_path, postgres_url) as running:
        running.control_plane(N4N_REDIS_URL=redis_url, N4N_LOST_ROUTER_SEC="3")
        eventually(lambda: running.n4n("catalog", "history", check=False).returncode == 0, "the control plane")
        running.apply(catalog(upstream.base_url))
        yield running


def under_way(redis_url: str) -> int:
    """Attempts that Redis knows of."""
    with redis.Redis.from_url(redis_url) as client:
        return sum(field.startswith(b"att_") for key in client.scan_iter("n4n:{open:*}") for field in client.hkeys(key))


def asking(router: Role, key: str, count: int) -> list[threading.Thread]:
    """So many requests under way, whatever becomes of them."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{router.environ['N4N_PORT']}/v1/chat/completions",
        json.dumps({"model": "m", "messages": [{"role": "user", "content": "ping"}]}).encode(),
        {"authorization": f"Bearer {key}", "content-type": "application/json"},
    )

    def ask_once() -> None:
        with suppress(OSError), urllib.request.urlopen(request, timeout=60) as answer:
            answer.read()

    threads = [threading.Thread(target=ask_once) for _ in range(count)]
    for thread in threads:
        thread.start()
    return threads


def test_what_a_lost_machine_had_under_way_ends_as_unknown_and_a_late_row_replaces_it(
    fleet: Fleet, upstream: HostedUpstream, redis_url: str
) -> None:
    key = fleet.create_key()
    lost, still = (fleet.data_plane(name, **CREDENTIAL, N4N_REDIS_URL=redis_url) for name in ("lost", "still"))
    for router in (lost, still):
        eventually(lambda router=router: ready(router), "the router")
        for _ in range(5):
            assert ask(router, key)[0] == 200
    eventually(lambda: total(fleet) == 10, "the rows of what was answered")
    gate = Gate()
    upstream.script(then=(Wait(gate), *completion("pong")))
    threads = asking(lost, key, 3) + asking(still, key, 2)
    upstream.arrived(15)
    eventually(lambda: under_way(redis_url) == 5, "Redis to know of them, which takes 10 ms")
    (worker,) = still.workers()
    gone = lost.workers()

    assert lost.process is not None
    for pid in (lost.process.pid, *gone):
        os.kill(pid, signal.SIGKILL)
    shutil.rmtree(fleet.folder / "lost" / "usage")
    os.kill(worker, signal.SIGSTOP)
    eventually(lambda: counted(fleet) == {"ok": 10, "unknown": 5}, "what they had under way")
    assert "the router lost-1 (run 1-" in fleet.roles[0].errors and "3 attempts" in fleet.roles[0].errors
    os.kill(worker, signal.SIGCONT)
    gate.open()
    for thread in threads:
        thread.join()

    eventually(lambda: counted(fleet) == {"ok": 12, "unknown": 3}, "the rows of the router that stood still")
    assert sums_agree(fleet)
