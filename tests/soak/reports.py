"""`make soak-reports`: a million rows in Postgres, how long every report over them takes, and how fast rows come in while a router serves.

Exit status 1: a report took a second, or fewer than 2,000 rows a second came in.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # before grpc is imported: children would crash before exec

import grpc

from control_plane.ledger import Ledger
from control_plane.rating import Rating, Ratings
from control_plane.schema import migrate
from control_plane.usage_reports import GROUPS, Question, Reports
from n4n.core.ledger import Row, read_rows
from n4n.core.price_files import read_prices
from n4n.runtime.embedded import start_postgres
from n4n.v1 import usage_pb2
from tests.core.test_ledger import settled
from tests.soak.load import steady
from tests.soak.upstream import steady_upstream
from tests.support.fleet import NODE_TOKEN, Fleet, eventually, ready, running_fleet
from tests.support.router import catalog

ROWS, DAYS = 1_000_000, 30
BATCH = 1000
WANTED_ROWS_S, WANTED_REPORT_S = 2000, 1.0
NOW = datetime.now(UTC).replace(minute=30, second=0, microsecond=0)
SERVED_S = 20.0


@dataclass(slots=True)
class Figures:
    """What was measured. Reports by what they are of, in seconds."""

    rows: int
    alone_rows_s: float
    reports: dict[str, float] = field(default_factory=dict)
    export_rows_s: float = 0.0
    rated_rows_s: float = 0.0
    serving_rows_s: float = 0.0
    worst_batch_s: float = 0.0
    served: int = 0
    failed: int = 0

    @property
    def good(self) -> bool:
        """Whether all holds that must."""
        return max(self.reports.values()) < WANTED_REPORT_S and self.serving_rows_s >= 0.98 * WANTED_ROWS_S and not self.failed

    def __str__(self) -> str:
        return "\n".join((
            f"{self.rows:,} rows over {DAYS} days, taken in at {self.alone_rows_s:,.0f} a second while nothing else is asked",
            *(f"  {name:<34} {seconds * 1000:7.0f} ms" for name, seconds in self.reports.items()),
            f"exported as CSV at {self.export_rows_s:,.0f} rows a second, priced anew at {self.rated_rows_s:,.0f}",
            f"while a router served {self.served} requests ({self.failed} failed), {self.serving_rows_s:,.0f} rows a second came in,"
            f" the slowest batch of {BATCH} in {self.worst_batch_s * 1000:.0f} ms",
        ))  # fmt: skip


def made_rows(first: int, count: int, total: int) -> list[Row]:
    """So many of `total`, in the order of their beginning; 20 tenants with five keys each, ten models at two endpoints."""
    draw = random.Random(first)
    begin, span = (NOW - timedelta(days=DAYS)).timestamp() * 1e6, DAYS * 86_400e6
    template, _ = read_rows(settled(1))
    found = []
    for number in range(first, first + count):
        tenant, model = draw.randrange(20), draw.randrange(10)
        endpoint = 2 * model + draw.randrange(2)
        changed = {
            "attempt_id": f"att_{number:024x}", "started_us": round(begin + span * number / total), "request_id": f"req_{number}",
            "tenant": f"tenant-{tenant}", "key_id": f"key-{tenant}-{draw.randrange(5)}", "model": f"model-{model}",
            "endpoint": f"endpoint-{endpoint}", "provider": f"provider-{endpoint % 4}", "prompt_tokens": draw.randrange(4000),
            "completion_tokens": draw.randrange(900), "cost_usd": f"0.{draw.randrange(10**9):012d}",
        }  # fmt: skip
        found.append(Row(**{name: changed.get(name, getattr(template[0], name)) for name in Row.__struct_fields__}))
    return found


async def measured(url: str, rows: int) -> Figures:
    """Fills a database and asks everything of it."""
    migrate(url)
    ledger, reports, ratings = Ledger(url, lambda: NOW), Reports(url), Ratings(url)
    took = 0.0
    for first in range(0, rows, BATCH):
        batch = made_rows(first, min(BATCH, rows - first), rows)
        began = time.perf_counter()
        await ledger.take(batch)
        took += time.perf_counter() - began
    figures = Figures(rows, rows / took)
    await _rate(ratings, rows, figures)
    month, week = Question(NOW - timedelta(days=DAYS)), Question(NOW - timedelta(days=7))
    for by in (*((name,) for name in GROUPS), ("day", "tenant"), ("day", "endpoint", "model")):
        figures.reports[f"by {', '.join(by)}, {DAYS} days"] = await _timed(reports, by, month)
    figures.reports["by tenant, 7 days"] = await _timed(reports, ("tenant",), week)
    alone = Question(month.since, only=(("provider", "provider-1"),))
    figures.reports["by model of one provider"] = await _timed(reports, ("model",), alone)
    figures.reports["by tenant at other prices"] = await _timed(reports, ("tenant",), Question(month.since, label="soak"))
    began, lines = time.perf_counter(), 0
    async for part in reports.export("rows", month):
        lines += part.count(b"\n")
    figures.export_rows_s = lines / (time.perf_counter() - began)
    for database in (ledger, reports, ratings):
        await database.close()
    return figures


async def _rate(ratings: Ratings, rows: int, figures: Figures) -> None:
    prices, _ = read_prices({f"endpoint-{number}": {"price": {"input_per_1m": 1, "output_per_1m": 2}} for number in range(20)})
    began = time.perf_counter()
    async for _ in ratings.make(Rating("soak", NOW - timedelta(days=DAYS), NOW, "soak", NOW, "a file"), prices):
        pass
    figures.rated_rows_s = rows / (time.perf_counter() - began)


async def _timed(reports: Reports, by: tuple[str, ...], question: Question) -> float:
    """The slower of two."""
    took = []
    for _ in range(2):
        began = time.perf_counter()
        assert await reports.report(by, question)
        took.append(time.perf_counter() - began)
    return max(took)


async def fed(fleet: Fleet, seconds: float, figures: Figures) -> None:
    """2,000 rows a second over gRPC for so long, each batch when it is due or when the one before is acknowledged."""
    channel = grpc.aio.insecure_channel(fleet.admin_url)
    report = channel.unary_unary("/n4n.v1.Usage/Report", usage_pb2.UsageReport.SerializeToString, usage_pb2.UsageReceipt.FromString)
    token = (("authorization", f"Bearer {NODE_TOKEN}"),)
    now = round(NOW.timestamp()) * 1_000_000
    every = BATCH / WANTED_ROWS_S
    begun, sent = time.perf_counter(), 0
    while (since := time.perf_counter() - begun) < seconds:
        if sent * every > since:
            await asyncio.sleep(sent * every - since)
        first = 10**9 + sent * BATCH
        lines = b"".join(settled(number, started_us=now + number) for number in range(first, first + BATCH))
        began = time.perf_counter()
        await report(usage_pb2.UsageReport(offset=1, lines=lines), metadata=token, timeout=30)
        figures.worst_batch_s = max(figures.worst_batch_s, time.perf_counter() - began)
        sent += 1
    figures.serving_rows_s = sent * BATCH / (time.perf_counter() - begun)
    await channel.close()


def serving(folder: Path, url: str, seconds: float, figures: Figures) -> None:
    """A control plane and a router under steady load, half of it streams, while rows come in."""
    with steady_upstream() as upstream, running_fleet(folder, url) as fleet:
        fleet.control_plane()
        eventually(lambda: fleet.n4n("catalog", "history", check=False).returncode == 0, "the control plane")
        fleet.apply(catalog(upstream))
        key, router = fleet.create_key(), fleet.data_plane("r", CANARY="sk-provider-canary")
        eventually(lambda: ready(router), "the router")
        with steady(f"http://127.0.0.1:{router.environ['N4N_PORT']}", key, 50) as load:
            asyncio.run(fed(fleet, seconds, figures))
        figures.served, figures.failed = len(load.sent), len(load.failed)


def run(folder: Path, rows: int, seconds: float) -> Figures:
    """All of it, in a folder that other users may enter."""
    folder.chmod(0o711)  # as root, the server is another user
    database = start_postgres(folder)
    try:
        figures = asyncio.run(measured(database.url, rows))
        (folder / "fleet").mkdir()
        serving(folder / "fleet", database.url, seconds, figures)
    finally:
        database.stop()
    return figures


def main() -> int:
    """Runs it."""
    parser = argparse.ArgumentParser(prog="make soak-reports", description="Reports over a million rows, and rows that come in meanwhile.")
    parser.add_argument("--rows", type=int, default=ROWS, help=f"in Postgres (default {ROWS})")
    parser.add_argument("--seconds", type=float, default=SERVED_S, help=f"of rows coming in while a router serves (default {SERVED_S:g})")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="n4n-reports-"))
    try:
        figures = run(folder, args.rows, args.seconds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(figures)
    return 0 if figures.good else 1


if __name__ == "__main__":
    sys.exit(main())
