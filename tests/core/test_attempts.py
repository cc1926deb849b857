"""The attempt machine: what follows each kind of failure, how far it goes, and what the client is told at the end."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from n4n.core.attempts import Attempts, GiveUp, IllegalEvent, RetryBudget, Send, Stage, Stop, Wait
from n4n.core.candidates import Cooldown, EndpointView, Plan
from n4n.core.catalog import TRANSIENT, RetryPolicy, RetryRule
from n4n.core.directives import parse
from n4n.core.errors import AllCooling, AttemptsExhausted, FailedAttempt, Failure, FailureClass, GatewayError, NoEndpointNow
from n4n.core.plan import plan
from tests.support.endpoints import NOW, chat, endpoint, model, planned, scripted, snapshot, world

RATE, QUOTA, OVERLOADED, TIMEOUT, SERVER = (
    FailureClass.RATE_LIMITED, FailureClass.QUOTA_EXHAUSTED, FailureClass.OVERLOADED, FailureClass.TIMEOUT, FailureClass.SERVER_ERROR,
)  # fmt: skip
AUTH, GONE, CONTEXT, POLICY, BAD = (
    FailureClass.AUTH, FailureClass.MODEL_NOT_FOUND, FailureClass.CONTEXT_LENGTH, FailureClass.CONTENT_POLICY, FailureClass.BAD_REQUEST,
)  # fmt: skip


def waits(step: Send | Wait | GiveUp) -> float:
    """The seconds that a step asks to wait."""
    assert isinstance(step, Wait)
    return step.seconds


def fault(failure_class: FailureClass, hint: float | None = None, **fields: object) -> Failure:
    """A failure of a class."""
    return Failure(failure_class, f"the {failure_class} message", retry_after_s=hint, **fields)  # type: ignore[arg-type]


def of(count: int = 1, *, text: str = "", retry: RetryPolicy | None = None, **fields: object) -> Plan:
    """A plan with candidates a, b, c… in this order."""
    endpoints = [endpoint(name, **fields) for name in "abcdefgh"[:count]]  # type: ignore[arg-type]
    return planned(*endpoints, directives=parse(text), of=model(retry=retry or RetryPolicy()))


class Run:
    """A machine beside its clock."""

    def __init__(self, plan: Plan, *, deadline: float = NOW + 60, budget: RetryBudget | None = None) -> None:
        self.now = NOW
        self.machine = Attempts(plan, started=NOW, deadline=deadline, budget=budget or RetryBudget())

    def step(self, draw: float = 0.5) -> Send | Wait | GiveUp:
        """What to do now."""
        return self.machine.next_step(self.now, draw)

    def sent(self, failure: Failure | FailureClass | None = None, draw: float = 0.5) -> str:
        """The endpoint that is sent to, waiting first where that is asked; then this failure, 0.1 s later."""
        step = self.step(draw)
        if isinstance(step, Wait):
            self.now += step.seconds
            step = self.step(draw)
        assert isinstance(step, Send), step
        if failure is not None:
            self.now += 0.1
            self.machine.failed(fault(failure) if isinstance(failure, FailureClass) else failure, self.now)
        return str(step.candidate.endpoint.id)

    def error(self) -> GatewayError:
        """The error it gives up with."""
        step = self.step()
        assert type(step) is GiveUp, step
        return step.error

    def exhausted(self) -> AttemptsExhausted:
        """The same, where attempts were made."""
        error = self.error()
        assert isinstance(error, AttemptsExhausted)
        return error


# The straight way.


def test_the_first_candidate_is_sent_to_and_its_success_ends_the_request() -> None:
    run = Run(of(2))

    step = run.step()
    assert isinstance(step, Send) and (step.candidate.endpoint.id, step.deadline) == ("a", NOW + 60)
    assert str(run.machine.stage) == Stage.SENT

    run.machine.succeeded(NOW + 1)

    assert str(run.machine.stage) == Stage.OVER and isinstance(run.step(), GiveUp)
    assert (run.machine.sends, run.machine.fallback_attempts, run.machine.failed_attempts) == (1, 0, ())


@pytest.mark.parametrize("failure_class", sorted(TRANSIENT | {AUTH, GONE}))
def test_a_fault_of_the_endpoint_or_account_moves_on_at_once(failure_class: FailureClass) -> None:
    run = Run(of(2))

    assert run.sent(failure_class) == "a"
    assert isinstance(run.step(), Send)

    assert run.machine.fallback_attempts == 1
    (failed,) = run.machine.failed_attempts
    assert failed == FailedAttempt("a", fault(failure_class), failed.ms) and failed.ms == pytest.approx(100)
    assert repr(run.machine) == f"<Attempts sent sends=2 failed=[a:{failure_class}]>"


@pytest.mark.parametrize(("failure_class", "code"), [(BAD, "invalid_request"), (POLICY, "content_filter")])
def test_a_fault_of_the_request_ends_it_at_once(failure_class: FailureClass, code: str) -> None:
    run = Run(of(3))
    run.sent(failure_class)

    error = run.exhausted()

    assert (error.status, error.code, error.kind, error.retry_after_s) == (400, code, "invalid_request_error", None)
    assert run.machine.sends == 1


def test_what_was_wrong_with_the_request_is_told() -> None:
    run = Run(of(2))
    run.sent(fault(BAD, param="temperature", status=400))

    error = run.exhausted()

    assert (error.message, error.param) == ("the bad_request message", "temperature")


def test_a_request_that_is_too_large_for_the_provider_keeps_its_status() -> None:
    run = Run(of(1))
    run.sent(fault(BAD, status=413))

    error = run.exhausted()

    assert (error.status, error.code) == (413, "request_too_large")


# Context length.


def windows(*sizes: int | None) -> Plan:
    """A plan whose candidates a, b, c… have these context windows."""
    return planned(*(endpoint(name, context_window=size) for name, size in zip("abcdef", sizes, strict=False)))


def test_an_input_too_long_goes_on_only_to_a_larger_window() -> None:
    run = Run(windows(8, 8, 4, None, 16))

    assert run.sent(CONTEXT) == "a"
    assert run.sent(SERVER) == "e"
    assert run.sent(CONTEXT) == "e"

    error = run.exhausted()
    assert (error.status, error.code, error.message) == (400, "context_length_exceeded", "the context_length message")


@pytest.mark.parametrize("sizes", [(8, 8), (8, None), (None, 16), (8,)])
def test_an_input_too_long_ends_where_no_window_is_known_to_be_larger(sizes: tuple[int | None, ...]) -> None:
    run = Run(windows(*sizes))
    run.sent(CONTEXT)

    assert run.exhausted().code == "context_length_exceeded" and run.machine.sends == 1


def test_an_endpoint_tried_before_is_not_asked_again_once_its_window_is_known_to_be_too_small() -> None:
    run = Run(windows(4, 8))
    run.sent(SERVER)
    run.sent(CONTEXT)

    assert run.exhausted().code == "context_length_exceeded" and run.machine.sends == 2


# How far it goes.


def test_attempts_are_capped_by_the_policy_of_the_model() -> None:
    run = Run(of(8))

    assert [run.sent(SERVER) for _ in range(3)] == ["a", "b", "c"]
    assert run.exhausted().status == 502


def test_a_directive_lowers_the_cap() -> None:
    run = Run(of(8, text="max_attempts=2"))

    assert [run.sent(SERVER) for _ in range(2)] == ["a", "b"]
    assert isinstance(run.step(), GiveUp)


def test_without_fallback_only_the_first_endpoint_is_tried() -> None:
    run = Run(of(3, text="fallback=off"))

    assert [run.sent(SERVER) for _ in range(3)] == ["a", "a", "a"] and run.machine.fallback_attempts == 0

    moved = Run(of(3, text="fallback=off"))
    moved.sent(AUTH)
    assert moved.exhausted().status == 502


@pytest.mark.parametrize("failure_class", sorted(TRANSIENT - {QUOTA}))
def test_a_class_that_the_policy_does_not_retry_ends_the_request(failure_class: FailureClass) -> None:
    run = Run(of(3, retry=RetryPolicy(retry_on=frozenset())))
    run.sent(failure_class)

    assert isinstance(run.step(), GiveUp)


@pytest.mark.parametrize("failure_class", [AUTH, GONE, QUOTA])
def test_what_is_no_chance_event_moves_on_whatever_the_policy_retries(failure_class: FailureClass) -> None:
    run = Run(of(2, retry=RetryPolicy(retry_on=frozenset())))

    assert [run.sent(failure_class) for _ in range(2)] == ["a", "b"]


def test_a_class_may_have_a_smaller_limit_of_its_own() -> None:
    run = Run(of(8, retry=RetryPolicy(max_retries=4, by_class={TIMEOUT: RetryRule(1, 200)})))

    assert [run.sent(failure_class) for failure_class in (TIMEOUT, SERVER, TIMEOUT)] == ["a", "b", "c"]
    assert run.exhausted().code == "timeout"


def test_nothing_is_sent_at_or_after_the_deadline() -> None:
    late = Run(of(2), deadline=NOW)
    error = late.exhausted()
    assert (error.status, error.code, error.attempts, error.candidates) == (504, "timeout", (), 2)

    run = Run(of(2), deadline=NOW + 0.1)
    run.sent(SERVER)
    assert run.exhausted().status == 502


# The same endpoint again.


def test_an_endpoint_is_tried_again_only_when_no_other_is_left_and_after_a_backoff() -> None:
    run = Run(of(2))
    run.sent(SERVER)
    run.sent(SERVER)

    assert waits(run.step(draw=0.5)) == pytest.approx(0.1)
    assert waits(run.step(draw=0.99)) == pytest.approx(0.1)  # drawn once
    run.now += 0.05
    assert waits(run.step()) == pytest.approx(0.05)
    run.now += 0.06
    assert isinstance(run.step(), Send)


def test_the_backoff_doubles_with_every_time() -> None:
    run = Run(of(1, retry=RetryPolicy(max_retries=3, backoff_ms=1000)))
    spans = []
    for _ in range(3):
        run.sent(SERVER)
        spans.append(waits(run.step(draw=0.5)))

    assert spans == pytest.approx([0.5, 1.0, 2.0])


def test_a_backoff_that_would_pass_the_deadline_ends_the_request() -> None:
    run = Run(of(1, retry=RetryPolicy(backoff_ms=1000)), deadline=NOW + 0.5)
    run.sent(SERVER)

    assert isinstance(run.step(draw=0.9), GiveUp)


def test_a_hint_longer_than_the_backoff_is_kept() -> None:
    run = Run(of(1))
    run.sent(fault(RATE, 2.0))

    assert waits(run.step(draw=0.5)) == pytest.approx(2.0)


def test_a_long_hint_is_told_to_the_client_instead() -> None:
    run = Run(of(1))
    run.sent(fault(RATE, 30.0))

    error = run.exhausted()

    assert (error.status, error.code, error.kind) == (429, "rate_limited", "rate_limit_error")
    assert error.retry_after_s == pytest.approx(30.0) and run.machine.sends == 1


def test_of_two_endpoints_the_one_that_may_be_asked_sooner_goes_first() -> None:
    run = Run(of(2))
    run.sent(fault(RATE, 3.0))
    run.sent(fault(RATE, 1.0))

    assert run.sent() == "b"


def test_an_attempt_that_may_have_run_is_not_repeated_there() -> None:
    run = Run(of(1))
    run.sent(TIMEOUT)
    assert run.exhausted().status == 504

    unsent = Run(of(1))
    unsent.sent(fault(TIMEOUT, may_have_run=False))
    assert unsent.sent() == "a"


@pytest.mark.parametrize("failure_class", [AUTH, GONE, QUOTA])
def test_a_lasting_fault_is_never_repeated_there(failure_class: FailureClass) -> None:
    run = Run(of(1))
    run.sent(failure_class)

    assert isinstance(run.step(), GiveUp)


@pytest.mark.parametrize("failure_class", [AUTH, QUOTA, RATE])
def test_a_fault_of_the_account_is_answered_by_another_account_of_the_pool(failure_class: FailureClass) -> None:
    run = Run(of(1, accounts=["x", "y"]))
    first = run.step()
    run.machine.failed(fault(failure_class, 30.0), NOW)

    then = run.step()

    assert isinstance(first, Send) and isinstance(then, Send) and first.candidate.account != then.candidate.account
    assert run.machine.fallback_attempts == 0


def test_a_rate_limit_of_a_day_is_treated_as_a_quota_used_up() -> None:
    run = Run(of(1))
    run.sent(fault(RATE, 100_000.0))

    assert run.exhausted().code == "quota_exhausted"


def test_a_repetition_is_no_trial() -> None:
    plan = of(1)
    run = Run(replace(plan, candidates=(replace(plan.candidates[0], trial=True),)))
    run.sent(SERVER)
    run.now += 1
    step = run.step(draw=0.0)

    assert isinstance(step, Send) and not step.candidate.trial


# The retry budget.


def test_the_retry_budget_starts_full_and_fills_by_a_fifth_per_request() -> None:
    budget = RetryBudget(2)

    assert budget.tokens == 2 and budget.take() and budget.take() and not budget.take()
    for _ in range(4):
        budget.deposit()
    assert not budget.take() and budget.tokens == 0.8
    budget.deposit()
    assert budget.take()
    for _ in range(99):
        budget.deposit()
    assert budget.tokens == 2


def test_without_retry_budget_the_first_failure_is_the_answer() -> None:
    budget = RetryBudget()
    while budget.take():
        pass
    run = Run(of(2), budget=budget)
    run.sent(SERVER)

    assert run.exhausted().status == 502 and budget.tokens == pytest.approx(0.2)


def test_a_repetition_is_paid_once_also_when_it_waits() -> None:
    budget = RetryBudget()
    run = Run(of(1), budget=budget)
    run.sent(SERVER)
    run.step()
    run.step()
    run.sent()

    assert budget.tokens == 9


# Waiting for the first.


def cooling(*seconds: float) -> Plan:
    """A plan whose candidates a, b, c… are all cooling for so long."""
    names = "abc"[: len(seconds)]
    views = {name: EndpointView(cooldown_until=NOW + s, cooldown_class=RATE) for name, s in zip(names, seconds, strict=True)}
    return planned(*map(endpoint, names), views=views)


def test_a_plan_that_waits_waits_for_the_first_that_is_back() -> None:
    run = Run(cooling(3, 1))

    assert run.step() == Wait(1.0)
    run.now += 1
    assert run.sent(SERVER) == "b"
    assert waits(run.step()) == pytest.approx(1.9)
    assert run.sent() == "a"


def test_a_plan_that_waits_ends_where_nobody_is_back_in_time() -> None:
    run = Run(cooling(3, 2), deadline=NOW + 1)

    error = run.error()

    assert isinstance(error, AllCooling) and (error.status, error.retry_after_s, error.candidates) == (429, 2.0, 2)


# The end.


@pytest.mark.parametrize(
    ("classes", "status", "code"),
    [
        ((AUTH, QUOTA, GONE), 404, "model_not_found"),
        ((AUTH, QUOTA), 503, "quota_exhausted"),
        ((AUTH, AUTH), 502, "upstream_denied"),
        ((SERVER, AUTH), 502, "server_error"),
        ((SERVER, TIMEOUT), 504, "timeout"),
        ((TIMEOUT, OVERLOADED), 503, "overloaded"),
        ((OVERLOADED, RATE, SERVER), 429, "rate_limited"),
        ((RATE, POLICY), 400, "content_filter"),
    ],
)
def test_of_several_classes_the_most_telling_one_is_told(classes: tuple[FailureClass, ...], status: int, code: str) -> None:
    run = Run(of(len(classes), text=f"max_attempts={len(classes)}"))
    for failure_class in classes:
        run.sent(failure_class)

    error = run.exhausted()

    assert (error.status, error.code) == (status, code)
    assert [one.failure.failure_class for one in error.attempts] == list(classes) and error.candidates == len(classes)
    assert (error.retry_after_s is not None) == (status in (429, 503))


def test_the_message_says_how_much_was_tried() -> None:
    run = Run(of(2))
    for _ in range(3):
        run.sent(SERVER)

    assert run.error().message == "no endpoint of 'm' answered: 2 endpoints tried in 3 attempts; the provider failed"


def test_the_client_is_told_the_soonest_return_of_all_that_are_out() -> None:
    run = Run(of(2, text="max_attempts=2"))
    run.sent(fault(RATE, 40.0))
    run.sent(fault(RATE, 20.0))
    assert run.exhausted().retry_after_s == pytest.approx(20.0)

    other = Run(replace(of(1, text="max_attempts=1"), cooling=(Cooldown(NOW + 7.1, RATE),)))
    other.sent(fault(RATE, 20.0))
    assert other.exhausted().retry_after_s == pytest.approx(7.0)

    soon = Run(of(1, text="max_attempts=1"))
    soon.sent(fault(RATE, 0.2))
    assert soon.exhausted().retry_after_s == 1.0


@pytest.mark.parametrize(("cooled", "status"), [(RATE, 429), (None, 429), (GONE, 404)])
def test_no_such_model_is_told_only_where_no_cooling_endpoint_has_it(cooled: FailureClass | None, status: int) -> None:
    run = Run(replace(of(1), cooling=(Cooldown(NOW + 30, cooled),)))
    run.sent(GONE)

    assert run.exhausted().status == status


# What may be told when.


def test_a_candidate_that_was_not_dialled_counts_as_no_attempt() -> None:
    run = Run(of(2))
    run.step()
    assert run.machine.has_others
    run.machine.withdrawn()

    assert (run.machine.sends, run.machine.failed_attempts) == (0, ())
    assert run.sent(SERVER) == "b" and run.machine.fallback_attempts == 0


def test_when_every_candidate_was_taken_out_meanwhile_it_says_so() -> None:
    run = Run(of(1))
    run.step()
    run.machine.withdrawn()

    error = run.error()

    assert isinstance(error, NoEndpointNow) and (error.status, error.retry_after_s, error.candidates) == (503, 1.0, 1)


def test_a_client_that_is_gone_stops_everything() -> None:
    waiting, sending = Run(of(2)), Run(of(2))
    sending.step()

    for run in (waiting, sending):
        run.machine.abandoned()
        run.machine.abandoned()

        step = run.step()
        assert isinstance(step, Stop) and step.error.code == "client_closed" and run.machine.stage is Stage.OVER


def test_an_event_that_does_not_fit_is_refused_and_changes_nothing() -> None:
    run = Run(of(2))
    machine = run.machine
    events: tuple[Callable[[], None], ...] = (lambda: machine.failed(fault(SERVER), NOW), lambda: machine.succeeded(NOW), machine.withdrawn)
    for told in events:
        with pytest.raises(IllegalEvent, match="no attempt is under way"):
            told()
    assert repr(run.machine) == "<Attempts ready sends=0 failed=[]>"

    run.step()
    with pytest.raises(IllegalEvent, match="an attempt is under way"):
        run.step()
    assert repr(run.machine) == "<Attempts sent sends=1 failed=[]>"


def test_once_it_gave_up_it_always_says_the_same() -> None:
    run = Run(of(1, text="max_attempts=1"))
    run.sent(SERVER)

    assert run.step() is run.step()


# Whatever happens.

FAILURES = st.builds(
    Failure,
    failure_class=st.sampled_from(FailureClass),
    message=st.just("x"),
    retry_after_s=st.none() | st.floats(0, 10),
    may_have_run=st.booleans(),
)


def random_plan(
    count: int, retries: int, backoff: int, text: str, sizes: list[int | None], retry_on: set[FailureClass], waits: bool
) -> Plan:
    """A plan of a few endpoints, some ruled out by the directives, perhaps all of them cooling."""
    endpoints = [
        endpoint(name, context_window=size, accounts=["x", "y"][: 1 + at % 2], region="eu" if at < count else "us")
        for at, (name, size) in enumerate(zip("bacd", sizes, strict=True))
        if at < count or "region" in text
    ] + [endpoint("z", region="eu")]
    policy = model(retry=RetryPolicy(frozenset(retry_on) | {SERVER}, retries, backoff))
    views = {str(one.id): EndpointView(cooldown_until=NOW + 1 + at, cooldown_class=RATE) for at, one in enumerate(endpoints)}
    return planned(*endpoints, directives=parse(text), of=policy, views=views if waits else None)


PLANS = st.builds(
    random_plan,
    st.integers(1, 4), st.integers(0, 4), st.integers(1, 3000),
    st.sampled_from(["", "region=eu", "region=eu,fallback=off", "region=eu,max_attempts=2", "exclude=endpoint:b"]),
    st.lists(st.none() | st.integers(1, 3), min_size=4, max_size=4), st.sets(st.sampled_from(FailureClass)), st.booleans(),
)  # fmt: skip


@given(
    PLANS,
    st.lists(st.tuples(st.floats(0, 3), st.sampled_from(["failed", "failed", "failed", "withdrawn", "succeeded"]), FAILURES)),
    st.floats(0.1, 20),
    st.data(),
)
def test_every_run_ends_within_its_cap_its_deadline_and_its_directives(
    plan: Plan, events: list[tuple[float, str, Failure]], span: float, data: st.DataObject
) -> None:
    now, deadline, budget = NOW, NOW + span, RetryBudget(3)
    machine = Attempts(plan, started=NOW, deadline=deadline, budget=budget)
    allowed = {one.endpoint.id for one in plan.candidates}
    for _ in range(60):
        step = machine.next_step(now, data.draw(st.floats(0, 1, exclude_max=True)))
        match step:
            case Send(candidate=candidate):
                assert now < deadline and machine.sends <= plan.max_attempts
                assert candidate.endpoint.id in allowed and candidate.ready_at <= now
                gap, outcome, failure = events.pop() if events else (0.1, "failed", fault(SERVER))
                now += gap
                if outcome == "failed":
                    machine.failed(failure, now)
                elif outcome == "withdrawn":
                    machine.withdrawn()
                else:
                    machine.succeeded(now)
                    return
            case Wait(seconds=seconds):
                assert seconds > 0 and now + seconds <= deadline + 1e-9
                now += seconds
            case GiveUp(error=error):
                assert 400 <= error.status <= 504 and (error.retry_after_s is not None) == (error.status in (429, 503))
                break
    else:
        raise AssertionError("it never ended")
    assert plan.fallback or len({one.endpoint for one in machine.failed_attempts}) <= 1
    assert machine.sends == len(machine.failed_attempts) <= plan.max_attempts and budget.tokens >= 0


def test_no_endpoint_comes_twice_while_another_has_not_been_tried() -> None:
    held = snapshot([endpoint("a"), endpoint("b"), endpoint("c"), endpoint("d")], [model(retry=RetryPolicy(max_retries=5))])
    run = Run(plan(chat(), parse("sort=health"), world(held), now=NOW, draw=scripted()))

    assert [run.sent(failure) for failure in (RATE, TIMEOUT, OVERLOADED, SERVER)] == ["a", "b", "c", "d"]


# A cooldown that began after the plan was made.


def test_a_candidate_that_cools_meanwhile_is_asked_when_it_is_back() -> None:
    run = Run(of(1))
    run.step()
    run.machine.postponed(Cooldown(NOW + 2, RATE), NOW)

    assert run.machine.sends == 0
    assert run.step() == Wait(2.0)
    assert run.sent() == "a" and run.machine.sends == 1


def test_another_candidate_goes_before_one_that_cools_meanwhile() -> None:
    run = Run(of(2))
    run.step()
    run.machine.postponed(Cooldown(NOW + 2, RATE), NOW)

    assert run.sent(SERVER) == "b" and run.sent() == "a" and run.now == NOW + 2


def test_a_repetition_waits_for_a_cooldown_that_grew_meanwhile() -> None:
    run = Run(of(1))
    run.sent(fault(RATE, 1.0))
    run.now += waits(run.step())
    run.step()
    run.machine.postponed(Cooldown(run.now + 4, RATE), run.now)

    assert waits(run.step()) == pytest.approx(4.0)
    assert run.sent() == "a"


@pytest.mark.parametrize("tried", [False, True])
def test_a_cooldown_that_lasts_too_long_is_told_instead_of_waited_for(tried: bool) -> None:
    run = Run(of(1))
    if tried:
        run.sent(fault(RATE, 1.0))
        run.now += waits(run.step())
    run.step()
    run.machine.postponed(Cooldown(run.now + 30, RATE), run.now)

    error = run.error()
    assert (error.status, error.code) == (429, "rate_limited")
    assert error.retry_after_s == pytest.approx(30.0 if not tried else 1.0)


def test_a_spare_account_that_cools_too_is_not_asked_for_ever() -> None:
    run = Run(of(1, accounts=["x", "y"]))
    run.sent(RATE)
    step = run.step()
    assert isinstance(step, Send) and step.candidate.account.name != run.machine._plan.candidates[0].account.name
    run.machine.postponed(Cooldown(run.now + 2, RATE), run.now)

    assert waits(run.step()) == pytest.approx(2.0)
    assert run.sent(SERVER) == "a"


@pytest.mark.parametrize("failure_class", [SERVER, OVERLOADED, RATE])
def test_where_the_provider_says_that_no_other_try_helps_it_is_not_asked_again(failure_class: FailureClass) -> None:
    run = Run(of(1))
    run.sent(fault(failure_class, repeatable=False))

    assert run.exhausted().attempts[0].failure.failure_class is failure_class


def test_an_attempt_may_go_through_another_account_of_the_pool_and_through_no_other_endpoint() -> None:
    run = Run(of(2))
    step = run.step()
    assert isinstance(step, Send)
    other = replace(step.candidate, spare_accounts=(step.candidate.account,))
    run.machine.through(other)
    with pytest.raises(IllegalEvent):
        run.machine.through(of(2).candidates[1])
    run.machine.failed(fault(SERVER), run.now)
    assert [one.endpoint for one in run.machine.failed_attempts] == ["a"]
    with pytest.raises(IllegalEvent):
        run.machine.through(other)
