"""Pricing: exact to the last digit, every token in one part only, unpriced never free."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from n4n.core.catalog import PICO, Price, PriceList, PriceTier
from n4n.core.chat import Usage
from n4n.core.pricing import cost_pico, is_priced, usd, why_unpriced

MICRO = 1_000_000  # pico-USD per token, for one USD per 1,000,000 tokens
PLAIN = PriceList(Price(input=1_250_000, output=10 * MICRO, cached_input=625_000))


def test_cached_tokens_are_billed_once_and_at_their_own_price() -> None:
    usage = Usage(prompt_tokens=262_960, cached_tokens=257_955, completion_tokens=1_744)

    assert usd(cost_pico(usage, PLAIN)) == "0.184918125"


def test_written_tokens_have_their_own_price_or_that_of_input() -> None:
    usage = Usage(prompt_tokens=100, cached_tokens=20, cache_write_tokens=30)

    assert cost_pico(usage, PriceList(Price(input=10, output=1, cached_input=1, cache_write=12))) == 50 * 10 + 20 + 30 * 12
    assert cost_pico(usage, PriceList(Price(input=10, output=1))) == 1000


@pytest.mark.parametrize(
    "prices", [None, PriceList(Price()), PriceList(Price(input=1)), PriceList(Price(output=1)), PriceList(Price(output=1, cached_input=1))]
)
def test_a_part_without_a_price_makes_the_whole_unknown_and_never_free(prices: PriceList | None) -> None:
    cost = cost_pico(Usage(prompt_tokens=10, completion_tokens=5), prices)

    assert cost is None
    assert usd(cost) is None


def test_a_price_that_is_not_needed_may_be_missing() -> None:
    assert cost_pico(Usage(prompt_tokens=10), PriceList(Price(input=2))) == 20
    assert cost_pico(Usage(prompt_tokens=10, completion_tokens=1), PriceList(Price(input=0, output=0))) == 0


def test_the_tier_is_chosen_by_all_input_and_bills_the_whole_request() -> None:
    tiers = (
        PriceTier(100, Price(input=20, output=30)),
        PriceTier(1000, Price(input=40, output=60, cached_input=4, cache_write=5, cache_write_1h=6)),
    )
    prices = PriceList(Price(input=10, output=20, cached_input=1, cache_write=2), tiers)

    assert cost_pico(Usage(100, 1), prices) == 100 * 10 + 20
    assert cost_pico(Usage(101, 1), prices) == 101 * 20 + 30
    assert cost_pico(Usage(101, 1, cached_tokens=1, cache_write_tokens=1), prices) == 99 * 20 + 1 + 2 + 30
    assert cost_pico(Usage(1001, 1, cached_tokens=1, cache_write_tokens=1), prices) == 999 * 40 + 4 + 5 + 60
    assert cost_pico(Usage(101), PriceList(Price(input=1, output=1), (PriceTier(100, Price()),))) == 101


def test_parts_larger_than_the_whole_are_cut_to_it() -> None:
    usage = Usage(prompt_tokens=10, cached_tokens=50, cache_write_tokens=50)

    assert cost_pico(usage, PLAIN) == 10 * 625_000


def test_a_tier_of_service_has_a_whole_list_of_its_own_or_no_price() -> None:
    prices = PriceList(Price(input=10, output=20, cached_input=1), services={"flex": PriceList(Price(input=5, output=10))})

    assert cost_pico(Usage(2, 1, cached_tokens=2), prices) == 2 + 20
    assert cost_pico(Usage(2, 1, cached_tokens=2, service_tier="flex"), prices) == 2 * 5 + 10, "nothing is inherited"
    assert cost_pico(Usage(2, 1, service_tier="scale"), prices) is None
    assert cost_pico(Usage(2, 1, service_tier="flex"), None) is None


@pytest.mark.parametrize(
    ("usage", "why"),
    [
        (Usage(2, 1), ""),
        (Usage(2, 1, service_tier="scale"), "service tier scale"),
        (Usage(2, 1, audio_input_tokens=1), "audio input"),
        (Usage(2, 1, audio_output_tokens=1), "audio output"),
        (Usage(2, 1, image_output_tokens=1), "image output"),
        (Usage(2, 1, image_input_tokens=1), ""),
        (Usage(2, 1, image_input_tokens=1, service_tier="flex"), "input or output"),
        (Usage(2, 0, audio_input_tokens=1, service_tier="flex"), "audio input"),
    ],
)
def test_what_has_no_price_is_told_in_words(usage: Usage, why: str) -> None:
    prices = PriceList(Price(input=10, output=20), services={"flex": PriceList(Price(input=5))})

    assert why_unpriced(usage, prices) == why
    assert (cost_pico(usage, prices) is None) == bool(why)
    assert why_unpriced(usage, None) == "", "an endpoint without any price needs no reason"


@pytest.mark.parametrize(
    ("prices", "priced"), [(None, False), (PriceList(Price()), False), (PriceList(Price(input=1)), False), (PriceList(Price(0, 0)), True)]
)
def test_an_endpoint_is_priced_when_input_and_output_are(prices: PriceList | None, priced: bool) -> None:
    assert is_priced(prices) is priced


_TOKENS = st.integers(0, 10**7)
_RATE = st.integers(0, 10**9)


@given(_TOKENS, _TOKENS, _TOKENS, _TOKENS, _RATE, _RATE, _RATE, _RATE)
def test_the_cost_is_never_negative_and_never_above_all_input_at_the_dearest(
    prompt: int, cached: int, written: int, output: int, a: int, b: int, c: int, d: int
) -> None:
    cost = cost_pico(Usage(prompt, output, cached, written), PriceList(Price(a, d, b, c)))

    assert cost is not None
    assert prompt * min(a, b, c) + output * d <= cost <= prompt * max(a, b, c) + output * d


_PARTS = ("cached", "written", "hourly", "heard", "seen", "spoken", "drawn", "fresh", "said")


@given(
    st.fixed_dictionaries(dict.fromkeys(_PARTS, st.integers(0, 10**6))), st.lists(_RATE, min_size=9, max_size=9), st.sampled_from(_PARTS)
)
def test_the_cost_is_the_sum_of_disjoint_parts_and_grows_with_each(parts: dict[str, int], rates: list[int], grown: str) -> None:
    prices = PriceList(Price(*rates))

    def usage(of: dict[str, int]) -> Usage:
        prompt = sum(of[name] for name in ("fresh", "cached", "written", "hourly", "heard", "seen"))
        written, output = of["written"] + of["hourly"], of["said"] + of["spoken"] + of["drawn"]
        media = {"audio_input_tokens": of["heard"], "audio_output_tokens": of["spoken"], "image_input_tokens": of["seen"]}
        return Usage(prompt, output, of["cached"], written, cache_write_1h_tokens=of["hourly"], image_output_tokens=of["drawn"], **media)

    cost, more = cost_pico(usage(parts), prices), cost_pico(usage({**parts, grown: parts[grown] + 1}), prices)

    order = ("fresh", "said", "cached", "written", "hourly", "heard", "spoken", "seen", "drawn")
    assert cost == sum(parts[name] * rate for name, rate in zip(order, rates, strict=True))
    assert more is not None
    assert cost is not None
    assert more - cost == rates[order.index(grown)]


@given(_TOKENS, _TOKENS, _RATE)
def test_at_one_price_for_all_it_does_not_matter_what_was_cached(prompt: int, cached: int, rate: int) -> None:
    assert cost_pico(Usage(prompt, 0, cached, cached), PriceList(Price(rate, 0, rate, rate))) == prompt * rate


@given(st.integers(0, 10**26))
def test_the_decimal_is_exact_and_plain(pico: int) -> None:
    text = usd(pico)

    assert text is not None
    assert Decimal(text) * PICO == pico
    assert set(text) <= set("0123456789.")
    assert not text.endswith(".") and not ("." in text and text.endswith("0"))


@pytest.mark.parametrize(
    ("pico", "text"), [(0, "0"), (1, "0.000000000001"), (PICO, "1"), (100 * PICO, "100"), (PICO // 2, "0.5"), (6_400_000_000, "0.0064")]
)
def test_spellings(pico: int, text: str) -> None:
    assert usd(pico) == text
