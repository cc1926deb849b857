"""What an ill endpoint's share comes to, and what clients notice of incidents: next to nothing."""

from __future__ import annotations

import random
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from data_plane.health import Health, Measured
from n4n.core.breaker import Breaker, allows
from n4n.core.catalog import BreakerPolicy, Model, StreamGuardPolicy
from n4n.core.directives import NONE, parse
from n4n.core.errors import Failure, FailureClass
from n4n.core.plan import plan
from tests.simulation.incidents import INCIDENTS, Incident, run
from tests.simulation.load import GOOD
from tests.simulation.world import DONE, FINISH, ROLE, Script, spoken
from tests.soak.health import main
from tests.support.endpoints import chat, endpoint, model, priced, snapshot, world

REQUESTS, RATE = 20_000, 100.0
BROKE = Failure(FailureClass.SERVER_ERROR, "x")
TOLERANT = model(breaker=BreakerPolicy(failure_threshold=1_000, window_sec=0.1))


def shares(
    errors: Mapping[str, float], policy: Model, weights: Mapping[str, float], sort: str = "", requests: int = REQUESTS
) -> tuple[dict[str, float], ...]:
    """Of so many requests: where each went first, and where it should have gone by weight × score of those that are let through."""
    now, dice = [1000.0], random.Random(5)
    endpoints = [endpoint(name, weight=weights.get(name, 1.0), price=priced(1 + at, 1)) for at, name in enumerate(errors)]
    held = snapshot(endpoints, [policy])
    health = Health(lambda: now[0], dice.random)
    health.keep_only(held)
    within = replace(world(held), views=health.views)
    went, due = dict.fromkeys(errors, 0.0), dict.fromkeys(errors, 0.0)
    for _ in range(requests):
        now[0] += 1 / RATE
        open_now = {name: health.views.get(name) for name in errors}
        let = {name: view is None or allows(view.breaker, now[0]) for name, view in open_now.items()}
        panic = not any(let.values())
        drawn = {
            name: weights.get(name, 1.0) * (1.0 if view is None or panic or view.breaker.kept is not Breaker.CLOSED else view.score)
            for name, view in open_now.items()
            if panic or let[name]
        }
        for name, weight in drawn.items():
            due[name] += weight / sum(drawn.values()) / requests
        made = plan(chat(), parse(sort) if sort else NONE, within, now=now[0], draw=dice.random)
        went[made.candidates[0].endpoint.id] += 1 / requests
        for candidate in made.candidates:
            if candidate.trial and not started(health, candidate.endpoint.id):
                continue
            if dice.random() >= errors[candidate.endpoint.id]:
                health.succeeded(candidate, held, Measured(0.3))
                break
            health.failed(candidate, BROKE, held)
    return went, due


def started(health: Health, name: str) -> bool:
    """Takes a trial; without a store that never waits."""
    try:
        health.shared.take_trial(name).send(None)
    except StopIteration as answer:
        return bool(answer.value)
    raise AssertionError("it waited")


def close(went: Mapping[str, float], due: Mapping[str, float]) -> bool:
    """Within three points."""
    return all(abs(went[name] - due[name]) <= 0.03 for name in due)


@pytest.mark.parametrize(("policy", "worse"), [(TOLERANT, 0.5), (model(), 0.4)])
def test_a_degraded_endpoint_has_the_square_of_its_success_rate(policy: Model, worse: float) -> None:
    errors = {"good": 0.0, "degraded": 0.3, "worse": worse}
    went, due = shares(errors, policy, {})

    documented = {name: (1 - rate) ** 2 for name, rate in errors.items()}
    assert close(went, {name: score / sum(documented.values()) for name, score in documented.items()}), went
    assert close(went, due)


def test_configured_weights_count_beside_scores() -> None:
    errors, weights = {"good": 0.0, "degraded": 0.3}, {"good": 1.0, "degraded": 3.0}
    went, _ = shares(errors, TOLERANT, weights)

    assert close(went, {"good": 1 / 2.47, "degraded": 1.47 / 2.47}), went


def test_with_the_usual_breaker_shares_are_what_weights_and_scores_of_the_moment_say() -> None:
    went, due = shares({"good": 0.0, "degraded": 0.3, "worse": 0.8}, model(), {})

    assert close(went, due), (went, due)
    assert went["worse"] < went["degraded"] < went["good"] and went["worse"] > 0


def test_where_all_are_dead_all_are_used_by_weight() -> None:
    weights = {"a": 1.0, "b": 2.0, "c": 3.0}
    for policy in (TOLERANT, model()):
        went, _ = shares(dict.fromkeys(weights, 1.0), policy, weights, requests=5_000)
        assert close(went, {"a": 1 / 6, "b": 2 / 6, "c": 3 / 6}), went


def test_the_cheapest_keeps_a_trickle_while_it_is_sick() -> None:
    went, _ = shares({"sick": 0.9, "good": 0.0}, TOLERANT, {}, "sort=cost", 5_000)

    assert 0.02 < went["sick"] < 0.12


@pytest.mark.parametrize("name", INCIDENTS)
def test_an_incident_is_hardly_noticed(name: str) -> None:
    course = run(INCIDENTS[name], rate=20, seconds=200)

    assert len(course.began) > 3_000
    assert course.failure_rate <= 0.001, f"{course.failed} of {len(course.began)}"
    assert course.trials_at_once <= 1


def test_an_outage_costs_the_share_at_once_and_gives_it_back_by_steps() -> None:
    course = run(INCIDENTS["outage"], rate=20, seconds=200)

    assert course.share(end=30) > 0.25
    assert course.share(begin=35, end=120) < 0.02
    assert course.share(begin=170) > 0.25
    after = [score for at, score in course.scores if at >= 120 and score]
    steps = sorted({round(score, 2) for score in after if score < 0.3})
    assert min(after) <= 0.06 and any(0.24 <= step <= 0.27 for step in steps), steps
    assert after[-1] > 0.95


def test_latency_that_drifts_away_moves_who_asks_for_the_quickest() -> None:
    course = run(INCIDENTS["drift"], rate=10, seconds=240)

    assert course.share(end=40) > 0.9 and course.share(begin=150) < 0.1
    assert max(course.ttft_s) < 2.0


def trickle(_: float, stream: bool, __: random.Random) -> Script:
    """A stream that says a word every two seconds."""
    if not stream:
        return GOOD[False]
    return Script(0.1, 200, ((0.0, ROLE), *((2.0 if at else 0.0, spoken("1", at)) for at in range(5)), (0.0, FINISH), (0.0, DONE)))


def test_a_stream_that_trickles_is_left_for_another_before_the_client_saw_it() -> None:
    guarded = model(stream_guard=StreamGuardPolicy(max_hold_ms=300, min_tokens_per_s=10.0))
    course = run(Incident("a word every two seconds", trickle, guarded), rate=10, seconds=30)

    assert course.failed == 0
    assert max(course.ttft_s) < 1.5, "nobody waited for the second word"
    assert course.share(begin=10) < course.share(end=2)


def test_incidents_can_be_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--rate", "5", "--seconds", "20", "--folder", str(tmp_path)]) == 0

    assert {path.stem for path in tmp_path.iterdir()} == {f"health-{name}" for name in INCIDENTS}
    assert all(ElementTree.parse(path).getroot().tag.endswith("svg") for path in tmp_path.iterdir())
    assert capsys.readouterr().out.count("\n") == 2 + len(INCIDENTS)
