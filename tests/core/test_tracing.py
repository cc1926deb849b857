"""Trace context and sampling: what is read, what is told, which share is kept."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace.sampling import Decision, TraceIdRatioBased
from opentelemetry.trace import TraceState

from n4n.core.errors import StartFailed
from n4n.core.tracing import Parent, Room, read_parent, sampling_of, traceparent, word

TRACE, SPAN = 0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7
GOOD = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_a_context_is_read_as_it_was_written() -> None:
    assert read_parent(GOOD, "vendor=1,other=2") == Parent(TRACE, SPAN, sampled=True, state="vendor=1,other=2")
    assert traceparent(TRACE, SPAN, sampled=True) == GOOD


@given(st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1), st.booleans())
def test_what_is_told_reads_back(trace_id: int, span_id: int, sampled: bool) -> None:
    assert read_parent(traceparent(trace_id, span_id, sampled=sampled)) == Parent(trace_id, span_id, sampled)


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "00",
        GOOD.upper(),
        GOOD + "-more",
        "ff" + GOOD[2:],
        "00-" + "0" * 32 + "-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        GOOD[:-1],
        GOOD + "\r\nx: y",
    ],
)
def test_a_context_that_is_none_is_as_if_none_came(text: str | None) -> None:
    assert read_parent(text) is None


def test_a_later_version_may_say_more() -> None:
    assert read_parent("01" + GOOD[2:] + "-what-the-future-holds") == Parent(TRACE, SPAN, sampled=True)


@pytest.mark.parametrize(
    "state",
    [
        "",
        " , ",
        "a=\x00",
        "ä=1",
        "a" * 513,
        "a=1,my prompt, and more",
        "a=1,a=2",
        "a=",
        "A=1",
        "a=1=2",
        ",".join(f"k{n}=1" for n in range(33)),
    ],
)
def test_a_state_that_is_none_is_dropped(state: str) -> None:
    parent = read_parent(GOOD, state)
    assert parent is not None
    assert parent.state == ""


def test_empty_members_of_a_state_are_left_out() -> None:
    parent = read_parent(GOOD, " a=1 ,,\tt@v=x y,")
    assert parent is not None
    assert parent.state == "a=1,t@v=x y"


@given(st.text(st.sampled_from("ab1@=, \t*/-_~\x00é"), max_size=40))
def test_the_library_has_nothing_to_say_about_a_state_that_was_read(state: str) -> None:
    parent = read_parent(GOOD, state)
    assert parent is not None
    read = TraceState.from_header([parent.state] if parent.state else [])
    assert read.to_header() == parent.state


@pytest.mark.parametrize(
    ("kind", "arg", "with_sampled_parent", "with_unsampled_parent", "alone"),
    [
        ("", "", True, False, True),
        ("always_on", "", True, True, True),
        ("always_off", "", False, False, False),
        ("parentbased_always_on", "", True, False, True),
        ("parentbased_always_off", "", True, False, False),
        ("traceidratio", "0", False, False, False),
        ("parentbased_traceidratio", "0", True, False, False),
        ("parentbased_traceidratio", "", True, False, True),
        ("TraceIdRatio", "1", True, True, True),
    ],
)
def test_a_sampler_does_what_its_name_says(
    kind: str, arg: str, with_sampled_parent: bool, with_unsampled_parent: bool, alone: bool
) -> None:
    sampling = sampling_of({"OTEL_TRACES_SAMPLER": kind, "OTEL_TRACES_SAMPLER_ARG": arg})
    assert sampling.keeps(TRACE, Parent(TRACE, SPAN, sampled=True)) is with_sampled_parent
    assert sampling.keeps(TRACE, Parent(TRACE, SPAN, sampled=False)) is with_unsampled_parent
    assert sampling.keeps(TRACE, None) is alone


@pytest.mark.parametrize("share", [0.01, 0.25, 0.999])
def test_the_share_is_the_one_the_sdk_takes(share: float) -> None:
    ours = sampling_of({"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": str(share)})
    theirs, draw = TraceIdRatioBased(share), random.Random(7)
    ids = [draw.getrandbits(128) for _ in range(2_000)]
    assert [ours.keeps(one, None) for one in ids] == [
        theirs.should_sample(None, one, "").decision is Decision.RECORD_AND_SAMPLE for one in ids
    ]


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({"OTEL_TRACES_SAMPLER": "sometimes"}, "OTEL_TRACES_SAMPLER"),
        ({"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "1.5"}, "OTEL_TRACES_SAMPLER_ARG"),
        ({"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "much"}, "OTEL_TRACES_SAMPLER_ARG"),
        ({"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "nan"}, "OTEL_TRACES_SAMPLER_ARG"),
    ],
)
def test_a_setting_that_says_nothing_stops_the_start(environ: dict[str, str], named: str) -> None:
    with pytest.raises(StartFailed, match=named):
        sampling_of(environ)


def test_there_is_room_for_so_many_a_second_and_again_in_the_next() -> None:
    room = Room(2)
    assert [room.takes(now) for now in (10.0, 10.5, 10.9, 11.0, 11.1, 11.2)] == [True, True, False, True, True, False]
    assert repr(room) == "<Room for 2 a second>"


@pytest.mark.parametrize(
    ("told", "is_one"), [("router-1.eu:9", True), ("endpoints.e1[0]", True), ("two words", False), ("x" * 129, False), ("", False)]
)
def test_only_one_short_word_of_what_others_say_may_be_told(told: str, is_one: bool) -> None:
    assert word(told) == (told if is_one else None)
