"""What is measured: each trial gives one peer one turn, and adds what it saw to `Measured`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from bench import payloads
from bench.latency import ask_in_turn
from bench.machine import connections_of, cpu_seconds
from bench.measured import Began, Guarded, Low, Measured, Memory, Planned, Run, Shares
from bench.pairs import CHANGED, NAME, PAIRS, TRACED, Pair
from bench.peers import PACED, PACED_UNGUARDED, PLAIN, TLS, UNGUARDED, Peer
from bench.planning import FEW, MANY, decisions_us
from bench.streams import break_off, run_streams
from bench.translate import Translation
from bench.turns import Turns
from n4n.core.catalog import StreamGuardPolicy

TWO_WORKERS = "n4n, 2 workers"
VARIANTS = (TWO_WORKERS, *CHANGED, TRACED)  # other n4ns, each for one trial
LOW_RATE = 50.0
GUARD_RATE = 1.0  # a stream takes 0.4 s, three of them are asked in turn
AT_ONCE = 16


class Trial(Protocol):
    """One kind of measurement."""

    @property
    def name(self) -> str:
        """By which it is chosen."""

    @property
    def once(self) -> bool:
        """Not in every round."""

    def takes(self, peer: Peer) -> bool:
        """Whether this peer has a turn."""

    def measure(self, turns: Turns, peer: Peer, seconds: float, into: Measured) -> str:
        """Gives it one; a few words on what came of it."""


@dataclass(frozen=True, slots=True)
class Load:
    """A closed loop."""

    name: str
    title: str
    connections: int
    stream: bool
    way: str
    once: bool = False

    def takes(self, peer: Peer) -> bool:
        """Those that can; not one that would work on what was given up long after."""
        return self.way in peer.ways and peer.name not in VARIANTS and not (self.stream and peer.slow)

    def measure(self, turns: Turns, peer: Peer, seconds: float, into: Measured) -> str:
        """Streams are looked at afterwards, which the load itself does not do; those that are not whole are errors."""
        with turns.turn(peer, self.way):
            run = turns.loaded(peer, self.way, stream=self.stream, connections=self.connections, seconds=seconds)
            if self.stream and self.way != TLS:
                seen = run_streams(peer.ways[self.way], turns.cpus[1], connections=self.connections, seconds=0.5)
                run = replace(run, outcome=replace(run.outcome, errors=run.outcome.errors + seen.incomplete))
        into.loads.setdefault(self.name, {}).setdefault(peer.name, []).append(run)
        return f"{run.rate:,.0f}/s, {run.worker_us:,.0f} µs"


@dataclass(frozen=True, slots=True)
class LowLoad:
    """One request at a time, 50 a second, without and with the peer in turn."""

    name: str = "low"
    once: bool = False

    def takes(self, peer: Peer) -> bool:
        """All but the upstream itself."""
        return peer.name not in ("direct", *VARIANTS)

    def measure(self, turns: Turns, peer: Peer, seconds: float, into: Measured) -> str:
        """Added milliseconds."""
        targets = [turns.direct.ways[PLAIN], peer.ways[PLAIN]]
        with turns.turn(peer, PLAIN):
            direct, through = ask_in_turn(targets, turns.cpus[1], stream=False, rate=LOW_RATE, seconds=seconds)
        low = Low(direct.p50, direct.p95, through.p50, through.p95)
        into.low.setdefault(peer.name, []).append(low)
        return f"adds {low.added_p50:.2f} ms, p95 {low.added_p95:.2f} ms"


@dataclass(frozen=True, slots=True)
class Streaming:
    """16 streams at once: how much later they begin, and whether they are whole. n4n also without its guard."""

    name: str = "streams"
    once: bool = False

    def takes(self, peer: Peer) -> bool:
        """All but the upstream itself."""
        return peer.name not in ("direct", *VARIANTS)

    def measure(self, turns: Turns, peer: Peer, seconds: float, into: Measured) -> str:
        """The upstream itself just before."""
        said = []
        with turns.turn(peer, PLAIN):
            direct = run_streams(turns.direct.ways[PLAIN], turns.cpus[1], connections=AT_ONCE, seconds=max(0.5, seconds / 3))
            for way in (PLAIN, UNGUARDED):
                if way in peer.ways:
                    seen = run_streams(peer.ways[way], turns.cpus[1], connections=AT_ONCE, seconds=seconds / 2)
                    name = peer.name if way == PLAIN else f"{peer.name}, guard off"
                    began = Began(
                        direct.ttfb_p50_ms,
                        direct.ttfb_p95_ms,
                        seen.ttfb_p50_ms,
                        seen.ttfb_p95_ms,
                        seen.count / seen.seconds,
                        seen.incomplete,
                    )
                    into.began.setdefault(name, []).append(began)
                    said.append(f"{began.p50 - began.direct_p50:.2f} ms later")
        return ", ".join(said)


@dataclass(frozen=True, slots=True)
class Guard:
    """What the stream guard costs a healthy stream beyond its own rule."""

    name: str = "guard"
    once: bool = False

    def takes(self, peer: Peer) -> bool:
        """n4n alone has one."""
        return peer.name == NAME

    def measure(self, turns: Turns, peer: Peer, seconds: float, into: Measured) -> str:
        """Upstream, guard off, guard on, stream by stream in turn."""
        targets = [turns.direct.ways[PACED], peer.ways[PACED_UNGUARDED], peer.ways[PACED]]
        with turns.turn(peer, PACED, PACED_UNGUARDED):
            chunks = StreamGuardPolicy().chunks
            direct, off, on = ask_in_turn(targets, turns.cpus[1], stream=True, rate=GUARD_RATE, seconds=max(10.0, 4 * seconds), nth=chunks)
        seen = Guarded(on.first_p50, off.first_p50, direct.nth_p50 - direct.first_p50)
        into.guard.append(seen)
        return f"{seen.beyond:.2f} ms beyond its rule"


@dataclass(frozen=True, slots=True)
class Workers:
    """One worker and two of them, everything on both CPUs: CPU per request, and who had how much."""

    name: str = "workers"
    connections: int = 128
    once: bool = False

    def takes(self, peer: Peer) -> bool:
        """n4n with one and with two."""
        return peer.name in (NAME, TWO_WORKERS)

    def measure(self, turns: Turns, peer: Peer, seconds: float, into: Measured) -> str:
        """Connections are counted in the middle of the run."""
        counted: list[int] = []
        port = int(peer.ways[PLAIN].base_url.rsplit(":", 1)[1].removesuffix("/v1"))
        with turns.turn(peer, PLAIN), turns.spread(peer):
            pids = peer.workers()
            before = [cpu_seconds([pid]) for pid in pids]
            run = turns.measured(
                peer,
                PLAIN,
                stream=False,
                connections=self.connections,
                seconds=seconds,
                cpus=turns.cpus,
                midway=lambda: counted.extend(connections_of(pid, port) for pid in pids),
            )
            used = [cpu_seconds([pid]) - at for pid, at in zip(pids, before, strict=True)]
        shares = Shares(run, counted, [one / max(1e-9, sum(used)) for one in used])
        into.workers.setdefault(peer.name, []).append(shares)
        return f"{run.worker_us:,.0f} µs, connections {counted}"


@dataclass(frozen=True, slots=True)
class Decision:
    """What it costs to decide where a request goes, beside a whole request."""

    name: str = "plan"
    once: bool = False

    def takes(self, peer: Peer) -> bool:
        """n4n."""
        return peer.name == NAME

    def measure(self, turns: Turns, peer: Peer, seconds: float, into: Measured) -> str:
        """Requests through the gateway first, then plans in this process, on the same CPUs."""
        with turns.turn(peer, PLAIN):
            run = turns.loaded(peer, PLAIN, stream=False, connections=32, seconds=seconds)
        seen = Planned(run.worker_us, decisions_us(FEW), decisions_us(MANY))
        into.plans.append(seen)
        return f"{seen.few_us:.1f} of {seen.request_us:.0f} µs, × {seen.growth:.2f} at {MANY:,} models"


@dataclass(frozen=True, slots=True)
class Beside:
    """What one thing costs: an n4n beside one without it, turn by turn."""

    pair: Pair
    once: bool = False

    @property
    def name(self) -> str:
        """Of the pair."""
        return self.pair.name

    def takes(self, peer: Peer) -> bool:
        """Both of them."""
        return peer.name in (self.pair.on, self.pair.off)

    def measure(self, turns: Turns, peer: Peer, seconds: float, into: Measured) -> str:
        """Whole answers, then streams."""
        said = []
        with turns.turn(peer, PLAIN):
            for what in self.pair.kinds:
                stream = what == "SSE"
                run = turns.loaded(peer, PLAIN, stream=stream, connections=64 if stream else 32, seconds=seconds)
                into.paired.setdefault(self.name, {}).setdefault(what, {}).setdefault(peer.name, []).append(run)
                said.append(f"{what} {run.rate:,.0f}/s, {run.worker_us:,.0f} µs")
        return "; ".join(said)


@dataclass(frozen=True, slots=True)
class Keeps:
    """Whether a worker's memory grows with what it has served."""

    first: int = 50_000
    requests: int = 1_000_000
    broken_off: int = 50_000
    name: str = "memory"
    once: bool = True

    def takes(self, peer: Peer) -> bool:
        """n4n."""
        return peer.name == NAME

    def measure(self, turns: Turns, peer: Peer, seconds: float, into: Measured) -> str:
        """Requests, look, more requests and streams broken off, look."""
        with turns.turn(peer, PLAIN):
            first = self._ask(turns, peer, self.first)
            first_mib = peer.worker_mib()
            rest = self._ask(turns, peer, self.requests - sum(run.outcome.requests for run in first))
            seen = break_off(peer.ways[PLAIN], turns.cpus[1], connections=64, count=self.broken_off)
            peer.check(PLAIN)
            time.sleep(1.0)
            asked = [sum(run.outcome.requests for run in runs) for runs in (first, first + rest)]
            memory = Memory(asked[0], first_mib, asked[1], seen.count, peer.worker_mib())
        into.memory.append(memory)
        return f"{memory.first_mib:.1f} MiB, then {memory.mib:.1f} MiB"

    def _ask(self, turns: Turns, peer: Peer, count: int) -> list[Run]:
        runs: list[Run] = []
        while (left := count - sum(run.outcome.requests for run in runs)) > 0:
            seconds = min(10.0, left / runs[-1].rate + 0.5) if runs else 1.0
            runs.append(turns.measured(peer, PLAIN, stream=False, connections=32, seconds=seconds))
        return runs


def trials(*, quick: bool) -> dict[str, Trial]:
    """All, by name, in the order in which they are shown."""
    sse = f"SSE, 256 connections, {payloads.EVENTS} events {payloads.GAP_MS} ms apart"
    found: Sequence[Trial] = (
        Load("json32", "JSON, 32 connections", 32, False, PLAIN),
        Load("json128", "JSON, 128 connections", 128, False, PLAIN),
        Load("tls32", "JSON, 32 connections, TLS to the upstream", 32, False, TLS),
        Load("sse256", sse, 256, True, PLAIN),
        LowLoad(),
        Streaming(),
        Guard(),
        Workers(),
        *map(Beside, PAIRS),
        Decision(),
        Translation(),
        Keeps(500, 10_000, 500) if quick else Keeps(),
    )
    return {trial.name: trial for trial in found}
