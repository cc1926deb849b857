"""The upstreams: one program three times, plain, with TLS, and with a longer gap between events; and the certificate of the second."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench import payloads
from bench.machine import Cpu
from bench.peers import PACED, PLAIN, STARTS_WITHIN_S, TLS, Absent, Peer, Program, Target, free_port, own_environ, start

PACED_GAP_MS = 20


@dataclass(frozen=True, slots=True)
class Certificate:
    """Of 127.0.0.1 and localhost, signed by an authority of its own; PEM files."""

    authority: Path
    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Upstreams:
    """They run. `kind`: what to call the program; `note`: why there is no TLS, if there is none."""

    peers: tuple[Peer, ...]
    authority: Path | None
    kind: str
    note: str

    @property
    def direct(self) -> Peer:
        """All of them as one peer: how it looks without a gateway."""
        ways = {way: target for peer in self.peers for way, target in peer.ways.items()}
        first, *others = self.peers
        return Peer("direct", ways, first.program, first.home, others=[peer.program for peer in others])

    def target(self, way: str) -> Target | None:
        """Where one of them listens."""
        return self.direct.ways.get(way)


def start_upstreams(folder: Path, cpu: Cpu, until: Callable[[Callable[[], object]], object]) -> Upstreams:
    """Starts them. `until` is given what ends each of them."""
    files = payloads.write(folder)
    certificate, note = None, ""
    try:
        certificate = make_certificate(folder)
    except Absent as absent:
        note = str(absent)
    command, kind, speaks_tls = _built(folder)

    def started(way: str, gap_ms: float, secure: Certificate | None = None) -> Peer:
        program = _start(command if secure is None or speaks_tls else _PYTHON, folder / f"upstream-{way}.log", cpu, gap_ms, files, secure)
        peer = Peer(f"direct, {way}", {way: program[1]}, program[0], (cpu,), loud=True)
        until(peer.stop)
        peer.check(within_s=STARTS_WITHIN_S)
        return peer

    peers = [started(PLAIN, payloads.GAP_MS), started(PACED, PACED_GAP_MS)]
    if certificate is not None:
        peers.append(started(TLS, payloads.GAP_MS, certificate))
        kind = kind if speaks_tls else f"{kind}, with TLS bench/mock.py"
    return Upstreams(tuple(peers), certificate.authority if certificate else None, kind, note)


def make_certificate(folder: Path) -> Certificate:
    """By the openssl command. Absent where there is none."""
    if shutil.which("openssl") is None:
        raise Absent("no TLS: the openssl command is not installed")
    (folder / "leaf.cnf").write_text(
        "basicConstraints=critical,CA:false\nsubjectAltName=DNS:localhost,IP:127.0.0.1\nkeyUsage=critical,digitalSignature\n"
        "extendedKeyUsage=serverAuth\nsubjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n"
    )
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    rights = ["-addext", "basicConstraints=critical,CA:true", "-addext", "keyUsage=critical,keyCertSign"]
    _openssl(folder, "req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=n4n bench", *rights)
    _openssl(folder, "req", "-new", *key, "-keyout", "leaf.key", "-out", "leaf.csr", "-subj", "/CN=localhost")
    signing = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "leaf.cnf"]
    _openssl(folder, "x509", "-req", "-in", "leaf.csr", "-out", "leaf.pem", *signing)
    return Certificate(folder / "ca.pem", folder / "leaf.pem", folder / "leaf.key")


def _openssl(folder: Path, *words: str) -> None:
    done = subprocess.run(["openssl", *words], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"openssl {words[0]} failed: {done.stderr.strip()[-300:]}")


_PYTHON = [sys.executable, "-m", "bench.mock"]


def _built(folder: Path) -> tuple[list[str], str, bool]:
    """The command, what to call it, and whether it speaks TLS."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return _PYTHON, "bench/mock.py (no C compiler was found)", True
    binary = str(folder / "mock")
    base = [compiler, "-O2", "-o", binary, str(Path(__file__).with_name("mock.c"))]
    if subprocess.run([*base, "-DWITH_TLS", "-lssl", "-lcrypto"], capture_output=True, check=False).returncode == 0:
        return [binary], "bench/mock.c", True
    subprocess.run(base, check=True)
    return [binary], "bench/mock.c", False


def _start(
    command: list[str], log: Path, cpu: Cpu, gap_ms: float, files: tuple[Path, list[Path]], secure: Certificate | None
) -> tuple[Program, Target]:
    port, (answer, pieces) = free_port(), files
    words = [*command, str(port), f"{gap_ms:g}", str(answer), *map(str, pieces)]
    if secure is None:
        return start(words, log, cpu), Target(f"http://127.0.0.1:{port}/v1")
    environ = own_environ() | {"MOCK_CERTIFICATE": str(secure.certificate), "MOCK_KEY": str(secure.key)}
    return start(words, log, cpu, environ=environ), Target(f"https://127.0.0.1:{port}/v1", ca=secure.authority)
