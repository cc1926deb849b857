"""Streams that break at the provider, as every real client sees it, and what the provider thinks of n4n for it.

Before the first output n4n asks another account of the company, and nobody notices. After it the client is told, and a careful
application asks again. Either way llmock sees the same request once more; had n4n taken the broken answer for whole, its verdict
would say so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from tests.support.clients import CLIENTS, RAISED, Client, in_turn, told_code
from tests.support.router import running_router
from tests.support.simulated import PLACES, Simulated, route

ANSWER = " ".join(f"word-{number}" for number in range(30))
SHOWN = 8  # words before a stream breaks in the client's sight
POLICY = {"timeouts": {"idle_ms": 400}, "stream_guard": {"chunks": 3, "max_hold_ms": 60_000}}

HEAD: Mapping[str, int] = {"openai-responses": 4, "anthropic": 3, "gemini": 0}  # events before the first word; one, where it is not said
FAULTS: Mapping[str, Callable[[Simulated, int], object]] = {
    "truncate": lambda company, after: company.truncate(after_chunks=after),
    "corrupt": lambda company, after: company.corrupt(after_chunks=after),
    "disconnect": lambda company, after: company.disconnect(after_chunks=after),
    "stall": lambda company, after: company.stall(after_chunks=after, seconds=5.0),
}
# What llmock may say although n4n does as it should: it stops reading at once, and its next request may be there before the server
# knows that the first one was left, which then looks like a client that reads on.
INTENDED: Mapping[str, frozenset[str]] = {"corrupt": frozenset({"malformed_chunk_ignored"})}
CELLS = [
    pytest.param(client, at, fault, id=f"{client.name}-{at}-{fault}")
    for client, at, fault in in_turn([client for client in CLIENTS if client.stream], list(PLACES), list(FAULTS))
]


def breaking(company: Simulated, at: str, fault: str, words: int) -> None:
    """The next stream breaks after so many words; all others are whole."""
    company.reply(ANSWER, times=None).pace(1)
    FAULTS[fault](company, HEAD.get(at, 1) + words)


@pytest.mark.parametrize(("client", "at", "fault"), CELLS)
async def test_a_stream_that_breaks_before_the_first_output_comes_whole_from_the_next_account(
    company: Simulated, client: Client, at: str, fault: str
) -> None:
    breaking(company, at, fault, words=1)

    async with running_router(route((company, at), (company, at), **POLICY)) as router:
        seen: list[str] = []
        await client.ask(router.base_url, seen)
        (line,) = await router.logged()

    assert "".join(seen) == ANSWER
    assert (line["status"], line["routing"]["fallback_attempts"]) == (200, 1)
    assert len(company.requests) == 2
    assert company.findings(but=INTENDED.get(fault)) == []


@pytest.mark.parametrize(("client", "at", "fault"), CELLS)
async def test_a_stream_that_breaks_after_the_first_output_is_told_and_can_be_asked_for_again(
    company: Simulated, client: Client, at: str, fault: str
) -> None:
    breaking(company, at, fault, words=SHOWN)

    async with running_router(route((company, at), (company, at), **POLICY)) as router:
        first: list[str] = []
        with pytest.raises(RAISED) as raised:
            await client.ask(router.base_url, first)
        again: list[str] = []
        await client.ask(router.base_url, again)

    assert told_code(raised.value) == "stream_interrupted"
    assert ANSWER.startswith("".join(first))
    assert len("".join(first).split()) == SHOWN
    assert "".join(again) == ANSWER
    assert len(company.requests) == 2
    assert company.findings(but=INTENDED.get(fault)) == []
