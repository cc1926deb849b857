"""The fields of a price in the catalog document: by kind of token, by size of the input, and by tier of service."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

from n4n.core import schema, service_tiers
from n4n.core.errors import Problem
from n4n.core.schema import Field, Problems

_KINDS = {
    f"{kind}_per_1m": Field(schema.money)
    for kind in (
        "input", "output", "cached_input", "cache_write", "cache_write_1h", "audio_input", "audio_output", "image_input", "image_output",
    )
}  # fmt: skip
_BOUND = {"above_input_tokens": Field(schema.whole(1, 10**12), required=True)}
_LIST = _KINDS | {"tiers": Field(schema.listed(schema.table(_BOUND | _KINDS)))}


def _services(value: object, path: str, problems: Problems) -> object:
    found = schema.map_of(schema.table(_LIST))(value, path, problems)
    for name in found if isinstance(found, dict) else ():
        if not service_tiers.NAME.match(name) or service_tiers.tier_of(name) != name:
            told = (
                "is no tier that an answer names; say flex, priority, batch, … in lower case, and the usual prices outside of service_tiers"
            )
            problems.append(Problem(f"{path}.{schema.step(name)}", told))
    return found or None


PRICE = schema.table(_LIST | {"service_tiers": Field(_services)})


def price_problems(path: str, price: Mapping[str, object]) -> Iterator[Problem]:
    """What its fields one by one cannot tell: two tiers that begin at the same input."""
    bounds = [tier["above_input_tokens"] for tier in cast(list[Mapping[str, object]], price.get("tiers", []))]
    for index, bound in enumerate(bounds):
        if bound in bounds[:index]:
            yield Problem(f"{path}.tiers[{index}].above_input_tokens", f"two tiers begin above {bound} tokens")
    for name, inner in cast(Mapping[str, Mapping[str, object]], price.get("service_tiers", {})).items():
        yield from price_problems(f"{path}.service_tiers.{name}", inner)
