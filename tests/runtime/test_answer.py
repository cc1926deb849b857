"""Answers from bytes: every way of cutting them is the same answer, and nothing in them makes the parser forget its bounds. No sockets."""

from __future__ import annotations

import asyncio
import os
import random
import zlib
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from n4n.runtime.upstream.answer import FRAME_LIMIT, HEAD_LIMIT, Answer
from n4n.runtime.upstream.connection import MOST_KEPT, READ_BUFFER, Connection, State
from n4n.runtime.upstream.decode import PIECE, Inflate, NotDecodable, is_plain
from tests.fuzz import answers as fuzzed
from tests.support.http_answers import CASES, CHUNKED, OK, Case, chunks, sized

SPLITS = 100_000


class Wire:
    """A transport that goes nowhere."""

    def __init__(self, pipe: int) -> None:
        self.pipe, self.closing, self.reading, self.written = pipe, False, True, b""

    def get_extra_info(self, _: str) -> SimpleNamespace:
        """Something to poll."""
        return SimpleNamespace(fileno=lambda: self.pipe)

    def write(self, content: bytes) -> None:
        """Keeps it."""
        self.written += content

    def get_write_buffer_size(self) -> int:
        """Nothing waits."""
        return 0

    def is_closing(self) -> bool:
        """Whether `abort` was called."""
        return self.closing

    def abort(self) -> None:
        """Closes."""
        self.closing = True

    def pause_reading(self) -> None:
        """As a real one."""
        self.reading = False

    def resume_reading(self) -> None:
        """As a real one."""
        self.reading = True


@pytest.fixture
def pipe() -> Iterator[int]:
    """A descriptor on which nothing comes."""
    ends = os.pipe()
    yield ends[0]
    for end in ends:
        os.close(end)


def connected(pipe: int) -> tuple[Connection, Wire]:
    """A connection on which a request was sent."""
    owner = SimpleNamespace(freed=lambda _: None, lost=lambda _: None)
    connection, wire = Connection(owner, memoryview(bytearray(READ_BUFFER)), lambda: 0.0), Wire(pipe)
    connection.connection_made(wire)
    assert connection.send(b"head", b"body")
    return connection, wire


def arrive(connection: Connection, content: bytes) -> None:
    """Bytes come, in as many reads as they need."""
    for start in range(0, len(content), READ_BUFFER):
        piece = content[start : start + READ_BUFFER]
        connection.get_buffer(-1)[: len(piece)] = piece
        connection.buffer_updated(len(piece))


def played(pipe: int, raw: bytes, cuts: list[int]) -> tuple[object, ...]:
    """What comes of an answer that is cut at these places; what came is taken at some of them."""
    connection, _ = connected(pipe)
    body, start = [], 0
    for cut in [*cuts, len(raw)]:
        arrive(connection, raw[start:cut])
        if (cut - start) % 3 == 0:
            body.append(connection.take())
        start = cut
    keeps = connection.answer.keep
    connection.eof_received()
    connection.connection_lost(None)
    answer = connection.answer
    body.append(connection.take())
    return answer.status, answer.headers if answer.head_done else [], b"".join(body), answer.complete, answer.broken, keeps


@pytest.mark.parametrize("name", CASES)
async def test_an_answer_is_what_the_table_says(name, pipe):
    case = CASES[name]
    status, headers, body, complete, broken, keeps = played(pipe, case.raw, [])
    assert status == case.status
    assert complete != broken
    if not any(header.lower() == b"content-encoding" for header, _ in headers):
        assert broken == (case.body is None)
        assert case.body is None or body == case.body
    if case.keeps is not None and (case.body is not None):
        assert keeps == case.keeps


async def test_100_000_ways_of_cutting_make_no_difference(pipe):
    whole = {name: played(pipe, case.raw, []) for name, case in CASES.items()}
    dice = random.Random(9112)
    names = list(CASES)
    for turn in range(SPLITS):
        name = names[turn % len(names)]
        raw = CASES[name].raw
        near = raw.find(b"\r\n\r\n") + 12 if dice.random() < 0.5 else len(raw)
        cuts = sorted(dice.randint(0, min(near, len(raw))) for _ in range(dice.randint(1, 6)))
        found = played(pipe, raw, cuts)
        upto = 5 if CASES[name].keeps is None else 6
        assert found[:upto] == whole[name][:upto], (name, cuts)


async def test_byte_by_byte_is_the_same(pipe):
    for name, case in CASES.items():
        if len(case.raw) < 4000:
            found, upto = played(pipe, case.raw, list(range(1, len(case.raw)))), 5 if case.keeps is None else 6
            assert found[:upto] == played(pipe, case.raw, [])[:upto], name


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(sorted(CASES)), st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=4), st.integers(0, 1 << 30))
def test_spoilt_answers_are_the_same_however_they_are_cut(name, changes, seed):
    raw = bytearray(CASES[name].raw[:3000])
    for place, value in changes:
        if raw:
            raw[place % len(raw)] = value
    fuzzed.one_input(seed.to_bytes(4, "big") + bytes(raw))


@settings(max_examples=400, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_the_same_however_they_are_cut(raw):
    fuzzed.one_input(raw)


# --- one connection after the other answer -----------------------------------------------------------------------


def test_answers_follow_each_other_and_nothing_of_one_is_left_in_the_next():
    answer = Answer()
    kept = [case for case in CASES.values() if case.keeps]
    for case in [*kept, *reversed(kept)]:
        answer.begin()
        for start in range(0, len(case.raw), 1000):
            answer.feed(memoryview(case.raw[start : start + 1000]))
        fresh = Answer()
        fresh.feed(memoryview(case.raw))
        assert (answer.status, answer.headers, answer.complete, answer.keep) == (fresh.status, fresh.headers, True, True)
        assert answer.take() == fresh.take()


async def test_bytes_that_nobody_asked_for_close_an_idle_connection(pipe):
    connection, wire = connected(pipe)
    arrive(connection, sized(b"a"))
    connection.settle()
    assert connection.state is State.IDLE
    arrive(connection, b"\r\n")
    assert (connection.state, wire.closing) == (State.CLOSED, True)


async def test_an_answer_that_ends_a_moment_later_leaves_its_connection_for_the_next(pipe):
    connection, _ = connected(pipe)
    arrive(connection, CHUNKED + b"1\r\na\r\n")
    connection.settle()
    assert connection.state is State.TRAILING
    arrive(connection, b"1\r\nb\r\n0\r\n")
    assert connection.state is State.TRAILING
    arrive(connection, b"\r\n")
    assert (connection.state, connection.take()) == (State.IDLE, b"")


@pytest.mark.parametrize("more", [b"1\r\nb\r\n" * (MOST_KEPT + 1), b"what?", b"0\r\n\r\nmore"])
async def test_an_answer_that_goes_on_or_is_spoilt_closes_it(pipe, more):
    connection, wire = connected(pipe)
    arrive(connection, CHUNKED + b"1\r\na\r\n")
    connection.settle()
    arrive(connection, more)
    assert (connection.state, wire.closing) == (State.CLOSED, True)


async def test_an_answer_that_does_not_end_in_a_moment_closes_it(pipe):
    connection, wire = connected(pipe)
    connection._clock = asyncio.get_running_loop().time
    arrive(connection, CHUNKED + b"1\r\na\r\n")
    connection.settle()
    async with asyncio.timeout(2):
        while not wire.closing:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_one_future_waits_and_one_timer_serves_many_waits(pipe):
    connection, _ = connected(pipe)
    connection._clock = asyncio.get_running_loop().time
    now = connection._clock()
    head = connection.head(now + 60)
    timer = connection._alarm
    arrive(connection, b"HTTP/1.1 100 C\r\n\r\n")
    assert not head.done()
    arrive(connection, CHUNKED)
    assert await head is True
    assert await connection.news(now + 0.02) is False
    waiting = connection.news(now + 90)
    waiting.cancel()
    arrive(connection, b"1\r\na\r\n")
    assert await connection.news(now + 90) is True
    assert connection.take() == b"a"
    last = connection.news(now + 90)
    connection.connection_lost(ConnectionResetError())
    assert await last is True
    assert connection.answer.broken
    assert timer is not None and timer.cancelled()


async def test_a_body_that_nobody_takes_is_not_read_any_further(pipe):
    connection, wire = connected(pipe)
    arrive(connection, OK + b"\r\n")
    came = 0
    while wire.reading:
        arrive(connection, b"x" * 10_000)
        came += 10_000
    assert MOST_KEPT < came <= MOST_KEPT + 10_000
    assert len(connection.take()) == came
    assert wire.reading


# --- bounds ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1 << 10, 7919, 1 << 16])
@pytest.mark.parametrize("over", [-1, 0, 1])
def test_a_head_has_a_bound_to_the_byte(over, step):
    start = OK + b"Content-Length: 0\r\nX: "
    raw = start + b"y" * (HEAD_LIMIT + over - len(start) - 4) + b"\r\n\r\n"
    answer = Answer()
    for place in range(0, len(raw), step):
        answer.feed(memoryview(raw[place : place + step]))
    assert (answer.complete, answer.broken) == (over <= 0, over > 0)


@pytest.mark.parametrize(
    "endless", [b"y" * 10_000, b"X: y\r\n" * 1000, b"HTTP/1.1 100 C\r\n\r\n" * 500], ids=["a header", "headers", "informational answers"]
)
def test_a_head_without_an_end_is_given_up(endless):
    answer = Answer()
    if not endless.startswith(b"HTTP"):
        answer.feed(memoryview(OK + b"X: "))
    for _ in range(HEAD_LIMIT // len(endless) + 2):
        answer.feed(memoryview(endless))
    assert answer.broken


@pytest.mark.parametrize("start", [b"1;", b"0\r\nX: "], ids=["an extension", "a trailer"])
def test_framing_without_an_end_is_given_up(start):
    answer = Answer()
    answer.feed(memoryview(CHUNKED + start))
    for _ in range(FRAME_LIMIT // 10_000 + 2):
        answer.feed(memoryview(b"y" * 10_000))
    assert answer.broken


def test_chunks_of_one_byte_are_no_framing_without_an_end():
    answer, raw = Answer(), CHUNKED + chunks(*[b"z"] * 100_000)
    for start in range(0, len(raw), 4096):
        answer.feed(memoryview(raw[start : start + 4096]))
    assert (answer.complete, answer.take()) == (True, b"z" * 100_000)


@pytest.mark.parametrize(
    ("said", "seconds"), [(b"timeout=5, max=9", 5.0), (b"max=9,  Timeout = 7", 7.0), (b"timeout=-1", None), (b"x", None)]
)
def test_how_long_a_provider_keeps_a_connection_is_heard(said, seconds):
    answer = Answer()
    answer.feed(memoryview(sized(b"", b"Keep-Alive: " + said)))
    assert answer.kept_alive_s == seconds


# --- encodings ---------------------------------------------------------------------------------------------------


def decoded(encoding: bytes, content: bytes, cuts: list[int]) -> bytes:
    """All of a body, in pieces of at most PIECE bytes."""
    inflate, body, start = Inflate(encoding), b"", 0
    for cut in [*cuts, len(content)]:
        if content[start:cut]:
            inflate.give(content[start:cut])
        while piece := inflate.take():
            assert len(piece) <= PIECE
            body += piece
        start = cut
    inflate.finish()
    return body


def packed(encoding: str, content: bytes) -> bytes:
    """Compressed."""
    made = zlib.compressobj(wbits={"gzip": 31, "deflate": 15, "raw": -15}[encoding])
    return made.compress(content) + made.flush()


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(["gzip", "deflate", "raw"]), st.binary(max_size=500), st.integers(1, 3000), st.lists(st.integers(0, 600), max_size=5)
)
def test_a_compressed_body_is_the_same_however_it_is_cut(kind, content, times, cuts):
    raw = packed(kind, content * times)
    assert decoded(b"gzip" if kind == "gzip" else b"deflate", raw, sorted(min(cut, len(raw)) for cut in cuts)) == content * times


def test_gzip_bodies_in_a_row_are_one():
    assert decoded(b"gzip", packed("gzip", b"one ") + packed("gzip", b"") + packed("gzip", b"two"), [5, 9, 30]) == b"one two"


def test_a_bomb_is_defused_piece_by_piece():
    inflate = Inflate(b"gzip")
    inflate.give(packed("gzip", bytes(50 << 20)))
    assert len(inflate.take()) <= PIECE


@pytest.mark.parametrize("kind", ["gzip", "deflate", "raw"])
def test_what_is_cut_off_or_spoilt_is_not_decodable(kind):
    raw, encoding = packed(kind, b"some words, and some more"), b"gzip" if kind == "gzip" else b"deflate"
    for spoilt in (raw[:-1], raw[:5], b"\xff" * 20, *([raw + b"more"] if kind != "gzip" else [])):
        with pytest.raises(NotDecodable):
            decoded(encoding, spoilt, [])


@pytest.mark.parametrize("encoding", [b"br", b"zstd", b"gzip,gzip", b"gzip, deflate", b"chunked", b"\xff"])
def test_other_encodings_are_not_spoken(encoding):
    assert not is_plain(encoding)
    with pytest.raises(NotDecodable):
        Inflate(encoding)


def test_cases_are_told_apart():
    assert len(CASES) >= 60
    assert all(isinstance(case, Case) for case in CASES.values())
