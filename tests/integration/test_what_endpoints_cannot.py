"""What an endpoint cannot be told or do is found out before it is asked: left out with a warning, refused, or routed away, as configured.

The cells are made from what each dialect says of itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
import pytest_asyncio

from n4n.core.dialects.table import DIALECTS
from n4n.core.fitness import CONTENT
from tests.support.matrix.provider import Provider
from tests.support.matrix.stage import Stage, account, endpoint, on_stage, providers
from tests.support.matrix.table import PIXEL, PROVIDERS
from tests.support.matrix.words import Ask, Heard, Image, Refused, Text, Told, Turn, says
from tests.support.script import Answer
from tests.support.upstream import ScriptedUpstream

SOUND = {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}
ASKED_BY: Mapping[str, Mapping[str, Any]] = {  # the members of a chat that ask for a feature
    "n": {"n": 2},
    "seed": {"seed": 7},
    "stop": {"stop": ["END"]},
    "logprobs": {"logprobs": True, "top_logprobs": 2},
    "logit_bias": {"logit_bias": {"50256": -100}},
    "penalties": {"presence_penalty": 0.5},
    "audio_output": {"modalities": ["text", "audio"], "audio": {"voice": "alloy", "format": "mp3"}},
    "web_search": {"web_search_options": {"search_context_size": "low"}},
    "parallel_tools": {"parallel_tool_calls": False},
    "audio_input": {"messages": [{"role": "user", "content": [SOUND]}]},
}
POLICIES: Mapping[str, Mapping[str, Any]] = {
    "drop": {},
    "reject": {"unsupported_params": "reject"},
    "route_away": {"unsupported_params": "route_away"},
    "require_parameters": {"provider": {"require_parameters": True}},
}


def cannot(provider: str) -> frozenset[str]:
    one = PROVIDERS[provider]
    return DIALECTS[one.dialect].speech(one.model).cannot


CELLS = [(provider, feature, policy) for provider in PROVIDERS for feature in sorted(cannot(provider)) for policy in POLICIES]
LEFT = "other"  # the endpoint that can do everything, and costs more


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage() -> AsyncIterator[Stage]:
    """Models one-PROVIDER with one endpoint, two-PROVIDER with another one at OpenAI behind it, and some that lack something."""
    async with ScriptedUpstream() as upstream:
        other = {"price": {"input_per_1m": 9, "output_per_1m": 9}}
        two = {f"two-{name}": name for name in PROVIDERS} | {"blind": "openai", "small": "anthropic"}
        lacks: dict[str, dict[str, object]] = {"blind": {"supports": ["tools"]}, "small": {"context_window": 1000}}
        document = {
            "providers": providers(upstream),
            "accounts": {f"a-{name}": account(name) for name in PROVIDERS},
            "models": {
                name: {"strategy": "cost"}
                for name in (*two, "mixed", "searching", *(f"one-{name}" for name in (*PROVIDERS, "blind", "small")))
            },
            "endpoints": {name: endpoint(name, one, f"a-{one}", **lacks.get(name, {})) for name, one in two.items()}
            | {f"{name}-{LEFT}": endpoint(name, "openai", "a-openai", **other) for name in two}
            | {f"one-{name}": endpoint(f"one-{name}", name, f"a-{name}") for name in PROVIDERS}
            | {f"one-{name}": endpoint(f"one-{name}", two[name], f"a-{two[name]}", **lacks[name]) for name in lacks}
            | {f"mixed-{name}": endpoint("mixed", name, f"a-{name}") for name in ("openai", "openai_responses", "anthropic")}
            | {"searching": endpoint("searching", "openai", "a-openai", supports=["tools", "web_search"])},
        }
        async with on_stage(document, upstream) as made:
            yield made


def answering(stage: Stage, *names: str) -> None:
    """The upstream answers by the path it is asked at."""
    known: list[Provider] = [PROVIDERS[name] for name in names]
    stage.upstream.calls.clear()

    def answer(call: Any) -> Answer:
        for one in known:
            if one.model in call.path or (one.dialect in ("openai", "azure") and "/chat/completions" in call.path):
                return one.whole(Told("Yes."))
            if (one.dialect, call.path) in (("anthropic", "/v1/messages"), ("openai_responses", "/v1/responses")):
                return one.whole(Told("Yes."))
        raise AssertionError(call.path)

    stage.upstream.script(then=answer)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("provider", "feature", "policy"), CELLS)
async def test_what_a_dialect_cannot_say_is_treated_as_configured(provider: str, feature: str, policy: str, stage: Stage) -> None:
    asked = {**ASKED_BY[feature], **POLICIES[policy]}
    extra = {name: asked.pop(name) for name in ("unsupported_params", "provider") if name in asked}
    answering(stage, provider, "openai")

    two = await stage.clients["chat"].ask(f"two-{provider}", Ask(says("Hi.")), stream=False, extra_body=extra, **asked)
    alone = await stage.clients["chat"].ask(f"one-{provider}", Ask(says("Hi.")), stream=False, extra_body=extra, **asked)

    assert isinstance(two, Heard)
    if policy == "drop" and feature not in CONTENT:
        assert isinstance(alone, Heard) and two.n4n["endpoint"] == f"two-{provider}"
        assert all(any(name in line for line in alone.n4n["warnings"]) for name in ASKED_BY[feature]), alone.n4n["warnings"]
        return
    assert two.n4n["endpoint"] == f"two-{provider}-{LEFT}" and two.n4n["warnings"] == []
    assert isinstance(alone, Refused) and (alone.status, alone.code) == (400, "no_eligible_endpoint")
    assert alone.n4n["eliminated"] == {f"supports={feature}": 1} and len(stage.upstream.calls) == 1


PICTURE = Ask((Turn("user", (Text("What is this?"), Image(PIXEL))),))
LONG = Ask(says("word " * 4_000))


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("client", ["chat", "messages", "responses"])
@pytest.mark.parametrize(
    ("name", "ask", "reason", "code"),
    [("blind", PICTURE, "supports=vision", "no_eligible_endpoint"), ("small", LONG, "context_window", "context_length_exceeded")],
    ids=["a picture", "a long prompt"],
)
async def test_what_an_endpoint_cannot_take_goes_where_it_fits_or_back(
    name: str, ask: Ask, reason: str, code: str, client: str, stage: Stage
) -> None:
    answering(stage, "openai")

    two = await stage.clients[client].ask(name, ask, stream=False)
    alone = await stage.clients[client].ask(f"one-{name}", ask, stream=False)

    assert isinstance(two, Heard) and (two.n4n["endpoint"], two.n4n["fallback_attempts"]) == (f"{name}-{LEFT}", 0)
    assert isinstance(alone, Refused) and (alone.status, alone.code) == (400, code)
    assert alone.n4n["eliminated"] == {reason: 1} and len(stage.upstream.calls) == 1


# Tools that an API runs, or knows, itself: who speaks it, by client; the tool; its name.
OWN_TOOLS = [
    ("responses", "openai_responses", {"type": "code_interpreter", "container": {"type": "auto"}}, "code_interpreter"),
    ("responses", "openai_responses", {"type": "file_search", "vector_store_ids": ["vs_1"]}, "file_search"),
    ("responses", "openai_responses", {"type": "web_search"}, "web_search"),
    ("messages", "anthropic", {"type": "code_execution_20250825", "name": "code_execution"}, "code_execution_20250825"),
    ("messages", "anthropic", {"type": "bash_20250124", "name": "bash"}, "bash_20250124"),
    ("messages", "anthropic", {"type": "web_search_20250305", "name": "web_search"}, "web_search"),
]


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("client", "native", "tool", "name"), OWN_TOOLS)
async def test_an_apis_own_tool_goes_where_that_api_is_spoken_or_back(
    client: str, native: str, tool: dict[str, object], name: str, stage: Stage
) -> None:
    answering(stage, "openai", native)
    mixed = await stage.clients[client].ask("mixed", Ask(says("Look.")), stream=False, tools=[tool])
    (call,) = stage.upstream.calls
    alone = await stage.clients[client].ask("one-openai", Ask(says("Look.")), stream=False, tools=[tool])

    assert isinstance(mixed, Heard) and mixed.n4n["endpoint"] == f"mixed-{native}" and call.json["tools"] == [tool]
    assert isinstance(alone, Refused) and (alone.status, alone.code) == (400, "no_eligible_endpoint")
    assert alone.n4n["eliminated"] == {f"tools={name}": 1} and len(stage.upstream.calls) == 1


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("client", "native", "tool", "name"), OWN_TOOLS)
async def test_who_asks_for_it_goes_without_an_apis_own_tool_and_is_told(
    client: str, native: str, tool: dict[str, object], name: str, stage: Stage
) -> None:
    answering(stage, "openai")

    heard = await stage.clients[client].ask("one-openai", Ask(says("Look.")), stream=False, tools=[tool], unsupported_params="drop")

    assert isinstance(heard, Heard) and "tools" not in stage.upstream.calls[0].json
    if name != "web_search":  # which a chat can ask for, and this endpoint is not known not to have
        assert any(name in warning for warning in heard.n4n["warnings"])


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("client", ["messages", "responses"])
async def test_the_web_is_searched_by_who_can_be_asked_for_it(client: str, stage: Stage) -> None:
    answering(stage, "openai")
    tool = {"type": "web_search"} if client == "responses" else {"type": "web_search_20250305", "name": "web_search"}

    heard = await stage.clients[client].ask("searching", Ask(says("Look.")), stream=False, tools=[tool])

    assert isinstance(heard, Heard) and stage.upstream.calls[0].json["web_search_options"] == {}


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("client", ["chat", "messages", "responses"])
async def test_a_part_that_one_endpoint_cannot_be_told_goes_to_the_next_without_an_attempt(client: str, stage: Stage) -> None:
    answering(stage, "openai")
    ask = Ask((Turn("user", (Text("What is this?"), Image("https://a.example/p.png"))),))
    label = f"untold-{client}"

    got = await stage.clients[client].ask("two-bedrock", ask, stream=False, headers={"x-request-id": label})

    lines: list[dict[str, Any]] = []
    while not [line for line in lines if line["request_id"] == label]:
        lines += await stage.house.logged()
    (line,) = [line for line in lines if line["request_id"] == label]
    assert isinstance(got, Heard) and (got.n4n["endpoint"], got.n4n["fallback_attempts"]) == (f"two-bedrock-{LEFT}", 0)
    assert [attempt["endpoint"] for attempt in line["routing"]["attempts"]] == [f"two-bedrock-{LEFT}"]


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("provider", ["anthropic", "gemini", "bedrock", "openai_responses"])
async def test_a_chat_that_nobody_can_read_is_the_requests_fault_and_no_attempt(provider: str, stage: Stage) -> None:
    answering(stage, provider)
    views = stage.house.router.health.views
    before = views.get(f"one-{provider}")
    odd = [{"role": "user", "content": "Hi."}, {"role": "oracle", "content": 7}]

    got = await stage.clients["chat"].ask(f"one-{provider}", Ask(says("Hi.")), stream=False, messages=odd)

    assert isinstance(got, Refused) and (got.status, got.code) == (400, "invalid_request")
    assert "attempts" not in got.n4n and stage.upstream.calls == []
    assert views.get(f"one-{provider}") == before


def test_every_feature_that_a_dialect_lacks_is_in_the_table() -> None:
    assert {feature for name in PROVIDERS for feature in cannot(name)} == set(ASKED_BY)
