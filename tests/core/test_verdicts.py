"""What a failure is charged with, and how a client sees its class."""

from __future__ import annotations

import math

import pytest

from n4n.core.errors import Failure, FailureClass
from n4n.core.verdicts import TELLING, Reaction, class_of, hint_s, most_telling, outcome_of, reaction


def charge(failure_class: FailureClass, hint: float | None = None) -> Reaction:
    """The reaction to one failure."""
    return reaction(Failure(failure_class, "x", retry_after_s=hint))


@pytest.mark.parametrize(
    ("failure_class", "hint", "expected"),
    [
        (FailureClass.RATE_LIMITED, None, Reaction(1.0, False, 0.0)),
        (FailureClass.RATE_LIMITED, 30.0, Reaction(30.0, False, 0.0)),
        (FailureClass.RATE_LIMITED, 90_000.0, Reaction(86_400.0, True, 0.0)),
        (FailureClass.QUOTA_EXHAUSTED, None, Reaction(900.0, True, 0.0)),
        (FailureClass.QUOTA_EXHAUSTED, 1e9, Reaction(86_400.0, True, 0.0)),
        (FailureClass.AUTH, 1.0, Reaction(300.0, True, 0.0)),
        (FailureClass.MODEL_NOT_FOUND, None, Reaction(300.0, False, 0.0)),
        (FailureClass.OVERLOADED, None, Reaction(5.0, False, 0.5, soft=True)),
        (FailureClass.OVERLOADED, 12.0, Reaction(12.0, False, 0.5)),
        (FailureClass.OVERLOADED, 9_000.0, Reaction(300.0, False, 0.5)),
        (FailureClass.TIMEOUT, 9.0, Reaction(None, False, 1.0)),
        (FailureClass.SERVER_ERROR, None, Reaction(None, False, 1.0)),
        (FailureClass.CONTEXT_LENGTH, None, Reaction(None, False, 0.0)),
        (FailureClass.CONTENT_POLICY, None, Reaction(None, False, 0.0)),
        (FailureClass.BAD_REQUEST, None, Reaction(None, False, 0.0)),
    ],
)
def test_a_failure_is_charged_to_what_it_speaks_of(failure_class: FailureClass, hint: float | None, expected: Reaction) -> None:
    assert charge(failure_class, hint) == expected


@pytest.mark.parametrize("hint", [None, math.nan, math.inf, -1.0])
def test_a_hint_that_is_nonsense_is_none(hint: float | None) -> None:
    assert hint_s(Failure(FailureClass.RATE_LIMITED, "x", retry_after_s=hint)) is None
    assert charge(FailureClass.RATE_LIMITED, hint) == Reaction(1.0, False, 0.0)


def test_a_rate_limit_that_lasts_a_day_is_a_quota_used_up() -> None:
    assert class_of(Failure(FailureClass.RATE_LIMITED, "x", retry_after_s=86_400.0)) is FailureClass.QUOTA_EXHAUSTED
    assert class_of(Failure(FailureClass.RATE_LIMITED, "x", retry_after_s=86_399.0)) is FailureClass.RATE_LIMITED
    assert class_of(Failure(FailureClass.OVERLOADED, "x", retry_after_s=86_400.0)) is FailureClass.OVERLOADED


def test_every_class_has_a_place_and_a_status_that_speaks_of_providers() -> None:
    assert set(TELLING) == set(FailureClass)
    assert {outcome_of(failure_class).status for failure_class in FailureClass} == {400, 404, 429, 502, 503, 504}
    assert most_telling({FailureClass.AUTH, FailureClass.TIMEOUT, FailureClass.OVERLOADED}) is FailureClass.OVERLOADED


def test_an_overload_without_a_hint_is_a_soft_cooldown_and_an_ordered_one_binds() -> None:
    assert charge(FailureClass.OVERLOADED, None).soft and not charge(FailureClass.OVERLOADED, 2.0).soft
    assert not any(charge(one, None).soft for one in FailureClass if one is not FailureClass.OVERLOADED)
