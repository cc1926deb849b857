"""Prices for a rating: a catalog document, or as little of one as is needed."""

from __future__ import annotations

import pytest

from n4n.core.catalog import Price, PriceList
from n4n.core.price_files import read_prices


def test_prices_are_read_from_endpoints_and_all_else_is_passed_over():
    found, problems = read_prices(
        {
            "e1": {"model": "m", "account": "a", "price": {"input_per_1m": 2.5, "output_per_1m": "10"}},
            "e2": {"price": {}},
            "e3": {"model": "m"},
        }
    )

    assert problems == []
    assert found == {"e1": PriceList(Price(2_500_000, 10_000_000)), "e2": None}


@pytest.mark.parametrize(
    ("endpoints", "field"),
    [
        (None, "endpoints"),
        ([], "endpoints"),
        ({}, "endpoints"),
        ({"e": {"model": "m"}}, "endpoints"),
        ({"e": 3}, "endpoints.e"),
        ({"e 1": {}}, "endpoints.e 1"),
        ({"e": {"price": {"input": 3}}}, "endpoints.e.price.input"),
        ({"e": {"price": {"input_per_1m": -1}}}, "endpoints.e.price.input_per_1m"),
        ({"e": {"price": {"tiers": [{"above_input_tokens": 5}, {"above_input_tokens": 5}]}}}, "endpoints.e.price.tiers[1]"),
    ],
)
def test_what_is_no_price_is_told_with_its_place(endpoints: object, field: str):
    _, problems = read_prices(endpoints)

    assert [problem.field for problem in problems] == [field]
