"""A prober in the test's own loop: the real loop, jobs, connections and Redis; its catalog handed in."""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from health_prober.calls import Calls
from health_prober.instruments import OUTCOMES, Instruments
from health_prober.jobs import Jobs
from health_prober.ledger import Ledger
from health_prober.notes import Notes
from health_prober.prober import Prober
from health_prober.stalls import Stalls
from health_prober.tracing import Traces
from n4n.core.catalog import Snapshot, compile_snapshot
from n4n.core.dialects.table import DIALECTS
from n4n.core.document import parse_document
from n4n.core.health.standing import Policies
from n4n.core.ledger import Row, read_rows, settled_lines
from n4n.core.probes.findings import Finding
from n4n.runtime.health import SharedHealth
from n4n.runtime.probes import findings
from n4n.runtime.segments import Segments
from n4n.runtime.spans import Tracer
from n4n.runtime.stores import Store
from n4n.runtime.tracing import Tracing
from n4n.runtime.upstream import Upstream
from tests.support.store import open_store

PATIENCE_S = 10.0


@dataclass
class RunningProber:
    """What a test needs of a running prober."""

    prober: Prober
    health: SharedHealth
    instruments: Instruments
    ledger: Ledger
    store: Store
    catalog: Snapshot
    scores: dict[str, list[float]]  # of every endpoint, each time that something new was known of it

    async def until(self, holds: Callable[[], bool], what: str, within_s: float = PATIENCE_S) -> None:
        """Waits for a condition; AssertionError: it did not come."""
        until = time.monotonic() + within_s
        while not holds():
            assert time.monotonic() < until, f"waited {within_s:g} s for {what}"
            await asyncio.sleep(0.01)

    def rows(self) -> list[Row]:
        """The settled rows of its ledger."""
        segments = self.ledger.segments
        assert segments is not None
        found: list[Row] = []
        for segment in segments._segments:
            found += read_rows(settled_lines(segment.memory[: segment.end]))[0]
        return found

    def count(self, outcome: str) -> float:
        """How many probes ended so."""
        return sum(
            sample.value
            for metric in self.instruments.probes.collect()
            for sample in metric.samples
            if sample.name.endswith("_total") and sample.labels["outcome"] == outcome
        )

    async def findings(self) -> list[Finding]:
        """What stands in Redis."""
        return findings.told(await self.store.command(findings.ask()))

    async def found(self, kind: str) -> Finding:
        """Waits for a finding of this kind."""
        until = time.monotonic() + PATIENCE_S
        while True:
            for one in await self.findings():
                if one.kind == kind:
                    return one
            assert time.monotonic() < until, f"waited {PATIENCE_S:g} s for a finding {kind}"
            await asyncio.sleep(0.02)


def compiled(document: Mapping[str, object], version: int = 1) -> Snapshot:
    """A document as a snapshot."""
    parsed, problems = parse_document(document)
    assert not problems, problems
    return compile_snapshot(parsed, version=version, checksum=f"v{version}")


@asynccontextmanager
async def running_prober(
    document: Mapping[str, object],
    redis_url: str,
    *,
    name: str = "p1",
    secrets: Mapping[str, str] | None = None,
    wall: Callable[[], float] = time.time,
    tracing: Tracing | None = None,
) -> AsyncIterator[RunningProber]:
    """At work over `document`. `secrets`: by account; None: every account has one."""
    catalog = compiled(document)
    usable = {account.name for one in catalog.endpoints.values() for account in one.accounts} if secrets is None else set(secrets)
    clock, draw = time.monotonic, random.Random(name).random

    def policies(endpoint: str) -> Policies | None:
        found = catalog.endpoints.get(endpoint)
        return None if found is None else Policies(catalog.models[found.model].health, catalog.models[found.model].breaker)

    async with open_store(redis_url) as store:
        instruments, ledger, stalls, upstream = Instruments(), Ledger(), Stalls(clock), Upstream(clock)
        for provider in catalog.providers:
            for outcome in OUTCOMES:  # what earlier tests counted, in files that all of a run share, is there from the beginning
                instruments.probes.labels(provider, outcome)
        scores: dict[str, list[float]] = {}
        health = SharedHealth(
            store,
            policies_of=policies,
            clock=clock,
            draw=draw,
            changed=lambda name: scores.setdefault(name, []).append(health.score(name)),
        )
        notes = Notes(name, store, instruments, wall)
        calls = Calls(upstream, DIALECTS, lambda account: (secrets or {}).get(account, "sk-canary"), clock, wall, draw)
        jobs = Jobs(
            calls, health, notes, ledger, instruments, stalls,
            usable=lambda: usable, version=lambda: 1, clock=clock, wall=wall, draw=draw,
        )  # fmt: skip
        prober = Prober(
            name, store, health, jobs, notes, instruments,
            catalog=lambda: catalog, dialects=frozenset(DIALECTS), clock=clock, wall=wall, draw=draw,
            traces=None if tracing is None else Traces(Tracer(tracing, time.time_ns)),
        )  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            ledger.segments = Segments(Path(folder), name, carried=ledger.unsettled, segment_bytes=1 << 20)
            tasks = [asyncio.create_task(one) for one in (stalls.keep(), health.keep(), prober.run())]
            try:
                yield RunningProber(prober, health, instruments, ledger, store, catalog, scores)
                for task in tasks:
                    assert not task.done(), task
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                await prober.leave()
                await upstream.close()
                ledger.segments.close()
