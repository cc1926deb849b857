"""What LiteLLM's price map says of a model: its prices, its windows, and what it can do; as the catalog says it.

The fields are those of model_prices_and_context_window.json, which a proxy's `model_info` may hold too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal

from n4n.core.document import Table
from n4n.core.schema import decimal_of, plain

_SIX = Decimal("0.000001")
_PRICES = {
    "input_per_1m": "input_cost_per_token",
    "output_per_1m": "output_cost_per_token",
    "cached_input_per_1m": "cache_read_input_token_cost",
    "cache_write_per_1m": "cache_creation_input_token_cost",
    "cache_write_1h_per_1m": "cache_creation_input_token_cost_above_1hr",
    "audio_input_per_1m": "input_cost_per_audio_token",
    "audio_output_per_1m": "output_cost_per_audio_token",
    "image_input_per_1m": "input_cost_per_image_token",
    "image_output_per_1m": "output_cost_per_image_token",
}
_SERVICES = {"batch": "_batches", "flex": "_flex", "priority": "_priority"}
_TIER = re.compile(r"_above_([0-9]+)k_tokens\Z")
_FEATURES = {
    "supports_function_calling": ("tools",),
    "supports_tool_choice": ("tool_choice", "forced_tool_choice"),
    "supports_parallel_function_calling": ("parallel_tools",),
    "supports_vision": ("vision",),
    "supports_pdf_input": ("pdf_input",),
    "supports_audio_input": ("audio_input",),
    "supports_audio_output": ("audio_output",),
    "supports_response_schema": ("json_schema", "json_object"),
    "supports_reasoning": ("reasoning",),
    "supports_prompt_caching": ("prompt_caching",),
    "supports_assistant_prefill": ("assistant_prefill",),
    "supports_web_search": ("web_search",),
}
# What no map tells, for nearly every chat API takes it; those of reasoning models refuse the first ones.
_SAMPLING = ("sampling_params", "logprobs", "logit_bias", "penalties", "stop")
_ANY = ("seed", "n", "stream_options")
OPENAI_LIKE = frozenset(("openai", "azure"))  # dialects whose endpoints may have all of them
_OTHER_PRICES = re.compile(
    r"cost_per_(?:image(?!_token)|query|second|page|session|character|pixel|audio(?!_token)|reasoning|video)|_(?:audio|image)_token_cost"
)


_DEAREST = 10**9  # USD for 1,000,000 tokens; what is above is a mistake


def per_1m(value: object, times: int = 1_000_000) -> str | None:
    """USD for one token as USD for 1,000,000, with at most 6 decimals; None where it is no price."""
    amount = decimal_of(value)
    if amount is None or not 0 <= amount * times <= _DEAREST:
        return None
    return plain((amount * times).quantize(_SIX))


def price_of(info: Mapping[str, object]) -> Table:
    """`price`, with its tiers of input and of service; empty where nothing is known."""
    price = _list(info, "")
    services = {name: found for name, suffix in _SERVICES.items() if "input_per_1m" in (found := _list(info, suffix))}
    return {**price, "service_tiers": services} if price and services else price


def _list(info: Mapping[str, object], service: str) -> Table:
    price = _prices(info, service)
    known = (name.removesuffix(service) for name in info if name.endswith(service))
    bounds = sorted({int(found[1]) for name in known if (found := _TIER.search(name)) and name.removesuffix(found[0]) in _PRICES.values()})
    tiers = [{"above_input_tokens": bound * 1000, **price, **_prices(info, f"_above_{bound}k_tokens{service}")} for bound in bounds]
    return {**price, "tiers": tiers} if tiers and price else price


def _prices(info: Mapping[str, object], suffix: str) -> Table:
    found = {ours: per_1m(info.get(theirs + suffix)) for ours, theirs in _PRICES.items()}
    return {name: amount for name, amount in found.items() if amount is not None}


def has_other_prices(info: Mapping[str, object]) -> bool:
    """Whether something is billed that has no price here: images, searches, seconds, tokens of sound."""
    return any(_OTHER_PRICES.search(name) and info[name] for name in info)


def windows_of(info: Mapping[str, object]) -> Table:
    """`context_window` and `max_output_tokens`."""
    found = {"context_window": info.get("max_input_tokens"), "max_output_tokens": info.get("max_output_tokens")}
    return {name: count for name, value in found.items() if (count := _count(value)) is not None}


def supports_of(info: Mapping[str, object], dialect: str) -> list[str]:
    """`supports`: what the map tells, and what the dialect's chats take anyway."""
    told = [feature for name, features in _FEATURES.items() if info.get(name) is True for feature in features]
    if info.get("supports_forced_tool_use") is False and "forced_tool_choice" in told:
        told.remove("forced_tool_choice")
    if dialect in OPENAI_LIKE:
        told += _ANY if "reasoning" in told else (*_SAMPLING, *_ANY)
    return told


def tells_abilities(info: Mapping[str, object]) -> bool:
    """Whether it says enough of what a model can do to deny the rest."""
    return sum(name in info for name in _FEATURES) > 1


def _count(value: object) -> int | None:
    amount = decimal_of(value)
    return int(amount) if amount is not None and 1 <= amount <= 10**9 else None
