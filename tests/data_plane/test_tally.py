"""The tally of connections: whose turn it is, who counts and who does not."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from data_plane.tally import SLOTS, Tally, row_of, shared_memory


@pytest.fixture
def memory() -> Iterator[int]:
    """Shared memory for three workers."""
    descriptor = shared_memory(3)
    yield descriptor
    os.close(descriptor)


def of(memory: int, worker: int, slot: int = 0) -> Tally:
    return Tally(memory, row_of(worker, slot))


def test_whoever_holds_the_fewest_takes_the_next(memory: int) -> None:
    one, two = of(memory, 1), of(memory, 2)
    one.tell(10)
    two.tell(7)

    assert two.ours(7)
    assert not one.ours(10)


def test_a_worker_alone_takes_everything(memory: int) -> None:
    assert of(memory, 1).ours(10_000)


@pytest.mark.parametrize(("fewest", "most"), [(0, 1), (15, 16), (64, 68), (1000, 1062)])
def test_nobody_waits_for_a_difference_that_does_not_matter(memory: int, fewest: int, most: int) -> None:
    one, two = of(memory, 1), of(memory, 2)
    two.tell(fewest)

    assert one.ours(most)
    assert not one.ours(most + 1)


@pytest.mark.parametrize("gone", ["withdrawn", "buried"])
def test_who_takes_none_is_not_waited_for(memory: int, gone: str) -> None:
    one, two, supervisor = of(memory, 1), of(memory, 2), Tally(memory)
    two.tell(0)
    assert not one.ours(50)

    if gone == "withdrawn":
        two.withdraw()
    else:
        supervisor.bury(row_of(2, 0))

    assert one.ours(50)


def test_who_is_overlooked_counts_again_as_soon_as_it_stirs(memory: int) -> None:
    one, two, three = of(memory, 1), of(memory, 2), of(memory, 3)
    two.tell(0)
    three.tell(40)

    one.overlook()
    assert one.ours(50), "both have been given their time"
    three.tell(40)
    assert not one.ours(50), "one of them is awake"
    assert one.ours(42)
    two.tell(0)
    assert not one.ours(42), "so is the other"


def test_a_successor_and_the_one_before_are_two(memory: int) -> None:
    before, after = of(memory, 2), of(memory, 2, slot=1)
    before.tell(30)
    after.tell(0)

    assert after.ours(0)
    assert not before.ours(30)
    before.withdraw()
    assert repr(after) == f"<Tally: {SLOTS + 1}: 0; this is {SLOTS + 1}>"


def test_more_processes_than_there_is_room_for_are_not_counted_and_do_no_harm(memory: int) -> None:
    last, uncounted = of(memory, 3, slot=SLOTS - 1), of(memory, 3, slot=SLOTS)
    uncounted.tell(5)
    assert last.ours(1000)
    last.tell(1000)
    uncounted.withdraw()
    Tally(memory).bury(row_of(3, SLOTS))

    assert uncounted.ours(5)
    assert not uncounted.ours(1063)
