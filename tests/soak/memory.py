"""`python -m tests.soak.memory`: does a worker keep its memory? A million requests and 50,000 streams that clients left, marks on the way.

The first mark is after a twentieth of the whole answers alone. Exit status 1: at the end it has grown by more than 5 %, or has more
threads or tasks. `--streams 20000 --requests 40000 --aborted 2000` is case 30 of the faults that users of other gateways met.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # before grpc is imported: children would crash before exec

import uvloop

from n4n.runtime.embedded import THROWAWAY, start_postgres
from tests.soak.flood import GAP_MS, Amount, Flood, answers
from tests.support.fleet import NODE_TOKEN, Fleet, eventually, running_fleet
from tests.support.house import bare_environ, free_port, listens
from tests.support.memory import MIB, Footprint, footprint
from tests.support.router import catalog

MARKS = 20
MOST_GROWTH = 1.05
QUIET_S = 1.0  # streams that were left end, what is idle is noticed


@dataclass(frozen=True, slots=True)
class Mark:
    """After so much: what the worker takes then, at rest."""

    sent: Amount
    seconds: float
    taken: Footprint
    tasks: int

    def line(self, first: Mark) -> str:
        """A row of the table."""
        sent, taken = self.sent, self.taken
        return (
            f"{sent.whole:9}{sent.streams:9}{sent.left:9}{self.seconds:9.0f}{taken.resident / MIB:9.1f}{self.ratio(first):8.3f}"
            f"{taken.threads:9}{self.tasks:7}{taken.files:7}"
        )

    def ratio(self, first: Mark) -> float:
        """How much it has grown since."""
        return self.taken.resident / first.taken.resident


HEAD = f"{'requests':>9}{'streams':>9}{'left':>9}{'seconds':>9}{'MiB':>9}{'ratio':>8}{'threads':>9}{'tasks':>7}{'files':>7}"


@dataclass(frozen=True, slots=True)
class Worker:
    """The one that is measured."""

    pid: int
    port: int
    key: str
    tasks_path: Path

    def mark(self, sent: Amount, seconds: float) -> Mark:
        """As it is now."""
        return Mark(sent, seconds, footprint(self.pid), int(self.tasks_path.read_text()))


def steps(whole: Amount, marks: int) -> Iterator[Amount]:
    """What is sent before each mark: a twentieth of the whole answers (of `marks` = 20), then everything else in equal parts."""
    first = Amount(whole.whole // marks, 0, 0)
    yield first
    rest = whole - first
    for number in range(1, marks):
        yield rest.share(number, marks - 1) - rest.share(number - 1, marks - 1)


async def run(worker: Worker, whole: Amount, marks: int = MARKS) -> list[Mark]:
    """Sends everything, and prints each mark as it comes."""
    flood, begun = Flood(worker.port, worker.key), time.monotonic()
    seen: list[Mark] = []
    sent = Amount(0, 0, 0)
    print(HEAD)
    for step in steps(whole, marks):
        await flood.send(step)
        sent += step
        await asyncio.sleep(QUIET_S)
        seen.append(worker.mark(sent, time.monotonic() - begun))
        print(seen[-1].line(seen[0]), flush=True)
    return seen


@contextmanager
def measured_worker(folder: Path) -> Iterator[Worker]:
    """A worker by itself, its control plane and its provider; its log lines go nowhere."""
    stores = folder / "stores"
    stores.mkdir()
    for one in (folder, stores):
        one.chmod(0o711)  # as root, the server is another user
    database = start_postgres(stores, settings=THROWAWAY)
    try:
        with _provider(folder) as upstream, running_fleet(folder, database.url) as fleet:
            fleet.control_plane()
            eventually(lambda: fleet.n4n("catalog", "history", check=False).returncode == 0, "the control plane")
            fleet.apply(catalog(upstream))
            key = fleet.create_key()
            with _worker(fleet, key) as worker:
                yield worker
    finally:
        database.stop()


@contextmanager
def _provider(folder: Path) -> Iterator[str]:
    port = free_port()
    command = [sys.executable, "-m", "bench.mock", str(port), str(GAP_MS), *map(str, answers(folder))]
    with subprocess.Popen(command) as process:
        try:
            eventually(lambda: listens(port), "the provider")
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.kill()


@contextmanager
def _worker(fleet: Fleet, key: str) -> Iterator[Worker]:
    port, tasks_path = free_port(), fleet.folder / "tasks"
    settings = {
        "N4N_WORKER": "1",
        "N4N_PORT": str(port),
        "N4N_ADMIN_URL": fleet.admin_url,
        "N4N_NODE_TOKEN": NODE_TOKEN,
        "N4N_DATA_DIR": str(fleet.folder / "router"),
        "N4N_LAME_DUCK_SEC": "0",
        "PROMETHEUS_MULTIPROC_DIR": tempfile.mkdtemp(dir=fleet.folder),
        "CANARY": "sk-provider-canary",
    }
    command = [sys.executable, "-m", "tests.soak.counted_worker", str(tasks_path)]
    with (fleet.folder / "router.err").open("wb") as errors:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, env={**bare_environ(), **settings})
    try:
        eventually(lambda: listens(port) and tasks_path.exists() and tasks_path.stat().st_size, "the worker")
        yield Worker(process.pid, port, key, tasks_path)
    finally:
        process.terminate()
        process.wait(30)


def verdict(marks: list[Mark]) -> str:
    """What is wrong; empty: nothing."""
    first, last = marks[0], marks[-1]
    if last.ratio(first) > MOST_GROWTH:
        return f"it has grown by {last.ratio(first) - 1:.1%}, more than {MOST_GROWTH - 1:.0%}"
    if last.taken.threads > first.taken.threads or last.tasks > first.tasks:
        return f"{first.taken.threads} threads and {first.tasks} tasks have become {last.taken.threads} and {last.tasks}"
    return ""


def main() -> int:
    """Runs it."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.memory", description="Whether a worker keeps its memory under a flood.")
    parser.add_argument("--requests", type=int, default=1_000_000, metavar="N", help="whole answers (default 1,000,000)")
    parser.add_argument("--streams", type=int, default=0, metavar="N", help="streams of 50 chunks that are read to their end (default 0)")
    parser.add_argument("--aborted", type=int, default=50_000, metavar="N", help="streams that clients leave (default 50,000)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="n4n-soak-") as folder, measured_worker(Path(folder)) as worker:
        marks = uvloop.run(run(worker, Amount(args.requests, args.streams, args.aborted)))
    problem = verdict(marks)
    print(problem or f"it kept its memory: {marks[-1].ratio(marks[0]):.3f} × that of the first mark")
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main())
