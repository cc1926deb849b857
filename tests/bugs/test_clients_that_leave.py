"""Nobody works for a client that is gone."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from tests.bugs.streams import two_endpoints
from tests.support.answers import completion, error, held, partial, rate_limited, sse
from tests.support.router import KEY, RunningRouter, catalog, running_router
from tests.support.script import Answer, Gate, Hang, Sleep
from tests.support.upstream import ScriptedUpstream


async def asked(house: RunningRouter, stream: bool) -> asyncio.StreamWriter:
    """A request on a socket of its own, whose answer nobody awaits."""
    _, writer = await asyncio.open_connection("127.0.0.1", house.port)
    body = json.dumps({"model": "m", "stream": stream, "messages": [{"role": "user", "content": "x"}]}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    return writer


@pytest.mark.parametrize("abruptly", [True, False])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("answer", [(Sleep(20), *completion()), (Hang(),), (*partial("a"), Sleep(20))], ids=["late", "never", "begun"])
async def test_the_upstream_call_ends_half_a_second_after_the_client(answer: Answer, stream: bool, abruptly: bool) -> None:
    """LiteLLM #37140 (case 10): calls that were no streams went on upstream after their client had left."""
    async with ScriptedUpstream() as upstream, running_router(catalog(upstream.base_url)) as house:
        upstream.script(then=answer)
        writer = await asked(house, stream)
        call = await upstream.arrived()
        await asyncio.sleep(0.2)
        left = time.monotonic()
        writer.transport.abort() if abruptly else writer.close()
        closed = await upstream.closed(call)
        (line,) = await house.logged()
    assert closed - left < 0.5
    assert len(upstream.calls) == 1 and line["outcome"] == "cancelled"


@pytest.mark.parametrize("fault", [error(503), error(500), rate_limited(), rate_limited(retry_after=1), error(401), sse("a", finish=None)])
@pytest.mark.parametrize("stream", [False, True])
async def test_nobody_else_is_asked_for_a_client_that_left_while_an_endpoint_was_failing(fault: Answer, stream: bool) -> None:
    """new-api #4186 (case 11): the relay read on and then tried other channels for nobody."""
    gate = Gate()
    async with two_endpoints() as (e1, e2, house):
        e1.script(then=held(gate, fault))
        writer = await asked(house, stream)
        await e1.arrived()
        writer.transport.abort()
        (line,) = await house.logged()
        gate.open()
        await asyncio.sleep(0.1)
        assert (len(e1.calls), len(e2.calls)) == (1, 0)
    assert line["outcome"] == "cancelled"


async def test_a_client_that_leaves_between_two_attempts_gets_no_third() -> None:
    """new-api #4186 (case 11): before each dispatch somebody must still be there."""
    async with two_endpoints({"retry": {"max_retries": 5, "backoff_ms": 2000}}) as (e1, e2, house):
        house.router.draw = lambda: 0.3
        e1.script(then=error(500)), e2.script(then=error(500))
        writer = await asked(house, False)
        await e2.finished(await e2.arrived())
        writer.transport.abort()
        (line,) = await house.logged()
        await asyncio.sleep(0.8)  # its backoff was 0.6 s
        assert (len(e1.calls), len(e2.calls)) == (1, 1)
    assert line["outcome"] == "cancelled"
