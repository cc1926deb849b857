"""OpenRouter's list of models as a catalog document (https://openrouter.ai/docs/api-reference/list-available-models)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from n4n.catalogs.building import Building
from n4n.catalogs.prices import per_1m
from n4n.catalogs.suppliers import SUPPLIERS
from n4n.core.document import Document, Table
from n4n.core.schema import decimal_of

Object = Mapping[str, object]
_PRICES = {
    "input_per_1m": "prompt",
    "output_per_1m": "completion",
    "cached_input_per_1m": "input_cache_read",
    "cache_write_per_1m": "input_cache_write",
}
_OTHERS = ("request", "image", "audio", "web_search", "internal_reasoning")
_FEATURES = {
    "tools": ("tools",),
    "tool_choice": ("tool_choice", "forced_tool_choice"),
    "parallel_tool_calls": ("parallel_tools",),
    "response_format": ("json_object",),
    "structured_outputs": ("json_schema",),
    "reasoning": ("reasoning",),
    "seed": ("seed",),
    "logprobs": ("logprobs",),
    "logit_bias": ("logit_bias",),
    "frequency_penalty": ("penalties",),
    "stop": ("stop",),
    "temperature": ("sampling_params",),
    "web_search_options": ("web_search",),
}
_INPUTS = {"image": "vision", "file": "pdf_input", "audio": "audio_input"}


def is_model_list(raw: object) -> bool:
    """Whether a document is such a list."""
    return isinstance(raw, Mapping) and isinstance(raw.get("data"), list)


def from_model_list(raw: object) -> tuple[Document, list[str]]:
    """The document, and what could not be carried over."""
    building = Building()
    supplier = SUPPLIERS["openrouter"]
    provider = building.provider(supplier.name, {"dialect": supplier.dialect, "base_url": supplier.base_url})
    account = building.account(provider, f"env:{supplier.key}")
    entries = [entry for entry in cast(list[object], cast(Object, raw)["data"]) if isinstance(entry, Mapping)]
    names = [str(entry.get("id", "")).partition("/")[2] for entry in entries]
    for entry in entries:
        said = entry.get("id")
        if not isinstance(said, str) or not said:
            building.count("entries left out, for they have no id")
        elif "text" not in _words(_inner(entry, "architecture").get("output_modalities"), "text"):
            building.count("models left out, for they write no text")
        else:
            short = said.partition("/")[2]
            _endpoint(building, account, said, short if short and names.count(short) == 1 else said, cast(Object, entry))
    return building.finished()


def _endpoint(building: Building, account: str, said: str, short: str, entry: Object) -> None:
    model = building.model(short)
    if short != said and not building.alias(said, model):
        building.note(f"model {said[:100]!r} is only known as {model}")
    top = _inner(entry, "top_provider")
    window = _count(top.get("context_length")) or _count(entry.get("context_length"))
    windows = {"context_window": window, "max_output_tokens": _count(top.get("max_completion_tokens"))}
    building.document["models"][model] |= {name: count for name, count in windows.items() if count is not None}
    endpoint: Table = {"model": model, "account": account, "upstream_model": said}
    price = _price(building, said, _inner(entry, "pricing"))
    if price:
        endpoint["price"] = price
    supports = _supports(entry, price)
    if supports:
        endpoint["supports"] = supports
    building.endpoint(f"openrouter-{model}", endpoint)


def _price(building: Building, said: str, pricing: Object) -> Table:
    found = {ours: per_1m(pricing.get(theirs)) for ours, theirs in _PRICES.items()}
    if found["input_per_1m"] is None or found["output_per_1m"] is None:
        building.note(f"model {said[:100]!r} has no price: what it costs depends on where it is sent")
        return {}
    if any((decimal_of(pricing.get(name)) or 0) > 0 for name in _OTHERS):
        building.count("models billed for more than tokens (requests, images, searches), of which the rest has no price here")
    return {name: amount for name, amount in found.items() if amount is not None}


def _supports(entry: Object, price: Table) -> list[str]:
    """Empty where the list does not tell: then nothing is denied."""
    parameters = _words(entry.get("supported_parameters"))
    if not parameters:
        return []
    told = [feature for name, features in _FEATURES.items() if name in parameters for feature in features]
    told += [_INPUTS[name] for name in _words(_inner(entry, "architecture").get("input_modalities")) if name in _INPUTS]
    told += ["prompt_caching"] if "cached_input_per_1m" in price else []
    return [*told, "stream_options"]


def _inner(entry: Object, name: str) -> Object:
    inner = entry.get(name)
    return cast(Object, inner) if isinstance(inner, Mapping) else {}


def _words(value: object, *default: str) -> list[str]:
    return [word for word in value if isinstance(word, str)] if isinstance(value, list) else list(default)


def _count(value: object) -> int | None:
    amount = decimal_of(value)
    return int(amount) if amount is not None and 1 <= amount <= 10**9 else None
