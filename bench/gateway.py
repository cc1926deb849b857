"""n4n as a peer: the whole of it, its workers on the CPU that is measured, everything else of it beside the load."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench import payloads
from bench.machine import Cpu, words_of
from bench.pairs import CHANGED, NAME, TRACED
from bench.peers import PACED, PACED_UNGUARDED, PLAIN, TLS, UNGUARDED, Peer, Target, free_port, own_environ, start, wait_for
from bench.upstreams import Upstreams

KEY_VARIABLE = "N4N_KEY_BENCH"
_MODELS = {
    PLAIN: payloads.MODEL,
    TLS: "bench-tls",
    PACED: "bench-paced",
    UNGUARDED: "bench-unguarded",
    PACED_UNGUARDED: "bench-paced-unguarded",
}
_BEHIND = {UNGUARDED: PLAIN, PACED_UNGUARDED: PACED}  # other ways have the upstream of their own name


@dataclass(frozen=True, slots=True)
class Checkout:
    """Which n4n: this one, unless a folder is named. `python` runs it."""

    name: str = NAME
    folder: Path = Path(__file__).resolve().parent.parent
    python: str = sys.executable
    before: Path | None = None  # a folder whose sitecustomize changes it
    environ: Mapping[str, str] = field(default_factory=dict)


def start_n4n(folder: Path, cpus: tuple[Cpu, Cpu], upstreams: Upstreams, *, workers: int = 1, checkout: Checkout | None = None) -> Peer:
    """Postgres, Valkey, control plane, `workers` workers, as `n4n up` starts them. Its request log goes to /dev/null."""
    checkout = checkout or Checkout()
    own = folder / checkout.name.replace(" ", "-")
    own.mkdir()
    catalog = own / "catalog.json"
    catalog.write_text(json.dumps(catalog_for(upstreams)))
    command = [checkout.python, "-m", "n4n", "up", "--catalog", str(catalog), "--workers", str(workers), "--data-dir", str(own / "data")]
    command += ["--port", str(free_port()), "--admin-port", str(free_port())]
    path = ":".join(str(one) for one in (checkout.before, checkout.folder) if one)
    environ = own_environ() | {KEY_VARIABLE: "upstream", "PYTHONPATH": path, **checkout.environ}
    if upstreams.authority:
        environ["SSL_CERT_FILE"] = str(upstreams.authority)
    program = start(command, own / "log", cpus[1], environ=environ, cwd=checkout.folder)
    found = Peer(checkout.name, {}, program, (cpus[1],), (cpus[0],), answers=answering, loud=True)
    try:
        runtime = wait_for(own / "data" / "runtime.json", program)
    except (RuntimeError, OSError, ValueError):
        found.stop()
        raise
    found.go_home()
    url, key = str(runtime["base_url"]), str(runtime["api_key"])
    ways = {way: Target(url, key, _MODELS[way]) for way in _behind(upstreams)}
    return Peer(checkout.name, ways, program, found.home, found.measured, answers=answering, loud=True)


def answering(pids: Sequence[int]) -> list[int]:
    """The workers among the processes of an n4n."""
    return [pid for pid in pids if {"data-plane", "--worker"} <= set(words_of(pid))]


def starter(workers: int, name: str) -> Callable[[Path, tuple[Cpu, Cpu], Upstreams], Peer]:
    """For a peer with so many workers."""
    return lambda folder, cpus, upstreams: start_n4n(folder, cpus, upstreams, workers=workers, checkout=Checkout(name))


def start_traced(folder: Path, cpus: tuple[Cpu, Cpu], upstreams: Upstreams) -> Peer:
    """As n4n, but it keeps the traces of one request in a hundred, and a receiver of them stands beside the load."""
    port = free_port()
    sink = start([sys.executable, "-m", "bench.span_sink", str(port)], folder / "span_sink.log", cpus[1], environ=own_environ())
    told = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
        "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
        "OTEL_TRACES_SAMPLER_ARG": "0.01",
    }
    try:
        peer = start_n4n(folder, cpus, upstreams, checkout=Checkout(TRACED, environ=told))
    except (RuntimeError, OSError, ValueError):
        sink.popen.kill()
        raise
    return replace(peer, others=(sink,))


def changed(name: str) -> Callable[[Path, tuple[Cpu, Cpu], Upstreams], Peer]:
    """Starts the n4n of that name, of whose workers something is changed."""
    return lambda folder, cpus, upstreams: start_n4n(folder, cpus, upstreams, checkout=Checkout(name, before=CHANGED[name]))


VARIANTS = {**{name: changed(name) for name in CHANGED}, TRACED: start_traced}


def catalog_for(upstreams: Upstreams) -> Mapping[str, object]:
    """One model and one endpoint for each way."""
    price = {"input_per_1m": 2.5, "output_per_1m": 10, "cached_input_per_1m": 1.25}
    model = {"context_window": 128_000, "max_output_tokens": 16_384}
    unguarded = model | {"stream_guard": {"chunks": 0, "max_hold_ms": 0}}
    behind = _behind(upstreams)
    origins = {origin: upstreams.target(origin) for origin in behind.values()}
    providers = {f"bench-{origin}": _provider(target) for origin, target in origins.items() if target is not None}
    return {
        "providers": providers,
        "accounts": {f"{name}-main": {"provider": name, "credential": f"env:{KEY_VARIABLE}"} for name in providers},
        "models": {_MODELS[way]: unguarded if way in _BEHIND else model for way in behind},
        "endpoints": {
            f"{_MODELS[way]}-one": {"model": _MODELS[way], "account": f"bench-{origin}-main", "region": "us", "price": price}
            for way, origin in behind.items()
        },
    }


def _provider(target: Target) -> dict[str, object]:
    return {"dialect": "openai", "base_url": target.base_url, "allow_private": True}


def _behind(upstreams: Upstreams) -> dict[str, str]:
    """Which upstream stands behind each way that there is."""
    return {way: origin for way in _MODELS if upstreams.target(origin := _BEHIND.get(way, way)) is not None}
