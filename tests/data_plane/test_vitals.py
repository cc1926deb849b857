"""What a router tells of its models: how many endpoints each has that it can rely on."""

from __future__ import annotations

import pytest

from data_plane.vitals import usable_of_models
from n4n.core.breaker import Breaker, BreakerState
from n4n.core.candidates import Cooldown, EndpointView
from n4n.core.health.policy import HealthPolicy
from tests.support.endpoints import NOW, endpoint, model, snapshot, world

WAITING = NOW + 9
TWO = snapshot([endpoint("a"), endpoint("b"), endpoint("c", of="other")])


def test_models_that_have_all_their_endpoints_are_not_told() -> None:
    assert usable_of_models(world(TWO, {"a": EndpointView(score=0.25)}), NOW) == {}


@pytest.mark.parametrize(
    "view",
    [
        EndpointView(score=0.24),  # after two probes that failed: too few for the breaker
        EndpointView(breaker=BreakerState(Breaker.OPEN, until=WAITING)),
        EndpointView(cooldown_until=WAITING),
    ],
)
def test_an_endpoint_that_mostly_fails_is_as_little_to_rely_on_as_one_that_is_out(view: EndpointView) -> None:
    assert usable_of_models(world(TWO, {"a": view}), NOW) == {"m": 1}


def test_an_endpoint_without_an_account_that_may_be_asked_is_none() -> None:
    assert usable_of_models(world(TWO, unusable=["a-account"]), NOW) == {"m": 1}
    assert usable_of_models(world(TWO, cooling_accounts={"c-account": Cooldown(WAITING)}), NOW) == {"other": 0}


def test_what_nobody_has_heard_of_is_relied_on_however_little_its_model_expects() -> None:
    wary = snapshot([endpoint("a")], [model(health=HealthPolicy(neutral=0.2))])
    assert usable_of_models(world(wary, {"a": EndpointView(score=0.2)}), NOW) == {}
    assert usable_of_models(world(wary, {"a": EndpointView(score=0.05)}), NOW) == {}
    assert usable_of_models(world(wary, {"a": EndpointView(score=0.049)}), NOW) == {"m": 0}
