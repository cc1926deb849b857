"""One peer's turn: it runs while the others stand still, under a load, and its CPU time and that of strangers is counted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench import load, payloads
from bench.machine import Cpu, busy_seconds
from bench.measured import CALM, Run
from bench.peers import Peer, Target
from bench.upstreams import Upstreams

REPEATS = 40  # disturbed runs are repeated once, at most so many in all, so that a busy machine cannot draw it out
WARM_S = 1.0


class Turns:
    """Whose turn it is."""

    def __init__(self, folder: Path, upstreams: Upstreams, cpus: tuple[Cpu, Cpu]) -> None:
        self.upstreams, self.cpus = upstreams, cpus
        self.direct = upstreams.direct
        self._folder = folder
        self._repeats = REPEATS
        self._warm: set[tuple[str, ...]] = set()

    @contextmanager
    def turn(self, peer: Peer, *ways: str) -> Iterator[None]:
        """It runs and has been seen to answer rightly by these ways."""
        peer.resume()
        try:
            peer.go_home()
            peer.check(*ways)
            yield
        finally:
            if peer.program is not self.direct.program:  # which the others need
                peer.pause()

    @contextmanager
    def spread(self, peer: Peer) -> Iterator[None]:
        """It and the upstream on both CPUs meanwhile."""
        both = (peer, self.direct)
        for one in both:
            one.spread(*self.cpus)
        try:
            yield
        finally:
            for one in both:
                one.go_home()

    def loaded(self, peer: Peer, way: str, *, stream: bool, connections: int, seconds: float) -> Run:
        """A run within its turn; warmed up the first time; repeated when it was disturbed."""
        kind = (peer.name, way, str(stream), str(connections))
        if kind not in self._warm:
            self._warm.add(kind)
            self.measured(peer, way, stream=stream, connections=connections, seconds=min(WARM_S, seconds / 2))
        first = self.measured(peer, way, stream=stream, connections=connections, seconds=seconds)
        if first.foreign <= CALM or not self._repeats:
            return first
        self._repeats -= 1
        second = self.measured(peer, way, stream=stream, connections=connections, seconds=seconds)
        return min(first, second, key=lambda run: run.foreign)

    def measured(
        self,
        peer: Peer,
        way: str,
        *,
        stream: bool,
        connections: int,
        seconds: float,
        cpus: Sequence[Cpu] = (),
        midway: Callable[[], None] | None = None,
    ) -> Run:
        """One run as it is. The load is on the second CPU, or on `cpus`."""
        target, ours = peer.ways[way], {id(one.program): one for one in (peer, self.direct)}.values()
        began, busy, known = time.monotonic(), busy_seconds(self.cpus), sum(one.cpu_seconds() for one in ours)
        cpu, worker, generator = peer.cpu_seconds(), peer.worker_seconds(), load.cpu_used()
        body = self._body(target, stream)
        outcome = load.run_load(target, body, connections=connections, seconds=seconds, cpus=cpus or self.cpus[1:], midway=midway)
        cpu, worker = peer.cpu_seconds() - cpu, peer.worker_seconds() - worker
        known = sum(one.cpu_seconds() for one in ours) - known + load.cpu_used() - generator
        foreign = max(0.0, busy_seconds(self.cpus) - busy - known) / (time.monotonic() - began)
        return Run(outcome, cpu, worker, peer.worker_mib(), foreign)

    def _body(self, target: Target, stream: bool) -> Path:
        path = self._folder / f"body-{target.model}-{stream}"
        if not path.exists():
            path.write_bytes(payloads.request(stream=stream, model=target.model))
        return path
