"""Pricing: exact pico-USD of one usage under one price list, and its decimal spelling."""

from __future__ import annotations

from n4n.core.catalog import PICO, Price, PriceList
from n4n.core.chat import Usage


def cost_pico(usage: Usage, prices: PriceList | None) -> int | None:
    """Pico-USD of disjoint parts: input fresh, cached, written for minutes and for an hour, heard, seen; output said, spoken, drawn.

    None: one of them has no price. Cached and written input without a price of their own cost what input costs, written for an hour what
    written costs, pictures that are shown what input costs. Sounds, and pictures that are drawn, cost far more than text everywhere:
    without a price of their own they have none. An answer that names a tier of service is priced by that tier's list alone. The tier of
    input is chosen by the whole input and bills the whole request; what it does not price stays at the base price.
    """
    if usage.service_tier:
        prices = prices.services.get(usage.service_tier) if prices is not None else None
    if prices is None:
        return None
    price = _price_at(usage.prompt_tokens, prices)
    parts = _parts(usage, price)
    if parts is None:  # nearly always
        if price.input is not None and price.output is not None:
            return usage.prompt_tokens * price.input + usage.completion_tokens * price.output
        parts = ((usage.prompt_tokens, price.input), (usage.completion_tokens, price.output))
    total = 0
    for tokens, rate in parts:
        if tokens:
            if rate is None:
                return None
            total += tokens * rate
    return total


def _parts(usage: Usage, price: Price) -> tuple[tuple[int, int | None], ...] | None:
    """Tokens, each in one part only, and the price of each; None: there are none but fresh input and plain output."""
    media = usage.audio_input_tokens or usage.audio_output_tokens or usage.image_input_tokens or usage.image_output_tokens
    if not (usage.cached_tokens or usage.cache_write_tokens or media):
        return None
    cached = min(usage.cached_tokens, usage.prompt_tokens)
    written = min(usage.cache_write_tokens, usage.prompt_tokens - cached)
    hourly = min(usage.cache_write_1h_tokens, written)
    fresh = usage.prompt_tokens - cached - written
    heard = min(usage.audio_input_tokens, fresh)
    seen = min(usage.image_input_tokens, fresh - heard)
    spoken = min(usage.audio_output_tokens, usage.completion_tokens)
    drawn = min(usage.image_output_tokens, usage.completion_tokens - spoken)
    brief = price.input if price.cache_write is None else price.cache_write
    return (
        (fresh - heard - seen, price.input),
        (cached, price.input if price.cached_input is None else price.cached_input),
        (written - hourly, brief),
        (hourly, brief if price.cache_write_1h is None else price.cache_write_1h),
        (heard, price.audio_input),
        (seen, price.input if price.image_input is None else price.image_input),
        (usage.completion_tokens - spoken - drawn, price.output),
        (spoken, price.audio_output),
        (drawn, price.image_output),
    )


def why_unpriced(usage: Usage, prices: PriceList | None) -> str:
    """What has no price though the endpoint has prices, in words; '' where it has none at all, or all that is needed."""
    if prices is None or cost_pico(usage, prices) is not None:
        return ""
    tier = usage.service_tier
    if tier and tier not in prices.services:
        return f"service tier {tier}"
    price = (prices.services[tier] if tier else prices).base
    for what, tokens, rate in (
        ("audio input", usage.audio_input_tokens, price.audio_input),
        ("audio output", usage.audio_output_tokens, price.audio_output),
        ("image output", usage.image_output_tokens, price.image_output),
    ):
        if tokens and rate is None:
            return what
    return "input or output"


def is_priced(prices: PriceList | None) -> bool:
    """Whether input and output have a price: an answer of text that names no tier of service has a cost."""
    return prices is not None and prices.base.input is not None and prices.base.output is not None


def _price_at(prompt_tokens: int, prices: PriceList) -> Price:
    base, found = prices.base, None
    for tier in prices.tiers:
        if prompt_tokens > tier.above_input_tokens:
            found = tier.price
    return base if found is None else found.over(base)


def usd(pico: int | None) -> str | None:
    """Pico-USD (not negative) as a plain decimal without exponent or trailing zeros; None stays None: unpriced is not free."""
    if pico is None:
        return None
    whole, rest = divmod(pico, PICO)
    return f"{whole}.{rest:012d}".rstrip("0") if rest else str(whole)
