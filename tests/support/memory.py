"""What a process of ours takes, as the kernel counts it. Linux."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

KIB = 1 << 10
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Footprint:
    """`resident`: bytes in memory; `threads` and `files` (descriptors) are counts."""

    resident: int
    threads: int
    files: int


def footprint(pid: int) -> Footprint:
    """Of a running process; OSError when it is gone."""
    told = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    files = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    return Footprint(int(told["VmRSS"].split()[0]) * KIB, int(told["Threads"]), files)
