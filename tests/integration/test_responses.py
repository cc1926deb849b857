"""The skin /v1/responses through OpenAI's own SDK, against a provider that speaks chat."""

from __future__ import annotations

import openai
import pytest

from tests.support.answers import completion, sse
from tests.support.router import KEY, RunningRouter, catalog, running_router
from tests.support.upstream import ScriptedUpstream


def client(house: RunningRouter) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=house.base_url, api_key=KEY, max_retries=0)


async def test_a_response_comes_from_a_provider_that_speaks_chat_with_the_block_in_it() -> None:
    async with ScriptedUpstream() as e1:
        e1.script(completion("hello"))
        async with running_router(catalog(e1.base_url)) as house, client(house) as sdk:
            response = await sdk.responses.create(model="m", input="Say hello.")
    assert response.output_text == "hello"
    assert response.status == "completed"
    assert response.model_extra is not None
    assert response.model_extra["n4n"]["endpoint"] == "e1"


async def test_a_stream_of_events_ends_with_the_whole_response() -> None:
    async with ScriptedUpstream() as e1:
        e1.script(sse("hel", "lo"))
        async with running_router(catalog(e1.base_url)) as house, client(house) as sdk:
            events = [event async for event in await sdk.responses.create(model="m", input="Say hello.", stream=True)]
    assert events[0].type == "response.created"
    last = events[-1]
    assert last.type == "response.completed"
    assert last.response.output_text == "hello"
    assert last.response.usage is not None
    assert [event.sequence_number for event in events] == list(range(len(events)))


async def test_what_is_not_kept_cannot_be_gone_on_from() -> None:
    async with ScriptedUpstream() as e1, running_router(catalog(e1.base_url)) as house, client(house) as sdk:
        with pytest.raises(openai.BadRequestError, match="previous_response_id"):
            await sdk.responses.create(model="m", input="And then?", previous_response_id="resp_1")
        assert e1.calls == []
