"""POST /v1/messages/count_tokens: by the provider that would be asked, else an estimate that says so."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import pytest

from tests.support.matrix.provider import page
from tests.support.router import KEY, RunningRouter, running_router
from tests.support.script import Answer, Hang, Json
from tests.support.upstream import ScriptedUpstream

ASKED: Any = [{"role": "user", "content": "Say hello."}]
ESTIMATED = "the count is an estimate from sizes"


def counted(tokens: int) -> Answer:
    return page(200, {"input_tokens": tokens})


def document(upstream: ScriptedUpstream, *dialects: str, **model: Json) -> dict[str, object]:
    """Model `m` at these dialects, in this order."""
    root = f"http://127.0.0.1:{upstream.port}"
    names = [f"e{place}" for place in range(1, len(dialects) + 1)]
    return {
        "providers": {
            f"p{name}": {"dialect": dialect, "base_url": f"{root}/{name}/v1", "allow_private": True}
            for name, dialect in zip(names, dialects, strict=True)
        },
        "accounts": {f"a{name}": {"provider": f"p{name}", "credential": "env:CANARY"} for name in names},
        "models": {"m": {"strategy": "cost", **model}},
        "endpoints": {
            name: {"model": "m", "account": f"a{name}", "upstream_model": "theirs", "price": {"input_per_1m": 1 + at, "output_per_1m": 9}}
            for at, name in enumerate(names)
        },
    }


@asynccontextmanager
async def counting(*dialects: str, **model: Json) -> AsyncIterator[tuple[ScriptedUpstream, RunningRouter, anthropic.AsyncAnthropic]]:
    async with ScriptedUpstream() as upstream, running_router(document(upstream, *dialects, **model)) as house:
        root = house.base_url.removesuffix("/v1")
        async with anthropic.AsyncAnthropic(base_url=root, api_key=KEY, max_retries=0) as sdk:
            yield upstream, house, sdk


async def count(sdk: anthropic.AsyncAnthropic, headers: Mapping[str, str] | None = None, **body: Any) -> tuple[int, dict[str, Any]]:
    told = await sdk.messages.count_tokens(model="m", messages=ASKED, extra_headers=headers, **body)
    assert told.model_extra is not None
    return told.input_tokens, told.model_extra["n4n"]


@pytest.mark.parametrize(
    ("dialect", "answer", "path"),
    [
        ("anthropic", {"input_tokens": 14}, "/e1/v1/messages/count_tokens"),
        ("openai_responses", {"object": "response.input_tokens", "input_tokens": 14}, "/e1/v1/responses/input_tokens"),
        ("gemini", {"totalTokens": 14}, "/e1/v1/models/theirs:countTokens"),
        ("vertex", {"totalTokens": 14}, "/e1/v1/publishers/google/models/theirs:countTokens"),
        ("bedrock", {"inputTokens": 14}, "/e1/v1/model/theirs/count-tokens"),
    ],
)
async def test_the_provider_counts_where_it_can(dialect: str, answer: dict[str, object], path: str) -> None:
    async with counting(dialect) as (upstream, house, sdk):
        upstream.script(page(200, answer))
        told = await count(sdk)
        (line,) = await house.logged()

    assert told == (14, {"counted_by": "provider", "provider": "pe1", "endpoint": "e1", "warnings": []})
    assert [call.path for call in upstream.calls] == [path]
    assert (line["status"], line["usage"]) == (200, None)


async def test_who_cannot_count_is_passed_over_for_who_can() -> None:
    async with counting("openai", "anthropic") as (upstream, _, sdk):
        upstream.script(counted(7))
        told = await count(sdk)

    assert told[0] == 7 and told[1]["endpoint"] == "e2"


async def test_where_nobody_can_the_count_is_an_estimate_and_nobody_is_asked() -> None:
    async with counting("openai", "azure") as (upstream, _, sdk):
        told = await count(sdk)

    assert 5 <= told[0] <= 50 and told[1] == {"counted_by": "estimate", "warnings": [ESTIMATED]} and upstream.calls == []


async def test_a_failure_goes_to_the_next_and_leaves_no_trace_in_health() -> None:
    async with counting("anthropic", "anthropic") as (upstream, house, sdk):
        upstream.script(page(429, {"type": "error", "error": {"type": "rate_limit_error", "message": "slow"}}), counted(7), counted(8))
        first, second = await count(sdk), await count(sdk)
        assert not house.router.health.views and not house.router.health.cooling_accounts

    assert (first[0], second[0]) == (7, 8)
    assert [call.path[:3] for call in upstream.calls] == ["/e1", "/e2", "/e2"], "who does not count for now is left alone"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (page(529, {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}), "overloaded"),
        (page(404, {"type": "error", "error": {"type": "not_found_error", "message": "no such call"}}), "model_not_found"),
        (page(200, {"tokens": 3}), "server_error"),
        ((Hang(),), "timeout"),
    ],
)
async def test_where_all_fail_the_count_is_an_estimate_that_says_why(answer: Answer, why: str) -> None:
    async with counting("anthropic", retry={"max_retries": 3}) as (upstream, _, sdk):
        upstream.script(then=answer)
        told = await count(sdk, {"x-n4n-timeout-ms": "300"})

    assert told[1]["warnings"] == [f"{ESTIMATED}: counting at the provider failed ({why})"] and len(upstream.calls) == 1


async def test_directives_and_bounds_hold() -> None:
    async with counting("anthropic", "anthropic") as (upstream, _, sdk):
        upstream.script(then=counted(7))
        assert (await count(sdk, {"x-n4n-routing": "exclude=endpoint:e1"}))[1]["endpoint"] == "e2"
        with pytest.raises(anthropic.BadRequestError, match="region=eu removed 2"):
            await count(sdk, {"x-n4n-routing": "region=eu"})
        upstream.script(then=page(500, {}))
        told = await count(sdk, {"x-n4n-routing": "fallback=off"})

    assert told[1]["counted_by"] == "estimate" and len(upstream.calls) == 2


async def test_a_prompt_too_long_for_every_window_is_counted_all_the_same() -> None:
    async with counting("anthropic", context_window=100) as (upstream, _, sdk):
        told = await count(sdk, system="word " * 100_000)

    assert told[0] > 100_000 and told[1]["counted_by"] == "estimate" and upstream.calls == []


async def test_what_an_endpoint_cannot_be_told_is_estimated() -> None:
    picture: Any = [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "https://a.example/p.png"}}]}]
    async with counting("bedrock") as (upstream, _, sdk):
        told = await sdk.messages.count_tokens(model="m", messages=picture)

    assert told.input_tokens > 1000 and upstream.calls == []
