"""A worker keeps its memory, short. `python -m tests.soak.memory` is the long one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.soak.flood import Amount, Kind
from tests.soak.memory import MIB, Mark, measured_worker, run, steps, verdict
from tests.support.memory import Footprint


def test_under_a_flood_a_worker_keeps_its_threads_and_tasks_and_nearly_its_memory(tmp_path: Path) -> None:
    with measured_worker(tmp_path) as worker:
        marks = asyncio.run(run(worker, Amount(whole=8000, streams=600, left=300), marks=4))

    first, last = marks[0], marks[-1]
    assert last.sent == Amount(8000, 600, 300)
    assert (last.taken.threads, last.tasks) == (first.taken.threads, first.tasks)
    assert last.ratio(first) < 1.10, "what is used for the first time in so short a run counts"


def test_what_is_sent_is_all_of_it_evenly_mixed() -> None:
    whole = Amount(whole=1_000_000, streams=7, left=50_000)
    parts = list(steps(whole, 20))

    assert parts[0] == Amount(50_000, 0, 0)
    assert sum(parts, Amount(0, 0, 0)) == whole
    assert {part.whole for part in parts} == {50_000}
    kinds = list(Amount(6, 2, 2).kinds())
    assert (kinds.count(Kind.WHOLE), kinds.count(Kind.STREAM), kinds.count(Kind.LEFT)) == (6, 2, 2)
    assert kinds[:5].count(Kind.WHOLE) == 3


@pytest.mark.parametrize(
    ("mib", "threads", "tasks", "told"),
    [(105, 13, 10, ""), (106, 13, 10, "it has grown by 6.0%, more than 5%"), (90, 14, 10, "13 threads and 10 tasks have become 14 and 10")],
)
def test_the_verdict_speaks_of_the_first_mark_and_the_last(mib: int, threads: int, tasks: int, told: str) -> None:
    marks = [Mark(Amount(1, 1, 1), 1.0, Footprint(size * MIB, of, 60), seen) for size, of, seen in ((100, 13, 10), (mib, threads, tasks))]

    assert verdict(marks) == told
