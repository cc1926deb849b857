"""Prices in the catalog document: their tiers of service, what is refused of them, and that the wire keeps all of it."""

from __future__ import annotations

import pytest

from n4n.core.catalog import Price, PriceList, PriceTier, compile_snapshot
from n4n.core.document import parse_document
from n4n.runtime import wire
from tests.support.catalogs import SMALL, Raw, changed

PRICE: Raw = {
    "input_per_1m": 2.5, "output_per_1m": 10, "audio_input_per_1m": 40, "audio_output_per_1m": 80, "image_input_per_1m": 5,
    "image_output_per_1m": 30,
    "service_tiers": {
        "flex": {"input_per_1m": 1.25, "output_per_1m": 5, "tiers": [{"above_input_tokens": "272k", "input_per_1m": 2.5}]},
        "priority": {"input_per_1m": 5, "output_per_1m": 20},
        "scale": {},
    },
}  # fmt: skip


def priced(price: object) -> Raw:
    return changed(SMALL, "endpoints", "acme-small", "price", to=price)


def test_a_price_holds_lists_of_its_own_for_tiers_of_service() -> None:
    document, problems = parse_document(priced(PRICE))
    assert problems == []

    price = compile_snapshot(document, version=1, checksum="c").endpoints["acme-small"].price

    assert price == PriceList(
        Price(2_500_000, 10_000_000, None, None, None, 40_000_000, 80_000_000, 5_000_000, 30_000_000),
        services={
            "flex": PriceList(Price(1_250_000, 5_000_000), (PriceTier(272_000, Price(2_500_000)),)),
            "priority": PriceList(Price(5_000_000, 20_000_000)),
        },
    ), "one without any price is none"


def test_the_wire_keeps_every_price() -> None:
    document, _ = parse_document(priced(PRICE))
    resources = wire.catalog_resources(document, {})

    built = wire.build_catalog(resources, version=1, checksum="c")

    assert built.document == document
    assert parse_document(document) == (document, [])


def test_no_tiers_of_service_are_nothing() -> None:
    assert parse_document(priced({"input_per_1m": 1, "service_tiers": {}})) == parse_document(priced({"input_per_1m": 1}))


@pytest.mark.parametrize(
    ("services", "field", "told"),
    [
        ({"default": {}}, "default", "is no tier that an answer names"),
        ({"Flex": {}}, "Flex", "is no tier that an answer names"),
        ({"on_demand_flex": {}}, "on_demand_flex", "is no tier that an answer names"),
        ({"flex": {"input_per_1m": -1}}, "flex.input_per_1m", "must be an amount of USD"),
        ({"flex": {"service_tiers": {}}}, "flex.service_tiers", "unknown field"),
        ({"flex": 7}, "flex", "must be a map of fields"),
        (
            {"flex": {"tiers": [{"above_input_tokens": 1000}, {"above_input_tokens": "1k", "input_per_1m": 1}]}},
            "flex.tiers[1].above_input_tokens",
            "two tiers begin above 1000 tokens",
        ),
    ],
)
def test_a_tier_that_no_answer_names_is_refused_by_its_path(services: object, field: str, told: str) -> None:
    _, problems = parse_document(priced({"service_tiers": services}))

    (problem,) = problems
    assert problem.field == f"endpoints.acme-small.price.service_tiers.{field}"
    assert problem.message.startswith(told)


@pytest.mark.parametrize("services", [[], "flex", 7])
def test_what_is_no_map_of_tiers_is_refused(services: object) -> None:
    _, problems = parse_document(priced({"service_tiers": services}))

    assert [problem.field for problem in problems] == ["endpoints.acme-small.price.service_tiers"]
