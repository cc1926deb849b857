"""The provider matrix: what Redis knows, what the ledger counts and what the catalog prices, in one call; and what `n4n bench` measures."""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest

from control_plane.ledger import Ledger
from n4n.cli import health as health_command
from n4n.cli.bench import measured_row
from n4n.cli.bench_call import Call, measure
from n4n.cli.health import health_row
from n4n.core.errors import FailureClass
from n4n.core.health.signals import Signal, Source
from n4n.core.health.standing import Policies
from n4n.core.ledger import Row, read_rows
from n4n.runtime.control_client import ControlClient, ControlRefused
from n4n.runtime.control_health import EndpointRow, HealthReport
from n4n.runtime.health import SharedHealth
from tests.control_plane.client import ADMIN, a_plane
from tests.core.test_ledger import settled
from tests.support import answers
from tests.support.catalogs import Raw
from tests.support.router import KEY, catalog, running_router
from tests.support.store import open_store
from tests.support.upstream import ScriptedUpstream

CATALOG: Raw = {
    "providers": {"acme": {"dialect": "openai", "base_url": "https://api.acme.example/v1"}},
    "accounts": {"one": {"provider": "acme"}, "two": {"provider": "acme"}},
    "models": {"m": {}, "n": {}},
    "endpoints": {
        "good": {"model": "m", "account": "one", "price": {"input_per_1m": 2.5, "output_per_1m": 10}, "region": "eu"},
        "ill": {"model": "m", "account": "two"},
        "other": {"model": "n", "accounts": ["one", "two"], "weight": 3},
    },
    "tiers": {},
}
HOUR_MS = 3_600_000


def attempts(first: int, endpoint: str, **changes: object) -> list[Row]:
    """One row of a moment ago."""
    now_us = round(datetime.now(UTC).timestamp() * 1e6) - 1_000_000
    rows, refused = read_rows(settled(first, started_us=now_us + first, endpoint=endpoint, model="m", **changes))
    assert not refused
    return rows


@asynccontextmanager
async def teller(url: str) -> AsyncIterator[SharedHealth]:
    """A router's part of health."""
    async with open_store(url) as store:
        yield SharedHealth(store, policies_of=lambda _: Policies(), clock=time.monotonic, draw=lambda: 0.0)


async def whole(client: ControlClient) -> HealthReport:
    """Of all endpoints, once the control plane has read the version that was applied."""
    async with asyncio.timeout(5):
        while len((report := await client.health("", HOUR_MS)).endpoints) < len(CATALOG["endpoints"]):  # noqa: ASYNC110  # another process changes it
            await asyncio.sleep(0.01)
    return report


async def test_an_operator_sees_what_all_know_of_every_endpoint(postgres_url: str, redis_url: str) -> None:
    async with a_plane(postgres_url, redis_url=redis_url) as plane, teller(redis_url) as router:
        await plane.apply(CATALOG)
        good = Signal("good", Source.LIVE, None, latency_s=0.3, ttft_s=0.2, tokens_per_s=80.0)
        router.tell([good, *(Signal("ill", Source.LIVE, FailureClass.TIMEOUT) for _ in range(5))])
        await router.flush()
        router.announce({"account two rate_limited": 60.0, "account one auth": 300.0})
        ledger = Ledger(postgres_url, lambda: datetime.now(UTC))
        rows = attempts(1, "good") + attempts(2, "good", state="failed", error_class="bad_request")
        rows += attempts(3, "ill", state="failed", error_class="timeout") + attempts(4, "ill") + attempts(5, "ill", state="cancelled")
        await ledger.take(rows)
        await ledger.close()

        async with ControlClient([f"127.0.0.1:{plane.port}"], ADMIN) as client:
            report = await client.health("", HOUR_MS)
            of_n = await client.health("n", HOUR_MS)
            with pytest.raises(ControlRefused, match="window_ms"):
                await client.health("", 0)

    by_name = {one.endpoint: one for one in report.endpoints}
    assert list(by_name) == ["good", "ill", "other"] and [one.endpoint for one in of_n.endpoints] == ["other"]
    assert (report.redis, report.database, report.cut) == ("ok", "ok", False)
    well, ill, other = by_name.values()
    assert (well.score, well.breaker, well.ttft_ms, well.tokens_per_s, well.latency_ms) == (1.0, "closed", 200.0, 80.0, 300.0)
    assert (well.attempts, well.errors, well.input_per_1m, well.output_per_1m) == (1, 0, "2.5", "10")
    assert ill.score == pytest.approx(0.05, rel=0.02) and ill.breaker == "open" and ill.breaker_until_ms is not None
    assert (ill.attempts, ill.errors, ill.input_per_1m) == (2, 1, None)
    assert 25_000 < ill.breaker_until_ms - time.time() * 1000 < 37_000
    assert (well.cooldown, ill.cooldown, other.cooldown) == ("account one auth", "account two rate_limited", "account two rate_limited")
    assert other.cooldown_until_ms is not None and 50_000 < other.cooldown_until_ms - time.time() * 1000 < 61_000
    shown(report)


def shown(report: HealthReport) -> None:
    """The rows have the columns that are promised."""
    rows = [health_row(one) for one in report.endpoints]
    promised = {"score", "breaker", "cooldown_until", "ttft_ms", "tokens_per_s", "error_rate", "input_per_1m", "output_per_1m"}
    assert all(promised <= row.keys() for row in rows)
    assert [row["error_rate"] for row in rows] == [0.0, 0.5, None]
    json.dumps(rows)


async def test_what_is_away_is_said_and_the_rest_is_shown(postgres_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    async with a_plane(postgres_url) as plane:
        await plane.apply(CATALOG)
        async with ControlClient([f"127.0.0.1:{plane.port}"], ADMIN) as client:
            report = await whole(client)

    assert (report.redis, [one.score for one in report.endpoints]) == ("not configured", [1.0, 1.0, 1.0])
    health_command.show(report, argparse.Namespace(output="table", model=""))
    told = capsys.readouterr()
    assert told.out.splitlines()[0].split()[:4] == ["ENDPOINT", "MODEL", "SCORE", "BREAKER"] and "Redis: not configured" in told.err


async def test_bench_measures_an_endpoint_by_real_requests() -> None:
    async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url, upstream.base_url)) as router:
        upstream.script(*(answers.sse("one", "two", "three"),) * 2, answers.error(500))
        calls = [await asyncio.to_thread(measure, router.base_url, KEY, "m", "e2", 64) for _ in range(3)]
        nobody = await asyncio.to_thread(measure, "http://127.0.0.1:1/v1", KEY, "m", "e2", 64)

    assert [call.error for call in calls] == [None, None, "server_error"] and nobody.error == "ConnectionRefusedError"
    assert all(call.ttft_s is not None and call.ttft_s > 0 for call in calls[:2]) and len(upstream.calls) == 3
    row = measured_row(_row("e2"), [*calls, *(Call(0.1 + 0.01 * n, 50.0) for n in range(9))])
    assert (row["requests"], row["error"], row["error_rate"]) == (12, "server_error", round(1 / 12, 4))
    assert row["tokens_per_s"] is not None and isinstance(row["error_rate_ci"], list) and row["ttft_ms_ci"] is not None


def _row(name: str) -> EndpointRow:
    empty = dict.fromkeys(EndpointRow.__dataclass_fields__)
    known = {"endpoint": name, "model": "m", "provider": "acme", "accounts": (), "score": 1.0, "attempts": 0, "errors": 0, "findings": ()}
    return EndpointRow(**{**empty, **known})  # type: ignore[arg-type]
