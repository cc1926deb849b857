"""Rows equal attempts, none lost and none twice, whoever is killed meanwhile. The upstream keeps its own count."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from n4n.runtime.embedded import THROWAWAY, RunningStore, start_postgres
from tests.soak.load import steady
from tests.soak.upstream import TEXT
from tests.support.fleet import Fleet, Role, ask, eventually, ready, running_fleet
from tests.support.router import catalog
from tests.support.stores import libpq_url
from tests.support.upstream import HostedUpstream, reply, running_upstream

CREDENTIAL = {"CANARY": "sk-provider-canary"}


@pytest.fixture
def upstream() -> Iterator[HostedUpstream]:
    with running_upstream() as running:
        running.script(then=reply(TEXT, usage={"prompt_tokens": 8, "completion_tokens": 4, "total_tokens": 12}))
        yield running


@pytest.fixture
def folder(stores_folder: Path) -> Path:
    return Path(tempfile.mkdtemp(dir=stores_folder))


@pytest.fixture
def database(folder: Path) -> Iterator[list[RunningStore]]:
    """A PostgreSQL of its own, to be restarted in place."""
    folder.chmod(0o711)
    running = [start_postgres(folder, settings=THROWAWAY)]
    yield running
    running[-1].stop()


@pytest.fixture
def fleet(tmp_path: Path, database: list[RunningStore], upstream: HostedUpstream) -> Iterator[Fleet]:
    with running_fleet(tmp_path, database[0].url) as running:
        running.control_plane()
        eventually(lambda: running.n4n("catalog", "history", check=False).returncode == 0, "the control plane")
        running.apply(catalog(upstream.base_url))
        yield running


def router_of(fleet: Fleet, name: str, **settings: str) -> Role:
    router = fleet.data_plane(name, **CREDENTIAL, **settings)
    eventually(lambda: ready(router), "the router")
    return router


def counted(fleet: Fleet) -> dict[str, int]:
    """Rows by state."""
    try:
        with psycopg.connect(libpq_url(fleet.database_url)) as connection:
            rows = connection.execute("SELECT state, count(*) FROM usage_ledger GROUP BY 1").fetchall()
    except psycopg.Error:
        return {}
    return dict(rows)


def total(fleet: Fleet) -> int:
    return sum(counted(fleet).values())


def sums_agree(fleet: Fleet) -> bool:
    """The roll-ups are the ledger's own sums."""
    query = """SELECT (SELECT (count(*), sum(cost_usd), sum(prompt_tokens)) FROM usage_ledger)::text,
        (SELECT (sum(attempts), sum(cost_usd), sum(prompt_tokens)) FROM usage_by_day)::text,
        (SELECT (sum(attempts), sum(cost_usd), sum(prompt_tokens)) FROM usage_by_hour)::text"""
    with psycopg.connect(libpq_url(fleet.database_url)) as connection:
        row = connection.execute(query).fetchone()
    assert row is not None
    return len(set(row)) == 1


def url(router: Role) -> str:
    return f"http://127.0.0.1:{router.environ['N4N_PORT']}"


def test_nothing_is_lost_and_nothing_is_twice_when_everything_is_killed_under_load(
    fleet: Fleet, folder: Path, database: list[RunningStore], upstream: HostedUpstream
) -> None:
    key, control = fleet.create_key(), fleet.roles[0]
    routers = [router_of(fleet, name) for name in ("r1", "r2")]
    with steady(url(routers[0]), key, 60) as first, steady(url(routers[1]), key, 60) as second:
        for _ in range(2):
            time.sleep(0.8)
            os.kill(routers[0].workers()[0], signal.SIGKILL)
            time.sleep(0.4)
            control.kill()
            time.sleep(0.4)
            database[-1].process.popen.send_signal(signal.SIGQUIT)  # "immediate"
            database[-1].stop()
            control.start()
            database.append(start_postgres(folder, settings=THROWAWAY))
            os.kill(routers[1].workers()[0], signal.SIGKILL)
            eventually(lambda: ready(routers[0]) and ready(routers[1]), "the routers")
        time.sleep(0.5)
    attempts = len(upstream.calls)
    eventually(lambda: total(fleet) >= attempts, f"{attempts} rows", within=30)
    time.sleep(1)

    states = counted(fleet)
    broken = len([one for one in first.sent + second.sent if one.fault])
    assert sum(states.values()) == attempts, f"{states}, {len(first.sent) + len(second.sent)} requests, {broken} broken"
    assert states.get("unknown", 0) <= broken
    assert sums_agree(fleet)


def test_a_router_that_is_told_to_go_right_after_the_last_answer_has_left_no_row_behind(fleet: Fleet, upstream: HostedUpstream) -> None:
    key, router = fleet.create_key(), router_of(fleet, "r1")
    for number in range(300):
        assert ask(router, key, stream=False, user=str(number))[0] == 200
    time.sleep(0.1)

    assert router.stop() == 0

    assert counted(fleet) == {"ok": 300}
    assert list((fleet.folder / "r1" / "usage").iterdir()) == []
    (row,) = fleet.told("usage", "--by", "tenant", "--since", "1h")  # type: ignore[misc]
    assert (row["tenant"], row["requests"], row["prompt_tokens"], row["cost_usd"]) == ("acme", 300, 2400, 0.018)


def test_what_waits_while_no_control_plane_is_there_is_shipped_by_the_next_router(fleet: Fleet, upstream: HostedUpstream) -> None:
    key, router, control = fleet.create_key(), router_of(fleet, "r1"), fleet.roles[0]
    control.kill()
    for _ in range(20):
        assert ask(router, key)[0] == 200
    assert router.stop() == 0
    assert counted(fleet) == {}

    control.start()
    router.start()
    eventually(lambda: total(fleet) == 20, "the rows")
    assert counted(fleet) == {"ok": 20}
