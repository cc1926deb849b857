"""What operators see of probers: a node that holds no keys, and its findings beside the node and the endpoint."""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from pathlib import Path

import pytest

from n4n.cli import health as health_command
from n4n.cli.nodes import node_row
from n4n.core.discovery import LinkRules
from n4n.core.probes.findings import Finding, Kind
from n4n.runtime.control_client import ControlClient
from n4n.runtime.control_link import ControlLink, Identity
from n4n.runtime.credentials import Credentials
from n4n.runtime.follower import Follower, Pace
from n4n.runtime.probes import findings
from tests.control_plane.client import ADMIN, NODE, a_plane
from tests.integration.test_discovery_client import until
from tests.integration.test_health_report import CATALOG
from tests.support.store import open_store

HOUR_MS = 3_600_000


def finding(kind: Kind, about: str, *, lasting_s: float = 60.0) -> Finding:
    """One of this moment."""
    now_ms = round(time.time() * 1000)
    return Finding(kind, about, "so it is", "prober-1", now_ms, now_ms + round(lasting_s * 1000))


async def test_a_prober_is_a_node_without_keys_and_its_findings_are_shown(
    postgres_url: str, redis_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with a_plane(postgres_url, redis_url=redis_url, heartbeat_s=0.2) as plane, open_store(redis_url) as store:
        await plane.apply(CATALOG)
        for one in (
            finding(Kind.MISCONFIGURED, "endpoint ill"),
            finding(Kind.LOW_BALANCE, "account one"),
            finding(Kind.GONE, "endpoint good", lasting_s=-1.0),
        ):
            await store.command(findings.tell(one))
        follower = Follower(tmp_path / "snapshot", Credentials(), pace=Pace())  # would take keys, were they sent
        identity = Identity("prober-1", "prober", "test", NODE)
        link = ControlLink([f"127.0.0.1:{plane.port}"], identity, follower, rules=LinkRules(), clock=time.monotonic, draw=random.random)
        following = asyncio.create_task(link.run())
        async with ControlClient([f"127.0.0.1:{plane.port}"], ADMIN) as client, asyncio.timeout(10):
            await client.create_key("acme", {}, author="a")
            await until(lambda: follower.version == 1)
            await asyncio.sleep(0.5)  # some heartbeats, after which a router would have the key
            nodes = await client.nodes()
            report = await client.health("", HOUR_MS)
        following.cancel()
        await asyncio.wait([following])

    (node,) = nodes
    assert (node.role, node.connected, node.access_version, node.lag_ms) == ("prober", True, 0, 0)
    assert follower.state.access is None
    assert node.findings == ("account one: low_balance: so it is", "endpoint ill: misconfigured: so it is")
    assert node_row(node)["findings"] == list(node.findings)
    assert {one.endpoint: one.findings for one in report.endpoints} == {
        "good": ("low_balance: so it is",),
        "ill": ("misconfigured: so it is",),
        "other": ("low_balance: so it is",),
    }
    health_command.show(report, argparse.Namespace(output="table", model=""))
    assert "ill: misconfigured: so it is" in capsys.readouterr().out
