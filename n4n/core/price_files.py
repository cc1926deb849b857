"""Prices by endpoint, from the `endpoints` of a catalog document or from a part of one: what a period is rated anew with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from n4n.core import schema
from n4n.core.catalog import PriceList, price_list
from n4n.core.document import Table
from n4n.core.errors import Problem
from n4n.core.price_fields import PRICE, price_problems
from n4n.core.schema import Problems


def read_prices(endpoints: object) -> tuple[dict[str, PriceList | None], list[Problem]]:
    """`{"NAME": {"price": {…}}, …}`; other fields of an endpoint are passed over, and one without a price is not named.

    None: `price: {}` says that it has none. Everything that is wrong is told at once.
    """
    problems: Problems = []
    found: dict[str, PriceList | None] = {}
    for name, endpoint in schema.named(endpoints, "endpoints", problems).items():
        path = f"endpoints.{name}"
        if not isinstance(endpoint, Mapping):
            problems.append(Problem(path, f"must be a map with a price, not {schema.kind_of(endpoint)}"))
        elif "price" in endpoint:
            normal = PRICE(endpoint["price"], f"{path}.price", problems)
            if normal is not None:
                problems.extend(price_problems(f"{path}.price", cast(Table, normal)))
                found[name] = price_list(cast(Mapping[str, object], normal))
    if not found and not problems:
        problems.append(Problem("endpoints", "names no endpoint with a price; write endpoints: {NAME: {price: {input_per_1m: …}}}"))
    return found, problems
