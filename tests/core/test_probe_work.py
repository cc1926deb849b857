"""What probers of a catalog have to do."""

from __future__ import annotations

import pytest

from n4n.core.catalog import Balance, ProbePolicy, Provider, Timeouts
from n4n.core.probes.work import BalanceLook, Checks, Probe, Work, check_timeout_s, first_token_s, pace, work_of
from tests.support.endpoints import endpoint, model, priced, snapshot

SPOKEN = frozenset({"openai"})


def test_each_endpoint_is_probed_and_checked_and_each_watched_balance_looked_at() -> None:
    held = snapshot(
        [endpoint("a", price=priced(1, 2)), endpoint("b", of="n"), endpoint("v", of="v", supports=frozenset({"embeddings"}))],
        [model("n", probe=ProbePolicy(interval_sec=10, timeout_ms=2_000))],
    )
    watched = held.endpoints["a"].accounts[0]
    object.__setattr__(watched, "balance", Balance(0, "openrouter"))

    work = work_of(held, SPOKEN)

    assert set(work.tasks) == {"p:a", "c:a", "p:b", "c:b", "p:v", "b:a-account"}
    a, b = work.jobs["p:a"], work.jobs["p:b"]
    assert isinstance(a, Probe) and isinstance(b, Probe) and isinstance(work.jobs["c:a"], Checks)
    assert (a.task.interval_s, a.task.lease_s, a.task.purse) == (30.0, 7.0, "acme") and a.task.cost_pico > 0
    assert (b.task.interval_s, b.task.lease_s, b.task.cost_pico) == (10, 4.0, 0)
    assert work.jobs["c:a"].task.cost_pico > a.task.cost_pico
    look = work.jobs["b:a-account"]
    assert isinstance(look, BalanceLook) and (look.api, look.account) == ("openrouter", watched)


def test_an_account_of_two_endpoints_is_looked_at_once() -> None:
    at = Provider("acme", "openai", "https://openrouter.ai/api/v1")
    one, two = (endpoint(name, accounts=["shared"]) for name in "ab")
    for each in (one, two):
        object.__setattr__(each, "provider", at)

    assert [name for name in work_of(snapshot([one, two]), SPOKEN).jobs if name.startswith("b:")] == ["b:shared"]


def test_who_is_not_probed() -> None:
    strange, off, out = endpoint("a", dialect="gemini"), endpoint("b", of="off"), endpoint("c", state="disabled")

    work = work_of(snapshot([strange, off, out], [model("off", probe=ProbePolicy(enabled=False))]), SPOKEN)

    assert work == Work({}, {})


def test_an_interval_of_zero_means_no_deeper_checks() -> None:
    work = work_of(snapshot([endpoint("a")], [model(probe=ProbePolicy(checks_interval_sec=0.0))]), SPOKEN)

    assert set(work.tasks) == {"p:a"}


def test_a_profile_that_makes_no_request_is_told() -> None:
    work = work_of(snapshot([endpoint("a")], [model(probe=ProbePolicy(param="n", max_tokens=9_999))]), SPOKEN)

    assert not work.jobs and work.unaskable["endpoint a"].startswith("the probe makes no request: n must be")


def test_a_balance_that_nobody_tells_is_told() -> None:
    held = snapshot([endpoint("a"), endpoint("b", state="disabled")])
    object.__setattr__(held.endpoints["a"].accounts[0], "balance", Balance())

    work = work_of(held, SPOKEN)

    assert list(work.unaskable) == ["account a-account"] and "b:a-account" not in work.jobs


@pytest.mark.parametrize(("interval_s", "turn_s"), [(30.0, 1.0), (10.0, 0.4), (0.5, 0.1)])
def test_turns_are_as_quick_as_the_shortest_interval_needs(interval_s: float, turn_s: float) -> None:
    work = work_of(snapshot([endpoint("a")], [model(probe=ProbePolicy(interval_sec=interval_s))]), SPOKEN)

    assert pace(work) == (turn_s, 5 * turn_s)
    assert pace(Work({}, {}))[0] == 1.0
    assert check_timeout_s(model()) == 30.0


def test_a_first_token_may_take_no_longer_than_routers_would_wait() -> None:
    assert first_token_s(model()) == 5.0
    assert first_token_s(model(timeouts=Timeouts(first_token_ms=2_000))) == 2.0
    assert first_token_s(model(timeouts=Timeouts(first_token_ms=9_000))) == 5.0
