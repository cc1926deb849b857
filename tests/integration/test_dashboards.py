"""Every panel of every dashboard has data on a live system under traffic: PromQL by a real Prometheus, SQL on the real ledger."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from control_plane.ledger import Ledger
from control_plane.service_levels import ServiceLevels
from tests.integration.test_watchers import a_row
from tests.support import dashboards
from tests.support.answers import completion, error, sse, usage
from tests.support.house import House, eventually, running_house
from tests.support.prometheus import PROMETHEUS, a_prometheus, asked
from tests.support.stores import libpq_url
from tests.support.upstream import HostedUpstream, running_upstream

WITHIN_S = 60.0


def test_the_files_are_what_the_table_says() -> None:
    assert {path.name: path.read_text() for path in dashboards.FOLDER.glob("*.json")} == {
        path.name: text for path, text in dashboards.files().items()
    }, "run python -m tests.support.dashboards"


def test_panels_stand_beside_each_other_and_ids_are_their_own() -> None:
    for board in dashboards.DASHBOARDS:
        panels: Any = dashboards.document(board)["panels"]
        assert len({panel["id"] for panel in panels}) == len(panels)
        taken = {
            (x, panel["gridPos"]["y"])
            for panel in panels
            for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        }
        assert len(taken) == sum(panel["gridPos"]["w"] for panel in panels)


def document(well: HostedUpstream, busy: HostedUpstream, denied: HostedUpstream) -> dict[str, object]:
    """Something for every panel: short quota, no price, a provider that is busy, an account that is denied."""
    priced = {"price": {"input_per_1m": 2.5, "output_per_1m": 10}}
    probed = {"probe": {"interval_sec": 2}}
    upstreams = {"well": well, "busy": busy, "denied": denied}
    return {
        "providers": {name: {"dialect": "openai", "base_url": one.base_url, "allow_private": True} for name, one in upstreams.items()},
        "accounts": {
            "short": {"provider": "well", "credential": "env:CANARY", "limits": {"rpm": 120, "burst": 2}},
            **{f"of-{name}": {"provider": name, "credential": "env:CANARY"} for name in upstreams},
        },
        "models": {
            "m": probed,
            "limited": {},
            "unpriced": {},
            "falls": {"strategy": "cost", "retry": {"max_retries": 3, "backoff_ms": 1}},
            "denied": {"retry": {"max_retries": 0}},
        },
        "endpoints": {
            "m-well": {"model": "m", "account": "of-well", "region": "eu", **priced},
            "limited-short": {"model": "limited", "account": "short", **priced},
            "unpriced-well": {"model": "unpriced", "account": "of-well"},
            "falls-busy": {"model": "falls", "account": "of-busy", "price": {"input_per_1m": 0.1, "output_per_1m": 0.1}},
            "falls-well": {"model": "falls", "account": "of-well", **priced},
            "denied-denied": {"model": "denied", "account": "of-denied", **priced},
        },
    }


def asks(house: House, **fields: object) -> None:
    """One request, however it ends."""
    key = fields.pop("idempotency", None)
    headers = {"authorization": f"Bearer {house.api_key}", "content-type": "application/json"}
    if key is not None:
        headers["idempotency-key"] = str(key)
    body = json.dumps({"messages": [{"role": "user", "content": "How are you?"}], **fields}).encode()
    with suppress(OSError):
        request = urllib.request.Request(f"{house.base_url}/chat/completions", body, headers)
        with urllib.request.urlopen(request, timeout=20) as answer:
            answer.read()


def traffic_of(house: House) -> None:
    """A little of everything."""
    with ThreadPoolExecutor(12) as pool:
        for number in range(6):
            pool.submit(asks, house, model="m")
            pool.submit(asks, house, model="m", stream=True)
            pool.submit(asks, house, model="limited")
            pool.submit(asks, house, model="unpriced")
            pool.submit(asks, house, model="falls")
            pool.submit(asks, house, model="denied")
            pool.submit(asks, house, model="m", idempotency=f"n{number // 2}")


def _metrics_urls(house: House) -> list[str]:
    runtime: Any = house.runtime
    return list(runtime["metrics_urls"])


async def add_past_hours(database_url: str) -> None:
    """Hours are added up when they are over: these are."""
    now = datetime.now(UTC)
    ledger = Ledger(database_url, lambda: now)
    try:
        past = [a_row(now - timedelta(hours=hours, minutes=1), hours, stream=True, ttft_ms=90.0) for hours in (1, 2)]
        await ledger.take(past)
    finally:
        await ledger.close()
    levels = ServiceLevels(database_url, lambda: now)
    try:
        await levels.add_up()
    finally:
        await levels.close()


def rows_of(database_url: str, query: str) -> int:
    """How many rows a panel's SQL gives of the last month, Grafana's macro put in."""
    told = query.replace("$__timeFilter(day)", "day >= now() - interval '30 days'")
    for column in ("hour", "minute", "at"):
        told = told.replace(f"$__timeFilter({column})", f"{column} >= now() - interval '30 days'")
    assert "$__" not in told, query
    with psycopg.connect(libpq_url(database_url)) as connection:
        return len(connection.execute(told.encode()).fetchall())


@pytest.mark.skipif(PROMETHEUS is None, reason="there is no prometheus here; name one with N4N_TEST_PROMETHEUS")
def test_every_panel_has_data_on_a_live_system(tmp_path: Path) -> None:
    words = " ".join(f"w{number}" for number in range(40)).split()
    with running_upstream() as well, running_upstream() as busy, running_upstream() as denied:
        well.script(
            then=lambda call: sse(*words, gap=0.005, usage=usage(11, 40)) if call.json.get("stream") is True else completion("pong")
        )
        busy.script(then=lambda call: error(503))
        denied.script(then=lambda call: error(401, code="invalid_api_key"))
        (tmp_path / "catalog.json").write_text(json.dumps(document(well, busy, denied)))
        environ = {"CANARY": "sk-canary", "N4N_COUNT_ONE_IN": "1", "N4N_ALERT_LOOK_SEC": "1", "N4N_PROBERS": "1"}
        with running_house(tmp_path, "--catalog", str(tmp_path / "catalog.json"), environ=environ) as house:
            runtime: Any = house.runtime
            asyncio.run(add_past_hours(runtime["database_url"]))
            urls = eventually(lambda: found if len(found := _metrics_urls(house)) > 2 else None, "the prober's /metrics")
            with a_prometheus(tmp_path, urls) as base_url:
                wanted = [
                    (board.name, panel, query) for board in dashboards.DASHBOARDS for panel in board.panels for query, _ in panel.queries
                ]
                deadline = time.monotonic() + WITHIN_S
                while wanted and time.monotonic() < deadline:
                    traffic_of(house)
                    wanted = [
                        one for one in wanted if not (rows_of(runtime["database_url"], one[2]) if one[1].sql else asked(base_url, one[2]))
                    ]
                assert [(name, panel.title) for name, panel, _ in wanted] == []
                with urllib.request.urlopen(f"{base_url}/api/v1/rules", timeout=5) as answer:
                    [group] = json.load(answer)["data"]["groups"]
                assert [(rule["name"], rule["lastError"]) for rule in group["rules"] if rule.get("lastError")] == []
