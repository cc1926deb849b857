"""What a router remembers of endpoints: cooldowns and whom they are charged to, growth, latency and speed."""

from __future__ import annotations

import math

import pytest

from data_plane.health import Health, Measured
from data_plane.health_gauges import HealthGauges
from n4n.core.candidates import Candidate
from n4n.core.catalog import BreakerPolicy
from n4n.core.errors import Failure, FailureClass
from tests.support.endpoints import NOW, endpoint, model, snapshot
from tests.support.router import instruments_of_tests

RATE, OVERLOADED, AUTH, SERVER = FailureClass.RATE_LIMITED, FailureClass.OVERLOADED, FailureClass.AUTH, FailureClass.SERVER_ERROR


class Watched:
    """Health over endpoints a (one account) and b (two), beside its clock; its dice give nought."""

    def __init__(self) -> None:
        self.now = NOW
        self.health = Health(lambda: self.now, lambda: 0.0)
        self.held = snapshot([endpoint("a"), endpoint("b", accounts=["x", "y"])], [model(breaker=BreakerPolicy(failure_threshold=1000))])
        self.a, self.b = (Candidate(one, one.accounts[0], 1.0) for one in self.held.endpoints.values())

    def fails(self, failure_class: FailureClass, hint: float | None = None, at: Candidate | None = None) -> None:
        """A call fails."""
        self.health.failed(at or self.a, Failure(failure_class, "x", retry_after_s=hint), self.held)

    def succeeds(self, measured: Measured | None = None) -> None:
        """A call to a succeeds, a moment later."""
        self.now += 0.1
        self.health.succeeded(self.a, self.held, measured or Measured(0.1))

    def out_s(self, at: Candidate | None = None) -> float:
        """For how long a binding cooldown keeps a candidate out."""
        cooldown = self.health.cooling(at or self.a)
        return 0.0 if cooldown is None else cooldown.until - self.now


def test_the_longest_signal_wins_whatever_came_last() -> None:
    watched = Watched()
    for hint in (1, 60, 2, None):
        watched.fails(RATE, hint)

    assert watched.out_s() == 60.0
    watched.now += 60
    assert watched.out_s() == 0.0


def test_rate_limits_without_a_hint_double_per_incident_and_not_per_call() -> None:
    watched = Watched()
    seen = []
    for _ in range(9):
        for _ in range(5):  # five calls that were under way together
            watched.fails(RATE)
        seen.append(watched.out_s())
        watched.now += seen[-1]

    assert seen == [1, 2, 4, 8, 16, 32, 64, 64, 64]
    watched.succeeds()
    watched.fails(RATE)
    assert watched.out_s() == 1.0


def test_an_overload_keeps_an_endpoint_out_softly_for_at_most_twenty_seconds() -> None:
    watched = Watched()
    seen = []
    for _ in range(4):
        watched.fails(OVERLOADED)
        assert watched.out_s() == 0.0
        seen.append(watched.health.views["a"].overloaded_until - watched.now)
        watched.now += seen[-1]

    assert seen == [5, 10, 20, 20]
    watched.fails(OVERLOADED)
    watched.succeeds()
    assert watched.health.views["a"].overloaded_until == 0.0
    watched.fails(OVERLOADED, 7)
    assert watched.out_s() == 7.0


@pytest.mark.parametrize(("failure_class", "account"), [(AUTH, True), (RATE, True), (FailureClass.MODEL_NOT_FOUND, False), (SERVER, None)])
def test_a_failure_is_charged_to_the_account_the_endpoint_or_the_breaker(failure_class: FailureClass, account: bool | None) -> None:
    watched = Watched()
    watched.fails(failure_class, at=watched.b)

    assert ("x" in watched.health.cooling_accounts) is (account is True)
    other = Candidate(watched.b.endpoint, watched.b.endpoint.accounts[1], 1.0)
    assert (watched.out_s(watched.b) > 0, watched.out_s(other) > 0) == (account is not None, account is False)


def test_what_was_measured_is_averaged_and_what_was_not_stays_unknown() -> None:
    watched = Watched()
    watched.succeeds(Measured(0.5, None, 0.5, 3))
    view = watched.health.views["a"]
    assert (view.latency_ms, view.ttft_ms, view.tokens_per_s) == (500.0, None, None)

    watched.succeeds(Measured(0.2, 0.2, 1.0, 100))
    watched.succeeds(Measured(0.7, 0.7, 1.0, 50))
    watched.succeeds(Measured(0.6, 0.6, 0.0, 50))  # came at once: no speed to tell
    view = watched.health.views["a"]
    assert view.ttft_ms == pytest.approx(0.8 * (0.8 * 200 + 0.2 * 700) + 0.2 * 600)
    assert view.tokens_per_s == pytest.approx(0.8 * 100 + 0.2 * 50)


def test_what_leaves_the_catalog_is_forgotten() -> None:
    watched = Watched()
    watched.fails(RATE)
    watched.fails(AUTH, at=watched.b)
    watched.health.budget("m")

    watched.health.keep_only(snapshot([endpoint("c")], [model("n")]))

    assert (watched.health.views, watched.health.cooling_accounts, watched.out_s()) == ({}, {}, 0.0)


def test_gauges_show_every_endpoint_of_the_catalog_and_what_changed() -> None:
    watched, see = Watched(), instruments_of_tests()
    gauges = HealthGauges(see, watched.health)
    watched.health.keep_only(watched.held)
    gauges.use(watched.held)
    gauges.show(watched.now)
    of_a, of_b = ("acme", "m", "a"), ("acme", "m", "b")
    assert [see.endpoint_health.labels(*one)._value.get() for one in (of_a, of_b)] == [1.0, 1.0]

    watched.succeeds(Measured(0.2, 0.2, 1.0, 100))
    for _ in range(3):
        watched.fails(SERVER, at=watched.b)
    gauges.show(watched.now)
    assert see.endpoint_health.labels(*of_b)._value.get() == pytest.approx(0.95**6, rel=1e-3)
    assert see.endpoint_ttft.labels(*of_a, "0.5")._value.get() == pytest.approx(0.2, rel=0.1)
    assert see.endpoint_speed.labels(*of_a, "0.95")._value.get() == pytest.approx(100, rel=0.15)

    gauges.use(snapshot([endpoint("a")], [model()]))
    assert math.isnan(see.endpoint_health.labels(*of_b)._value.get())
