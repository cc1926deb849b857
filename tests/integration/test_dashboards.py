"""Every panel of every dashboard has data on a live system under traffic: PromQL by a real Prometheus, SQL on the real ledger."""

from __future__ import annotations

import asyncio
import json
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from psycopg import errors

from control_plane.schema import migrate
from control_plane.service_levels import ServiceLevels
from tests.support import dashboards, watched
from tests.support.compose import ROOT
from tests.support.dashboards import Panel
from tests.support.prometheus import PROMETHEUS
from tests.support.stores import libpq_url

WITHIN_S = 60.0
SOURCES = {
    one["uid"]: one["type"]
    for one in yaml.safe_load((ROOT / "deploy/grafana/provisioning/datasources/n4n.yaml").read_text())["datasources"]
}
# Of Grafana's own: panel types, and units by https://github.com/grafana/grafana, packages/grafana-data/src/valueFormats/categories.ts.
PANELS = {"timeseries", "stat", "table", "barchart"}
UNITS = {"short", "percentunit", "s", "ms", "ops", "reqps", "bytes", "currencyUSD"}
BUILT_IN = {"__timeFilter"}


def every_document() -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(dashboards.FOLDER.glob("*.json"))]


def test_the_files_are_what_the_table_says() -> None:
    assert {path.name: path.read_text() for path in dashboards.FOLDER.glob("*.json")} == {
        path.name: text for path, text in dashboards.files().items()
    }, "run python -m tests.support.dashboards"


def test_panels_stand_beside_each_other_and_ids_are_their_own() -> None:
    for board in dashboards.DASHBOARDS:
        panels: Any = dashboards.document(board)["panels"]
        assert len({panel["id"] for panel in panels}) == len(panels)
        places = [panel["gridPos"] for panel in panels]
        assert all(at["x"] >= 0 and at["x"] + at["w"] <= 24 for at in places)
        taken = {(x, at["y"]) for at in places for x in range(at["x"], at["x"] + at["w"])}
        assert len(taken) == sum(at["w"] for at in places)


def test_pages_are_what_grafanas_provisioning_takes() -> None:
    pages = every_document()
    assert len({page["uid"] for page in pages}) == len({page["title"] for page in pages}) == len(pages)
    for page in pages:
        assert 8 <= len(page["uid"]) <= 40 and re.fullmatch(r"[a-zA-Z0-9_-]+", page["uid"])
        assert "id" not in page, "the number is Grafana's own"
        assert page["schemaVersion"] >= 36 and page["timezone"] == "utc"
        assert set(page["time"]) == {"from", "to"}


def test_panels_name_sources_that_are_provisioned_and_types_and_units_that_grafana_has() -> None:
    for page in every_document():
        for panel in page["panels"]:
            assert panel["type"] in PANELS, panel["title"]
            units = [panel["fieldConfig"]["defaults"]["unit"]]
            units += [prop["value"] for one in panel["fieldConfig"]["overrides"] for prop in one["properties"] if prop["id"] == "unit"]
            assert set(units) <= UNITS, panel["title"]
            assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
            for holder in (panel, *panel["targets"]):
                source = holder["datasource"]
                assert SOURCES[source["uid"]] == source["type"], panel["title"]
            for target in panel["targets"]:
                assert ("rawSql" in target) == (panel["datasource"]["type"] != "prometheus")


def test_every_variable_of_a_query_is_one_of_its_page_and_every_choice_is_used() -> None:
    for page in every_document():
        known = {one["name"]: one for one in page["templating"]["list"]}
        used = set()
        for panel in page["panels"]:
            for target in panel["targets"]:
                used |= set(re.findall(r"\$\{?(\w+)", target.get("expr", target.get("rawSql", ""))))
        assert used - BUILT_IN == set(known), page["title"]
        for choice in known.values():
            assert (choice["type"], choice["multi"], choice["includeAll"]) == ("query", True, True)
            assert SOURCES[choice["datasource"]["uid"]] == choice["datasource"]["type"]
            assert choice["current"] == {"text": ["All"], "value": ["$__all"]}


def test_money_in_a_table_is_the_unit_of_its_money_alone() -> None:
    tables = [
        panel for page in every_document() for panel in page["panels"] if panel["type"] == "table" and "rawSql" in panel["targets"][0]
    ]
    for panel in tables:
        assert panel["fieldConfig"]["defaults"]["unit"] == "short", panel["title"]
        named = [one["matcher"]["options"] for one in panel["fieldConfig"]["overrides"]]
        assert all(f" AS {name}" in panel["targets"][0]["rawSql"] for name in named)


def test_what_grafana_may_read_is_what_the_pages_show_and_not_to_be_changed(postgres_url: str) -> None:
    migrate(postgres_url)
    for _ in range(2):
        done = watched.reader_sql(postgres_url)
        assert done.returncode == 0, done.stderr
    assert "not-a-real-password" not in done.stdout + done.stderr
    for board in dashboards.DASHBOARDS:
        for panel in board.panels:
            for query, _ in panel.queries:
                if panel.sql:
                    watched.rows(postgres_url, query.replace("$model", "'m'"))
    refused = (
        "SELECT * FROM keys",
        "SELECT before FROM audit",
        "SELECT * FROM usage_ledger",
        "DELETE FROM usage_by_day",
        "CREATE TABLE x ()",
    )
    for statement in refused:
        with psycopg.connect(libpq_url(postgres_url)) as connection:
            connection.execute(b"SET ROLE n4n_reader")
            with pytest.raises(errors.InsufficientPrivilege):
                connection.execute(statement.encode())


def test_what_is_no_number_is_no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [{"value": [0, value]} for value in ("NaN", "+Inf", "0", "1.5")]
    monkeypatch.setattr(watched, "asked", lambda base_url, query: found)
    assert watched.series("http://127.0.0.1:1", "up") == 2


async def add_up(database_url: str) -> None:
    """What a control plane does every two minutes."""
    levels = ServiceLevels(database_url, lambda: datetime.now(UTC))
    try:
        await levels.add_up()
    finally:
        await levels.close()


@pytest.mark.skipif(PROMETHEUS is None, reason="there is no prometheus here; name one with N4N_TEST_PROMETHEUS")
def test_every_panel_has_data_on_a_live_system(tmp_path: Path) -> None:
    with watched.watched(tmp_path, environ={"N4N_ALERT_LOOK_SEC": "1"}) as live:
        assert watched.reader_sql(live.database_url).returncode == 0
        wanted = [(board, panel, query) for board in dashboards.DASHBOARDS for panel in board.panels for query, _ in panel.queries]
        deadline = time.monotonic() + WITHIN_S
        while wanted and time.monotonic() < deadline:
            live.traffic()
            asyncio.run(add_up(live.database_url))
            wanted = [one for one in wanted if not live.shows(*one)]
        assert [(board.name, panel.title) for board, panel, _ in wanted] == []
        assert live.rule_errors() == []
        for empty in ("sum(n4n_no_such_metric)", "vector(0) / vector(0)", "sum(n4n_no_such_metric) or vector(0)"):
            assert not live.shows(dashboards.DASHBOARDS[0], Panel("empty", [(empty, "")]), empty), "an empty panel is found out"
