"""A catalog that injects faults says so wherever an operator looks: the control plane's log, the audit trail, health, the command line."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
from pathlib import Path

import pytest

from n4n.cli import health as health_command
from n4n.cli.explain import explained
from n4n.runtime.control_client import ControlClient
from n4n.runtime.logs import JsonLines
from n4n.v1 import catalog_pb2
from tests.control_plane.client import ADMIN, a_plane
from tests.support.catalogs import SMALL, changed
from tests.support.machine import run_n4n

FAULT = ("endpoints", "acme-small", "fault")
INJECTING = changed(SMALL, *FAULT, to={"abort_percent": 25, "abort_status": 429, "delay_ms": 200})
WORDS = "a fault is injected: 25 % of attempts are answered with status 429, 100 % of attempts are delayed by 200 ms"


def warned(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    """What was said of faults, as JSON lines."""
    lines = [json.loads(JsonLines("control-plane").format(one)) for one in caplog.records if one.name == "n4n.control_plane"]
    return [one for one in lines if one.get("code") == "catalog_injects_faults"]


async def test_the_control_planes_log_and_its_trail_tell_of_every_version_that_injects(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "n4n.control_plane"):
        async with a_plane(postgres_url) as plane:
            await plane.apply(SMALL, author="ann")
            await plane.apply(INJECTING, author="ben", message="rehearsal")
            await plane.apply(SMALL, author="ann")
            await plane.catalog.Rollback(catalog_pb2.RollbackRequest(version=2, author="cem"), metadata=plane.token)
            async with ControlClient([f"127.0.0.1:{plane.port}"], ADMIN) as client:
                entries = list(await client.audit(0))
    assert [(one["catalog_version"], one["author"], one["endpoints"], one["level"]) for one in warned(caplog)] == [
        (2, "ben", 1, "warning"),
        (4, "cem", 1, "warning"),
    ]
    assert warned(caplog)[0]["message"] == f"catalog version 2 injects faults, for a rehearsal: endpoint acme-small: {WORDS}"
    told = {entry.name: json.loads(entry.after_json).get("injected_faults") for entry in entries}
    assert told == {
        "version 1": None,
        "version 2": [f"endpoint acme-small: {WORDS}"],
        "version 3": None,
        "version 4": [f"endpoint acme-small: {WORDS}"],
    }


async def test_health_says_it_first_of_what_is_found_about_an_endpoint(postgres_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    async with a_plane(postgres_url) as plane:
        await plane.apply(INJECTING)
        async with ControlClient([f"127.0.0.1:{plane.port}"], ADMIN) as client:
            async with asyncio.timeout(5):
                while not (report := await client.health("", 60_000)).endpoints:  # noqa: ASYNC110  # it has not read the version yet
                    await asyncio.sleep(0.01)
    assert report.endpoints[0].findings[0] == WORDS
    health_command.show(report, argparse.Namespace(output="table", model=""))
    assert f"acme-small: {WORDS}" in capsys.readouterr().out.splitlines()


def test_validate_says_it_and_the_document_is_valid(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text(json.dumps(INJECTING))

    said = run_n4n("catalog", "validate", "-f", str(tmp_path / "c.json"))

    assert (said.returncode, said.stdout.splitlines()[1:]) == (0, [f"endpoint acme-small: {WORDS}"])


def test_explain_says_it_below_the_candidates() -> None:
    candidates = [{"endpoint": "a", "kept": True, "rank": 1, "injected_fault": "all is slow"}, {"endpoint": "b", "injected_fault": None}]

    assert explained({"model": "m", "candidates": candidates})[-1] == "a: a fault is injected: all is slow"
