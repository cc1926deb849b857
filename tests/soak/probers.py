"""`python -m tests.soak.probers`: three probers and 720 endpoints; one is killed, another stopped and let go on.

Prints for each phase how many probes there were for each that was planned, how long an endpoint waited at most, in intervals, and how
busy the busiest second was. Exit status 1: more than 1.1 probes for a planned one, an endpoint that waited for more than 1.5 intervals, or
2 where a prober died or was stopped, or a storm. The interval is 6 s instead of 30 s, to end soon: `--interval 30` is the real one.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # before grpc is imported: children would crash before exec

import psycopg

from n4n.runtime.embedded import THROWAWAY, start_postgres, start_valkey
from tests.support.answers import completion
from tests.support.fleet import Role, eventually, running_fleet
from tests.support.stores import libpq_url
from tests.support.upstream import HostedUpstream, running_upstream

PROVIDERS = 3
MOST_RATE, MOST_GAP, MOST_GAP_AFTER_A_LOSS, MOST_BURST = 1.1, 1.5, 2.0, 3.0
SHIPPED_S = 2.0  # until rows of the ledger are there
SETTLED = 2  # intervals until a new fleet has found its rhythm


@dataclass(frozen=True, slots=True)
class Phase:
    """What happened in a stretch of time. `rate`: probes for each that was planned; `gap`: the longest wait of an endpoint, in intervals;

    `burst`: the busiest second against a planned one; `most_gap`: what is allowed.
    """

    name: str
    probes: int
    rate: float
    gap: float
    burst: float
    most_gap: float

    @property
    def fault(self) -> str:
        """'' where all is well."""
        if self.rate > MOST_RATE:
            return f"{self.name}: {self.rate:.2f} probes for each that was planned"
        if self.gap > self.most_gap:
            return f"{self.name}: an endpoint waited for {self.gap:.2f} intervals"
        return f"{self.name}: a storm, {self.burst:.1f} times a planned second" if self.burst > MOST_BURST else ""

    def line(self) -> str:
        """A row of the table."""
        return f"{self.name:<32}{self.probes:>8}{self.rate:>8.3f}{self.gap:>8.2f}{self.burst:>8.1f}"


HEAD = f"{'phase':<32}{'probes':>8}{'rate':>8}{'gap':>8}{'burst':>8}"
Pair = tuple[str, str]


def document(upstream: HostedUpstream, models: int, interval_s: float) -> dict[str, object]:
    """Every model at each of three providers."""
    root = upstream.base_url.removesuffix("/v1")
    names = [f"p{number}" for number in range(PROVIDERS)]
    probe = {"interval_sec": interval_s, "timeout_ms": min(5_000, round(interval_s * 250))}
    return {
        "providers": {name: {"dialect": "openai", "base_url": f"{root}/{name}/v1", "allow_private": True} for name in names},
        "accounts": {f"a{name}": {"provider": name} for name in names},
        "models": {f"m{number}": {"probe": probe} for number in range(models)},
        "endpoints": {f"{name}-m{number}": {"model": f"m{number}", "account": f"a{name}"} for name in names for number in range(models)},
    }


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of time, on the monotonic clock, and how long an endpoint may wait in it, in intervals."""

    name: str
    begun: float
    ended: float
    most_gap: float


class Watch:
    """Reads the probes off the upstream."""

    def __init__(self, upstream: HostedUpstream, database_url: str, models: int, interval_s: float) -> None:
        self._upstream, self._database_url, self._interval_s = upstream, database_url, interval_s
        self._pairs = [(f"/p{at}/v1/chat/completions", f"m{number}") for at in range(PROVIDERS) for number in range(models)]

    def seen(self) -> list[tuple[float, Pair]]:
        """Every probe so far: when, of what. Deeper checks are none."""
        return [(call.received_at, (call.path, str(call.json["model"]))) for call in self._upstream.calls if call.json["max_tokens"] == 1]

    def all_probed(self) -> bool:
        """Whether every endpoint was, once at least."""
        return len({pair for _, pair in self.seen()}) == len(self._pairs)

    def phase(self, window: Window) -> Phase:
        """What happened in it."""
        seen = [(at, pair) for at, pair in self.seen() if at < window.ended]
        times: dict[Pair, list[float]] = {pair: [] for pair in self._pairs}
        for at, pair in seen:
            times[pair].append(at)
        gap = 0.0
        for of_pair in times.values():
            before = [at for at in of_pair if at < window.begun]
            points = [*before[-1:], *(at for at in of_pair if at >= window.begun), window.ended]
            gap = max(gap, *(later - earlier for earlier, later in pairwise(points)))
        planned_per_s = len(self._pairs) / self._interval_s
        probes = sum(at >= window.begun for at, _ in seen)
        rate = probes / (planned_per_s * (window.ended - window.begun))
        return Phase(window.name, probes, rate, gap / self._interval_s, self._busiest(window) / planned_per_s, window.most_gap)

    def _busiest(self, window: Window) -> int:
        """How many probes left in the busiest second, by the probers' own clocks: the far side may have slept meanwhile."""
        to_wall = time.time() - time.monotonic()
        question = (
            "SELECT count(*) FROM usage_ledger WHERE tenant = 'n4n-probes' AND started_at BETWEEN to_timestamp(%s) AND to_timestamp(%s)"
            " GROUP BY date_trunc('second', started_at) ORDER BY 1 DESC LIMIT 1"
        )
        with psycopg.connect(libpq_url(self._database_url)) as connection:
            found = connection.execute(question, (window.begun + to_wall, window.ended + to_wall)).fetchone()
        return 0 if found is None else int(found[0])


def run(
    folder: Path, *, models: int, interval_s: float, intervals: int, settled: int = SETTLED, tell: Callable[[str], None] = lambda _: None
) -> list[Phase]:
    """All phases; `intervals`: how long each lasts, `settled`: before the first; `tell` hears the name of each that begins."""
    folder.chmod(0o711)  # as root, the stores are another user
    database, redis = start_postgres(folder, settings=THROWAWAY), start_valkey(folder)
    try:
        with running_upstream() as upstream, running_fleet(folder, database.url) as fleet:
            upstream.script(then=completion("p", finish="length"))
            fleet.control_plane()
            eventually(lambda: fleet.n4n("catalog", "history", check=False).returncode == 0, "the control plane")
            fleet.apply(document(upstream, models, interval_s))
            probers = [fleet.prober(f"prober-{number}", redis.url) for number in (1, 2, 3)]
            watch = Watch(upstream, database.url, models, interval_s)
            eventually(watch.all_probed, "every endpoint to be probed once", within=30 + 2 * interval_s)
            time.sleep(settled * interval_s)
            windows = _windows(probers, interval_s, intervals, tell)
            time.sleep(SHIPPED_S)
            return [watch.phase(window) for window in windows]
    finally:
        redis.stop()
        database.stop()


def _windows(probers: Sequence[Role], interval_s: float, intervals: int, tell: Callable[[str], None]) -> list[Window]:
    found: list[Window] = []

    def during(name: str, most_gap: float) -> None:
        tell(name)
        begun = time.monotonic()
        time.sleep(intervals * interval_s)
        found.append(Window(name, begun, time.monotonic(), most_gap))

    _, killed, stopped = probers
    assert killed.process is not None and stopped.process is not None
    during("three probers", MOST_GAP)
    killed.kill()
    during("one is killed", MOST_GAP_AFTER_A_LOSS)
    during("two are left", MOST_GAP)
    os.kill(stopped.process.pid, signal.SIGSTOP)
    during("another is stopped", MOST_GAP_AFTER_A_LOSS)
    os.kill(stopped.process.pid, signal.SIGCONT)
    during("it goes on", MOST_GAP)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """The long run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--models", type=int, default=240)
    parser.add_argument("--interval", type=float, default=6.0, help="seconds between two probes of an endpoint")
    parser.add_argument("--intervals", type=int, default=6, help="how long each phase lasts")
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="n4n-probers-") as folder:
        phases = run(
            Path(folder), models=args.models, interval_s=args.interval, intervals=args.intervals,
            tell=lambda name: print(f"{name} …", flush=True),
        )  # fmt: skip
    print("\n".join([HEAD, *(phase.line() for phase in phases)]))
    faults = [phase.fault for phase in phases if phase.fault]
    print("\n".join(faults) or "no fault")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
