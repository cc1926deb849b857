"""The counting process of a node: one for all its workers, started again when it ends, and what finance sees of it."""

from __future__ import annotations

import os
import signal
import stat
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from data_plane.metrics_folder import metrics_folder
from tests.support.counting import tokenizer
from tests.support.fleet import Fleet, Role, ask, eventually, ready, running_fleet
from tests.support.house import command_line, descendants
from tests.support.router import catalog
from tests.support.stores import libpq_url
from tests.support.upstream import HostedUpstream, reply, running_upstream

CREDENTIAL = {"CANARY": "sk-provider-canary"}
TEXT = "The quick brown fox jumps over the lazy dog, again and again, until it is tired of it. "


@pytest.fixture
def upstream() -> Iterator[HostedUpstream]:
    with running_upstream() as running:
        yield running


@pytest.fixture
def fleet(tmp_path: Path, postgres_url: str, upstream: HostedUpstream) -> Iterator[Fleet]:
    with running_fleet(tmp_path, postgres_url) as running:
        running.control_plane()
        eventually(lambda: running.n4n("catalog", "history", check=False).returncode == 0, "the control plane")
        running.apply(catalog(upstream.base_url))
        yield running


def counting(router: Role) -> list[int]:
    assert router.process is not None
    return [pid for pid in descendants(router.process.pid) if "data-plane --counting" in command_line(pid)]


def rows(fleet: Fleet, query: str) -> list[tuple[object, ...]]:
    with psycopg.connect(libpq_url(fleet.database_url)) as connection:
        return connection.execute(query.encode()).fetchall()


def test_a_provider_that_counts_a_tenth_too_much_shows_in_the_usage_and_in_the_metrics(fleet: Fleet, upstream: HostedUpstream) -> None:
    """And the process is one for two workers, is started again when it is killed, and its socket is the user's own; or there is none."""
    truth = tokenizer().count("o200k", TEXT * 10)
    prompt = 3 + 3 + tokenizer().count("o200k", "user") + tokenizer().count("o200k", "ping")
    told = {"prompt_tokens": prompt, "completion_tokens": round(truth * 1.1), "total_tokens": prompt + round(truth * 1.1)}
    upstream.script(then=reply(TEXT * 10, usage=told))
    key, router = fleet.create_key(), fleet.data_plane("r1", **CREDENTIAL, N4N_WORKERS="2", N4N_COUNT_ONE_IN="1")
    eventually(lambda: ready(router), "the router")
    (first,) = eventually(lambda: counting(router), "the counting process")
    own = metrics_folder(fleet.folder / "r1") / "counting.sock"
    assert stat.S_IMODE(own.stat().st_mode) == 0o600

    for _ in range(20):
        assert ask(router, key, stream=False)[0] == 200
    exact = "SELECT count(*) FROM usage_ledger WHERE counted_by = 'o200k'"
    eventually(lambda: rows(fleet, exact)[0][0], "a count")

    os.kill(first, signal.SIGKILL)
    eventually(lambda: counting(router) not in ([], [first]), "another counting process")
    before = rows(fleet, exact)[0][0]
    for _ in range(400):
        assert ask(router, key, stream=False)[0] == 200
        if rows(fleet, exact)[0][0] > before:
            break
    else:
        raise AssertionError("the new process counts nothing")

    (row,) = fleet.told("usage", "--by", "endpoint", "--since", "1h")  # type: ignore[misc]
    assert (row["endpoint"], row["count_ratio"], row["prompt_count_ratio"]) == ("e1", pytest.approx(1.1, abs=0.005), 1.0)
    eventually(
        lambda: 'n4n_compared_tokens_total{by="counted",direction="output",endpoint="e1",vocabulary="other"}' in metrics(router),
        "the metric",
    )
    assert "n4n_answers_counted_total" in metrics(router)
    assert "n4n_store_up 1.0" in metrics(router), "without a Redis none is away"
    assert router.stop() == 0
    assert not own.exists()
    every = "SELECT count(*), count(DISTINCT attempt_id), sum(prompt_tokens) FROM usage_ledger"
    assert rows(fleet, every) == [(len(upstream.calls), len(upstream.calls), prompt * len(upstream.calls))]
    assert rows(fleet, "SELECT sum(attempts) FROM usage_by_day") == [(len(upstream.calls),)]

    without = fleet.data_plane("r2", **CREDENTIAL, N4N_COUNT_ONE_IN="0")
    upstream.script(then=reply(TEXT, usage=None))
    eventually(lambda: ready(without), "the router")
    assert ask(without, key, stream=False)[0] == 200
    assert counting(without) == []
    estimated = "SELECT counted_by, doubt FROM usage_ledger WHERE estimated"
    assert eventually(lambda: rows(fleet, estimated), "the row") == [("ratio", "missing")]


def metrics(router: Role) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{router.environ['N4N_PORT']}/metrics", timeout=5) as answer:
        return str(answer.read().decode())
