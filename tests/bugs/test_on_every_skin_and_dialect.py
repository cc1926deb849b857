"""Faults that users of other gateways met, on every skin and every dialect that they can occur on (cases 5 to 9, 12 and 27)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from tests.support.matrix.stage import Stage, account, endpoint, on_stage, providers
from tests.support.matrix.table import CLIENTS, CLOCK, PROVIDERS, WEATHER, ZURICH
from tests.support.matrix.words import Ask, Call, Heard, Refused, Tokens, Told, same, says
from tests.support.script import Answer, Fin, Hang, Headers, Raw, Rst, Slice
from tests.support.upstream import ScriptedUpstream

OTHER = "other"  # a second endpoint, at OpenAI
HELD, SHOWN = {"chunks": 6, "max_hold_ms": 60_000}, {"chunks": 1}
EVERYWHERE = [(client, provider) for client in CLIENTS for provider in PROVIDERS]
on_every_one = pytest.mark.parametrize(("client", "provider"), EVERYWHERE)
pytestmark = pytest.mark.asyncio(loop_scope="module")
CALLS = (
    Call("weather", ZURICH, "call_000000001"),
    Call("clock", "{}", "call_000000002"),
    Call("weather", same({"city": "Bern", "day": "now"}), "call_000000003"),
)
MANY_CALLS = Told(calls=CALLS, finish="tool_calls")
ASK = Ask(says("Weather and time?"), tools=(WEATHER, CLOCK))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage() -> AsyncIterator[Stage]:
    """For each provider: a model that holds its streams back and one that shows them, each with OpenAI behind it."""
    async with ScriptedUpstream() as upstream:
        models: dict[str, object] = {}
        endpoints: dict[str, object] = {}
        for name in PROVIDERS:
            for kind, guard in (("held", HELD), ("shown", SHOWN)):
                model = f"{kind}-{name}"
                models[model] = {"strategy": "cost", "stream_guard": guard, "retry": {"backoff_ms": 1}, "timeouts": {"idle_ms": 80}}
                endpoints[f"e-{model}"] = endpoint(model, name, f"a-{name}", context_window=8000)
                dear = {"price": {"input_per_1m": 9, "output_per_1m": 9}, "context_window": 8000 if kind == "held" else 90_000}
                endpoints[f"{OTHER}-{model}"] = endpoint(model, "openai", f"a-{OTHER}", **dear)
        accounts = {f"a-{name}": account(name) for name in PROVIDERS} | {f"a-{OTHER}": account("openai")}
        catalog = {"providers": providers(upstream), "accounts": accounts, "models": models, "endpoints": endpoints}
        async with on_stage(catalog, upstream) as made:
            yield made


async def asked(stage: Stage, client: str, model: str, ask: Ask, *answers: Answer, stream: bool = True, **more: Any) -> Heard | Refused:
    """What a client has where the providers answer so, in turn."""
    stage.forget()
    stage.upstream.script(*answers)
    return await stage.clients[client].ask(model, ask, stream=stream, **more)


# Tool calls.


@pytest.mark.parametrize("size", [0, 1, 50])
@on_every_one
async def test_calls_keep_their_order_names_and_arguments_however_they_are_cut(client: str, provider: str, size: int, stage: Stage) -> None:
    """LiteLLM #39796 (case 6): with three calls in parallel some lost their id and name on the way."""
    answer = (Slice(size), *PROVIDERS[provider].stream(MANY_CALLS))

    got = await asked(stage, client, f"shown-{provider}", ASK, answer)

    assert isinstance(got, Heard) and got.told.calls == CALLS and got.told.finish == "tool_calls"
    if provider not in ("gemini", "vertex"):  # which give no ids
        assert [call.id for call in got.told.calls] == [call.id for call in CALLS]
    assert len({call.id for call in got.told.calls}) == 3


@pytest.mark.parametrize(("client", "provider"), [cell for cell in EVERYWHERE if PROVIDERS[cell[1]].by_turns(MANY_CALLS) is not None])
async def test_arguments_that_come_by_turns_are_those_of_their_calls(client: str, provider: str, stage: Stage) -> None:
    """LiteLLM #21331 (case 5): all parallel calls came out as one."""
    answer = PROVIDERS[provider].by_turns(MANY_CALLS)
    assert answer is not None

    got = await asked(stage, client, f"shown-{provider}", ASK, answer)

    assert isinstance(got, Heard) and got.told.calls == CALLS


# Reasoning.


def until(provider: str, told: Told, needle: str) -> Answer:
    """A stream up to the event that brings this text."""
    steps = PROVIDERS[provider].stream(told)
    words = json.dumps(needle).encode()[1:-1]
    at = next(place for place, step in enumerate(steps) if isinstance(step, Raw) and words in step.content)
    return steps[: at + 1]


@on_every_one
async def test_reasoning_is_a_first_token_and_opens_the_guard(client: str, provider: str, stage: Stage) -> None:
    """OpenRouter's ai-sdk-provider #22 (case 7): reasoning never appeared in streams."""
    answer = (*until(provider, Told("So.", "pondering"), "ering"), Hang())

    got = await asked(stage, client, f"shown-{provider}", Ask(says("Think."), effort="low"), answer)

    assert isinstance(got, Refused) and (got.status, got.code, got.before) == (None, "stream_interrupted", "")
    assert len(stage.upstream.calls) == 1


SAME = {("chat", "openai"), ("chat", "azure"), ("messages", "anthropic"), ("messages", "vertex-claude"), ("responses", "openai_responses")}


@pytest.mark.parametrize("stream", [True, False])
@on_every_one
async def test_unknown_fields_reach_a_provider_of_the_same_dialect_and_are_named_to_others(
    client: str, provider: str, stream: bool, stage: Stage
) -> None:
    """OpenRouter's ai-sdk-provider #22 (case 7): an option meant for the body went out as a header."""
    mine = {"x_new": {"big": 12345678901234567890123, "é": [1.10, None]}}
    one, told = PROVIDERS[provider], Told("Yes.")
    more = {"extra_body": mine} if client == "chat" else mine

    got = await asked(stage, client, f"shown-{provider}", ASK, one.stream(told) if stream else one.whole(told), stream=stream, **more)

    (call,) = stage.upstream.calls
    assert isinstance(got, Heard) and "x_new" not in {name.lower() for name, _ in call.headers}
    if (client, provider) in SAME:
        assert call.json["x_new"] == mine["x_new"] and got.n4n["warnings"] == []
    elif client == "chat" or provider not in ("openai", "azure"):
        assert "x_new" not in call.json and any("x_new" in warning for warning in got.n4n["warnings"]), got.n4n["warnings"]


# Failures inside a stream.


@pytest.mark.parametrize("beginning", ["nothing", "an opening", "some text"])
@on_every_one
async def test_an_error_after_harmless_events_is_replaced_by_a_clean_stream(
    client: str, provider: str, beginning: str, stage: Stage
) -> None:
    """Bifrost #5395 (case 8): only an error in the very first event was seen in time."""
    one = PROVIDERS[provider]
    begun = [step for step in one.begun("half an ") if isinstance(step, Raw)]
    shown = {"nothing": [], "an opening": _before(begun, "half an "), "some text": begun}[beginning]
    head = next(step for step in one.begun("x") if isinstance(step, Headers))
    good = PROVIDERS["openai"].stream(Told("pong"))

    got = await asked(stage, client, f"held-{provider}", ASK, (head, *shown, *one.broken()), good)

    assert isinstance(got, Heard) and got.told.text == "pong" and got.n4n["endpoint"] == f"{OTHER}-held-{provider}"
    assert len(stage.upstream.calls) == 2
    view = stage.house.router.health.views[f"e-held-{provider}"]
    assert view.breaker.recent or view.overloaded_until or view.cooldown_until


def _before(steps: Sequence[Raw], text: str) -> list[Raw]:
    """The events before those that bring any of a text."""
    pieces = [piece.encode() for piece in (text, text[:4], text[4:])]
    return list(steps)[: next(at for at, step in enumerate(steps) if any(piece in step.content for piece in pieces))]


@pytest.mark.parametrize("end", [(Rst(),), (Fin(),), (), (Hang(),), "an error"], ids=str)
@on_every_one
async def test_what_was_shown_is_never_played_again(client: str, provider: str, end: Answer | str, stage: Stage) -> None:
    """Apache ShenYu #6647 (case 9): a retry after partial output gave half of one answer and all of another."""
    one = PROVIDERS[provider]
    ending = one.broken() if isinstance(end, str) else end

    got = await asked(stage, client, f"shown-{provider}", ASK, (*one.begun("What was shown."), *ending))

    assert isinstance(got, Refused) and (got.status, got.code, got.before) == (None, "stream_interrupted", "What was shown.")
    assert len(stage.upstream.calls) == 1


# Inputs that are too long.


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("model", "calls"), [("held", 1), ("shown", 2)], ids=["no larger window", "a larger window"])
@on_every_one
async def test_an_input_that_is_too_long_is_tried_once_and_then_only_where_more_fits(
    client: str, provider: str, model: str, calls: int, stream: bool, stage: Stage
) -> None:
    """LiteLLM #22697 (case 12): a context window that was exceeded was retried as if it were a fault of the API."""
    one, other = PROVIDERS[provider], PROVIDERS["openai"]
    faults = one.fault("context_length", stream), other.fault("context_length", stream)

    got = await asked(stage, client, f"{model}-{provider}", ASK, *faults, stream=stream)

    assert isinstance(got, Refused) and (got.status, got.code) == (400, "context_length_exceeded")
    assert got.kind == stage.clients[client].kind(got.code) and len(stage.upstream.calls) == calls
    health = stage.house.router.health
    assert health.cooling_accounts == {} and all(not view.cooldown_until and not view.breaker.recent for view in health.views.values())


# Long lines.

MIB = 1 << 20
LONG = dict.fromkeys(PROVIDERS, "x" * (8 * MIB))  # in two events of 4 MiB each, where it is a stream
LONG["openai_responses"] = "x" * (4 * MIB)  # which tells it again, and again, as a whole


@pytest.mark.parametrize("stream", [True, False])
@on_every_one
async def test_a_long_line_arrives_whole(client: str, provider: str, stream: bool, stage: Stage) -> None:
    """aiohttp #4453 and open-webui #24928 (case 27): a line above a reader's limit ended the stream."""
    one, told = PROVIDERS[provider], Told(LONG[provider], tokens=Tokens(40, completion=2_000_000))

    got = await asked(stage, client, f"shown-{provider}", ASK, one.stream(told) if stream else one.whole(told), stream=stream)

    assert isinstance(got, Heard) and got.told.text == told.text


@pytest.mark.parametrize("provider", [name for name in PROVIDERS if name != "bedrock"])
async def test_a_line_above_the_bound_is_a_clean_failure(provider: str, stage: Stage) -> None:
    """aiohttp #4453 and open-webui #24928 (case 27): never a silent end."""
    told = Told("x" * (18 * MIB))

    got = await asked(stage, "chat", f"shown-{provider}", replace(ASK, tools=()), PROVIDERS[provider].stream(told))

    assert isinstance(got, Heard) and got.n4n["endpoint"] == f"{OTHER}-shown-{provider}", "it was not shown, and another one answers"
