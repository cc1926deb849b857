"""Every real client gets objects of its own class from every provider."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping

import agents
import pytest
from pydantic import BaseModel

from tests.support.clients import (
    TURNS,
    Made,
    anthropic_client,
    langchain_anthropic,
    langchain_openai,
    langchain_openai_responses,
    openai_client,
)
from tests.support.router import running_router
from tests.support.simulated import PLACES, Simulated, route


class Weather(BaseModel):
    """What a model has to answer."""

    city: str
    degrees: int
    windy: bool


EXPECTED = Weather(city="mock-city", degrees=1, windy=True)  # what llmock makes of the schema
# It reads the schema of Anthropic's beta, `output_format`, and not of today's `output_config.format`: there the answer is scripted.
BLIND_TO_SCHEMAS = frozenset({"anthropic"})


async def chat_parse(base_url: str) -> object:
    async with openai_client(base_url) as client:
        return (await client.chat.completions.parse(model="m", messages=TURNS, response_format=Weather)).choices[0].message.parsed


async def chat_stream(base_url: str) -> object:
    async with openai_client(base_url) as client:
        async with client.chat.completions.stream(model="m", messages=TURNS, response_format=Weather) as stream:
            return (await stream.get_final_completion()).choices[0].message.parsed


async def responses_parse(base_url: str) -> object:
    async with openai_client(base_url) as client:
        return (await client.responses.parse(model="m", input="weather", text_format=Weather)).output_parsed


async def responses_stream(base_url: str) -> object:
    async with openai_client(base_url) as client:
        async with client.responses.stream(model="m", input="weather", text_format=Weather) as stream:
            return (await stream.get_final_response()).output_parsed


async def messages_parse(base_url: str) -> object:
    async with anthropic_client(base_url) as client:
        return (await client.messages.parse(model="m", max_tokens=500, messages=TURNS, output_format=Weather)).parsed_output


async def messages_stream(base_url: str) -> object:
    async with anthropic_client(base_url) as client:
        async with client.messages.stream(model="m", max_tokens=500, messages=TURNS, output_format=Weather) as stream:
            return (await stream.get_final_message()).parsed_output


def langchain(made: Made, method: str) -> Callable[[str], Awaitable[object]]:
    async def ask(base_url: str) -> object:
        async with made(base_url) as model:
            return await model.with_structured_output(Weather, method=method).ainvoke("weather")

    return ask


def openai_agents(model: Callable[..., agents.Model]) -> Callable[[str], Awaitable[object]]:
    async def ask(base_url: str) -> object:
        async with openai_client(base_url) as client:
            agent = agents.Agent(name="Weather", output_type=Weather, model=model(model="m", openai_client=client))
            return (await agents.Runner.run(agent, "weather")).final_output

    return ask


ASKS: Mapping[str, Callable[[str], Awaitable[object]]] = {
    "openai-chat-parse": chat_parse,
    "openai-chat-stream": chat_stream,
    "openai-responses-parse": responses_parse,
    "openai-responses-stream": responses_stream,
    "anthropic-parse": messages_parse,
    "anthropic-stream": messages_stream,
    "langchain-openai-schema": langchain(langchain_openai, "json_schema"),
    "langchain-openai-tool": langchain(langchain_openai, "function_calling"),
    "langchain-openai-responses-schema": langchain(langchain_openai_responses, "json_schema"),
    "langchain-anthropic-schema": langchain(langchain_anthropic, "json_schema"),
    "langchain-anthropic-tool": langchain(langchain_anthropic, "function_calling"),
    "openai-agents-chat": openai_agents(agents.OpenAIChatCompletionsModel),
    "openai-agents-responses": openai_agents(agents.OpenAIResponsesModel),
}


@pytest.mark.parametrize("ask", ASKS)
@pytest.mark.parametrize("at", PLACES)
async def test_the_answer_is_an_object_of_the_class_that_was_asked_for(company: Simulated, at: str, ask: str) -> None:
    if at in BLIND_TO_SCHEMAS and not ask.endswith("tool"):
        company.reply(EXPECTED.model_dump_json())

    async with running_router(route((company, at))) as router:
        answer = await ASKS[ask](router.base_url)

    assert answer == EXPECTED
    (asked,) = company.requests
    assert all(f'"{name}"' in json.dumps(asked.body) for name in Weather.model_fields)
    assert company.findings() == []
