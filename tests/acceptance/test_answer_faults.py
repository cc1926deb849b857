"""Providers that limit, fail, refuse or dawdle, as every real client sees it, and what they think of n4n for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest
from llmock.scenarios import Delay, Match

from tests.support.clients import CLIENTS, RAISED, SDKS, Client, in_turn, told_code
from tests.support.router import running_router
from tests.support.simulated import PLACES, Simulated, route

ANSWER, OTHER = "the answer of the first", "the answer of the other"


@dataclass(frozen=True)
class Fault:
    """What befalls the first company, and what has to come of it.

    `moves`: another company could answer too. `code`: what the client is told instead of an answer. `sends`: requests that the
    first company sees. `intended`: what llmock may find there although n4n does as its policy says.
    """

    name: str
    befall: Callable[[Simulated], object]
    moves: bool = False
    code: str | None = None
    sends: int = 1
    policy: Mapping[str, object] = field(default_factory=dict)
    windows: tuple[int, int] | None = None  # context windows of the endpoints
    intended: frozenset[str] = frozenset()


def slow(company: Simulated, seconds: float) -> None:
    """The next answer takes its time: the whole of it, or its first token."""
    company.slow_first_token(seconds).add(Delay(seconds, match=Match(stream=False)))


WENT_ELSEWHERE = frozenset({"gave_up"})  # another company answered, which the first one cannot see
FAULTS = (
    Fault("limit-waited-for", lambda company: company.rate_limit(retry_after=0.2), sends=2),
    Fault("limit-avoided", lambda company: company.rate_limit(times=None, retry_after=30), moves=True, intended=WENT_ELSEWHERE),
    Fault("outage-avoided", lambda company: company.outage(), moves=True, intended=WENT_ELSEWHERE),
    Fault("outage-told", lambda company: company.fail(503, times=None, retry_after=0.05), code="overloaded", sends=3),
    Fault("long-prompt-told", lambda company: company.limits(context_window=1), code="context_length_exceeded"),
    Fault("long-prompt-moved", lambda company: company.limits(context_window=1), moves=True, windows=(8_000, 16_000)),
)
SLOWNESS = (
    Fault("late-answer-avoided", lambda company: slow(company, 1.0), moves=True, policy={"timeouts": {"first_token_ms": 400}}),
    Fault("unhurried-answer-waited-for", lambda company: slow(company, 0.05)),
)
CELLS = [
    pytest.param(client, at, fault, id=f"{client}-{at}-{fault.name}")
    for client, at, fault in (*in_turn(CLIENTS, list(PLACES), FAULTS), *in_turn(SDKS, list(PLACES), SLOWNESS))
]


@pytest.mark.parametrize(("client", "at", "fault"), CELLS)
async def test_every_client_gets_an_answer_or_is_told_why_there_is_none(
    company: Simulated, rival: Simulated, client: Client, at: str, fault: Fault
) -> None:
    company.reply(ANSWER, times=None)
    rival.reply(OTHER, times=None)
    fault.befall(company)
    document = route((company, at), *([(rival, at)] if fault.moves else []), **fault.policy)
    for endpoint, window in zip(document["endpoints"].values(), fault.windows or (), strict=False):
        endpoint["context_window"] = window

    async with running_router(document) as router:
        seen: list[str] = []
        if fault.code is None:
            await client.ask(router.base_url, seen)
        else:
            with pytest.raises(RAISED) as raised:
                await client.ask(router.base_url, seen)
            assert told_code(raised.value) == fault.code

    assert "".join(seen) == ("" if fault.code else OTHER if fault.moves else ANSWER)
    assert len(company.requests) == fault.sends
    assert company.findings(but=fault.intended) == []
    assert rival.findings() == []
