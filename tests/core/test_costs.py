"""What an answer's usage costs, from every dialect's own words; each sum is worked out by hand beside it."""

from __future__ import annotations

import msgspec
import pytest

from n4n.core.catalog import Price, PriceList, PriceTier
from n4n.core.chat import Usage
from n4n.core.dialects.anthropic.counts import NOTHING
from n4n.core.dialects.bedrock.counts import Told, usage_of
from n4n.core.dialects.gemini.candidates import usage_of as gemini_usage
from n4n.core.dialects.responses.counts import read
from n4n.core.pricing import cost_pico, usd
from n4n.core.usage import normalise, settled
from tests.support.usages import SPEAKERS

MICRO = 1_000_000  # pico-USD per token, for one USD per 1,000,000 tokens
OPENAI = PriceList(Price(input=1_250_000, output=10 * MICRO, cached_input=125_000))
CLAUDE = PriceList(
    Price(input=3 * MICRO, output=15 * MICRO, cached_input=300_000, cache_write=3_750_000, cache_write_1h=6 * MICRO),
    (PriceTier(200_000, Price(6 * MICRO, 22_500_000, 600_000, 7_500_000, 12 * MICRO)),),
)


def cost(usage: Usage | None, prices: PriceList) -> str | None:
    assert usage is not None
    return usd(cost_pico(usage, prices))


def test_openai_with_cached_and_reasoning_tokens() -> None:
    told = normalise(
        {
            "prompt_tokens": 1842, "completion_tokens": 231, "total_tokens": 2073,
            "prompt_tokens_details": {"cached_tokens": 1536}, "completion_tokens_details": {"reasoning_tokens": 192},
        }
    )  # fmt: skip

    # (1842 - 1536) * 1.25 + 1536 * 0.125 + 231 * 10 = 382.5 + 192 + 2310 = 2884.5 millionths; reasoning is in the output already
    assert cost(told, OPENAI) == "0.0028845"


def test_responses_as_chat() -> None:
    told = read({"input_tokens": 1842, "output_tokens": 231, "input_tokens_details": {"cached_tokens": 1536}})

    assert cost(told, OPENAI) == "0.0028845"


def test_xai_counts_reasoning_beside_the_output() -> None:
    told = normalise(
        {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 160, "completion_tokens_details": {"reasoning_tokens": 50}}
    )

    # 100 * 1.25 + (10 + 50) * 10 = 725 millionths
    assert cost(told, OPENAI) == "0.000725"


ANTHROPIC = {
    "input_tokens": 21, "cache_creation_input_tokens": 1100, "cache_read_input_tokens": 4096, "output_tokens": 13,
    "cache_creation": {"ephemeral_5m_input_tokens": 100, "ephemeral_1h_input_tokens": 1000},
}  # fmt: skip


def test_anthropic_writes_for_five_minutes_and_for_an_hour_at_two_prices() -> None:
    # 21 * 3 + 4096 * 0.3 + 100 * 3.75 + 1000 * 6 + 13 * 15 = 63 + 1228.8 + 375 + 6000 + 195 = 7861.8 millionths
    assert cost(NOTHING.told(ANTHROPIC).usage, CLAUDE) == "0.0078618"
    # in a stream the lifetimes come with the first event, and the output with the last
    stream = NOTHING.told({**ANTHROPIC, "output_tokens": 1}).before_output().told({"output_tokens": 13})
    assert cost(stream.usage, CLAUDE) == "0.0078618"


def test_an_hour_without_a_price_of_its_own_costs_what_writing_costs_and_else_what_input_costs() -> None:
    usage = Usage(10, 0, cache_write_tokens=10, cache_write_1h_tokens=4)

    assert cost_pico(usage, PriceList(Price(input=2, output=1, cache_write=3))) == 30
    assert cost_pico(usage, PriceList(Price(input=2, output=1))) == 20
    assert cost_pico(usage, PriceList(Price(input=2, output=1, cache_write=3, cache_write_1h=5))) == 6 * 3 + 4 * 5


def test_anthropic_above_the_long_context_bound_is_dearer_as_a_whole() -> None:
    told = NOTHING.told({"input_tokens": 1001, "cache_read_input_tokens": 199_000, "output_tokens": 10}).usage

    # 200,001 tokens are all input: 1001 * 6 + 199000 * 0.6 + 10 * 22.5 = 6006 + 119400 + 225 = 125631 millionths
    assert cost(told, CLAUDE) == "0.125631"
    # one token less: 1000 * 3 + 199000 * 0.3 + 10 * 15 = 3000 + 59700 + 150 = 62850 millionths
    under = NOTHING.told({"input_tokens": 1000, "cache_read_input_tokens": 199_000, "output_tokens": 10}).usage
    assert cost(under, CLAUDE) == "0.06285"


@pytest.mark.parametrize("lifetimes", ["5m", ["5m"], {"ephemeral_1h_input_tokens": "many"}, {"ephemeral_1h_input_tokens": None}, None])
def test_lifetimes_that_are_none_leave_the_short_one(lifetimes: object) -> None:
    told = NOTHING.told({**ANTHROPIC, "cache_creation": lifetimes}).usage

    # 21 * 3 + 4096 * 0.3 + 1100 * 3.75 + 13 * 15 = 63 + 1228.8 + 4125 + 195 = 5611.8 millionths
    assert cost(told, CLAUDE) == "0.0056118"


def test_bedrock_tells_lifetimes_in_a_list() -> None:
    told = msgspec.json.decode(
        b'{"inputTokens":21,"outputTokens":13,"cacheReadInputTokens":4096,"cacheWriteInputTokens":1100,'
        b'"cacheDetails":[{"ttl":"5m","inputTokens":100},{"ttl":"1h","inputTokens":1000},{"ttl":7}]}',
        type=Told,
    )

    assert cost(usage_of(told), CLAUDE) == "0.0078618"
    assert usage_of(Told(10, 1, 0, 5, cacheDetails=[])) == Usage(15, 1, 0, 5)


def test_a_stream_that_broke_off_keeps_its_input_and_has_its_output_estimated() -> None:
    told = NOTHING.told({**ANTHROPIC, "output_tokens": 1}).before_output().usage

    kept = settled(told, Usage(900, 40, estimated=True), has_output=True)

    assert kept == Usage(5217, 40, 4096, 1100, 0, estimated=True, cache_write_1h_tokens=1000, doubt="zero")


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        (None, Usage(9, 4, estimated=True, doubt="missing")),
        (Usage(10, 2), Usage(10, 2)),
        (Usage(0, 0), Usage(9, 4, estimated=True, doubt="zero")),
        (Usage(0, 5, reasoning_tokens=1), Usage(9, 5, reasoning_tokens=1, estimated=True, doubt="zero")),
        (Usage(10**9, 5), Usage(9, 5, estimated=True, doubt="absurd")),
        (Usage(10, 10**9, audio_output_tokens=7), Usage(10, 4, estimated=True, doubt="absurd")),
        (Usage(10**9, 10**9, service_tier="flex"), Usage(9, 4, estimated=True, doubt="absurd", service_tier="flex")),
        (Usage(10, 2, doubt="inconsistent"), Usage(10, 2, estimated=True, doubt="inconsistent")),
    ],
)
def test_only_what_cannot_be_believed_is_replaced(reported: Usage | None, expected: Usage) -> None:
    assert settled(reported, Usage(9, 4, estimated=True), has_output=True) == expected


# The same through every dialect's own answers, whole and streamed, at prices that tell every bucket apart: USD per 1,000,000 tokens.

FLEX = PriceList(Price(input=625_000, output=5 * MICRO, cached_input=62_500), (PriceTier(272_000, Price(1_250_000, 7_500_000, 125_000)),))
ALL = PriceList(
    Price(
        input=1_250_000, output=10 * MICRO, cached_input=125_000, cache_write=1_562_500, cache_write_1h=3_125_000,
        audio_input=40 * MICRO, audio_output=80 * MICRO, image_input=5 * MICRO, image_output=30 * MICRO,
    ),
    (PriceTier(272_000, Price(2_500_000, 15 * MICRO, 250_000)),),
    {"flex": FLEX, "priority": PriceList(Price(input=2_500_000, output=20 * MICRO))},
)  # fmt: skip
GOLDEN: list[tuple[str, dict[str, object], dict[str, object], str | None]] = [
    # 262,960 in, 257,955 of it cached: 5005 * 1.25 + 257955 * 0.125 + 1744 * 10 = 6256.25 + 32244.375 + 17440 = 55940.625 millionths
    ("openai", {"prompt_tokens": 262_960, "completion_tokens": 1744, "prompt_tokens_details": {"cached_tokens": 257_955}}, {},
     "0.055940625"),
    # writes for 30 minutes and for 12 hours: 600 * 1.25 + 300 * 1.5625 + 100 * 3.125 + 10 * 10 = 750 + 468.75 + 312.5 + 100 = 1631.25
    ("openai", {
        "prompt_tokens": 1000, "completion_tokens": 10,
        "prompt_tokens_details": {"cache_write_tokens": 400, "cache_write_tokens_details": {"ttl_30m_tokens": 300, "ttl_12h_tokens": 100}},
    }, {}, "0.00163125"),
    # sounds: (1000 - 600) * 1.25 + 600 * 40 + (300 - 200) * 10 + 200 * 80 = 500 + 24000 + 1000 + 16000 = 41500
    ("openai", {
        "prompt_tokens": 1000, "completion_tokens": 300, "total_tokens": 1300,
        "prompt_tokens_details": {"audio_tokens": 600}, "completion_tokens_details": {"audio_tokens": 200},
    }, {}, "0.0415"),
    # pictures: (1000 - 600) * 1.25 + 600 * 5 + 10 * 10 = 500 + 3000 + 100 = 3600
    ("openai", {"prompt_tokens": 1000, "completion_tokens": 10, "prompt_tokens_details": {"image_tokens": 600}}, {}, "0.0036"),
    # flex, part cached: 800 * 0.625 + 200 * 0.0625 + 100 * 5 = 500 + 12.5 + 500 = 1012.5
    ("openai", {"prompt_tokens": 1000, "completion_tokens": 100, "prompt_tokens_details": {"cached_tokens": 200}},
     {"service_tier": "flex"}, "0.0010125"),
    # flex above its own bound of input: 272001 * 1.25 + 10 * 7.5 = 340001.25 + 75 = 340076.25
    ("openai", {"prompt_tokens": 272_001, "completion_tokens": 10}, {"service_tier": "flex"}, "0.34007625"),
    # priority has no price of its own for what is cached, so that this costs what its input costs: 1000 * 2.5 + 10 * 20 = 2700
    ("openai", {"prompt_tokens": 1000, "completion_tokens": 10, "prompt_tokens_details": {"cached_tokens": 200}},
     {"service_tier": "priority"}, "0.0027"),
    # a tier that the catalog gives no price: unknown, not the usual price
    ("openai", {"prompt_tokens": 1000, "completion_tokens": 10}, {"service_tier": "scale"}, None),
    # above the bound of input: 272001 * 2.5 + 10 * 15 = 680002.5 + 150 = 680152.5; cached at the tier's own price would be 0.25
    ("azure", {"prompt_tokens": 272_001, "completion_tokens": 10}, {}, "0.6801525"),
    # 500 * 1.25 + 20 * 10 = 825
    ("completions", {"prompt_tokens": 500, "completion_tokens": 20, "total_tokens": 520}, {}, "0.000825"),
    # 8 * 1.25 = 10
    ("embeddings", {"prompt_tokens": 8, "total_tokens": 8}, {}, "0.00001"),
    # (1842 - 1536) * 1.25 + 1536 * 0.125 + 231 * 10 = 382.5 + 192 + 2310 = 2884.5; the 192 of reasoning are in the 231
    ("responses", {
        "input_tokens": 1842, "output_tokens": 231, "total_tokens": 2073,
        "input_tokens_details": {"cached_tokens": 1536}, "output_tokens_details": {"reasoning_tokens": 192},
    }, {}, "0.0028845"),
    # 1000 * 2.5 + 10 * 20 = 2700
    ("responses", {"input_tokens": 1000, "output_tokens": 10, "total_tokens": 1010}, {"service_tier": "priority"}, "0.0027"),
    # 21 * 1.25 + 4096 * 0.125 + 100 * 1.5625 + 1000 * 3.125 + 13 * 10 = 26.25 + 512 + 156.25 + 3125 + 130 = 3949.5
    ("anthropic", {
        "input_tokens": 21, "cache_creation_input_tokens": 1100, "cache_read_input_tokens": 4096, "output_tokens": 13,
        "cache_creation": {"ephemeral_5m_input_tokens": 100, "ephemeral_1h_input_tokens": 1000},
        "output_tokens_details": {"thinking_tokens": 9}, "service_tier": "standard",
    }, {}, "0.0039495"),
    # 272,001 tokens are all input, most of it read: 1 * 2.5 + 272000 * 0.25 + 10 * 15 = 2.5 + 68000 + 150 = 68152.5
    ("anthropic", {"input_tokens": 1, "cache_read_input_tokens": 272_000, "output_tokens": 10}, {}, "0.0681525"),
    # 1000 * 2.5 + 10 * 20 = 2700
    ("anthropic", {"input_tokens": 1000, "output_tokens": 10, "service_tier": "priority"}, {}, "0.0027"),
    ("anthropic", {"input_tokens": 1000, "output_tokens": 10, "service_tier": "batch"}, {}, None),
    # 1000 * 1.25 + 10 * 10 = 1350
    ("claude at vertex", {"input_tokens": 1000, "output_tokens": 10}, {}, "0.00135"),
    # (300 - 200) * 1.25 + 200 * 0.125 + (20 + 30) * 10 = 125 + 25 + 500 = 650
    ("gemini", {"promptTokenCount": 300, "cachedContentTokenCount": 200, "candidatesTokenCount": 20, "thoughtsTokenCount": 30}, {},
     "0.00065"),
    # sounds: 250 of 300 in, 50 of those in the cache of 60: 40 * 1.25 + 60 * 0.125 + 200 * 40 + 10 * 10 = 50 + 7.5 + 8000 + 100 = 8157.5
    ("gemini", {
        "promptTokenCount": 300, "cachedContentTokenCount": 60, "candidatesTokenCount": 10,
        "promptTokensDetails": [{"modality": "AUDIO", "tokenCount": 250}, {"modality": "TEXT", "tokenCount": 50}],
        "cacheTokensDetails": [{"modality": "AUDIO", "tokenCount": 50}, {"modality": "TEXT", "tokenCount": 10}],
    }, {}, "0.0081575"),
    # a picture drawn: 100 * 1.25 + 1290 * 30 + 10 * 10 = 125 + 38700 + 100 = 38925
    ("gemini", {
        "promptTokenCount": 100, "candidatesTokenCount": 1300, "candidatesTokensDetails": [{"modality": "IMAGE", "tokenCount": 1290}],
    }, {}, "0.038925"),
    # 1000 * 0.625 + 10 * 5 = 675
    ("vertex", {"promptTokenCount": 1000, "candidatesTokenCount": 10, "trafficType": "ON_DEMAND_FLEX"}, {}, "0.000675"),
    # as Anthropic's, but Bedrock tells lifetimes in a list: 3949.5
    ("bedrock", {
        "inputTokens": 21, "outputTokens": 13, "cacheReadInputTokens": 4096, "cacheWriteInputTokens": 1100,
        "cacheDetails": [{"ttl": "5m", "inputTokens": 100}, {"ttl": "1h", "inputTokens": 1000}],
    }, {}, "0.0039495"),
    # 1000 * 0.625 + 10 * 5 = 675
    ("bedrock", {"inputTokens": 1000, "outputTokens": 10}, {"serviceTier": {"type": "flex"}}, "0.000675"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "usage", "beside", "expected"), GOLDEN)
def test_an_answers_cost_is_what_was_worked_out_by_hand(
    name: str, usage: dict[str, object], beside: dict[str, object], expected: str | None
) -> None:
    speaker = SPEAKERS[name]
    for stream in (False, True) if speaker.stream is not None else (False,):
        read = speaker.read(usage, stream, **beside)
        assert read is not None
        assert not read.estimated
        assert cost(read, ALL) == expected


def test_gemini_counts_thoughts_beside_the_candidates() -> None:
    told = gemini_usage(
        {"usageMetadata": {"promptTokenCount": 300, "cachedContentTokenCount": 200, "candidatesTokenCount": 20, "thoughtsTokenCount": 30}}
    )

    # (300 - 200) * 1.25 + 200 * 0.125 + (20 + 30) * 10 = 125 + 25 + 500 = 650 millionths
    assert cost(told, OPENAI) == "0.00065"
