"""Usage: one shape of many, parts that fit together, and what not to believe."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from n4n.core.chat import Usage
from n4n.core.usage import Told, estimate, normalise, read, suspect


def test_openais_own_shape() -> None:
    raw = {
        "prompt_tokens": 1842,
        "completion_tokens": 231,
        "total_tokens": 2073,
        "prompt_tokens_details": {"cached_tokens": 1536, "cache_write_tokens": 100, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 192},
    }

    assert normalise(raw) == Usage(1842, 231, 1536, 100, 192)


@pytest.mark.parametrize(
    "extra", [{"prompt_cache_hit_tokens": 7}, {"cached_tokens": 7}, {"prompt_tokens_details": {"cached_tokens": 7}, "cached_tokens": 9}]
)
def test_cached_tokens_are_found_where_each_provider_puts_them(extra: dict[str, object]) -> None:
    assert normalise({"prompt_tokens": 10, "completion_tokens": 1, **extra}) == Usage(10, 1, 7)


def test_a_top_level_count_of_written_tokens_counts() -> None:
    assert normalise({"prompt_tokens": 10, "completion_tokens": 1, "cache_write_tokens": 4}) == Usage(10, 1, 0, 4)


def test_reasoning_that_the_total_shows_beside_the_output_is_added_to_it() -> None:
    raw = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 35, "completion_tokens_details": {"reasoning_tokens": 20}}

    assert normalise(raw) == Usage(10, 25, reasoning_tokens=20)


@pytest.mark.parametrize("raw", [None, [], "7", {}, {"prompt_tokens": "7"}, {"prompt_tokens": None, "completion_tokens": True}])
def test_what_holds_no_count_is_no_usage(raw: object) -> None:
    assert normalise(raw) is None


def test_what_is_missing_is_filled_from_the_total() -> None:
    assert normalise({"prompt_tokens": 10, "total_tokens": 12}) == Usage(10, 2)
    assert normalise({"completion_tokens": 2, "total_tokens": 12}) == Usage(10, 2)
    assert normalise({"completion_tokens": 2}) == Usage(0, 2, estimated=True, doubt="missing")
    assert normalise({"prompt_tokens": 2}) == Usage(2, 0, estimated=True, doubt="missing")


def test_what_is_no_count_becomes_none_or_the_nearest_one() -> None:
    raw = {
        "prompt_tokens": -3,
        "completion_tokens": 2.0,
        "prompt_tokens_details": ["?"],
        "completion_tokens_details": {"reasoning_tokens": float("nan")},
        "cached_tokens": float("inf"),
    }

    assert normalise(raw) == Usage(0, 2, estimated=True, doubt="negative")


def test_a_reader_remembers_the_first_thing_that_is_no_count() -> None:
    told = Told()
    assert (told.count(7), told.count(None), told.some(None), repr(told)) == (7, None, 0, "<Told fine>")

    assert (told.count("7"), told.count(-7), told.count(7.5), told.within(9, 8)) == (None, None, 7, 8)
    assert repr(told) == "<Told not_a_number>"


def test_a_total_that_the_parts_do_not_make_is_told_and_the_parts_stay() -> None:
    assert normalise({"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 11}) == Usage(9, 3, estimated=True, doubt="inconsistent")


def test_media_of_a_cache_are_the_caches() -> None:
    raw = {
        "prompt_tokens": 100, "completion_tokens": 1,
        "prompt_tokens_details": {"cached_tokens": 60, "audio_tokens": 50, "cached_tokens_details": {"audio_tokens": 30}},
    }  # fmt: skip

    assert normalise(raw) == Usage(100, 1, 60, audio_input_tokens=20)
    raw["prompt_tokens_details"] = {"cached_tokens": 60, "audio_tokens": 50}
    assert normalise(raw) == Usage(100, 1, 60, audio_input_tokens=40), "no more than what is not the cache's"


_ANY = st.one_of(
    st.integers(-(10**9), 10**12), st.floats(), st.none(), st.text(max_size=3), st.booleans(), st.lists(st.integers(), max_size=1)
)
_DETAILS = st.dictionaries(st.sampled_from(["cached_tokens", "cache_write_tokens", "reasoning_tokens"]), _ANY)
_RAW = st.fixed_dictionaries(
    {},
    optional={
        "prompt_tokens": _ANY,
        "completion_tokens": _ANY,
        "total_tokens": _ANY,
        "cached_tokens": _ANY,
        "prompt_cache_hit_tokens": _ANY,
        "cache_write_tokens": _ANY,
        "prompt_tokens_details": st.one_of(_ANY, _DETAILS),
        "completion_tokens_details": st.one_of(_ANY, _DETAILS),
    },
)


@given(_RAW)
def test_whatever_is_reported_the_parts_fit_together(raw: dict[str, object]) -> None:
    usage = normalise(raw)

    if usage is not None:
        assert min(usage.cached_tokens, usage.cache_write_tokens, usage.reasoning_tokens, usage.prompt_tokens) >= 0
        assert usage.cached_tokens + usage.cache_write_tokens <= usage.prompt_tokens
        assert usage.reasoning_tokens <= usage.completion_tokens


def test_an_estimate_says_that_it_is_one_and_rounds_up() -> None:
    assert estimate(9, 1) == Usage(3, 1, estimated=True)
    assert estimate(0, 0) == Usage(0, 0, estimated=True)
    assert estimate(9, 9, 4.5, 2.0) == Usage(2, 5, estimated=True)


@pytest.mark.parametrize(
    ("usage", "has_output", "expected"),
    [
        (None, False, True),
        (Usage(10, 2), True, False),
        (Usage(0, 0), True, True),
        (Usage(10, 0), True, True),
        (Usage(10, 0), False, False),
        (Usage(0, 0), False, False),
        (Usage(0, 5), True, True),
        (Usage(10**9, 5), True, True),
        (Usage(10, 10**9), True, True),
    ],
)
def test_which_reports_are_not_believed(usage: Usage | None, has_output: bool, expected: bool) -> None:
    assert suspect(usage, has_output) is expected


@pytest.mark.parametrize(
    "raw",
    [
        {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12},
        {"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 20, "cache_write_tokens": 5}},
        {"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 50}},
        {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 17, "completion_tokens_details": {"reasoning_tokens": 5}},
        {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12, "completion_tokens_details": {"reasoning_tokens": 5}},
        {"prompt_tokens": 9, "completion_tokens": 3, "completion_tokens_details": {"reasoning_tokens": None}},
        {"prompt_tokens": 9, "completion_tokens": 3, "prompt_cache_hit_tokens": 4},
        {"prompt_tokens": 9, "completion_tokens": 3, "cached_tokens": 4},
        {"prompt_tokens": 9, "completion_tokens": 3, "cache_write_tokens": 2},
        {"prompt_tokens": -9, "completion_tokens": 3.5},
        {"prompt_tokens": "nine"},
        {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 13},
        {"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": {"audio_tokens": 2}},
        {"prompt_tokens": 9, "completion_tokens": 3, "completion_tokens_details": {"audio_tokens": 2}},
        {"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": {"cache_write_tokens_details": {"ttl_12h_tokens": 1}}},
        {"total_tokens": 4},
        {},
        [],
        None,
    ],
)
def test_usage_from_bytes_is_usage_from_values(raw: object) -> None:
    assert read(msgspec.Raw(json.dumps(raw).encode())) == normalise(raw)


def test_usage_that_is_not_there_or_no_json_is_none() -> None:
    assert read(msgspec.Raw()) is None
    assert read(msgspec.Raw(b"{")) is None
