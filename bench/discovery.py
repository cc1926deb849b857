"""`make bench-discovery`: many simulated routers on one real control plane; writes docs/discovery.md's figures and plot."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from bench import stall
from bench.catalogs import Document, large_catalog, with_changes
from bench.machine import cpu_seconds, facts
from bench.plot import Panel, svg
from bench.report import placed
from n4n.runtime import wire
from n4n.runtime.control_client import ControlClient, ControlRefused
from n4n.runtime.embedded import THROWAWAY, start_postgres

ROOT = Path(__file__).parent.parent
DOCUMENT, PLOT = ROOT / "docs" / "discovery.md", ROOT / "docs" / "discovery-control-plane.svg"
BEGIN, END = "<!-- bench-discovery:begin (written by make bench-discovery) -->", "<!-- bench-discovery:end -->"
PROCESSES = 2
SAMPLE_S = 0.25
WITHIN_S = 120.0
DELTA_LIMIT_MS, RESYNC_LIMIT_S, STALL_LIMIT_MS = 1000.0, 30.0, 50.0


@dataclass(frozen=True, slots=True)
class Size:
    """How much of everything."""

    routers: int = 200
    endpoints: int = 2_000
    models: int = 240
    changes: int = 60
    resources: int = 10  # of one change
    pause_s: float = 0.5  # between two changes


@dataclass(slots=True)
class Figures:
    """What came of it; times in milliseconds where the name says so."""

    delta_ms: list[float] = field(default_factory=list)  # of every router and change, from commit to applied
    first_s: float = 0.0  # from the first commit to the last router's
    resync_s: float = 0.0  # from the control plane's start to the last router's
    return_s: float = 0.0  # a restart with routers that hold the head
    catch_up_s: float = 0.0  # a restart with routers that hold a version which the new process has never seen
    by_delta: bool = False  # whether these got what changed and not the whole
    samples: list[tuple[float, float, float]] = field(default_factory=list)  # seconds, MiB, % of one CPU
    marks: list[tuple[float, str]] = field(default_factory=list)

    @property
    def p50_ms(self) -> float:
        """Half of all deltas were applied by then."""
        return statistics.median(self.delta_ms)

    @property
    def p99_ms(self) -> float:
        """99 of 100."""
        return sorted(self.delta_ms)[min(len(self.delta_ms) - 1, int(len(self.delta_ms) * 0.99))]


class Fleet:
    """Simulated routers in child processes, and what each applied last."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.applied: dict[str, tuple[int, float, bool]] = {}  # catalog version, Unix time, came whole
        self._news = asyncio.Event()
        self._children: list[asyncio.subprocess.Process] = []

    async def start(self, target: str, token: str, children: int) -> None:
        """Returns when they run; they connect by themselves."""
        for number in range(children):
            count = self.size // children + (number < self.size % children)
            words = ("-m", "bench.simulated_routers", target, token, f"sim{number}", str(count))
            child = await asyncio.create_subprocess_exec(
                sys.executable,
                *words,
                cwd=ROOT,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
            self._children.append(child)

    async def read(self) -> None:
        """Keeps `applied` up to date while it is awaited."""
        async with asyncio.TaskGroup() as group:
            for child in self._children:
                group.create_task(self._read(child))

    async def _read(self, child: asyncio.subprocess.Process) -> None:
        assert child.stdout is not None
        async for line in child.stdout:
            told = json.loads(line)
            if told["collection"] == wire.CATALOG:
                self.applied[told["router"]] = told["version"], told["at"], told["whole"]
                self._news.set()

    def forget(self) -> None:
        """Nobody holds anything any more."""
        self.applied.clear()
        for child in self._children:
            assert child.stdin is not None
            child.stdin.write(b"forget\n")

    async def all_have(self, version: int) -> list[float]:
        """When each came to apply it, Unix time; TimeoutError."""
        async with asyncio.timeout(WITHIN_S):
            while sum(applied[0] == version for applied in self.applied.values()) < self.size:
                self._news.clear()
                await self._news.wait()
        return [at for _, at, _ in self.applied.values()]

    async def stop(self) -> None:
        """Ends the children."""
        for child in self._children:
            assert child.stdin is not None
            child.stdin.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(10):
                    await child.wait()
            if child.returncode is None:
                child.kill()
                await child.wait()


class ControlPlane:
    """`python -m control_plane`, which may be ended and started again on its port, and its memory and CPU while it runs."""

    def __init__(self, database_url: str) -> None:
        self.port = _free_port()
        self.admin, self.node = secrets.token_hex(16), secrets.token_hex(16)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("N4N_")}
        self._environ = kept | {
            "N4N_DATABASE_URL": database_url,
            "N4N_ADMIN_PORT": str(self.port),
            "N4N_METRICS_PORT": "0",
            "N4N_ADMIN_TOKEN": self.admin,
            "N4N_NODE_TOKEN": self.node,
        }
        self._process: asyncio.subprocess.Process | None = None

    @property
    def target(self) -> str:
        """host:port."""
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Returns when it serves."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "control_plane", cwd=ROOT, env=self._environ, stderr=asyncio.subprocess.DEVNULL
        )
        async with asyncio.timeout(WITHIN_S), ControlClient([self.target], self.admin) as client:
            while True:
                try:
                    await client.history(limit=1)
                except ControlRefused:
                    await client.close()
                    await asyncio.sleep(0.02)
                else:
                    return

    async def kill(self) -> None:
        """As if its machine were lost."""
        if self._process is not None:
            self._process.kill()
            await self._process.wait()
            self._process = None

    def usage(self) -> tuple[float, float] | None:
        """MiB resident, and seconds of CPU so far; None while it is away."""
        if self._process is None:
            return None
        try:
            pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        except OSError:
            return None
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20, cpu_seconds([self._process.pid])


async def measure(database_url: str, size: Size, *, children: int = PROCESSES, say: Callable[[str], None] = lambda line: None) -> Figures:
    """One run against an empty database."""
    figures, began = Figures(), time.monotonic()
    plane, fleet = ControlPlane(database_url), Fleet(size.routers)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(plane.kill)
        stack.push_async_callback(fleet.stop)
        await plane.start()
        await fleet.start(plane.target, plane.node, children)
        await stack.enter_async_context(_running(fleet.read()))
        await stack.enter_async_context(_running(_sample(plane, figures, began)))
        operator = await stack.enter_async_context(ControlClient([plane.target], plane.admin, call_s=60))

        def mark(said: str) -> None:
            figures.marks.append((time.monotonic() - began, said))
            say(said)

        document = large_catalog(size.endpoints, size.models)
        mark("first catalog")
        version, committed = await _apply(operator, document)
        figures.first_s = max(await fleet.all_have(version)) - committed
        mark(f"{size.changes} changes")
        for number in range(size.changes):
            document = with_changes(document, number, size.resources)
            version, committed = await _apply(operator, document)
            figures.delta_ms += [(at - committed) * 1000 for at in await fleet.all_have(version)]
            await asyncio.sleep(size.pause_s)
        await operator.close()

        await plane.kill()
        mark("resync of all")
        fleet.forget()
        started = time.time()
        await plane.start()
        figures.resync_s = max(await fleet.all_have(version)) - started
        await asyncio.sleep(4 * size.pause_s)

        await plane.kill()
        mark("restart, nothing new")
        started = time.time()
        await plane.start()
        figures.return_s = await _all_connected(operator, size.routers) - started
        await operator.close()

        await plane.kill()
        mark("restart, one version behind")
        version = await _apply_elsewhere(database_url, with_changes(document, size.changes, size.resources))
        started = time.time()
        await plane.start()
        figures.catch_up_s = max(await fleet.all_have(version)) - started
        figures.by_delta = not any(whole for _, _, whole in fleet.applied.values())
        await asyncio.sleep(4 * size.pause_s)
    return figures


async def _apply_elsewhere(database_url: str, document: Document) -> int:
    """By another control plane, that nobody watches."""
    other = ControlPlane(database_url)
    try:
        await other.start()
        async with ControlClient([other.target], other.admin, call_s=60) as operator:
            return (await _apply(operator, document))[0]
    finally:
        await other.kill()


async def _apply(operator: ControlClient, document: Document) -> tuple[int, float]:
    """The version and when it was committed, by the database's clock, which is this machine's."""
    version = (await operator.apply(json.dumps(document), author="bench")).version
    return version.version, version.committed_at_ms / 1000


async def _all_connected(operator: ControlClient, routers: int) -> float:
    async with asyncio.timeout(WITHIN_S):
        while True:
            status = await operator.status()
            if sum(node.connected and node.lag_ms == 0 for node in status.nodes) == routers:
                return time.time()
            await asyncio.sleep(0.1)


async def _sample(plane: ControlPlane, figures: Figures, began: float) -> None:
    before: tuple[float, float] | None = None
    while True:
        at, usage = time.monotonic(), plane.usage()
        if usage is None:
            before = None
            figures.samples.append((at - began, 0.0, 0.0))
        else:
            memory, cpu = usage
            if before is not None and cpu >= before[1]:
                figures.samples.append((at - began, memory, 100 * (cpu - before[1]) / (at - before[0])))
            before = at, cpu
        await asyncio.sleep(SAMPLE_S)


@asynccontextmanager
async def _running(work: Coroutine[object, object, None]) -> AsyncIterator[None]:
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def report(size: Size, figures: Figures, stalls: Sequence[stall.Stall]) -> str:
    """The table for the document."""
    machine = facts()
    restarted = "control plane killed and started:"
    rows = [
        (f"a change of {size.resources} entries, commit to applied, p50", f"{figures.p50_ms:.0f} ms", ""),
        ("the same, p99", f"{figures.p99_ms:.0f} ms", f"< {DELTA_LIMIT_MS:.0f} ms"),
        ("the same, the slowest of all", f"{max(figures.delta_ms):.0f} ms", ""),
        ("the first catalog, commit to applied by all", f"{figures.first_s:.1f} s", ""),
        (f"{restarted} all routers hold nothing, until all have the whole", f"{figures.resync_s:.1f} s", f"≤ {RESYNC_LIMIT_S:.0f} s"),
        (f"{restarted} all hold the head, until all are known to", f"{figures.return_s:.1f} s", ""),
        (f"{restarted} all are a version behind, until all have the delta", f"{figures.catch_up_s:.1f} s", ""),
        ("control plane, most memory", f"{max(memory for _, memory, _ in figures.samples):.0f} MiB", ""),
    ]
    for one in stalls:
        what = f"a router takes over {one.kind}, in {one.swap_ms:.0f} ms; its loop stands still for at most"
        rows.append((what, f"{one.stall_ms:.0f} ms", f"≤ {STALL_LIMIT_MS:.0f} ms"))
    lines = [
        f"{size.routers} simulated routers (real streams and collectors in {PROCESSES} processes, one compiled catalog for each process), "
        f"{size.endpoints:,} endpoints, {size.models} models, {size.changes} changes. PostgreSQL, control plane, routers and bench share "
        f"one machine: {machine.cpus} CPUs ({machine.cpu}), Linux {machine.kernel}, Python {machine.python}.",
        "",
        "| what | measured | bound |",
        "| --- | --- | --- |",
        *(f"| {what} | {found} | {bound} |" for what, found, bound in rows),
        "",
        f"![memory and CPU of the control plane over the run]({PLOT.name})",
    ]
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> int:
    """Measures, writes, and fails where a bound is passed."""
    parser = argparse.ArgumentParser(prog="python -m bench.discovery", description="Measure how a catalog reaches many routers.")
    parser.add_argument("--routers", type=int, default=Size().routers, help="how many (default %(default)s)")
    parser.add_argument("--changes", type=int, default=Size().changes, help="how many versions (default %(default)s)")
    parser.add_argument("--dry", action="store_true", help="print the table and write nothing")
    args = parser.parse_args(words)
    size = Size(routers=args.routers, changes=args.changes)
    with tempfile.TemporaryDirectory(prefix="n4n-bench-") as name:
        folder = Path(name)
        folder.chmod(0o711)  # as root, the server is another user
        store = start_postgres(folder, settings=THROWAWAY)
        try:
            figures = asyncio.run(measure(store.url, size, say=lambda line: print(line, file=sys.stderr)))
        finally:
            store.stop()
        stalls = stall.measure(folder, endpoints=size.endpoints, models=size.models, times=5)
    text = report(size, figures, stalls)
    print(text)
    if not args.dry:
        DOCUMENT.write_text(placed(DOCUMENT.read_text(), text, BEGIN, END))
        PLOT.write_text(plot(figures))
    in_time = figures.p99_ms < DELTA_LIMIT_MS and figures.resync_s <= RESYNC_LIMIT_S
    return 0 if in_time and figures.by_delta and max(one.stall_ms for one in stalls) <= STALL_LIMIT_MS else 1


def plot(figures: Figures) -> str:
    """Memory and CPU over the run."""
    memory = Panel("control plane, resident memory, MiB", [(at, mib) for at, mib, _ in figures.samples])
    cpu = Panel("control plane, % of one CPU", [(at, percent) for at, _, percent in figures.samples])
    return svg([memory, cpu], figures.marks)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())
