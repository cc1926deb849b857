"""A budget that is new begins with nothing spent, and saving it again begins nothing anew."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from n4n.v1 import usage_pb2
from tests.core.test_ledger import settled
from tests.integration.test_usage_outages import CREDENTIAL, total
from tests.support.fleet import NODE_TOKEN, Fleet, ask, eventually, ready, running_fleet
from tests.support.router import catalog
from tests.support.upstream import HostedUpstream, reply, running_upstream

A_MILLION_IN = {"prompt_tokens": 1_000_000, "completion_tokens": 0, "total_tokens": 1_000_000}  # 2.50 USD


@pytest.fixture
def upstream() -> Iterator[HostedUpstream]:
    with running_upstream() as running:
        running.script(then=reply("", usage=A_MILLION_IN))
        yield running


def spent_before(fleet: Fleet, key_id: str) -> None:
    """50 USD, a minute ago."""
    at = round(time.time() * 1e6) - 60_000_000
    lines = b"".join(settled(n, started_us=at + n, key_id=key_id, endpoint="e1", provider="pe1", cost_usd="10") for n in range(1, 6))
    with grpc.insecure_channel(fleet.admin_url) as channel:
        call = channel.unary_unary("/n4n.v1.Usage/Report", usage_pb2.UsageReport.SerializeToString, usage_pb2.UsageReceipt.FromString)
        call(usage_pb2.UsageReport(offset=1, lines=lines), metadata=(("authorization", f"Bearer {NODE_TOKEN}"),), timeout=20)


def test_a_key_that_has_spent_50_before_it_got_a_budget_of_10_a_day_has_10(
    tmp_path: Path, postgres_url: str, redis_url: str, upstream: HostedUpstream
) -> None:
    """LiteLLM #34492 (case 21): the key was over its new budget at once, by what it had spent in its whole life."""
    with running_fleet(tmp_path, postgres_url) as fleet:
        fleet.control_plane(N4N_REDIS_URL=redis_url)
        eventually(lambda: fleet.n4n("catalog", "history", check=False).returncode == 0, "the control plane")
        fleet.apply(catalog(upstream.base_url))
        key = fleet.create_key()
        key_id = key.split("-")[2]
        routers = [fleet.data_plane(name, **CREDENTIAL, N4N_REDIS_URL=redis_url) for name in ("r1", "r2")]
        for router in routers:
            eventually(lambda router=router: ready(router), "the router")
        spent_before(fleet, key_id)

        def standing() -> dict[str, object]:
            (row,) = fleet.told("budget", "list")  # type: ignore[misc]
            return dict(row)

        fleet.n4n("key", "update", key_id, "--budget-usd", "10/day")
        begun = standing()
        assert begun["spent"] == 0
        for router in (*routers, *routers):  # 2.50 each: as much as there is
            assert ask(router, key)[0] == 200
        fleet.n4n("key", "update", key_id, "--budget-usd", "10/day")
        eventually(lambda: total(fleet) == 9, "the ledger to have it")
        after = standing()
        assert (after["spent"], after["level"], after["begins_at"]) == (10, 100, begun["begins_at"])
        for router in routers:
            status, _, body = ask(router, key)
            assert (status, body["error"]["code"]) == (402, "budget_exceeded")  # type: ignore[index]

        (row,) = fleet.told("usage", "--by", "key", "--since", "1h")  # type: ignore[misc]
        assert (row["key"], row["cost_usd"], row["attempts"]) == (key_id, 60, 9)
    assert len(upstream.calls) == 4
