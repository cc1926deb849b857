"""A chain of models moves a chat, a tool conversation and any skin's request from one dialect to another and back.

Before release of a stream as for a whole answer; nothing is lost that both sides can say. Reasoning goes back signed to whoever can
read it, and to nobody else.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from itertools import permutations

import pytest
import pytest_asyncio

from tests.support.matrix.provider import page
from tests.support.matrix.stage import Stage, account, endpoint, on_stage, providers
from tests.support.matrix.table import CLIENTS, CLOCK, LOSSES, PROVIDERS, SITUATIONS, WEATHER, ZURICH
from tests.support.matrix.words import Ask, Call, Heard, Own, Result, Text, Thought, Tokens, Told, Turn, merged, says
from tests.support.script import Answer
from tests.support.upstream import ScriptedUpstream

CHAINS: tuple[tuple[str, ...], ...] = (
    ("anthropic", "openai", "gemini"),
    ("gemini", "openai", "anthropic"),
    ("bedrock", "openai_responses", "vertex", "azure"),
)
PAIRS = list(permutations(PROVIDERS, 2))
HELD = {"stream_guard": {"chunks": 6, "max_hold_ms": 5000}, "retry": {"max_retries": 5, "backoff_ms": 1}}


SAID = ("text", "tools", "parallel tools", "image", "json schema")
MOVES = [*((chain, situation) for chain in CHAINS for situation in SAID), *((pair, "parallel tools") for pair in PAIRS)]


def tier(chain: Sequence[str]) -> str:
    return ".".join(chain)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage() -> AsyncIterator[Stage]:
    """A model for each provider, and a tier for each chain of them."""
    async with ScriptedUpstream() as upstream:
        document = {
            "providers": providers(upstream),
            "accounts": {f"a-{name}": account(name) for name in PROVIDERS},
            "models": dict.fromkeys(PROVIDERS, HELD),
            "endpoints": {f"e-{name}": endpoint(name, name, f"a-{name}") for name in PROVIDERS},
            "tiers": {tier(chain): {"chain": list(chain)} for chain in (*CHAINS, *PAIRS)},
        }
        async with on_stage(document, upstream) as made:
            yield made


def good(provider: str, told: Told, stream: bool) -> Answer:
    return PROVIDERS[provider].stream(told) if stream else PROVIDERS[provider].whole(told)


def failing(provider: str, stream: bool) -> Answer:
    """Overloaded: at once, or in a stream that has begun to answer and of which nothing was shown."""
    one = PROVIDERS[provider]
    return (*one.begun("I will "), *one.broken()) if stream else one.fault("overloaded", stream)


def without_thoughts(ask: Ask) -> Ask:
    turns = [replace(turn, parts=tuple(part for part in turn.parts if not isinstance(part, Thought))) for turn in ask.turns]
    return replace(ask, turns=merged(turns))


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(("chain", "situation"), MOVES)
async def test_each_in_the_chain_gets_the_whole_request_and_the_client_one_answer(
    chain: Sequence[str], client: str, situation: str, stream: bool, stage: Stage
) -> None:
    ask, told = SITUATIONS[situation].ask, SITUATIONS[situation].told
    assert told is not None
    stage.forget()
    stage.upstream.script(*(failing(name, stream) for name in chain[:-1]), good(chain[-1], told, stream))

    got = await stage.clients[client].ask(f"tier/{tier(chain)}", ask, stream=stream)

    assert isinstance(got, Heard), got
    assert (got.n4n["endpoint"], got.n4n["fallback_attempts"]) == (f"e-{chain[-1]}", len(chain) - 1)
    assert got.told == stage.clients[client].hears(PROVIDERS[chain[-1]].tells(told))
    said = stage.clients[client].says(ask)
    for name, call in zip(chain, stage.upstream.calls, strict=True):
        loss = LOSSES.get((name, situation))
        assert PROVIDERS[name].asked(call) == (said if loss is None else loss.left(said)), name
    last = LOSSES.get((chain[-1], situation))
    assert len(got.n4n["warnings"]) == (last is not None and last.warning is not None and last.left(said) != said)


USED = Tokens(40, completion=30)
FIRST = Told("I will look.", "Where is it? 思", (Call("weather", ZURICH, "call_000000001"),), finish="tool_calls", tokens=USED)
SECOND = Told("And the time.", "What time?", (Call("clock", "{}", "call_000000002"),), finish="tool_calls", tokens=USED)
LAST = Told("It is noon and sunny.", "So…", tokens=USED)


def signed_for(body: bytes) -> list[str]:
    """Whose signatures stand in a body, and what else of others' reasoning."""
    signatures = {one.signature for one in PROVIDERS.values() if one.signature is not None}
    return [name for name in sorted(signatures) if name.encode() in body] + [mark for mark in ("n4n.v1.",) if mark.encode() in body]


def answered(got: object, results: dict[str, str]) -> tuple[Turn, Turn]:
    """The answer as the client got it, and what its tools say."""
    assert isinstance(got, Heard), got
    return (
        Turn("assistant", (Own(got.own),)),
        Turn("user", tuple(Result(call.name, results[call.name], call.id) for call in got.told.calls)),
    )


def in_words(turns: Sequence[Turn], *told: Told) -> tuple[Turn, ...]:
    """The turns of a conversation, with what was told in the place of the client's own copies."""
    answers = iter(told)
    made = []
    for turn in turns:
        if isinstance(turn.parts[0], Own):
            one = next(answers)
            made.append(Turn("assistant", (Text(one.text), *one.calls)))
        else:
            made.append(turn)
    return tuple(made)


LOST = "did not make it and cannot read it"


def told_of(heard: Heard) -> str:
    """What its warnings say."""
    return "\n".join(heard.n4n["warnings"])


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(("home", "other"), PAIRS)
async def test_a_conversation_moves_away_and_back_and_each_reads_its_own_reasoning_only(
    home: str, other: str, client: str, stream: bool, stage: Stage
) -> None:
    sdk, results = stage.clients[client], {"weather": "sunny", "clock": "noon"}
    model, down = f"tier/{tier((home, other))}", page(500, b"down")
    ask = Ask(says("Weather in Zürich, and the time?"), tools=(WEATHER, CLOCK), effort="low")

    stage.forget()
    stage.upstream.script(good(home, FIRST, stream))
    first = await sdk.ask(model, ask, stream=stream)
    second_ask = replace(ask, turns=(*ask.turns, *answered(first, results)))
    stage.upstream.script(down, good(other, SECOND, stream))
    second = await sdk.ask(model, second_ask, stream=stream)
    third_ask = replace(ask, turns=(*second_ask.turns, *answered(second, results)))
    stage.upstream.script(good(home, LAST, stream))
    third = await sdk.ask(model, third_ask, stream=stream)

    assert isinstance(second, Heard) and isinstance(third, Heard) and third.told.text == LAST.text
    about_reasoning = "keeps no reasoning" if (client, home) == ("responses", "openai_responses") else LOST
    assert all(about_reasoning in warning or LOST in warning for warning in third.n4n["warnings"])
    _, kept, moved, back = stage.upstream.calls
    asked = [replace(ask, turns=in_words(second_ask.turns, FIRST)), replace(ask, turns=in_words(third_ask.turns, FIRST, SECOND))]
    for name, call, wanted in ((home, kept, asked[0]), (other, moved, asked[0]), (home, back, asked[1])):
        assert without_thoughts(PROVIDERS[name].asked(call)) == replace(wanted, turns=merged(wanted.turns)), name
    mine, theirs = PROVIDERS[home].signature, PROVIDERS[other].signature
    own = [] if mine is None else [mine]
    assert LOST in told_of(second) if mine not in (None, theirs) else LOST not in told_of(second)
    assert LOST in told_of(third) if theirs not in (None, mine) else LOST not in told_of(third)
    assert signed_for(kept.body) == own
    assert signed_for(moved.body) == (own if mine == theirs else [])
    assert signed_for(back.body) == own
    thoughts = [part for turn in PROVIDERS[home].asked(back).turns for part in turn.parts if isinstance(part, Thought)]
    assert all(thought.text in ("", FIRST.thought, SECOND.thought) and thought.signature == mine for thought in thoughts)
