"""The incremental parser beside a plain one that sees the whole text: 100,000 random streams, splits and line ends, no difference."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator
from itertools import pairwise

import pytest

from n4n.core.sse import SseComment, SseEvent, SseItem, SseParser, SseTooLong

ROUNDS, SLICES = 100_000, 5
LINES = (
    b"data: {}", b"data:x", b"data:  two", b"data", b"data:", b"data: \xe2\x82\xac", b"data: a:b", b"datax: no", b"data : no", b": c", b":",
    b"event: n", b"event:m", b"event", b"event: ", b"id: 7", b"retry: 1", b"nothing", b"\xef\xbb\xbfdata: b", b"", b"", b"",
)  # fmt: skip
ENDS = (b"\n", b"\r\n", b"\r")


def reference(text: bytes) -> list[SseItem]:
    """The standard, read from top to bottom over the whole input; a pending event at the end counts."""
    found: list[SseItem] = []
    data: list[bytes] = []
    name = b""
    for line in lines_of(text.removeprefix(b"\xef\xbb\xbf")):
        if line == b"":
            if data:
                found.append(SseEvent(b"\n".join(data), name))
            data, name = [], b""
            continue
        field, _, value = line.partition(b":")
        value = value[1:] if value.startswith(b" ") else value
        if field == b"":
            found.append(SseComment())
        elif field == b"data":
            data.append(value)
        elif field == b"event":
            name = value
    return found


def lines_of(text: bytes) -> Iterator[bytes]:
    """Lines without their ends, which are CRLF, LF or CR; then an empty one, which ends what is pending."""
    line, at = bytearray(), 0
    while at < len(text):
        if text[at : at + 2] == b"\r\n":
            at += 1
        if text[at : at + 1] in (b"\n", b"\r"):
            yield bytes(line)
            line.clear()
        else:
            line += text[at : at + 1]
        at += 1
    yield bytes(line)
    yield b""


def incremental(text: bytes, cuts: list[int]) -> list[SseItem]:
    """What the parser says of the same text in pieces."""
    parser = SseParser()
    places = [0, *sorted(cuts), len(text)]
    found = [item for a, b in pairwise(places) for item in parser.feed(text[a:b])]
    return found + parser.end()


@pytest.mark.parametrize("part", range(SLICES))
def test_no_split_and_no_line_end_makes_a_difference_to_the_standard(part: int) -> None:
    dice = random.Random(part)
    for _ in range(ROUNDS // SLICES):
        mixed = dice.random() < 0.7
        end = dice.choice(ENDS)
        lines = [dice.choice(LINES) + (dice.choice(ENDS) if mixed else end) for _ in range(int(dice.random() * 9))]
        text = b"".join(lines)[: None if dice.random() < 0.7 else -1]
        cuts = [int(dice.random() * (len(text) + 1)) for _ in range(int(dice.random() * 6))]

        assert incremental(text, cuts) == reference(text), (text, cuts)


def test_what_is_kept_stays_within_the_bound_whatever_comes() -> None:
    parser, bound = SseParser(1 << 20), 4 << 20
    pieces = (b"data: " + b"x" * 65_530, b"x" * 65_536, b"\n", b": c\n\n", b"data: y\n" * 100)
    dice = random.Random(1)
    tracemalloc.start()
    try:
        for _ in range(2_000):
            if parser.feed(dice.choice(pieces))[-1:] == [SseTooLong()]:
                parser = SseParser(1 << 20)
        endless = [item for _ in range(2_000) for item in parser.feed(b"y" * 65_536)]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert endless == [SseTooLong()] and peak < bound
