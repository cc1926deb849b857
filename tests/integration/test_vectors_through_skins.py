"""The recorded answers in tests/vectors, end to end: an upstream plays the bytes, in the reads they came in, and the official SDK of
each skin reads what the router makes of them."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.support.matrix.client_chat import ChatClient
from tests.support.matrix.stage import Stage, staged
from tests.support.matrix.table import CLIENTS
from tests.support.matrix.words import Ask, Call, Heard, Refused, Tokens, Told, same, says
from tests.support.script import Answer, Headers, Raw, Rst, Status, Whole
from tests.support.vectors import Vector, every_vector, now_of, pieces_of

DIALECTS = {
    "openai_chat": "openai",
    "openai_responses": "openai_responses",
    "azure_openai": "azure",
    "anthropic_messages": "anthropic",
    "gemini_generate": "gemini",
    "bedrock_converse": "bedrock",
}
TOLD = {
    "rate_limited": (429, "rate_limited"),
    "quota_exhausted": (503, "quota_exhausted"),
    "overloaded": (503, "overloaded"),
    "server_error": (502, "server_error"),
    "model_not_found": (404, "model_not_found"),
    "context_length": (400, "context_length_exceeded"),
    "content_policy": (400, "content_filter"),
}
VECTORS = {vector["id"]: vector for vector in every_vector()}
ONE_ANSWER = {"o07": "two choices were asked for, and only a chat can hold more than one"}
CELLS = [(name, client) for name in VECTORS for client in CLIENTS if client == "chat" or name not in ONE_ANSWER]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage() -> AsyncIterator[Stage]:
    async with staged({f"{name}-{client}": DIALECTS[VECTORS[name]["dialect"]] for name, client in CELLS}) as made:
        yield made


def played(vector: Vector) -> Answer:
    """What the provider's server sent. Its length is told only where it was not kept to."""
    upstream = vector["upstream"]
    broken = upstream.get("eof") == "reset"
    kept = [pair for pair in upstream["headers"].items() if pair[0] not in ("transfer-encoding", "connection", "content-length") or broken]
    head = (Status(upstream["status"]), Headers(tuple(kept)))
    if "chunks_b64" in upstream:
        return (*head, *map(Raw, pieces_of(vector)), *((Rst(),) if broken else ()))
    body = upstream["body"].encode()
    return (*head, Raw(body), Rst()) if broken else (*head, Whole(body))


def told_by(choice: dict[str, Any], usage: dict[str, Any] | None) -> Told:
    """One choice of what is expected."""
    message = choice["message"]
    calls = [(call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls") or ()]
    return Told(
        text=message.get("content") or "",
        thought=message.get("reasoning_content") or "",
        calls=tuple(Call(name, same(arguments)) for name, arguments in calls),
        refusal=message.get("refusal") or "",
        finish=choice["finish_reason"],
        tokens=Tokens() if usage is None else _tokens(usage),
    )


def _tokens(usage: dict[str, Any]) -> Tokens:
    inputs, outputs = usage.get("prompt_tokens_details") or {}, usage.get("completion_tokens_details") or {}
    counts = (inputs.get("cached_tokens"), inputs.get("cache_write_tokens"), outputs.get("reasoning_tokens"))
    cached, written, reasoning = (count or 0 for count in counts)
    return Tokens(usage["prompt_tokens"], cached, written, usage["completion_tokens"], reasoning)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("name", "client_name"), CELLS)
async def test_a_recorded_answer_reads_as_it_should_through_every_skin(name: str, client_name: str, stage: Stage) -> None:
    vector, client = VECTORS[name], stage.clients[client_name]
    expected, context = vector["expected"], dict(vector["request_context"])
    stage.house.router.wall = lambda: now_of(vector)
    stage.upstream.script(played(vector))
    more = {}
    if isinstance(client, ChatClient):
        more = {**context, **({"stream_options": {"include_usage": False}} if vector["stream"] and "stream_options" not in context else {})}

    got = await client.ask(f"{name}-{client_name}", Ask(says("Hello.")), stream=vector["stream"], **more)

    if expected["outcome"] != "ok":
        assert isinstance(got, Refused)
        check_failed(got, expected)
        return
    assert isinstance(got, Heard)
    choices = expected["completion"]["choices"]
    for place, choice in enumerate(choices):
        told = client.hears(told_by(choice, expected["completion"].get("usage")))
        heard = (got.told, *got.others)[place]
        if expected.get("usage_missing"):
            assert got.n4n["usage"]["estimated"] and heard.tokens.completion > 0
            told, heard = _without_tokens(told), _without_tokens(heard)
        assert heard == told
    assert len(got.others) == len(choices) - 1


def _without_tokens(told: Told) -> Told:
    return Told(told.text, told.thought, told.calls, told.refusal, told.finish)


def check_failed(got: Refused, expected: dict[str, Any]) -> None:
    """The class, the hint, and what came before."""
    means, hint = expected["error"]["class"], expected["error"]["retry_after_s"]
    assert [attempt["class"] for attempt in got.n4n["attempts"]] == [means]
    if expected["outcome"] == "error_mid_stream":
        assert (got.status, got.code, got.before) == (None, "stream_interrupted", expected["before_error"]["content"])
        return
    assert (got.status, got.code) == TOLD[means]
    assert (got.retry_after is not None) == (got.status in (429, 503))
    if hint is not None:
        assert got.retry_after is not None and int(got.retry_after) == math.ceil(hint)


def test_all_forty_vectors_are_played() -> None:
    assert len(VECTORS) == 40 and {vector["dialect"] for vector in VECTORS.values()} == set(DIALECTS)
    assert len(CELLS) == 40 * len(CLIENTS) - len(ONE_ANSWER) * (len(CLIENTS) - 1)
