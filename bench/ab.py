"""Two checkouts of the project against each other: their turns alternate, so that a ratio is of two turns side by side."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.gateway import Checkout, start_n4n
from bench.machine import Cpu
from bench.measured import Measured, Run
from bench.peers import Peer
from bench.report import markdown
from bench.trials import Load
from bench.turns import Turns

A, B = "n4n A", "n4n B"


@dataclass(frozen=True, slots=True)
class Pair:
    """One round: a turn of each."""

    a: Run
    b: Run


def checkouts(folders: Sequence[str], pythons: Sequence[str]) -> list[Checkout]:
    """The two that are named. RuntimeError when one is none."""
    found = []
    for name, folder, python in zip((A, B), folders, pythons, strict=True):
        if not (Path(folder) / "n4n" / "__init__.py").exists():
            raise RuntimeError(f"{folder} is no checkout of n4n")
        found.append(Checkout(name, Path(folder).resolve(), python))
    return found


def started(named: Checkout, folder: Path, cpus: tuple[Cpu, Cpu], turns: Turns) -> Peer:
    """One of them, as a peer."""
    return start_n4n(folder, cpus, turns.upstreams, checkout=named)


def compare(turns: Turns, peers: tuple[Peer, Peer], loads: Sequence[Load], rounds: int, seconds: float) -> str:
    """A table for each load; who comes first changes from round to round."""
    measured = Measured()
    for number in range(rounds):
        for load in loads:
            for peer in peers if number % 2 == 0 else reversed(peers):
                said = load.measure(turns, peer, seconds, measured)
                print(f"round {number + 1} of {rounds}: {load.title}: {peer.name} {said}", file=sys.stderr)
    return "\n\n".join(pairs_table(load.title, paired(measured, load.name)) for load in loads)


def paired(measured: Measured, load: str) -> list[Pair]:
    """The turns of one round together."""
    runs = measured.loads[load]
    return [Pair(a, b) for a, b in zip(runs[A], runs[B], strict=True)]


def pairs_table(title: str, pairs: Sequence[Pair]) -> str:
    """Medians of both, and the ratio B ÷ A of each round: median, lowest–highest."""
    rows = []
    values: Sequence[tuple[str, Callable[[Run], float]]] = (
        ("per second", lambda run: run.rate),
        ("CPU µs, worker", lambda run: run.worker_us),
        ("CPU µs, all", lambda run: run.cpu_us),
    )
    for what, value in values:
        a, b = [value(pair.a) for pair in pairs], [value(pair.b) for pair in pairs]
        ratios = [other / one for one, other in zip(a, b, strict=True) if one]
        spread = f"{min(ratios):.3f}–{max(ratios):.3f}" if ratios else ""
        rows.append([what, f"{median(a):,.0f}", f"{median(b):,.0f}", f"{median(ratios):.3f}" if ratios else "", spread])
    errors = [sum(run.outcome.errors for run in runs) for runs in ([pair.a for pair in pairs], [pair.b for pair in pairs])]
    rows.append(["errors", *map(str, errors), "", ""])
    foreign = [median(run.foreign * 100 for run in runs) for runs in ([pair.a for pair in pairs], [pair.b for pair in pairs])]
    rows.append(["others %", *(f"{one:.0f}" for one in foreign), "", ""])
    return markdown(title, ["", "A", "B", "B ÷ A", "lowest–highest"], rows)
