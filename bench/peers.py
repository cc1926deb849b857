"""The programs of a bench: the upstream, and the peers that stand between it and the load."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

from bench import payloads
from bench.machine import Cpu, cpu_seconds, pinned, signal_all, tree

STARTS_WITHIN_S = 60.0
STOPS_WITHIN_S = 15.0
KEY_VARIABLE = "N4N_KEY_BENCH"


@dataclass(frozen=True, slots=True)
class Program:
    """A started command and the file that its standard error goes to."""

    popen: subprocess.Popen[bytes]
    log: Path

    def said(self) -> str:
        """The last of what it wrote there."""
        return self.log.read_text(errors="replace").strip()[-500:]


class Peer:
    """Something that answers POST /v1/chat/completions, and the processes that do it."""

    def __init__(self, name: str, base_url: str, key: str, program: Program) -> None:
        self.name = name
        self.base_url = base_url
        self.key = key
        self._program = program

    @property
    def chat_url(self) -> str:
        """Where the load goes."""
        return f"{self.base_url}/chat/completions"

    def pids(self) -> list[int]:
        """All its processes."""
        return tree(self._program.popen.pid)

    def cpu_seconds(self) -> float:
        """What all its processes have used so far."""
        return cpu_seconds(self.pids())

    def pause(self) -> None:
        """Stands still until `resume`, so that it cannot disturb the others."""
        signal_all(self.pids(), signal.SIGSTOP)

    def resume(self) -> None:
        """Goes on."""
        signal_all(reversed(self.pids()), signal.SIGCONT)

    def stop(self) -> None:
        """Ends it and all its processes; shows what it complained of."""
        self.resume()
        pids = self.pids()
        if said := self._program.said():
            print(f"{self.name}: {said}", file=sys.stderr)
        self._program.popen.terminate()
        try:
            self._program.popen.wait(STOPS_WITHIN_S)
        except subprocess.TimeoutExpired:
            signal_all(pids, signal.SIGKILL)
            self._program.popen.wait()

    def check(self) -> None:
        """Both kinds of answer are whole and right, within some seconds. RuntimeError else."""
        deadline = time.monotonic() + STARTS_WITHIN_S
        while (fault := self._fault()) is not None:
            if time.monotonic() > deadline or self._program.popen.poll() is not None:
                raise RuntimeError(f"{self.name} does not answer rightly: {fault}")
            time.sleep(0.1)

    def _fault(self) -> str | None:
        try:
            plain, stream = self._ask(stream=False), self._ask(stream=True)
        except (URLError, OSError, ValueError) as error:
            return str(error)
        if payloads.TEXT.encode() not in plain:
            return f"a completion without its text: {plain[:200]!r}"
        if b"data: [DONE]" not in stream or stream.count(b'"delta"') != payloads.EVENTS - 2:
            return f"a stream without all its events: {stream[:200]!r}"
        return None

    def _ask(self, *, stream: bool) -> bytes:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.key}"}
        with urlopen(Request(self.chat_url, payloads.request(stream=stream), headers), timeout=10) as answer:
            return bytes(answer.read())


def start_upstream(folder: Path, cpu: Cpu) -> tuple[Peer, str]:
    """The upstream, in C where a compiler is there, and what to call it."""
    port, (answer, pieces) = _free_port(), payloads.write(folder)
    words = [str(port), str(payloads.GAP_MS), str(answer), *map(str, pieces)]
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        command, kind = [sys.executable, "-m", "bench.mock", *words], "bench/mock.py (no C compiler was found)"
    else:
        binary, source = folder / "mock", Path(__file__).with_name("mock.c")
        subprocess.run([compiler, "-O2", "-o", str(binary), str(source)], check=True)
        command, kind = [str(binary), *words], "bench/mock.c"
    return Peer("direct", f"http://127.0.0.1:{port}/v1", "none", _start(command, folder / "upstream.log", cpu)), kind


def start_aiohttp(folder: Path, cpu: Cpu, upstream: Peer) -> Peer:
    """The bare proxy."""
    port = _free_port()
    upstream_port = upstream.base_url.rsplit(":", 1)[1].removesuffix("/v1")
    command = [sys.executable, "-m", "bench.aiohttp_proxy", str(port), upstream_port]
    return Peer("aiohttp proxy", f"http://127.0.0.1:{port}/v1", "none", _start(command, folder / "aiohttp.log", cpu))


def start_n4n(folder: Path, cpu: Cpu, upstream: Peer) -> Peer:
    """The whole of n4n on one CPU: Postgres, Valkey, control plane, one worker. Its request log goes nowhere."""
    home, catalog = folder / "n4n", folder / "catalog.json"
    catalog.write_text(json.dumps(_catalog(upstream.base_url)))
    command = [sys.executable, "-m", "n4n", "up", "--catalog", str(catalog), "--workers", "1", "--data-dir", str(home)]
    command += ["--port", str(_free_port()), "--admin-port", str(_free_port())]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("N4N_")} | {KEY_VARIABLE: "upstream"}
    program = _start(command, folder / "n4n.log", cpu, environ)
    ready = home / "runtime.json"
    try:
        _wait(lambda: ready.exists() or program.popen.poll() is not None, "n4n up to be ready")
        runtime = json.loads(ready.read_text())
    except (RuntimeError, OSError) as error:
        Peer("n4n", "", "", program).stop()
        raise RuntimeError("n4n up did not become ready") from error
    return Peer("n4n", runtime["base_url"], runtime["api_key"], program)


def _catalog(base_url: str) -> Mapping[str, object]:
    price = {"input_per_1m": 2.5, "output_per_1m": 10, "cached_input_per_1m": 1.25}
    return {
        "providers": {"bench": {"dialect": "openai", "base_url": base_url, "allow_private": True}},
        "accounts": {"bench-main": {"provider": "bench", "credential": f"env:{KEY_VARIABLE}"}},
        "models": {payloads.MODEL: {"context_window": 128000, "max_output_tokens": 16384}},
        "endpoints": {"bench-one": {"model": payloads.MODEL, "account": "bench-main", "region": "us", "price": price}},
    }


def _start(command: list[str], log: Path, cpu: Cpu, environ: Mapping[str, str] | None = None) -> Program:
    with log.open("wb") as errors:
        popen = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env=environ,
            start_new_session=True,
            preexec_fn=pinned(cpu),
        )
    return Program(popen, log)


def _wait(until: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + STARTS_WITHIN_S
    while not until():
        if time.monotonic() > deadline:
            raise RuntimeError(f"waited {STARTS_WITHIN_S:.0f} s for {what}")
        time.sleep(0.05)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
