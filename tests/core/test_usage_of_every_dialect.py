"""Usage through every dialect, whole and streamed: the same numbers, whatever is told fits together, and nothing told breaks an answer."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from n4n.core.catalog import Price, PriceList
from n4n.core.chat import Chunk, Usage
from n4n.core.pricing import cost_pico
from n4n.core.usage import ABSURD, DOUBTS, settled
from tests.support.usages import SPEAKERS, Speaker

WAYS = [(name, stream) for name, one in SPEAKERS.items() for stream in (False, True) if one.stream is not None or not stream]
COUNTED = Usage(9, 4, estimated=True)
PRICES = PriceList(Price(3, 7, 1, 4, 5, 11, 13, 2, 17))

_NUMBERS = st.one_of(st.integers(-5, 500), st.sampled_from([0, 1, 7, 10**9, 2**63, -(2**70), 1.0, 2.5, -1.5, 1e300]))
_NO_NUMBERS = st.one_of(st.none(), st.booleans(), st.text(max_size=3), st.lists(st.integers(), max_size=1), st.just({"x": 1}))
_ANY = st.one_of(_NUMBERS, _NO_NUMBERS)


def nested(flat: Mapping[str, object]) -> dict[str, object]:
    """Dotted names as objects within objects."""
    made: dict[str, object] = {}
    for name, value in flat.items():
        outer, _, inner = name.partition(".")
        if not inner:
            made[outer] = value
        elif isinstance(found := made.setdefault(outer, {}), dict):
            found[inner] = value
    return made


@st.composite
def told(draw: st.DrawFn, speaker: Speaker) -> object:
    """A usage of this speaker, with some of its counts, or something that is none at all."""
    if draw(st.integers(0, 9)) == 0:
        return draw(_NO_NUMBERS)
    names = draw(st.lists(st.sampled_from(speaker.counts), unique=True))
    made = nested({name: draw(_ANY) for name in names})
    if draw(st.integers(0, 9)) == 0:
        made |= {name.partition(".")[0]: draw(_ANY) for name in speaker.counts if "." in name}
    return made


def fits(usage: Usage) -> None:
    """The parts are parts, and disjoint."""
    parts = [getattr(usage, name) for name in Usage.__struct_fields__ if name.endswith("_tokens")]
    assert all(type(part) is int and part >= 0 for part in parts)
    inside = usage.cached_tokens + usage.cache_write_tokens + usage.audio_input_tokens + usage.image_input_tokens
    assert inside <= usage.prompt_tokens
    assert usage.cache_write_1h_tokens <= usage.cache_write_tokens
    assert usage.reasoning_tokens + usage.audio_output_tokens + usage.image_output_tokens <= usage.completion_tokens
    assert usage.doubt in ("", *DOUBTS)
    assert usage.estimated == bool(usage.doubt)


@pytest.mark.parametrize(("name", "stream"), WAYS)
@given(data=st.data())
def test_whatever_is_told_the_answer_survives_and_the_parts_fit(name: str, stream: bool, data: st.DataObject) -> None:
    usage = data.draw(told(SPEAKERS[name]))

    read = SPEAKERS[name].read(usage, stream)

    if read is not None:
        fits(read)
    billed = settled(read, COUNTED, has_output=True)
    fits(billed)
    assert 0 < billed.prompt_tokens <= ABSURD
    assert 0 < billed.completion_tokens <= ABSURD
    cost = cost_pico(billed, PRICES)
    assert cost is not None
    assert cost > 0


@pytest.mark.parametrize("name", [name for name, one in SPEAKERS.items() if one.stream is not None])
@given(data=st.data())
def test_a_stream_tells_what_a_whole_answer_tells(name: str, data: st.DataObject) -> None:
    """But for Anthropic's nulls and strange types, which a stream's last event may leave as its first one told them."""
    speaker = SPEAKERS[name]
    usage = nested({count: data.draw(st.integers(0, 10**6)) for count in speaker.counts})

    assert speaker.read(usage, stream=True) == speaker.read(usage, stream=False)


FINE: Mapping[str, tuple[Mapping[str, object], Usage]] = {
    "openai": (
        {
            "prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150,
            "prompt_tokens_details": {
                "cached_tokens": 20, "cache_write_tokens": 10, "audio_tokens": 30, "image_tokens": 5,
                "cache_write_tokens_details": {"ttl_30m_tokens": 6, "ttl_12h_tokens": 4},
            },
            "completion_tokens_details": {"reasoning_tokens": 15, "audio_tokens": 8},
        },
        Usage(100, 50, 20, 10, 15, cache_write_1h_tokens=4, audio_input_tokens=30, audio_output_tokens=8, image_input_tokens=5),
    ),
    "embeddings": ({"prompt_tokens": 8, "total_tokens": 8}, Usage(8, 0)),
    "responses": (
        {
            "input_tokens": 100, "output_tokens": 50, "total_tokens": 150,
            "input_tokens_details": {
                "cached_tokens": 20, "cache_write_tokens": 10, "cache_write_tokens_details": {"ttl_30m_tokens": 6, "ttl_12h_tokens": 4},
            },
            "output_tokens_details": {"reasoning_tokens": 15},
        },
        Usage(100, 50, 20, 10, 15, cache_write_1h_tokens=4),
    ),
    "anthropic": (
        {
            "input_tokens": 70, "cache_read_input_tokens": 20, "cache_creation_input_tokens": 10, "output_tokens": 50,
            "cache_creation": {"ephemeral_5m_input_tokens": 6, "ephemeral_1h_input_tokens": 4},
            "output_tokens_details": {"thinking_tokens": 15},
        },
        Usage(100, 50, 20, 10, 15, cache_write_1h_tokens=4),
    ),
    "gemini": (
        {
            "promptTokenCount": 90, "toolUsePromptTokenCount": 10, "cachedContentTokenCount": 20, "candidatesTokenCount": 35,
            "thoughtsTokenCount": 15, "totalTokenCount": 150,
            "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 40}, {"modality": "AUDIO", "tokenCount": 50}, "?", {"modality": 1}],
            "cacheTokensDetails": [{"modality": "AUDIO", "tokenCount": 20}],
            "candidatesTokensDetails": [{"modality": "TEXT", "tokenCount": 30}, {"modality": "IMAGE", "tokenCount": 5}],
        },
        Usage(100, 50, 20, 0, 15, audio_input_tokens=30, image_output_tokens=5),
    ),
    "bedrock": (
        {
            "inputTokens": 70, "outputTokens": 50, "totalTokens": 150, "cacheReadInputTokens": 20, "cacheWriteInputTokens": 10,
            "cacheDetails": [{"ttl": "5m", "inputTokens": 6}, {"ttl": "1h", "inputTokens": 4}, {"ttl": 7}, "?"],
        },
        Usage(100, 50, 20, 10, cache_write_1h_tokens=4),
    ),
}  # fmt: skip
ALIKE = {"azure": "openai", "completions": "openai", "vertex": "gemini", "claude at vertex": "anthropic"}


@pytest.mark.parametrize(("name", "stream"), WAYS)
def test_every_bucket_that_a_dialect_tells_is_read(name: str, stream: bool) -> None:
    usage, expected = FINE[ALIKE.get(name, name)]

    assert SPEAKERS[name].read(usage, stream) == expected
    assert settled(expected, COUNTED, has_output=name != "embeddings") == expected


TIERS: list[tuple[str, Mapping[str, object], Mapping[str, object], str]] = [
    ("openai", {}, {"service_tier": "flex"}, "flex"),
    ("openai", {}, {"service_tier": "default"}, ""),
    ("openai", {}, {"service_tier": "scale"}, "scale"),
    ("openai", {}, {"service_tier": None}, ""),
    ("openai", {}, {"service_tier": {"no": "word"}}, ""),
    ("openai", {}, {"service_tier": "Ünknown tier"}, "other"),
    ("openai", {}, {"service_tier": "on_demand"}, ""),  # Groq's
    ("azure", {}, {"service_tier": "priority"}, "priority"),
    ("completions", {}, {"service_tier": "flex"}, "flex"),
    ("responses", {}, {"service_tier": "priority"}, "priority"),
    ("anthropic", {"service_tier": "standard", "speed": "standard"}, {}, ""),
    ("anthropic", {"service_tier": "batch"}, {}, "batch"),
    ("anthropic", {"service_tier": "standard", "speed": "fast"}, {}, "fast"),
    ("gemini", {"serviceTier": "flex"}, {}, "flex"),
    ("vertex", {"trafficType": "ON_DEMAND"}, {}, ""),
    ("vertex", {"trafficType": "ON_DEMAND_FLEX"}, {}, "flex"),
    ("vertex", {"trafficType": "PROVISIONED_THROUGHPUT"}, {}, "provisioned"),
    ("bedrock", {}, {"serviceTier": {"type": "flex"}}, "flex"),
    ("bedrock", {}, {"serviceTier": {"type": "default"}}, ""),
    ("bedrock", {}, {"serviceTier": "flex"}, ""),
]


@pytest.mark.parametrize(("name", "inside", "beside", "tier"), TIERS)
def test_the_tier_of_service_is_read_where_an_answer_names_it(
    name: str, inside: Mapping[str, object], beside: Mapping[str, object], tier: str
) -> None:
    speaker = SPEAKERS[name]
    usage = {**FINE[ALIKE.get(name, name)][0], **inside}

    for stream in (False, True) if speaker.stream is not None else (False,):
        read = speaker.read(usage, stream, **beside)
        assert read is not None
        assert read.service_tier == tier


WRONG: list[tuple[object, str]] = [
    (None, "missing"), ({}, "missing"), ("all", "missing"), (-7, "negative"), ("7", "not_a_number"), (10**12, "absurd"), (0, "zero"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "stream"), [way for way in WAYS if way[0] != "embeddings"])
@pytest.mark.parametrize(("wrong", "doubt"), WRONG)
def test_what_cannot_be_is_replaced_and_the_reason_is_told(name: str, stream: bool, wrong: object, doubt: str) -> None:
    """Given an answer whose input is told as what cannot be, then the input is our count, the output is theirs, and why is told."""
    speaker = SPEAKERS[name]
    partly = isinstance(wrong, int) or wrong == "7"
    usage = nested({speaker.counts[0]: wrong, speaker.counts[1]: 5}) if partly else wrong

    billed = settled(speaker.read(usage, stream), COUNTED, has_output=True)

    assert billed == Usage(9, 5 if partly else 4, estimated=True, doubt=doubt)


@pytest.mark.parametrize(("name", "stream"), WAYS)
def test_a_part_larger_than_its_whole_is_cut_and_told(name: str, stream: bool) -> None:
    larger = {
        "openai": {"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 99}},
        "embeddings": {"prompt_tokens": 10, "total_tokens": 5},
        "responses": {"input_tokens": 10, "output_tokens": 5, "output_tokens_details": {"reasoning_tokens": 6}},
        "anthropic": {"input_tokens": 10, "output_tokens": 5, "output_tokens_details": {"thinking_tokens": 99}},
        "gemini": {"promptTokenCount": 10, "candidatesTokenCount": 5, "cachedContentTokenCount": 99},
        "bedrock": {"inputTokens": 10, "outputTokens": 5, "cacheWriteInputTokens": 1, "cacheDetails": [{"ttl": "1h", "inputTokens": 9}]},
    }[ALIKE.get(name, name)]

    billed = settled(SPEAKERS[name].read(larger, stream), COUNTED, has_output=name != "embeddings")

    assert (billed.estimated, billed.doubt) == (True, "inconsistent")
    assert billed.prompt_tokens in (10, 11)
    fits(billed)


def test_a_stream_that_counts_up_is_read_by_its_last_count() -> None:
    speaker = SPEAKERS["openai"]
    decoder = speaker.speaker.decoder(speaker.request(True))
    told = []
    for count, (word, finish) in enumerate((("a", None), ("b", None), ("c", None), ("", "stop")), start=1):
        usage = {"prompt_tokens": 9, "completion_tokens": count}
        choice = {"index": 0, "delta": {"content": word}, "finish_reason": finish}
        told += decoder.feed(b"data: %b\n\n" % json.dumps({"id": "c", "choices": [choice], "usage": usage}).encode())

    assert [event.usage for event in told if isinstance(event, Chunk)] == [Usage(9, 1), Usage(9, 2), Usage(9, 3), Usage(9, 4)]
