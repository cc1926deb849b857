"""The plan of a calm day is the plan that looking closely makes, and it is not made where anything is unusual."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress

import pytest
from msgspec.structs import replace

from n4n.core import calm, plan
from n4n.core.breaker import Breaker, BreakerState
from n4n.core.candidates import Cooldown, EndpointView, Plan, World
from n4n.core.catalog import Snapshot
from n4n.core.chat import ChatRequest
from n4n.core.directives import NONE
from n4n.core.errors import GatewayError, ModelNotFound
from tests.support.endpoints import NOW, endpoint, model, priced, snapshot, world

STRATEGIES = ("balanced", "health", "cost", "latency", "throughput")
KEYS: tuple[frozenset[str], ...] = (frozenset(), frozenset(("m", "n")), frozenset(("other",)), frozenset(("m",)))


def drawn(seed: int) -> Iterator[tuple[World, ChatRequest, frozenset[str]]]:
    """Worlds with pools, tiers, pins, states and a little trouble now and then, and requests to them."""
    chance = random.Random(seed)
    policies = ("drop", "drop", "drop", "route_away", "reject")
    models = [model(name, strategy=chance.choice(STRATEGIES), unsupported_params=chance.choice(policies)) for name in ("m", "n")]
    endpoints = [
        endpoint(
            f"e{place}",
            chance.choice(("m", "n")),
            chance.choice(("acme", "umbrella")),
            accounts=chance.choice(((), (), ("a", "b"), ("a", "b", "c"))),
            state=chance.choice(("active", "active", "active", "disabled", "draining")),
            dialect=chance.choice(("openai", "openai", "openai", "bedrock")),
            weight=chance.choice((1.0, 2.0, 0.5)),
            price=chance.choice((None, priced(1, 2), priced(3, 1))),
            supports=chance.choice((None, None, frozenset(("tools",)), frozenset(("tools", "vision")))),
            context_window=chance.choice((None, 1_000, 2_000)),
        )
        for place in range(chance.randint(1, 5))
    ]
    held = snapshot(endpoints, models, {"t": ("n", "m")})
    views = {
        one.id: EndpointView(
            breaker=BreakerState(chance.choice((Breaker.CLOSED,) * 9 + (Breaker.OPEN,)), until=NOW + 5),
            cooldown_until=chance.choice((0.0,) * 9 + (NOW + 3,)),
            overloaded_until=chance.choice((0.0,) * 9 + (NOW + 3,)),
            score=chance.choice((1.0, 1.0, 0.5, 0.25)),
            latency_ms=chance.choice((None, 100.0, 200.0)),
            tokens_per_s=chance.choice((None, 10.0)),
        )
        for one in endpoints
        if chance.random() < 0.6
    }
    unusable = [name for name in ("a", "e0-account") if chance.random() < 0.1]
    cooling = {"b": Cooldown(NOW + 3)} if chance.random() < 0.1 else {}
    share = chance.choice((0.0, 0.5, 1.0))
    factors = {"a": share, "e0-account": 0.5} if chance.random() < 0.2 else {}
    left = {("b", f"{chance.choice(endpoints).upstream_model}"): share} if chance.random() < 0.2 else {}
    within = replace(world(held, views, unusable, cooling), factors=factors, left=left)
    for name in ("m", "n", "tier/t", "acme/m", "nobody"):
        for allowed in KEYS:
            features = chance.choice((frozenset[str](), frozenset(("tools",)), frozenset(("seed",)), frozenset(("tools", "vision"))))
            size = chance.choice((0, 0, 0, 0, 0, 7_000, 12_000, 20_000))
            said = chance.choice((None, None, "drop", "route_away"))
            yield within, ChatRequest({}, name, features=features, unsupported_params=said, body_bytes=size), allowed


def made(within: World, request: ChatRequest, allowed: frozenset[str], seed: int) -> Plan | str:
    """A plan, or the error in its place."""
    try:
        return plan.plan(request, NONE, within, allowed_models=allowed, now=NOW, draw=random.Random(seed).random)
    except GatewayError as error:
        return f"{type(error).__name__}: {error.message}"


def test_it_is_what_looking_closely_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    calm_days = 0
    for seed in range(400):
        for within, request, allowed in drawn(seed):
            found = None
            with suppress(ModelNotFound):
                found = calm.calm_plan(request, within, allowed, NOW, random.Random(seed).random)
            if found is not None:
                calm_days += 1
                with monkeypatch.context() as closely:
                    closely.setattr(plan, "calm_plan", lambda *_: None)
                    closely_made = made(within, request, allowed, seed)
                    assert isinstance(closely_made, Plan) and _unweighed(found) == _unweighed(closely_made)
    assert calm_days > 500, "the quick way was taken often enough to have been compared"


def _unweighed(made: Plan) -> Plan:
    """Where there is one candidate its weight says nothing."""
    if len(made.candidates) > 1:
        return made
    return replace(made, candidates=tuple(replace(one, weight=1.0) for one in made.candidates))


def test_what_is_kept_of_names_is_bounded() -> None:
    held: Snapshot = snapshot([endpoint("e")], [model(aliases=tuple(f"a{number}" for number in range(calm.MOST_NAMES + 1)))])
    for number in range(calm.MOST_NAMES + 1):
        made(world(held), ChatRequest({}, f"a{number}"), frozenset(), 0)
    assert len(held.memory) == 1
