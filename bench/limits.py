"""`python -m bench.limits`: what limits cost a worker: requests per second with limits on ÷ off, in rounds in turn, one worker on a CPU.

One n4n, asked in four ways: by a key without limits; by one with requests, tokens and places; by one whose tenant has them too; and by a
key with limits, of a model whose account has some. None is ever used up. The worker's CPU says the same where the load was not enough.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from bench import payloads
from bench.gateway import catalog_for, start_n4n
from bench.machine import two_cpus
from bench.measured import Run
from bench.pairs import NAME
from bench.peers import PLAIN, STARTS_WITHIN_S, Peer, Target
from bench.turns import Turns
from bench.upstreams import Upstreams, start_upstreams

CONNECTIONS = 32
OFF, KEY, TENANT, ACCOUNT = "no limits", "a key's", "a key's and its tenant's", "a key's and an account's"
WAYS = (OFF, KEY, TENANT, ACCOUNT)
LIMITED = "bench-limited"
_MANY = {"rpm": 10**9, "tpm": 10**12, "concurrency": 10**6}
_FLAGS = [word for name, value in _MANY.items() for word in (f"--{name}", str(value))]


def main(words: Sequence[str] | None = None) -> int:
    """Prints a table; 1 with one line when it cannot."""
    parser = argparse.ArgumentParser(prog="python -m bench.limits", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each way and round")
    args = parser.parse_args(words)
    try:
        with tempfile.TemporaryDirectory(prefix="n4n-bench-") as name, ExitStack() as running:
            folder, cpus = Path(name), two_cpus()
            upstreams = start_upstreams(folder, cpus[1], running.callback)
            peer = start_n4n(folder, cpus, upstreams)
            running.callback(peer.stop)
            peer = _with_limits(peer, folder / NAME, upstreams)
            peer.check(within_s=STARTS_WITHIN_S)
            turns = Turns(folder, upstreams, cpus)
            found: dict[str, list[Run]] = {way: [] for way in WAYS}
            for number in range(args.rounds):
                for way in WAYS:
                    run = turns.loaded(peer, way, stream=False, connections=CONNECTIONS, seconds=args.seconds)
                    found[way].append(run)
                    print(f"round {number + 1} of {args.rounds}: {way}: {run.rate:.0f} a second", file=sys.stderr)
    except (RuntimeError, OSError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    print(table(found))
    return 0


def table(found: dict[str, list[Run]]) -> str:
    """Medians; ratios are medians of those within a round."""
    lines = ["| limits | requests a second | on ÷ off | worker's CPU, µs | off ÷ on |", "| --- | --: | --: | --: | --: |"]
    for way, runs in found.items():
        pairs = list(zip(found[OFF], runs, strict=True))
        rates = statistics.median(one.rate / off.rate for off, one in pairs)
        cpu = statistics.median(_worker_us(off) / _worker_us(one) for off, one in pairs)
        rate, worker = statistics.median(one.rate for one in runs), statistics.median(_worker_us(one) for one in runs)
        lines.append(f"| {way} | {rate:,.0f} | {rates:.2f} | {worker:.0f} | {cpu:.2f} |")
    return "\n".join(lines)


def _worker_us(run: Run) -> float:
    return run.worker_seconds / max(1, run.outcome.requests) * 1e6


def _with_limits(peer: Peer, own: Path, upstreams: Upstreams) -> Peer:
    """The same n4n with a model whose account has limits, and keys that have some."""
    document = json.loads(json.dumps(catalog_for(upstreams)))
    document["accounts"]["limited"] = {**document["accounts"]["bench-plain-main"], "limits": {"scope": "shared", **_MANY}}
    document["models"][LIMITED] = {"context_window": 128_000, "max_output_tokens": 16_384}
    plain = document["endpoints"][f"{payloads.MODEL}-one"]
    document["endpoints"][f"{LIMITED}-one"] = {**plain, "model": LIMITED, "account": "limited", "upstream_model": payloads.MODEL}
    (own / "limited.json").write_text(json.dumps(document))
    _n4n(own, "catalog", "apply", "-f", str(own / "limited.json"))
    _n4n(own, "tenant", "update", "second", *_FLAGS)
    keys = [json.loads(_n4n(own, "key", "create", "--tenant", tenant, *_FLAGS, "-o", "json"))["api_key"] for tenant in ("first", "second")]
    off = peer.ways[PLAIN]
    return replace(peer, ways={
        **peer.ways,
        OFF: off,
        KEY: Target(off.base_url, keys[0], off.model),
        TENANT: Target(off.base_url, keys[1], off.model),
        ACCOUNT: Target(off.base_url, keys[0], LIMITED),
    })  # fmt: skip


def _n4n(own: Path, *words: str) -> str:
    """A command of it. RuntimeError: it was refused."""
    environ = {**os.environ, "N4N_DATA_DIR": str(own / "data")}
    done = subprocess.run([sys.executable, "-m", "n4n", *words], env=environ, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"n4n {' '.join(words[:2])}: {done.stderr.strip()}")
    return done.stdout


if __name__ == "__main__":
    raise SystemExit(main())
