"""Work that is traced: kept or dropped whole, linked to its causes, bounded, and nothing at all where no traces are wanted."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from n4n.core.tracing import MOST_NOTABLE, Parent, Sampling
from n4n.runtime.spans import MOST_PARTS, Tracer, begun, carried, current_work, part
from n4n.runtime.tracing import Kind, Span

KEPT, DULL = Sampling(), Sampling(0)


class Sent:
    """Takes spans, as `Tracing` does."""

    def __init__(self, sampling: Sampling) -> None:
        self.sampling = sampling
        self.spans: list[Span] = []

    def emit(self, spans: Sequence[Span]) -> None:
        self.spans += spans

    @property
    def names(self) -> list[str]:
        return [span.name for span in self.spans]


def tracer(sampling: Sampling = KEPT, at: list[int] | None = None) -> tuple[Tracer, Sent]:
    """By a clock that stands still, or at what `at` holds."""
    sent, now = Sent(sampling), at if at is not None else [1_000_000_000]
    return Tracer(sent, lambda: now[0]), sent  # type: ignore[arg-type]


def test_parts_leave_with_the_whole_and_are_below_what_they_are_part_of() -> None:
    tracing, sent = tracer()
    with tracing.begin("whole", Kind.SERVER, parent=Parent(7, 8, sampled=True, state="a=1")):
        with part("piece") as piece:
            assert piece is not None
            piece.told["n4n.x"] = 1
            with part("detail"):
                pass
        assert sent.spans == []
    whole, detail, piece_span = sent.spans
    assert (whole.trace_id, whole.parent_id, whole.state, whole.remote_parent) == (7, 8, "a=1", True)
    assert (piece_span.parent_id, detail.parent_id, piece_span.attributes) == (whole.span_id, piece_span.span_id, {"n4n.x": 1})
    assert {span.trace_id for span in sent.spans} == {7}


def test_a_dull_trace_leaves_nothing_and_one_in_which_a_part_failed_leaves_whole() -> None:
    tracing, sent = tracer(DULL)
    with tracing.begin("dull"), part("piece"):
        pass
    assert sent.spans == []
    with pytest.raises(KeyError), tracing.begin("whole"), part("piece"):
        raise KeyError
    assert [(span.name, span.error) for span in sent.spans] == [("whole", "KeyError"), ("piece", "KeyError")]
    sent.spans.clear()
    with tracing.begin("whole"), part("piece") as piece:
        assert piece is not None
        piece.notice()
    assert [(span.name, span.error) for span in sent.spans] == [("whole", None), ("piece", None)]


def test_so_many_notable_traces_a_second_are_kept_and_no_more() -> None:
    at = [5_000_000_000]
    tracing, sent = tracer(DULL, at)

    def fail_often() -> None:
        for _ in range(MOST_NOTABLE + 50):
            with begun(tracing, "ill") as work:
                assert work is not None
                work.fail("ill")

    fail_often()
    assert len(sent.spans) == MOST_NOTABLE
    at[0] += 1_000_000_000
    fail_often()
    assert len(sent.spans) == 2 * MOST_NOTABLE


def test_a_cause_that_seemed_dull_is_kept_with_what_it_caused_and_once() -> None:
    tracing, sent = tracer(DULL)
    turn = tracing.begin("turn")
    turn.end()
    for _ in range(2):
        ill = tracing.begin("ill", causes=(turn,))
        ill.fail("ill")
        ill.end()
    assert sent.names == ["turn", "ill", "ill"]
    assert sent.spans[1].links == sent.spans[2].links == ((turn.trace_id, turn.span_id),)
    assert ill.causes == ()  # or each would hold all that came before it
    with tracing.begin("dull", causes=(tracing.begin("other"),)):
        pass
    assert sent.names == ["turn", "ill", "ill"]


def test_a_cause_that_is_not_over_yet_is_kept_when_it_is() -> None:
    tracing, sent = tracer(DULL)
    turn = tracing.begin("turn")
    with begun(tracing, "ill", causes=(turn, Parent(1, 2, sampled=False))) as ill:
        assert ill is not None
        ill.fail("ill")
    turn.end()
    assert sent.names == ["ill", "turn"]
    assert sent.spans[0].links == ((turn.trace_id, turn.span_id), (1, 2))


def test_a_trace_has_so_many_parts_and_those_that_come_late_leave_by_themselves() -> None:
    tracing, sent = tracer()
    whole = tracing.begin("whole")
    late = whole.part("late")
    for _ in range(MOST_PARTS + 50):
        whole.part("piece").end()
    whole.end()
    assert len(sent.spans) == 1 + MOST_PARTS
    late.end()
    late.end()  # changes nothing
    assert sent.names.count("late") == 1


def test_what_was_said_first_of_a_failure_stays_and_time_never_runs_backwards() -> None:
    at = [9]
    tracing, sent = tracer(KEPT, at)

    def fail() -> None:
        with tracing.begin("work") as work:
            work.fail("refused")
            at[0] = 3
            raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011  # ours
        fail()
    assert (sent.spans[0].error, sent.spans[0].attributes) == ("refused", {"error.type": "refused"})
    assert (sent.spans[0].start_ns, sent.spans[0].end_ns) == (9, 9)


async def test_work_that_is_cancelled_says_so() -> None:
    tracing, sent = tracer()

    async def hang() -> None:
        with tracing.begin("work"):
            await asyncio.Event().wait()

    task = asyncio.create_task(hang())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait((task,))
    assert sent.spans[0].error == "cancelled"


def test_calls_carry_the_current_work_and_none_where_there_is_none() -> None:
    tracing, _ = tracer()
    assert carried() == ()
    with tracing.begin("work", parent=Parent(7, 8, sampled=True)) as work:
        assert carried() == (("traceparent", f"00-{7:032x}-{work.span_id:016x}-01"),)
    assert current_work() is None


def test_where_no_traces_are_wanted_nothing_is_made() -> None:
    with begun(None, "work") as work, part("piece") as piece:
        assert (work, piece, current_work(), carried()) == (None, None, None, ())
    assert begun(None, "work") is part("piece")
