"""Cooldowns: the longest signal wins, and when all are out the answer says until when."""

from __future__ import annotations

import asyncio
import json

import pytest
from msgspec.structs import replace

from tests.bugs.streams import two_endpoints
from tests.support.answers import error, held, rate_limited
from tests.support.provider_errors import nested
from tests.support.router import PROVIDER_SECRET
from tests.support.script import Gate


@pytest.mark.parametrize("hints", [(1, 40), (40, 1), (40, None), (None, 40), (40, 40), (2, 3)], ids=str)
@pytest.mark.parametrize("stream", [False, True])
async def test_of_concurrent_signals_the_longest_keeps_the_endpoint_out(hints: tuple[int | None, ...], stream: bool) -> None:
    """LiteLLM #40130 (case 13): a later signal said 60 s, but the endpoint was back after the first one's second."""
    gate = Gate()
    longest = max(hint or 1 for hint in hints)
    async with two_endpoints() as (e1, _, house):
        e1.script(*(held(gate, rate_limited(retry_after=hint)) for hint in hints), then=error(500))
        asked = [asyncio.ensure_future(house.chat(stream=stream).__aenter__()) for _ in hints]
        await e1.arrived(len(hints))
        gate.open()
        answers = [await one for one in asked]
        assert [one.status for one in answers] == [200, 200]
        [await one.read() for one in answers]
        left = house.router.health.views["e1"].cooldown_until - house.router.clock()
        assert longest - 1 < left <= longest * 1.11
        for _ in range(3):
            async with house.chat(stream=stream) as answer:
                assert (answer.status, answer.headers["x-n4n-endpoint"]) == (200, "e2")
        assert len(e1.calls) == len(hints)


async def test_a_request_that_waits_for_a_short_cooldown_keeps_a_longer_one_that_came_meanwhile() -> None:
    """LiteLLM #40130 (case 13): no call before the later deadline, also not by a request that has planned already."""
    async with two_endpoints({"retry": {"max_retries": 3, "backoff_ms": 1}}) as (e1, e2, house):
        e1.script(rate_limited(retry_after=1), then=error(500)), e2.script(then=error(401))
        waiting = asyncio.ensure_future(house.chat().__aenter__())
        await e2.finished(await e2.arrived())
        views = house.router.health._views
        views["e1"] = replace(views["e1"], cooldown_until=house.router.clock() + 30)  # another request was told so
        answer = await waiting
        assert answer.status == 429
        assert len(e1.calls) == 1, "30 s are not waited for, and not cut short"


REASONS = {
    "rate limits": (rate_limited(retry_after=30), 429, "rate_limited"),
    "quotas": (nested(429, None, "x", code="insufficient_quota", headers={"retry-after": "30"}).answer, 503, "quota_exhausted"),  # type: ignore[arg-type]
    "overloads": (error(503, headers={"retry-after": "30"}), 503, "overloaded"),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", REASONS)
async def test_when_all_are_out_the_answer_tells_the_soonest_return_and_nobody_is_called(kind: str, stream: bool) -> None:
    """LiteLLM #27823 (case 14): the 429 of a model whose deployments all cooled down had no Retry-After."""
    answer, status, code = REASONS[kind]
    async with two_endpoints() as (e1, e2, house):
        e1.script(then=answer), e2.script(then=answer)
        async with house.chat(stream=stream) as first:
            assert first.status == status
        before = len(e1.calls) + len(e2.calls)
        async with house.chat(stream=stream) as second:
            text = await second.text()
        told = json.loads(text)["error"]
        assert (second.status, told["code"]) == (status, code)
        assert 25 <= int(second.headers["retry-after"]) <= 34
        assert len(e1.calls) + len(e2.calls) == before
        assert (told["n4n"]["candidates"], told["n4n"]["eliminated"]) == (2, {"cooldown": 2})
        assert PROVIDER_SECRET not in text and str(e1.port) not in text and "http" not in text
