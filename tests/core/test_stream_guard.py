"""The stream guard: nothing before its time, everything in order, and no failure seen that need not be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from n4n.core.catalog import StreamGuardPolicy
from n4n.core.chat import Chunk, Comment, Done, Event, Failed
from n4n.core.errors import Failure, FailureClass
from n4n.core.stream_guard import (
    MAX_BYTES,
    MAX_EVENTS,
    TOO_SLOW,
    TRANSITIONS,
    Abandon,
    Finish,
    GuardState,
    Hold,
    IllegalEvent,
    Interrupt,
    Pass,
    Release,
    Signal,
    StreamGuard,
)

ROLE = Chunk(b'{"role"}')
TEXT = Chunk(b'{"text"}', content=True)
STOP = Chunk(b'{"stop"}', finishes=True)
FAILURE = Failure(FailureClass.SERVER_ERROR, "broke")
BROKE = Failed(FAILURE)


def guard(chunks: int = 3, max_hold_ms: int = 100) -> StreamGuard:
    return StreamGuard(StreamGuardPolicy(chunks, max_hold_ms))


def test_the_gate_opens_with_the_last_of_the_content_asked_for() -> None:
    subject = guard(chunks=2)

    assert subject.receive(ROLE, 0.0) == Hold()
    assert subject.receive(TEXT, 0.01) == Hold()
    assert subject.receive(TEXT, 0.02) == Release((ROLE, TEXT, TEXT))
    assert subject.receive(TEXT, 0.03) == Pass(TEXT)
    assert subject.receive(Comment(), 0.04) == Pass(Comment())
    assert subject.receive(Done(), 0.05) == Finish(())
    assert repr(subject) == "<StreamGuard FINISHED, 0 kept, 2 of 2 with content>"


def test_a_failure_before_release_is_invisible_to_the_client() -> None:
    subject = guard()
    subject.receive(ROLE, 0.0)
    subject.receive(TEXT, 0.0)

    assert subject.receive(BROKE, 0.01) == Abandon(FAILURE)
    assert subject.state is GuardState.ABANDONED


def test_a_failure_after_release_interrupts() -> None:
    subject = guard(chunks=1)
    subject.receive(TEXT, 0.0)

    assert subject.receive(BROKE, 0.01) == Interrupt(FAILURE)


def test_a_short_answer_goes_out_whole() -> None:
    subject = guard()
    for event in (ROLE, TEXT, STOP):
        assert subject.receive(event, 0.0) == Hold()

    assert subject.receive(Done(), 0.01) == Finish((ROLE, TEXT, STOP))


def test_time_opens_the_gate_from_the_first_content_on_and_not_before() -> None:
    subject = guard(max_hold_ms=100)
    subject.receive(ROLE, 0.0)
    assert subject.deadline is None
    assert subject.tick(50.0) == Hold()

    subject.receive(TEXT, 60.0)
    assert subject.deadline == pytest.approx(60.1)
    assert subject.tick(60.09) == Hold()
    assert subject.tick(60.11) == Release((ROLE, TEXT))
    assert subject.tick(60.12) == Hold()
    assert subject.deadline is None


def test_an_event_after_the_deadline_opens_the_gate_even_if_no_tick_came() -> None:
    subject = guard(max_hold_ms=100)
    subject.receive(TEXT, 0.0)

    assert subject.receive(ROLE, 0.1) == Release((TEXT, ROLE))


def test_a_finish_without_any_content_waits_no_longer_than_content_does() -> None:
    subject = guard(max_hold_ms=100)
    subject.receive(STOP, 1.0)

    assert subject.tick(1.2) == Release((STOP,))


def test_comments_neither_count_nor_go_out_before_release() -> None:
    subject = guard(chunks=1)
    for _ in range(500):
        assert subject.receive(Comment(), 0.0) == Hold()

    assert subject.receive(TEXT, 0.0) == Release((TEXT,))


def test_no_chunks_asked_for_means_no_holding() -> None:
    subject = guard(chunks=0)

    assert subject.receive(Comment(), 0.0) == Hold()
    assert subject.receive(ROLE, 0.0) == Release((ROLE,))


def test_an_error_as_the_first_event_abandons_even_where_nothing_is_held() -> None:
    assert guard(chunks=0).receive(BROKE, 0.0) == Abandon(FAILURE)


def test_what_is_kept_is_bounded_in_number() -> None:
    subject = guard(chunks=1000)
    decisions = [subject.receive(ROLE, 0.0) for _ in range(MAX_EVENTS)]

    assert decisions == [Hold()] * (MAX_EVENTS - 1) + [Release((ROLE,) * MAX_EVENTS)]


def test_what_is_kept_is_bounded_in_bytes() -> None:
    subject = guard(chunks=1000)
    large = Chunk(b"x" * (MAX_BYTES // 2), content=True)
    assert [subject.receive(large, 0.0) for _ in range(2)] == [Hold(), Hold()]

    assert subject.receive(ROLE, 0.0) == Release((large, large, ROLE))


@pytest.mark.parametrize("ending", [Done(), BROKE])
@pytest.mark.parametrize("after", [ROLE, TEXT, Comment(), Done(), BROKE])
def test_after_the_end_every_event_is_illegal_and_changes_nothing(ending: Event, after: Event) -> None:
    subject = guard()
    subject.receive(ending, 0.0)
    state = subject.state

    with pytest.raises(IllegalEvent):
        subject.receive(after, 1.0)
    assert subject.state is state
    assert subject.tick(2.0) == Hold()


def test_the_table_leads_out_of_every_state_that_is_no_end() -> None:
    ends = {GuardState.FINISHED, GuardState.ABANDONED, GuardState.INTERRUPTED}

    assert {state for state, _ in TRANSITIONS} == set(GuardState) - ends
    assert all(
        (state, signal) in TRANSITIONS for state in (GuardState.HOLDING, GuardState.RELEASED) for signal in (Signal.END, Signal.FAIL)
    )


_EVENTS = st.lists(st.sampled_from([ROLE, TEXT, STOP, Comment()]), max_size=100)


@given(_EVENTS, st.sampled_from([Done(), BROKE]), st.integers(0, 5), st.floats(0, 0.01))
def test_every_chunk_goes_out_once_in_order_or_the_client_saw_nothing(events: list[Event], end: Event, chunks: int, gap: float) -> None:
    subject, now = guard(chunks), 0.0
    out: list[Event] = []
    for event in (*events, end):
        now += gap
        match subject.receive(event, now):
            case Release(kept) | Finish(kept):
                out += kept
            case Pass(one):
                out.append(one)
            case Abandon():
                assert out == []
                return
            case Interrupt():
                assert out
    assert [event for event in out if isinstance(event, Chunk)] == [event for event in events if isinstance(event, Chunk)]


def paced(least: float = 20.0, chunks: int = 3, max_hold_ms: int = 200) -> StreamGuard:
    """One that gives up what is slower than `least` tokens a second."""
    return StreamGuard(StreamGuardPolicy(chunks, max_hold_ms, least))


def test_a_stream_below_the_least_rate_is_given_up_before_the_client_saw_it() -> None:
    by_time, by_count = paced(), paced()
    for subject in (by_time, by_count):
        assert subject.receive(TEXT, 0.0) == Hold()

    assert by_time.tick(0.1) == Hold() and by_time.tick(0.2) == Abandon(TOO_SLOW)
    assert by_count.receive(TEXT, 0.19) == Hold() and by_count.receive(TEXT, 0.3) == Abandon(TOO_SLOW)
    assert by_time.state is by_count.state is GuardState.ABANDONED


def test_one_at_the_least_rate_is_let_through() -> None:
    by_count, by_time, in_bulk = paced(), paced(), paced()
    assert [type(by_count.receive(TEXT, at)) for at in (0.0, 0.05, 0.1)] == [Hold, Hold, Release]
    for at in (0.0, 0.15, 0.15, 0.15):
        by_time.receive(ROLE if at else TEXT, at)
    by_time.receive(Chunk(b"{}", content=True, output_bytes=40), 0.19)
    assert isinstance(by_time.tick(0.2), Release)
    in_bulk.receive(TEXT, 0.0)
    assert isinstance(in_bulk.receive(Chunk(b"{}", content=True, output_bytes=400), 3.0), Release)


def test_an_answer_that_is_all_there_is_not_too_slow() -> None:
    late, short = paced(), paced()
    late.receive(TEXT, 0.0)
    assert isinstance(late.receive(STOP, 9.0), Release)
    short.receive(TEXT, 0.0)
    short.receive(STOP, 0.1)
    assert isinstance(short.tick(9.0), Release)
    assert isinstance(paced().receive(Done(), 0.0), Finish)


def test_what_holds_no_output_has_no_rate() -> None:
    subject = paced(chunks=0)
    assert isinstance(subject.receive(ROLE, 0.0), Release)
