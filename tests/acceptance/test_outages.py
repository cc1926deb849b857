"""What goes on when the control plane does not, and what happens to a push that is wrong."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from n4n.v1 import discovery_pb2, types_pb2
from tests.support.answers import completion, usage
from tests.support.fleet import Fleet, Role, ask, eventually, ready, running_fleet
from tests.support.router import catalog
from tests.support.tamper import tampering
from tests.support.upstream import HostedUpstream, running_upstream

CREDENTIAL = {"CANARY": "sk-provider-canary"}


@pytest.fixture
def upstream() -> Iterator[HostedUpstream]:
    with running_upstream() as scripted:
        scripted.script(then=completion("pong", usage=usage(999_999, 1)))
        yield scripted


@pytest.fixture
def fleet(tmp_path: Path, postgres_url: str) -> Iterator[Fleet]:
    with running_fleet(tmp_path, postgres_url) as running:
        yield running


def priced(upstream: HostedUpstream, dollars: float) -> dict[str, object]:
    """Model `m` at so many dollars per request of a million tokens."""
    document = catalog(upstream.base_url)
    document["endpoints"]["e1"]["price"] = {"input_per_1m": dollars, "output_per_1m": dollars}
    return document


def served(role: Role, key: str) -> tuple[int, str]:
    """(catalog version, cost) of an answer; (0, '') while there is none."""
    status, headers, _ = ask(role, key)
    return (int(headers["x-n4n-catalog-version"]), headers["x-n4n-usage-cost-usd"]) if status == 200 else (0, "")


def test_traffic_goes_on_without_a_control_plane_and_a_new_router_serves_from_disk(fleet, upstream):
    control = fleet.control_plane()
    eventually(lambda: fleet.n4n("catalog", "history", check=False).returncode == 0, "the control plane")
    fleet.apply(priced(upstream, 1))
    key = fleet.create_key()
    first = fleet.data_plane("first", **CREDENTIAL)
    eventually(lambda: served(first, key) == (1, "1"), "an answer")
    saved = Path(first.environ["N4N_DATA_DIR"]) / "router"
    eventually(lambda: saved.exists() and any(saved.iterdir()), "the snapshot on disk")

    control.kill()
    assert served(first, key) == (1, "1")
    target = fleet.folder / "second"
    target.mkdir()
    shutil.copytree(saved, target / "router")
    second = fleet.data_plane("second", **CREDENTIAL)
    eventually(lambda: ready(second), "the second router")
    assert served(second, key) == (1, "1"), "a router started meanwhile serves from its disk"
    assert ask(second, key[:-1] + ("A" if key[-1] != "A" else "B"))[0] == 401

    control.start()
    eventually(lambda: fleet.n4n("catalog", "history", check=False).returncode == 0, "the control plane again")
    fleet.apply(priced(upstream, 2))
    for role in (first, second):
        eventually(lambda role=role: served(role, key) == (2, "2"), f"{role.name} to converge", within=10)
    nodes = fleet.told("nodes")
    assert {(node["node"], node["applied_version"], node["connected"]) for node in nodes} == {("first-1", 2, True), ("second-1", 2, True)}


def test_a_change_reaches_the_next_answer_within_a_second_and_a_revoked_key_stops(fleet, upstream):
    fleet.control_plane()
    eventually(lambda: fleet.n4n("catalog", "history", check=False).returncode == 0, "the control plane")
    fleet.apply(priced(upstream, 1))
    key = fleet.create_key()
    router = fleet.data_plane("router", **CREDENTIAL)
    eventually(lambda: served(router, key)[0] == 1, "an answer")
    fleet.apply(priced(upstream, 3), "--expect-version", "1")
    committed = time.monotonic()
    eventually(lambda: served(router, key) == (2, "3"), "the new price", within=1.5)
    assert time.monotonic() - committed < 1.0
    refused = fleet.n4n("catalog", "rollback", "7", check=False)
    assert (refused.returncode, len(refused.stderr.splitlines())) == (1, 1)
    fleet.n4n("catalog", "rollback", "1")
    eventually(lambda: served(router, key) == (3, "1"), "the old price", within=1.5)
    fleet.n4n("key", "revoke", key.split("-")[2])
    eventually(lambda: ask(router, key)[0] == 401, "the refusal", within=1.5)


def not_a_catalog(update: discovery_pb2.Update) -> None:
    """Names a provider that does not exist; the checksum is made to fit, as a faulty control plane would."""
    from n4n.core.catalog import collection_checksum

    resources = {(one.kind, one.name): one.body for one in update.upserts}
    key = (types_pb2.KIND_ACCOUNT, "ae1")
    resources[key] = types_pb2.Account(provider="nobody").SerializeToString()
    for one in update.upserts:
        one.body = resources[(one.kind, one.name)]
    update.checksum = collection_checksum(resources)


def wrong_sum(update: discovery_pb2.Update) -> None:
    """Announces a checksum that the resources do not have."""
    update.checksum = "0" * 64


def no_message(update: discovery_pb2.Update) -> None:
    """Breaks one resource's bytes."""
    from n4n.core.catalog import collection_checksum

    update.upserts[0].body = b"\xff\xff\xff"
    update.checksum = collection_checksum({(one.kind, one.name): one.body for one in update.upserts})


@pytest.mark.parametrize(
    ("change", "said"),
    [(not_a_catalog, "accounts.ae1.provider"), (wrong_sum, "checksum"), (no_message, "is not a readable protobuf message")],
)
def test_a_bad_push_is_refused_seen_in_nodes_and_the_last_good_stays(fleet, upstream, change, said):
    fleet.control_plane()
    eventually(lambda: fleet.n4n("catalog", "history", check=False).returncode == 0, "the control plane")
    fleet.apply(priced(upstream, 1))
    key = fleet.create_key()
    with tampering(fleet.admin_url) as between:
        router = fleet.data_plane("router", admin_url=f"127.0.0.1:{between.port}", **CREDENTIAL)
        eventually(lambda: served(router, key) == (1, "1"), "an answer")

        def whole_and_changed(update: discovery_pb2.Update) -> None:
            if update.collection == types_pb2.COLLECTION_CATALOG:
                change(update)

        between.change = whole_and_changed
        everything = priced(upstream, 2)
        everything["models"]["m"]["strategy"] = "balanced"
        fleet.apply(everything)
        nack = eventually(lambda: [node["last_nack"] for node in fleet.told("nodes") if node["last_nack"]], "the NACK in n4n nodes")
        assert said in nack[0]
        assert "version 2" in nack[0]
        assert served(router, key) == (1, "1"), "the last good stays"
        between.change = None
        fleet.apply(priced(upstream, 3))
        eventually(lambda: served(router, key) == (3, "3"), "the next good version")
        eventually(lambda: not fleet.told("nodes")[0]["last_nack"], "the NACK to be over")
        router.stop()


def test_a_worker_that_dies_is_replaced_and_its_socket_keeps_waiting_connections(fleet, upstream):
    import os
    import signal

    from tests.support.house import command_line, descendants

    fleet.control_plane()
    eventually(lambda: fleet.n4n("catalog", "history", check=False).returncode == 0, "the control plane")
    fleet.apply(priced(upstream, 1))
    key = fleet.create_key()
    router = fleet.data_plane("router", **CREDENTIAL)
    eventually(lambda: served(router, key)[0] == 1, "an answer")
    (worker,) = [pid for pid in descendants(router.process.pid) if "--worker 1" in command_line(pid)]
    os.kill(worker, signal.SIGKILL)
    assert served(router, key) == (1, "1"), "the connection waited for the next worker"
    assert router.stop() == 0
