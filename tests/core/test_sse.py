"""Server-sent events: every line end, every split, every liberty that providers take."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from n4n.core.sse import SseComment, SseEvent, SseItem, SseParser, SseTooLong


def parsed(*pieces: bytes, max_line: int = 1000) -> list[SseItem]:
    parser = SseParser(max_line)
    return [item for piece in pieces for item in parser.feed(piece)] + parser.end()


def data(*pieces: bytes) -> list[bytes]:
    return [item.data for item in parsed(*pieces) if isinstance(item, SseEvent)]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_lines_may_end_in_lf_crlf_or_cr(end: bytes) -> None:
    assert data(b"data: a" + end * 2 + b"data: b" + end * 2) == [b"a", b"b"]


def test_a_read_may_end_between_cr_and_lf() -> None:
    assert data(b"data: a\r", b"\n\r", b"\ndata: b\r", b"data: c\r\r") == [b"a", b"b\nc"]


def test_a_colon_needs_no_space_and_takes_one_only() -> None:
    assert data(b"data:a\n\ndata:  b\n\ndata\n\n") == [b"a", b" b", b""]


def test_data_lines_of_one_event_join_with_lf() -> None:
    assert data(b"data: a\ndata: b\n\n") == [b"a\nb"]


def test_an_event_that_is_pending_at_the_end_counts() -> None:
    assert data(b"data: a\n\ndata: b") == [b"a", b"b"]
    assert data(b"data: a\ndata: b\n") == [b"a\nb"]


def test_a_byte_order_mark_at_the_start_is_no_part_of_the_name() -> None:
    assert data(b"\xef\xbb", b"\xbfdata: a\n\n") == [b"a"]
    assert data(b"data: a\n\n", b"\xef\xbb\xbfdata: b\n\n") == [b"a"]


def test_comments_are_told_and_unknown_fields_are_not() -> None:
    assert parsed(b": ping\n\nid: 7\nretry: 9\nfoo\nevent: x\ndata: a\n\ndata: b\n\n") == [
        SseComment(),
        SseEvent(b"a", b"x"),
        SseEvent(b"b"),
    ]


def test_an_event_with_a_name_but_without_data_is_none_and_leaves_no_name() -> None:
    assert parsed(b"event:x\n\n", b"data: a\n\n") == [SseEvent(b"a")]
    assert parsed(b"event:x\n", b"data: a\n\n") == [SseEvent(b"a", b"x")]


def test_a_line_above_the_bound_ends_the_parser_with_one_word() -> None:
    parser = SseParser(max_line=10)

    assert parser.feed(b"data: 12345678901") == [SseTooLong()]
    assert parser.feed(b"data: a\n\n") == parser.feed(b"x\n") == parser.end() == []
    assert repr(parser) == "<SseParser stopped>"


@pytest.mark.parametrize("cut", range(20))
def test_the_bound_is_the_same_for_every_split(cut: int) -> None:
    fits, too_long = b"data: 1234567890\n\n", b"data: 12345678901\n\n"

    assert parsed(fits[:cut], fits[cut:], max_line=10) == [SseEvent(b"1234567890")]
    assert parsed(too_long[:cut], too_long[cut:], max_line=10) == [SseTooLong()]


def test_the_data_lines_of_one_event_are_bounded_together() -> None:
    assert parsed(b"data: 12345\n", b"data: 67890\n", b"data: 1\ndata: 2\n\n", max_line=10) == [SseTooLong()]


def test_lines_that_wait_for_a_blank_one_can_be_taken() -> None:
    parser = SseParser()
    parser.feed(b"event: n\ndata: a\ndata: b\ndata: unfini")

    assert parser.pending == [b"a", b"b"]
    assert repr(parser) == "<SseParser 2 lines, 14 bytes kept>"
    assert parser.take() == [SseEvent(b"a", b"n"), SseEvent(b"b", b"n")]
    assert parser.feed(b"shed\n\n") == [SseEvent(b"unfinished", b"n")]


def test_an_empty_read_is_nothing() -> None:
    assert data(b"", b"data: a", b"", b"\n\n") == [b"a"]


_LINES = st.sampled_from([b"data: {}", b"data:x", b"data: \xc3\xa9", b": c", b"event: n", b"", b"", b"id: 1", b"data"])
_ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


@given(st.lists(st.tuples(_LINES, _ENDS), max_size=12), st.lists(st.integers(0, 150), max_size=6))
def test_no_split_changes_what_is_read(lines: list[tuple[bytes, bytes]], cuts: list[int]) -> None:
    raw = b"".join(line + end for line, end in lines)
    places = sorted({0, len(raw), *(cut for cut in cuts if cut < len(raw))})
    pieces = [raw[a:b] for a, b in itertools.pairwise(places)]

    assert parsed(*pieces) == parsed(*(raw[i : i + 1] for i in range(len(raw))))
