"""What providers charge beyond what is used: learned from refusals, forgotten with answers."""

from __future__ import annotations

import random

import pytest

from n4n.core.limits.charges import MOST, Charges, taken


def test_who_refuses_what_it_has_enough_of_charges_more_than_we_thought() -> None:
    charges = Charges()
    charges.refused(reserved=100, remaining=150)
    assert charges.factor == pytest.approx(1.89, abs=0.01)
    assert repr(charges) == "<Charges 1.89>"


@pytest.mark.parametrize(("reserved", "remaining"), [(100, 99), (100, 0), (0, 50)])
def test_a_refusal_for_want_of_tokens_teaches_nothing(reserved: float, remaining: float) -> None:
    charges = Charges()
    charges.refused(reserved, remaining)
    assert charges.factor == 1.0


def test_it_is_never_believed_to_be_beyond_reason_and_forgotten_in_time() -> None:
    charges = Charges()
    for _ in range(10):
        charges.refused(1, 1_000_000)
    assert charges.factor == MOST
    for _ in range(100_000):
        charges.admitted()
    assert charges.factor < 1.01


def test_a_provider_that_charges_three_times_as_much_refuses_less_than_one_in_a_hundred() -> None:
    charges, dice, refused = Charges(), random.Random(7), 0
    for number in range(10_000):
        reserved, left = 100 * charges.factor, dice.uniform(100 * charges.factor, 400)
        if left < 300:
            charges.refused(reserved, left)
            refused += number >= 100
        else:
            charges.admitted()
    assert refused < 100
    assert 2.9 < charges.factor < 3.8


@pytest.mark.parametrize(("ahead", "stays"), [(-50, 100), (0, 100), (100, 100), (140, 90), (500, 0), (9000, 0)])
def test_unused_tokens_come_back_where_the_provider_has_them(ahead: float, stays: float) -> None:
    assert taken(100, ahead) == stays
