"""`make bench`: starts the upstreams and the peers, lets them take turns, writes docs/performance.md and the picture beside it."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from bench import ab, bars, load
from bench.gateway import VARIANTS, starter
from bench.machine import Cpu, facts, two_cpus
from bench.measured import Measured
from bench.pairs import NAME, PAIRS
from bench.peers import STARTS_WITHIN_S, Absent, Peer
from bench.proxies import start_aiohttp, start_nginx, start_raw
from bench.report import placed, tables
from bench.routers import STARTERS
from bench.targets import targets_table
from bench.trials import TWO_WORKERS, Load, Trial, trials
from bench.turns import Turns
from bench.upstreams import Upstreams, start_upstreams
from n4n import __version__

DOCUMENT = Path(__file__).parent.parent / "docs" / "performance.md"
PICTURE = DOCUMENT.with_suffix(".svg")
Starter = Callable[[Path, tuple[Cpu, Cpu], Upstreams], Peer]


def _alone(start: Callable[[Path, Cpu, Upstreams], Peer]) -> Starter:
    """A peer all of which lives on the CPU that is measured."""
    return lambda folder, cpus, upstreams: start(folder, cpus[0], upstreams)


PEERS: dict[str, Starter] = {
    "nginx": _alone(start_nginx),
    "raw": _alone(start_raw),
    **{name: _alone(start) for name, start in STARTERS.items()},
    "aiohttp": _alone(start_aiohttp),
    "n4n": starter(1, NAME),
}


def main(words: Sequence[str] | None = None) -> int:
    """Runs the bench; 1 with one line when it cannot."""
    args = _arguments(words)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the peers are stopped on the way out
    try:
        with tempfile.TemporaryDirectory(prefix="n4n-bench-") as name, ExitStack() as running:
            folder, cpus = Path(name), two_cpus()
            upstreams = start_upstreams(folder, cpus[1], running.callback)
            turns = Turns(folder, upstreams, cpus)
            if args.ab:
                print(_compared(args, turns, folder, running))
                return 0
            measured, text = _measured(args, turns, folder, running)
    except (RuntimeError, OSError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    print(text)
    if args.raw:
        args.raw.write_text(json.dumps(asdict(measured), indent=1))
    if not args.quick and args.peers == list(PEERS) and args.trials == list(trials(quick=False)):
        picture = f"![the same as bars]({PICTURE.name})"
        DOCUMENT.write_text(placed(DOCUMENT.read_text(), f"{text}\n\n{picture}"))
        PICTURE.write_text(bars.svg(bars.panels(measured, list(trials(quick=False).values()))))
        print(f"written to {DOCUMENT} and {PICTURE}", file=sys.stderr)
    return 0


def _compared(args: argparse.Namespace, turns: Turns, folder: Path, running: ExitStack) -> str:
    named = ab.checkouts(args.ab, args.ab_python or [sys.executable] * 2)
    peers = [_started(one.name, lambda *_, one=one: ab.started(one, folder, turns.cpus, turns), turns, folder, running) for one in named]
    chosen = trials(quick=args.quick)
    names = [name for name in args.trials if isinstance(chosen[name], Load)] if args.trials_given else ["json32", "sse256"]
    loads = [trial for name in names if isinstance(trial := chosen[name], Load)]
    return f"{_heading(args, turns.upstreams)}\n\n{ab.compare(turns, (peers[0], peers[1]), loads, args.rounds, args.seconds)}"


def _measured(args: argparse.Namespace, turns: Turns, folder: Path, running: ExitStack) -> tuple[Measured, str]:
    chosen = [trial for name, trial in trials(quick=args.quick).items() if name in args.trials]
    starters = {name: PEERS[name] for name in args.peers}
    if NAME in starters and "workers" in args.trials:
        starters[TWO_WORKERS] = starter(2, TWO_WORKERS)
    if NAME in starters:
        wanted = {one for pair in PAIRS if pair.name in args.trials for one in (pair.on, pair.off)}
        starters |= {name: start for name, start in VARIANTS.items() if name in wanted}
    peers, absent = [turns.direct], []
    for name, start in starters.items():
        try:
            peers.append(_started(name, start, turns, folder, running))
        except Absent as missing:
            absent.append(f"{name} ({missing})")
            print(f"without {absent[-1]}", file=sys.stderr)
    measured = Measured()
    for number in range(args.rounds):
        for trial in chosen:
            if not trial.once or number == args.rounds - 1:
                _round(trial, turns, peers, args.seconds, measured, f"round {number + 1} of {args.rounds}")
    notes = [_heading(args, turns.upstreams)]
    if absent:
        notes.append(f"Not here, so not measured: {', '.join(absent)}.")
    if turns.upstreams.note:
        notes.append(f"{turns.upstreams.note}.")
    return measured, "\n\n".join([*notes, targets_table(measured), *tables(measured, chosen)])


def _round(trial: Trial, turns: Turns, peers: Sequence[Peer], seconds: float, measured: Measured, told: str) -> None:
    for peer in peers:
        if trial.takes(peer):
            print(f"{told}: {trial.name}: {peer.name} {trial.measure(turns, peer, seconds, measured)}", file=sys.stderr)


def _started(name: str, start: Starter, turns: Turns, folder: Path, running: ExitStack) -> Peer:
    print(f"starting {name}", file=sys.stderr)
    peer = start(folder, turns.cpus, turns.upstreams)
    running.callback(peer.stop)
    peer.check(within_s=STARTS_WITHIN_S)
    peer.pause()
    return peer


def _heading(args: argparse.Namespace, upstreams: Upstreams) -> str:
    here = facts()
    return (
        f"n4n {__version__}, {datetime.now(UTC):%Y-%m-%d}: {here.cpu}, {here.cpus} CPUs, Linux {here.kernel}, Python {here.python}; "
        f"load by {load.NAME}, upstream {upstreams.kind}; medians of {args.rounds} rounds of {args.seconds:g} s."
    )


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    known = list(trials(quick=True))
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Measure n4n beside other gateways and the upstream itself; write docs/performance.md."
    )
    parser.add_argument("--rounds", type=int, default=5, help="turns of each peer (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of one turn (default %(default)s)")
    parser.add_argument("--peers", type=_some_of(list(PEERS)), default=list(PEERS), help=f"which beside direct (default {','.join(PEERS)})")
    parser.add_argument("--trials", type=_some_of(known), help=f"which (default {','.join(known)}; with --ab json32,sse256)")
    parser.add_argument("--quick", action="store_true", help="one short round, to see that all runs; prints the tables only")
    parser.add_argument("--raw", type=Path, metavar="FILE", help="write every turn as JSON")
    parser.add_argument("--ab", nargs=2, metavar=("A", "B"), help="compare two checkouts of n4n instead")
    parser.add_argument("--ab-python", nargs=2, metavar=("A", "B"), help="their interpreters (default: this one for both)")
    args = parser.parse_args(words)
    if args.quick:
        args.rounds, args.seconds = 1, 1.0
    if args.rounds < 1 or args.seconds <= 0:
        parser.error("--rounds must be at least 1 and --seconds more than 0")
    args.trials_given = args.trials is not None
    args.trials = args.trials or known
    return args


def _some_of(known: Sequence[str]) -> Callable[[str], list[str]]:
    def read(word: str) -> list[str]:
        names = [name for name in word.split(",") if name]
        if unknown := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(f"there is nothing named {unknown[0]}; known: {', '.join(known)}")
        return [name for name in known if name in names]

    return read


if __name__ == "__main__":
    sys.exit(main())
