"""Frames of AWS' event stream: in every split, whatever their headers, never beyond the bound, never an exception."""

from __future__ import annotations

import struct
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from n4n.core.dialects.bedrock.frames import MAX_FRAME, MAX_HEADERS, Broken, Frame, Frames, looks_like_frames
from tests.support import event_stream

CORRUPT = Broken("the provider's stream is corrupt")
TOO_LONG = Broken("one event of the provider's stream is too long")


def read(*pieces: bytes) -> list[Frame | Broken]:
    frames = Frames()
    return [item for piece in pieces for item in frames.feed(piece)]


def prelude(total: int, headers: int) -> bytes:
    told = struct.pack(">II", total, headers)
    return told + struct.pack(">I", crc32(told))


def test_a_frame_tells_its_kind_its_name_and_its_payload() -> None:
    assert read(event_stream.event_of("messageStop", b"{}")) == [Frame("event", "messageStop", b"{}")]
    assert read(event_stream.exception("throttlingException", message="m")) == [
        Frame("exception", "throttlingException", b'{"message": "m"}')
    ]
    error = event_stream.frame({":message-type": "error", ":error-code": "InternalError", ":error-message": "broke"}, b"")
    assert read(error) == [Frame("error", "InternalError", b"", "broke")]


def test_headers_of_every_type_are_stepped_over() -> None:
    values = [(0, b""), (1, b""), (2, b"x"), (3, b"xx"), (4, b"x" * 4), (5, b"x" * 8), (6, b"\x00\x03abc"), (8, b"x" * 8), (9, b"x" * 16)]
    headers = b"".join(bytes((1,)) + b"h" + bytes((kind,)) + value for kind, value in values)
    told = headers + event_stream.text_header(":event-type", "é")

    assert read(event_stream.raw_frame(told, b"p")) == [Frame("event", "é", b"p")]
    assert read(event_stream.raw_frame(b"", b"")) == [Frame("event", "", b"")]


@pytest.mark.parametrize(
    "headers",
    [
        b"\x01h",  # no type
        b"\x01h\x0a",  # a type that is none
        b"\x01h\x07\x00",  # no length
        b"\x01h\x07\x00\x05ab",  # a value that is cut off
        b"\x01h\x05abc",
        b"\xffh",
    ],
)
def test_headers_that_are_none_end_the_stream(headers: bytes) -> None:
    assert read(event_stream.raw_frame(headers, b"p"), event_stream.START) == [CORRUPT]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"\x00" * 12, CORRUPT),  # a checksum that is none
        (prelude(15, 0), CORRUPT),  # shorter than a frame can be
        (prelude(20, 5), CORRUPT),  # headers that do not fit in
        (prelude(MAX_FRAME + 1, 0), TOO_LONG),
        (prelude(MAX_FRAME, MAX_HEADERS + 1), TOO_LONG),
        (event_stream.START[:-1] + b"\x00", CORRUPT),
        (b"HTTP/1.1 502 Bad Gateway", CORRUPT),
    ],
)
def test_what_is_no_frame_or_too_long_a_one_ends_the_stream(raw: bytes, expected: Broken) -> None:
    frames = Frames()

    assert frames.feed(event_stream.START + raw) == [Frame("event", "messageStart", b'{"role":"assistant","p":"abcdef"}'), expected]
    assert frames.feed(event_stream.START) == []
    assert repr(frames) == "<Frames stopped>"


def test_the_longest_frame_is_read_and_no_more_of_one_is_kept_than_that() -> None:
    whole = event_stream.raw_frame(b"", b"x" * (MAX_FRAME - 16))
    frames = Frames()

    assert frames.feed(whole[:-1]) == []
    assert repr(frames) == f"<Frames {MAX_FRAME - 1} of {MAX_FRAME} bytes>"
    assert frames.feed(whole[-1:]) == [Frame("event", "", b"x" * (MAX_FRAME - 16))]
    assert repr(frames) == "<Frames 0 of 12 bytes>"


def test_a_body_of_frames_is_known_by_its_first_byte() -> None:
    assert looks_like_frames(event_stream.START)
    assert not any(map(looks_like_frames, (b"", b"{}", b"<html>", b"data: x")))


@given(st.lists(st.tuples(st.text(max_size=9), st.binary(max_size=40)), max_size=5), st.data())
def test_frames_read_the_same_in_every_split(told: list[tuple[str, bytes]], data: st.DataObject) -> None:
    raw = b"".join(event_stream.event_of(name, payload) for name, payload in told)
    expected = [Frame("event", name, payload) for name, payload in told]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=6)))

    assert read(*(raw[start:end] for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True))) == expected


@given(st.binary(max_size=200), st.booleans())
def test_no_bytes_make_it_raise(noise: bytes, framed: bool) -> None:
    raw = event_stream.raw_frame(noise, b"") if framed else noise

    assert all(isinstance(item, Frame | Broken) for item in read(raw, raw))
