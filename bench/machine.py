"""What the bench asks of Linux: which CPU a program runs on, what it used of it, and to stand still while others are measured."""

from __future__ import annotations

import os
import platform
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NewType

Cpu = NewType("Cpu", int)
_TICKS = os.sysconf("SC_CLK_TCK")


def two_cpus() -> tuple[Cpu, Cpu]:
    """One for what is measured, one for the load and the upstream. RuntimeError where there are not two."""
    if not hasattr(os, "sched_getaffinity"):
        raise RuntimeError("the bench pins programs to CPUs and reads /proc: run it on Linux")
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < 2:
        raise RuntimeError("the bench needs two CPUs, one for the gateway and one for the load: this machine gives it one")
    return Cpu(usable[0]), Cpu(usable[1])


def pinned(*cpus: Cpu) -> Callable[[], None]:
    """For `preexec_fn`: the child, and all that it starts, on these CPUs only."""
    return lambda: os.sched_setaffinity(0, set(cpus))


def place(pids: Iterable[int], *cpus: Cpu) -> None:
    """Puts running processes, with all their threads, on these CPUs only."""
    for pid in pids:
        with suppress(FileNotFoundError):
            for thread in Path(f"/proc/{pid}/task").iterdir():
                with suppress(ProcessLookupError):
                    os.sched_setaffinity(int(thread.name), set(cpus))


def tree(root: int) -> list[int]:
    """The process and all that descend from it, oldest first."""
    children: dict[int, list[int]] = {}
    for pid, fields in _processes():
        children.setdefault(int(fields[1]), []).append(pid)
    found = [root]
    for pid in found:
        found.extend(children.get(pid, ()))
    return found


def cpu_seconds(pids: Iterable[int]) -> float:
    """User and system time that these processes have used so far, their dead children included."""
    wanted = set(pids)
    return sum(sum(map(int, fields[11:15])) for pid, fields in _processes() if pid in wanted) / _TICKS


def busy_seconds(cpus: Iterable[Cpu]) -> float:
    """What these CPUs have worked so far, for whomever."""
    names = {f"cpu{cpu}" for cpu in cpus}
    total = 0
    for line in Path("/proc/stat").read_text().splitlines():
        name, *spent = line.split()
        if name in names:
            user, nice, system, _idle, _iowait, irq, softirq = map(int, spent[:7])
            total += user + nice + system + irq + softirq
    return total / _TICKS


def resident_mib(pids: Iterable[int]) -> float:
    """Resident memory of these processes together (Rss): pages that they share with others are counted."""
    total = 0
    for pid in pids:
        with suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                total += int(line.split()[1]) if line.startswith("Rss:") else 0
    return total / 1024


def words_of(pid: int) -> list[str]:
    """The command line of a process; empty once it is gone."""
    try:
        return (Path("/proc") / str(pid) / "cmdline").read_text(errors="replace").split("\0")[:-1]
    except OSError:
        return []


def connections_of(pid: int, port: int) -> int:
    """How many clients are connected to this process's side of that local port."""
    established = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "01" and int(fields[1].rpartition(":")[2], 16) == port:
                established.add(f"socket:[{fields[9]}]")
    count = 0
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            count += str(descriptor.readlink()) in established
    return count


def signal_all(pids: Iterable[int], what: signal.Signals) -> None:
    """Sends the signal to each that still lives."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, what)


@dataclass(frozen=True, slots=True)
class Facts:
    """What a reader of the table needs to know of the machine."""

    cpu: str
    cpus: int
    kernel: str
    python: str


def facts() -> Facts:
    """Of this machine."""
    info = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in info if line.startswith("model name")]
    return Facts(names[0] if names else platform.machine(), len(os.sched_getaffinity(0)), platform.release(), platform.python_version())


def _processes() -> Iterator[tuple[int, list[str]]]:
    """Each process with its stat fields from the third on (proc(5): state, ppid, …, utime is at 11)."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                yield int(folder.name), (folder / "stat").read_text().rpartition(")")[2].split()
