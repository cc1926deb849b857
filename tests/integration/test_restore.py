"""Postgres is restored from an old backup under running routers: they follow it back, and no row is counted twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

from control_plane.ledger import Ledger
from control_plane.schema import DatabaseAway, migrate
from tests.integration.test_usage_outages import sums_agree, total
from tests.integration.test_watchers import a_row
from tests.support import backup
from tests.support.answers import completion
from tests.support.fleet import Fleet, Role, ask, eventually, ready, running_fleet
from tests.support.router import catalog
from tests.support.stores import libpq_url
from tests.support.upstream import HostedUpstream, running_upstream


@pytest.fixture
def upstream() -> Iterator[HostedUpstream]:
    with running_upstream() as running:
        running.script(then=completion("pong"))
        yield running


@pytest.fixture
def fleet(tmp_path: Path, postgres_url: str) -> Iterator[Fleet]:
    with running_fleet(tmp_path, postgres_url) as running:
        running.control_plane()
        eventually(lambda: running.n4n("catalog", "history", check=False).returncode == 0, "the control plane")
        yield running


def asked(router: Role, key: str, times: int, **fields: object) -> list[tuple[int, str]]:
    """Status and catalog version of each answer."""
    answers = [ask(router, key, **fields) for _ in range(times)]
    return [(status, headers.get("x-n4n-catalog-version", "")) for status, headers, _ in answers]


def at(fleet: Fleet, version: int) -> Callable[[], bool]:
    """Whether both routers are known to hold a catalog version and the newest keys."""

    def told() -> bool:
        nodes: Any = fleet.told("nodes")
        held = [(one["applied_version"], one["lag_ms"]) for one in nodes if one["connected"]]
        return held == [(version, 0)] * 2

    return told


def test_routers_follow_a_database_that_was_restored_from_an_old_backup(fleet: Fleet, upstream: HostedUpstream, tmp_path: Path) -> None:
    control, file = fleet.roles[0], tmp_path / "n4n.dump"
    fleet.apply(catalog(upstream.base_url))
    kept, revoked = fleet.create_key(), fleet.create_key()
    routers = [fleet.data_plane(name, CANARY="sk-provider-canary") for name in ("r1", "r2")]
    eventually(lambda: all(map(ready, routers)), "both routers")
    assert asked(routers[0], kept, 5) == [(200, "1")] * 5
    eventually(lambda: total(fleet) == 5, "the rows before the backup")

    backup.dump(fleet.database_url, file)
    fleet.apply(catalog(upstream.base_url, model={"aliases": ["second"]}))
    later = fleet.create_key()
    fleet.n4n("key", "revoke", revoked.split("-")[2])
    eventually(lambda: all(ask(router, revoked)[0] == 401 for router in routers), "the newest keys at both routers")
    eventually(
        lambda: [ask(router, later)[1].get("x-n4n-catalog-version") for router in routers] == ["2", "2"], "version 2 at both routers"
    )
    eventually(lambda: total(fleet) == len(upstream.calls), "the rows after the backup")
    forgotten = total(fleet) - 5
    assert control.stop() == 0
    assert asked(routers[0], later, 3) == [(200, "2")] * 3, "these wait on the router's disk"

    backup.restore(fleet.database_url, file)
    assert asked(routers[1], later, 2) == [(200, "2")] * 2, "no request has noticed"
    assert routers[1].stop() == 0  # it will come back with a version 2 of the history that is no more
    control.start()
    eventually(lambda: ask(routers[0], later)[0] == 401, "the keys of the backup")
    assert asked(routers[0], kept, 1) == [(200, "1")]
    assert asked(routers[0], revoked, 1) == [(200, "1")], "who was revoked since the backup is not"

    fleet.apply(catalog(upstream.base_url, model={"aliases": ["another"]}))
    routers[1].start()
    eventually(at(fleet, 2), "both routers at version 2 of the new history")
    for router in routers:
        assert asked(router, kept, 1, model="another") == [(200, "2")]
        assert ask(router, kept, model="second")[0] == 404
    eventually(lambda: total(fleet) == len(upstream.calls) - forgotten, "all rows but those that Postgres got after the backup")
    assert sums_agree(fleet)


def test_a_control_plane_that_runs_goes_on_with_a_database_that_is_replaced_below_it(
    fleet: Fleet, upstream: HostedUpstream, tmp_path: Path
) -> None:
    file = tmp_path / "n4n.dump"
    fleet.apply(catalog(upstream.base_url))
    kept = fleet.create_key()
    backup.dump(fleet.database_url, file)
    routers = [fleet.data_plane(name, CANARY="sk-provider-canary") for name in ("r1", "r2")]
    eventually(lambda: all(map(ready, routers)), "both routers")
    fleet.apply(catalog(upstream.base_url, model={"aliases": ["second"]}))
    later = fleet.create_key()
    eventually(at(fleet, 2), "both routers at version 2")
    assert asked(routers[0], kept, 2) == [(200, "2")] * 2
    eventually(lambda: total(fleet) == 2, "the rows")

    backup.restore_in_place(fleet.database_url, file)
    eventually(lambda: all(ask(router, later)[0] == 401 for router in routers), "the keys of the backup")
    eventually(at(fleet, 1), "both routers at version 1")
    assert asked(routers[0], kept, 3) == [(200, "1")] * 3
    eventually(lambda: total(fleet) == len(upstream.calls) - 2, "the rows since")
    fleet.apply(catalog(upstream.base_url, model={"aliases": ["another"]}))
    eventually(at(fleet, 2), "both routers at the other version 2")
    assert asked(routers[0], kept, 1, model="another") == [(200, "2")]
    assert fleet.roles[0].process is not None and fleet.roles[0].process.poll() is None


async def test_partitions_that_a_restored_database_lacks_are_made_anew(postgres_url: str) -> None:
    migrate(postgres_url)
    now = datetime.now(UTC)
    ledger = Ledger(postgres_url, lambda: now)
    await ledger.take([a_row(now, 1)])
    with psycopg.connect(libpq_url(postgres_url), autocommit=True) as connection:
        connection.execute(f"DROP TABLE usage_ledger_{now:%Y%m%d}".encode())
    with pytest.raises(DatabaseAway, match="partitions of the ledger are made anew"):
        await ledger.take([a_row(now, 2)])
    assert await ledger.take([a_row(now, 2)]) == 0
    await ledger.close()
