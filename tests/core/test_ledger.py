"""The ledger's lines, as they are written, torn and read."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from n4n.core.ledger import Row, attempt_of, closed_as_unknown, read_rows, settled_lines, still_open, whole_lines


def head(number: int = 1) -> list[object]:
    """The head of an attempt's lines."""
    return [f"att_{number:024x}", 1_796_000_000_000_000 + number, "req_1", 1, "acme", "k1", "e", "p", "a", "m", "", 7, False, "interactive"]


def dispatched(number: int = 1, price: list[int] | None = [2_500_000, 10_000_000], *more: object) -> bytes:  # noqa: B006  # not changed
    """A dispatch that is expected to take 40 tokens in and 10 out: 40 · 2.5 + 10 · 10 millionths of a USD."""
    return b"D" + msgspec.json.encode([*head(number), 40, 10, price, *more]) + b"\n"


def settled(number: int = 1, **changes: object) -> bytes:
    """A row that ended well, but for `changes`."""
    ending = {
        "state": "ok", "error_class": None, "status": 200, "prompt_tokens": 12, "cached_tokens": 2, "cache_write_tokens": 0,
        "completion_tokens": 3, "reasoning_tokens": 1, "counted_prompt_tokens": 11, "counted_completion_tokens": 3, "counted_by": "ratio",
        "estimated": False, "cost_usd": "0.00006", "latency_ms": 12.5, "ttft_ms": 3.25, "cache_write_1h_tokens": 0, "service_tier": "",
        "doubt": None, "tags": {}, "audio_input_tokens": 0, "audio_output_tokens": 0, "image_input_tokens": 0, "image_output_tokens": 0,
        "revision": 0,
    }  # fmt: skip
    values = dict(zip(Row.__struct_fields__, [*head(number), *ending.values()], strict=True)) | changes
    return b"S" + msgspec.json.encode(list(values.values())) + b"\n"


def test_settled_rows_are_read_as_they_were_written():
    rows, refused = read_rows(settled(1) + settled(2, cost_usd=None))

    assert refused == 0
    assert [(row.attempt_id[-1], row.state, row.prompt_tokens, row.cost_usd) for row in rows] == [
        ("1", "ok", 12, "0.00006"),
        ("2", "ok", 12, None),
    ]


def test_a_line_of_an_earlier_version_is_a_row_without_what_that_did_not_know():
    whole, _ = read_rows(settled())
    values = msgspec.json.decode(settled()[1:])

    for known in (len(values), len(values) - 1, len(values) - 8, len(values) - 9):
        assert read_rows(b"S" + msgspec.json.encode(values[:known]) + b"\n") == (whole, 0)


def test_tags_and_tiers_of_service_are_read():
    ((row,), refused) = read_rows(settled(service_tier="flex", tags={"team": "search"}, audio_input_tokens=7, revision=1))

    assert refused == 0
    assert (row.service_tier, row.tags, row.audio_input_tokens, row.revision) == ("flex", {"team": "search"}, 7, 1)


def test_a_value_of_a_later_version_is_passed_over():
    line = settled()
    later = line[:-2] + b',"what comes later"]\n'

    assert read_rows(later) == read_rows(line)


@pytest.mark.parametrize(
    "line",
    [
        b"\n", b"S\n", b"S{}\n", b"S[1,2]\n", b"\xff\xfe\n", dispatched(), settled(prompt_tokens=-1), settled(prompt_tokens=2**63),
        settled(state="fine"), settled(cost_usd="1e5"), settled(cost_usd="-1"), settled(cost_usd="0.1234567890123"),
        settled(attempt_id="7"),
        settled(request_id="a\0b"), settled(latency_ms=-1.0), settled(status=70_000), settled(started_us=2**60), settled(tenant="x" * 5000),
        settled().replace(b"req_1", b"\\ud800"),
    ],
)  # fmt: skip
def test_a_line_that_is_no_row_holds_nothing_up(line: bytes):
    rows, refused = read_rows(settled(1) + line + settled(2))

    assert (len(rows), refused) == (2, 1)


@given(st.binary(max_size=60))
def test_whatever_the_disk_holds_is_rows_or_is_counted(noise: bytes):
    rows, refused = read_rows(noise)

    assert len(rows) + refused == len(noise.splitlines())


@given(cut=st.integers(min_value=0, max_value=2000), zeros=st.integers(min_value=0, max_value=9))
def test_a_torn_tail_costs_its_own_line_and_no_other(cut: int, zeros: int):
    lines = [dispatched(1), settled(1), dispatched(2), settled(2)]
    content = b"".join(lines)[:cut]

    read = whole_lines(content + bytes(zeros))

    assert content.startswith(read) and len(content) - len(read) < max(map(len, lines))
    assert read == b"" or read.endswith(b"\n")


def test_a_line_of_either_kind_tells_its_attempt():
    assert attempt_of(dispatched(7)) == attempt_of(settled(7)) == b"att_000000000000000000000007"


def test_only_settled_rows_travel():
    assert settled_lines(dispatched(1) + settled(1) + dispatched(2)) == settled(1)


def test_what_was_dispatched_and_never_settled_is_closed_as_unknown_with_the_estimate():
    segments = [dispatched(1) + dispatched(2) + settled(1), dispatched(2) + dispatched(3, price=None) + dispatched(4), settled(4)]

    left: dict[bytes, bytes] = {}
    for lines in segments:
        left = still_open(left, lines)
    rows, refused = read_rows(b"".join(closed_as_unknown(left.values())))

    assert refused == 0
    assert [(row.attempt_id[-1], row.state, row.prompt_tokens, row.completion_tokens, row.estimated, row.cost_usd) for row in rows] == [
        ("2", "unknown", 40, 10, True, "0.0002"),
        ("3", "unknown", 40, 10, True, None),
    ]
    assert rows[0].started_us == head(2)[1], "the key of the row is fixed at dispatch, so that a late real row finds it"


def test_what_is_closed_as_unknown_keeps_its_tags_and_says_that_its_usage_is_missing():
    rows, _ = read_rows(b"".join(closed_as_unknown([dispatched(1, [1, 1], {"team": "search"}), dispatched(2)])))

    assert [(row.tags, row.doubt) for row in rows] == [({"team": "search"}, "missing"), ({}, "missing")]


def test_a_dispatch_that_cannot_be_read_is_no_row():
    assert closed_as_unknown([b"D[", b'D["att_1"]', b"D\xff", json.dumps(["D"]).encode()]) == []
