"""Pricing: exact pico-USD of one usage under one price list, and its decimal spelling."""

from __future__ import annotations

from n4n.core.catalog import PICO, Price, PriceList
from n4n.core.chat import Usage


def cost_pico(usage: Usage, prices: PriceList | None) -> int | None:
    """Pico-USD of disjoint parts: input uncached, cached, written for minutes and written for an hour; output. None: one has no price.

    Cached and written input without a price of their own cost what input costs, written for an hour what written costs. The tier is
    chosen by the whole input and bills the whole request; what a tier does not price stays at the base price.
    """
    if prices is None:
        return None
    price = _price_at(usage.prompt_tokens, prices)
    cached = min(usage.cached_tokens, usage.prompt_tokens)
    written = min(usage.cache_write_tokens, usage.prompt_tokens - cached)
    if not cached and not written and price.input is not None and price.output is not None:  # nearly always
        return usage.prompt_tokens * price.input + usage.completion_tokens * price.output
    hourly = min(usage.cache_write_1h_tokens, written)
    brief = price.input if price.cache_write is None else price.cache_write
    parts = (
        (usage.prompt_tokens - cached - written, price.input),
        (cached, price.input if price.cached_input is None else price.cached_input),
        (written - hourly, brief),
        (hourly, brief if price.cache_write_1h is None else price.cache_write_1h),
        (usage.completion_tokens, price.output),
    )
    total = 0
    for tokens, rate in parts:
        if tokens:
            if rate is None:
                return None
            total += tokens * rate
    return total


def _price_at(prompt_tokens: int, prices: PriceList) -> Price:
    base, found = prices.base, None
    for tier in prices.tiers:
        if prompt_tokens > tier.above_input_tokens:
            found = tier.price
    if found is None:
        return base
    return Price(
        base.input if found.input is None else found.input,
        base.output if found.output is None else found.output,
        base.cached_input if found.cached_input is None else found.cached_input,
        base.cache_write if found.cache_write is None else found.cache_write,
        base.cache_write_1h if found.cache_write_1h is None else found.cache_write_1h,
    )


def usd(pico: int | None) -> str | None:
    """Pico-USD (not negative) as a plain decimal without exponent or trailing zeros; None stays None: unpriced is not free."""
    if pico is None:
        return None
    whole, rest = divmod(pico, PICO)
    return f"{whole}.{rest:012d}".rstrip("0") if rest else str(whole)
