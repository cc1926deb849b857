"""A key that demands prices: which endpoints may serve it, and by which reason the others go."""

from __future__ import annotations

import json

import msgspec
import pytest

from n4n.core.catalog import Snapshot, compile_snapshot
from n4n.core.chat import ChatRequest, Native
from n4n.core.constraints import Offer
from n4n.core.directives import NONE, combine, parse
from n4n.core.document import parse_document
from n4n.core.errors import NoEligibleEndpoint
from n4n.core.plan import plan
from n4n.core.priced import priced
from tests.support.endpoints import world


def snapshot_of(price: object, supports: list[str] | None = None) -> Snapshot:
    """One model, one endpoint at this price."""
    endpoint = {
        "model": "m",
        "account": "a",
        **({} if price is None else {"price": price}),
        **({} if supports is None else {"supports": supports}),
    }
    document, problems = parse_document(
        {
            "providers": {"p": {"dialect": "openai", "base_url": "https://api.example/v1"}},
            "accounts": {"a": {"provider": "p"}},
            "models": {"m": {}},
            "endpoints": {"e": endpoint},
        }
    )
    assert problems == []
    return compile_snapshot(document, version=1, checksum="c")


FULL = {"input_per_1m": 1, "output_per_1m": 2}
OFFERS: list[tuple[object, list[str] | None, str | None, bool]] = [
    (FULL, None, None, True),
    (FULL, None, '"flex"', False),
    (FULL, None, '"default"', True),
    (FULL, None, "7", True),
    (FULL, None, "{", True),
    ({**FULL, "service_tiers": {"flex": FULL}}, None, '"flex"', True),
    ({**FULL, "service_tiers": {"flex": {"input_per_1m": 1}}}, None, '"flex"', False),
    ({"input_per_1m": 1}, None, None, False),
    ({"input_per_1m": 1}, ["tools"], None, False),
    ({"input_per_1m": 1}, ["embeddings"], None, True),
    ({"output_per_1m": 1}, None, None, False),
    (None, None, None, False),
    (None, None, '"flex"', False),
]


@pytest.mark.parametrize(("price", "supports", "tier", "serves"), OFFERS)
@pytest.mark.parametrize("native", [False, True])
def test_an_endpoint_serves_where_the_cost_would_be_known(
    price: object, supports: list[str] | None, tier: str | None, serves: bool, native: bool
) -> None:
    snapshot = snapshot_of(price=price, supports=supports)
    endpoint = snapshot.endpoints["e"]
    fields = {} if tier is None else {"service_tier": msgspec.Raw(tier.encode())}
    chat = ChatRequest({} if native else fields, "m", native=Native("anthropic", fields) if native else None)

    (constraint,) = priced(chat).constraints

    assert constraint.admits(Offer(endpoint, endpoint.accounts[0], snapshot.models["m"])) is serves
    assert constraint.text == "require_pricing"


def test_those_without_a_price_are_eliminated_by_that_reason_and_other_directives_bind_as_well() -> None:
    within = world(snapshot_of(price=None))
    chat = ChatRequest({}, "m")

    with pytest.raises(NoEligibleEndpoint) as refused:
        plan(chat, combine(NONE, priced(chat)), within, now=0.0, draw=lambda: 0.5)
    assert json.loads(json.dumps(refused.value.eliminated)) == {"require_pricing": 1}

    within = world(snapshot_of(price=FULL))
    made = plan(chat, combine(combine(parse("max_attempts=1"), NONE), priced(chat)), within, now=0.0, draw=lambda: 0.5)
    assert [one.endpoint.id for one in made.candidates] == ["e"]
    assert made.directives.applied == ("require_pricing", "max_attempts=1")
