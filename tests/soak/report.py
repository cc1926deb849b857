"""What a run came to: requests by the fault they saw, the failed ones that nothing excuses, and how fast versions were applied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from tests.soak.load import Sent, percentile

RESET_S = 0.1  # a client learns so long after a kill that its connection is gone
LOST = ("ServerDisconnectedError", "ClientPayloadError", "ClientOSError", "ConnectionResetError")


@dataclass(frozen=True, slots=True)
class Step:
    """A kind of fault, so often, from `begin` (`time.monotonic()`) until the next step's."""

    name: str
    count: int
    begin: float


@dataclass(frozen=True, slots=True)
class Row:
    """The requests that ended during one step. `worst_ms`: the longest wait for the head of a good answer."""

    step: Step
    seconds: float
    requests: int
    excused: int
    failed: int
    p99_ms: float
    worst_ms: float


@dataclass(frozen=True, slots=True)
class Report:
    """What came of it. `versions`: the newest one, then what each router answers from at the end."""

    rows: tuple[Row, ...]
    requests: int
    faults: tuple[str, ...]
    applied_s: tuple[float, ...]
    versions: tuple[int, ...]

    def __str__(self) -> str:
        head = f"{'':36}{'times':>6}{'seconds':>9}{'requests':>10}{'in flight':>11}{'failed':>8}{'p99 ms':>8}{'worst ms':>10}"
        lines = [head]
        for row in self.rows:
            lines.append(
                f"{row.step.name:36}{row.step.count:6}{row.seconds:9.1f}{row.requests:10}{row.excused:11}{row.failed:8}"
                f"{row.p99_ms:8.0f}{row.worst_ms:10.0f}"
            )
        p50, p99, most = (1000 * percentile(self.applied_s, share) for share in (0.5, 0.99, 1.0))
        lines += [
            "",
            f"{self.requests} requests, {len(self.faults)} failed other than those in flight on the killed worker",
            f"{len(self.applied_s)} versions, commit to applied by both routers: p50 {p50:.0f} ms, p99 {p99:.0f} ms, most {most:.0f} ms",
            f"version at the end: {self.versions[0]}; on the routers: {', '.join(map(str, self.versions[1:]))}",
            *self.faults[:20],
        ]
        return "\n".join(lines)


def report_of(
    sent: Sequence[Sent], steps: Sequence[Step], applied_s: Sequence[float], killed_at: float, versions: tuple[int, ...]
) -> Report:
    """`steps` ends with one that only marks the end."""
    rows, faults = [], []
    for step, after in pairwise(steps):
        seen = [one for one in sent if step.begin <= one.at + one.total_s < after.begin]
        excused = [one for one in seen if one.fault and in_flight(one, killed_at)]
        failed = [one for one in seen if one.fault and one not in excused]
        faults += [f"{step.name}: {'stream' if one.stream else 'whole'}: after {one.total_s:.2f} s: {one.fault}" for one in failed]
        heads = [one.first_s * 1000 for one in seen if not one.fault]
        rows.append(
            Row(
                step,
                after.begin - step.begin,
                len(seen),
                len(excused),
                len(failed),
                percentile(heads, 0.99),
                max(heads, default=0.0),
            )
        )
    return Report(tuple(rows), len(sent), tuple(faults), tuple(applied_s), versions)


def in_flight(one: Sent, killed_at: float) -> bool:
    """Whether it was lost with the killed worker: it was under way then, and its connection went."""
    return one.at <= killed_at + RESET_S and killed_at <= one.at + one.total_s <= killed_at + 1.0 and one.fault.startswith(LOST)
