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

    assert kept == Usage(5217, 40, 4096, 1100, 0, estimated=True, cache_write_1h_tokens=1000)


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        (None, Usage(9, 4, estimated=True)),
        (Usage(10, 2), Usage(10, 2)),
        (Usage(0, 0), Usage(9, 4, estimated=True)),
        (Usage(0, 5, reasoning_tokens=1), Usage(9, 5, reasoning_tokens=1, estimated=True)),
        (Usage(10**9, 5), Usage(9, 5, estimated=True)),
        (Usage(10, 10**9), Usage(10, 4, estimated=True)),
        (Usage(10**9, 10**9), Usage(9, 4, estimated=True)),
    ],
)
def test_only_what_cannot_be_believed_is_replaced(reported: Usage | None, expected: Usage) -> None:
    assert settled(reported, Usage(9, 4, estimated=True), has_output=True) == expected


def test_gemini_counts_thoughts_beside_the_candidates() -> None:
    told = gemini_usage(
        {"usageMetadata": {"promptTokenCount": 300, "cachedContentTokenCount": 200, "candidatesTokenCount": 20, "thoughtsTokenCount": 30}}
    )

    # (300 - 200) * 1.25 + 200 * 0.125 + (20 + 30) * 10 = 125 + 25 + 500 = 650 millionths
    assert cost(told, OPENAI) == "0.00065"
