"""A prober's turn as a command for Redis, and its answer as a value. No I/O but reading the script once."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import cast

from n4n.core.errors import StoreRefused
from n4n.core.probes.board import Answer, Turn
from n4n.runtime.stores import Command, Reply, Script, Word

SCRIPT = Script("probe turn", files("n4n.runtime.probes").joinpath("lua", "turn.lua").read_text())
KEYS = ("n4n:{probes}:members", "n4n:{probes}:due", "n4n:{probes}:leases", "n4n:{probes}:spent")


def turn(told: Turn) -> Command:
    """It may be repeated."""
    args: list[Word] = [told.me, repr(told.alive_ms), told.day, len(told.spent), len(told.ended), len(told.claims), told.most]
    for purse, pico in told.spent.items():
        args += (purse, pico)
    for one in told.ended:
        args += (one.task, repr(one.again_ms))
    for claim in told.claims:
        budget = -1 if claim.budget_pico is None else claim.budget_pico
        args += (claim.task, repr(claim.lease_ms), repr(claim.spread_ms), claim.purse, claim.cost_pico, budget)
    return SCRIPT.call(KEYS, args)


def heard(told: Turn, reply: Reply) -> Answer:
    """What Redis answered. StoreRefused: it is no answer to this."""
    match reply:
        case [bytes(now), list(members), list(waits), list(totals)] if len(waits) == len(told.claims) and not len(totals) % 2:
            try:
                return Answer(
                    float(now),
                    frozenset(_texts(members)),
                    tuple(map(float, _texts(waits))),
                    dict(zip(_texts(totals[::2]), map(int, _texts(totals[1::2])), strict=True)),
                )
            except ValueError as error:  # somebody else wrote there
                raise StoreRefused("CROSSED", "probe turn") from error
        case _:
            raise StoreRefused("CROSSED", "probe turn")


def _texts(words: Sequence[Reply]) -> list[str]:
    return [cast(bytes, word).decode() for word in words]
