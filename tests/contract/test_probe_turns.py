"""The probers' board counts alike in Redis and in this process, and asks nothing of a server that a cluster could not do."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from n4n.core.errors import StoreRefused
from n4n.core.probes.board import DAY_MS, Board, Claim, Ended, Turn
from n4n.runtime.probes import turns
from n4n.runtime.stores import Reply, command
from tests.support.store import open_store

_tasks, _purses = st.sampled_from(["p:x", "p:y", "c:z"]), st.sampled_from(["", "acme"])
_claims = st.builds(
    Claim,
    task=_tasks,
    lease_ms=st.sampled_from([0.0, 60_000.0]),
    spread_ms=st.sampled_from([0.0, 0.0, 5_000.0]),
    purse=_purses,
    cost_pico=st.sampled_from([0, 40, 10**13]),
    budget_pico=st.sampled_from([None, 100, 3 * 10**13]),
)
_turns = st.builds(
    Turn,
    me=st.sampled_from("ab"),
    alive_ms=st.sampled_from([0.001, 60_000.0]),
    day=st.just(0),
    ended=st.lists(st.builds(Ended, task=_tasks, again_ms=st.sampled_from([0.0, 30_000.5])), max_size=2).map(tuple),
    spent=st.dictionaries(_purses.filter(bool), st.sampled_from([0, 60, 10**12]), max_size=1),
    claims=st.lists(_claims, max_size=3).map(tuple),
    most=st.sampled_from([1, 100]),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(told=st.lists(_turns, max_size=12), today=st.booleans())
def test_redis_and_the_core_keep_the_same_board(redis_server: str, told: list[Turn], today: bool) -> None:
    asyncio.run(_compared(redis_server, told, today))


async def _compared(url: str, told: list[Turn], today: bool) -> None:
    board, day = Board(), 0
    async with open_store(url) as store:
        for key in turns.KEYS:
            await store.command(command(b"DEL", key))
        for one in told:
            said = Turn(one.me, one.alive_ms, day if today else 0, one.ended, one.spent, one.claims, one.most)
            answer = turns.heard(said, await store.command(turns.turn(said)))
            day = int(answer.now_ms // DAY_MS)
            expected = board.turn(said, answer.now_ms)
            assert answer.members == expected.members
            assert answer.waits == pytest.approx(expected.waits, abs=1e-3)
            assert {purse: pico for purse, pico in answer.spent.items() if purse} == {p: c for p, c in expected.spent.items() if p}


def test_an_answer_to_something_else_is_refused() -> None:
    with pytest.raises(StoreRefused):
        turns.heard(Turn("a", 1.0), [b"1", [], [b"0"], []])


@pytest.mark.parametrize("reply", [[b"now", [], [], []], [b"1", [b"\xff"], [], []], [b"1", [], [], [b"acme", b"much"]]])
def test_what_somebody_else_wrote_on_the_board_is_refused_and_ends_no_prober(reply: Reply) -> None:
    with pytest.raises(StoreRefused):
        turns.heard(Turn("a", 1.0), reply)
