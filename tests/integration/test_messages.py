"""The skin /v1/messages and what belongs to it, through Anthropic's own SDK."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anthropic
import pytest

from tests.support.answers import completion
from tests.support.router import KEY, RunningRouter, catalog, running_router
from tests.support.upstream import ScriptedUpstream

ASKED = [{"role": "user", "content": "Say hello."}]


@asynccontextmanager
async def client(house: RunningRouter) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(base_url=house.base_url.removesuffix("/v1"), api_key=KEY, max_retries=0) as sdk:
        yield sdk


async def test_a_message_comes_from_a_provider_that_speaks_chat_with_the_block_in_it() -> None:
    async with ScriptedUpstream() as e1:
        e1.script(completion("hello"))
        async with running_router(catalog(e1.base_url)) as house, client(house) as sdk:
            message = await sdk.messages.create(model="m", max_tokens=50, messages=ASKED)  # type: ignore[arg-type]
    assert [block.text for block in message.content if block.type == "text"] == ["hello"]
    assert message.stop_reason == "end_turn"
    assert message.model_extra is not None
    assert message.model_extra["n4n"]["endpoint"] == "e1"


async def test_counting_at_who_speaks_chat_is_an_estimate() -> None:
    async with ScriptedUpstream() as e1, running_router(catalog(e1.base_url)) as house, client(house) as sdk:
        counted = await sdk.messages.count_tokens(model="m", messages=ASKED)  # type: ignore[arg-type]
        with pytest.raises(anthropic.NotFoundError, match="nope"):
            await sdk.messages.count_tokens(model="nope", messages=ASKED)  # type: ignore[arg-type]
        assert e1.calls == []
    assert 5 <= counted.input_tokens <= 50
    assert counted.model_extra is not None
    assert counted.model_extra["n4n"]["warnings"] == ["the count is an estimate from sizes"]


async def test_models_are_listed_in_the_shape_of_whoever_asks() -> None:
    async with ScriptedUpstream() as e1, running_router(catalog(e1.base_url)) as house, client(house) as sdk:
        listed = await sdk.models.list(limit=1)
        shown = await sdk.models.retrieve("m")
        with pytest.raises(anthropic.NotFoundError) as refused:
            await sdk.models.retrieve("nope")
        async with house.http.get(f"{house.base_url}/models", headers=house.headers()) as answer:
            plain = await answer.json()
    assert [entry.id for entry in listed.data] == ["m"]
    assert (shown.id, shown.type) == ("m", "model")
    assert refused.value.body["type"] == "error"  # type: ignore[index]
    assert plain["object"] == "list"


async def test_a_key_that_is_none_is_refused_in_the_words_of_the_skin() -> None:
    async with ScriptedUpstream() as e1, running_router(catalog(e1.base_url)) as house:
        async with anthropic.AsyncAnthropic(base_url=house.base_url.removesuffix("/v1"), api_key="sk-nothing", max_retries=0) as sdk:
            with pytest.raises(anthropic.AuthenticationError) as refused:
                await sdk.messages.create(model="m", max_tokens=50, messages=ASKED)  # type: ignore[arg-type]
    assert refused.value.body["error"]["type"] == "authentication_error"  # type: ignore[index]
