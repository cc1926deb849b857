"""Events of any size that a model can write arrive; beyond the bound the client is told."""

from __future__ import annotations

import json
import tracemalloc

import pytest

from tests.bugs.streams import chunk, events, said, two_endpoints
from tests.support.answers import DONE, EVENTS, JSON, USAGE, partial, tool_call
from tests.support.router import catalog, running_router
from tests.support.script import Answer, Raw, Whole, compact
from tests.support.upstream import ScriptedUpstream

KIB, MIB = 1 << 10, 1 << 20


async def one_stream(answer: Answer, guard: int = 1) -> tuple[int, str]:
    """Status and text of a stream whose provider answers so."""
    async with ScriptedUpstream() as upstream:
        upstream.script(then=answer)
        model = {"stream_guard": {"chunks": guard}, "retry": {"max_retries": 0}}
        async with running_router(catalog(upstream.base_url, model=model)) as house:
            async with house.chat(stream=True) as reply:
                return reply.status, (await reply.read()).decode()


@pytest.mark.parametrize("guard", [1, 3])
@pytest.mark.parametrize("name", ["content", "reasoning_content"])
@pytest.mark.parametrize("size", [100 * KIB, 129 * KIB, 600 * KIB, 4 * MIB, 8 * MIB - 400])
async def test_a_long_line_arrives_whole(size: int, name: str, guard: int) -> None:
    """aiohttp #4453 and open-webui #24928 (case 27): a line above a reader's limit ended the stream."""
    text = "x" * size
    status, body = await one_stream((EVENTS, chunk({name: text}), chunk({"content": "!"}), chunk(finish="stop"), DONE), guard)

    assert status == 200 and said(body, name).startswith(text) and body.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize("begun", [True, False])
async def test_a_line_above_the_bound_is_a_clean_failure(begun: bool) -> None:
    """aiohttp #4453 and open-webui #24928 (case 27): never a silent end."""
    huge = Raw(b'data: {"choices":[{"index":0,"delta":{"content":"' + b"x" * (9 * MIB) + b'"}}]}\n\n')
    status, body = await one_stream((*partial(*(["a"] if begun else [])), huge, chunk(finish="stop"), DONE))

    if begun:
        last = events(body)[-1]
        assert said(body) == "a" and last["error"]["code"] == "stream_interrupted" and "too long" in last["error"]["message"]
        assert last["choices"][0]["finish_reason"] == "error" and "[DONE]" not in body
    else:
        assert (status, json.loads(body)["error"]["code"]) == (502, "server_error")


async def test_an_endless_line_costs_a_bounded_memory() -> None:
    """aiohttp #4453 and open-webui #24928 (case 27)."""
    endless = (EVENTS, Raw(b"data: "), *(Raw(b"x" * MIB) for _ in range(64)))
    async with two_endpoints() as (e1, _, house):
        e1.script(endless)
        tracemalloc.start()
        try:
            async with house.chat(stream=True) as answer:
                assert said(await answer.text()) == "pong"
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert answer.headers["x-n4n-endpoint"] == "e2" and peak < 40 * MIB


@pytest.mark.parametrize("size", [100 * KIB, 600 * KIB, 4 * MIB])
async def test_arguments_of_a_tool_call_may_be_as_long(size: int) -> None:
    """aiohttp #4453 and open-webui #24928 (case 27)."""
    call = {"index": 0, **tool_call("draw", "x" * size)}
    status, body = await one_stream((EVENTS, chunk({"tool_calls": [call]}), chunk(finish="tool_calls"), DONE))

    calls = [one for event in events(body) for choice in event["choices"] for one in choice["delta"].get("tool_calls") or ()]
    assert status == 200 and "".join(one["function"]["arguments"] for one in calls) == "x" * size and body.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize("framed", ["by its length", "in chunks"])
@pytest.mark.parametrize("name", ["content", "reasoning_content"])
@pytest.mark.parametrize("size", [100 * KIB, 600 * KIB, 4 * MIB, 8 * MIB])
async def test_a_whole_answer_may_be_as_large(size: int, name: str, framed: str) -> None:
    """aiohttp #4453 and open-webui #24928 (case 27)."""
    message = {"role": "assistant", "content": "!", name: "y" * size}
    whole = compact({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": dict(USAGE)})
    body = (Whole(whole),) if framed == "by its length" else tuple(Raw(whole[at : at + 50_000]) for at in range(0, len(whole), 50_000))
    async with ScriptedUpstream() as upstream:
        upstream.script((JSON, *body))
        async with running_router(catalog(upstream.base_url)) as house, house.chat() as answer:
            assert (await answer.json())["choices"][0]["message"][name] == "y" * size


async def test_an_endless_whole_answer_costs_a_bounded_memory() -> None:
    """aiohttp #4453 and open-webui #24928 (case 27): a clean failure above the bound of 64 MiB, and the next endpoint."""
    endless = (JSON, Raw(b'{"choices":[{"index":0,"message":{"content":"'), *(Raw(b"x" * MIB) for _ in range(128)))
    async with two_endpoints() as (e1, _, house):
        e1.script(endless)
        tracemalloc.start()
        try:
            async with house.chat() as answer:
                assert (await answer.json())["choices"][0]["message"]["content"] == "pong"
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        (line,) = await house.logged()
    assert answer.headers["x-n4n-endpoint"] == "e2" and peak < 150 * MIB
    assert [one["outcome"] for one in line["routing"]["attempts"]] == ["server_error", "ok"]
