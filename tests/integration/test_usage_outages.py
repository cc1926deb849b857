"""Rows equal attempts, whoever is away meanwhile. Under load, with everything killed: tests/acceptance/test_ledger_soak.py."""

from __future__ import annotations

import signal
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest

from control_plane.ledger import Ledger
from control_plane.schema import migrate
from n4n.core.ledger import read_rows
from n4n.runtime.embedded import THROWAWAY, RunningStore, start_postgres
from tests.core.test_ledger import settled
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


async def test_what_is_acknowledged_outlives_a_server_that_was_told_to_commit_lazily(folder: Path, database: list[RunningStore]) -> None:
    migrate(database[0].url)
    ledger = Ledger(database[0].url, lambda: datetime.now(UTC))
    now = round(time.time() * 1_000_000)
    rows, _ = read_rows(b"".join(settled(number, started_us=now + number) for number in range(1, 501)))
    for at in range(0, 500, 100):
        await ledger.take(rows[at : at + 100])

    database[-1].process.popen.send_signal(signal.SIGQUIT)  # "immediate"
    await ledger.close()
    database[-1].stop()
    database.append(start_postgres(folder, settings=THROWAWAY))

    with psycopg.connect(libpq_url(database[-1].url)) as connection:
        assert connection.execute("SELECT count(*) FROM usage_ledger").fetchone() == (500,)


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
