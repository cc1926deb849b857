"""Tool calls that a model got wrong: n4n is not their judge, so each client sees what the provider sent, as its protocol can say it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

import agents
import pytest

from tests.acceptance.test_tool_loops import CHAT_TOOLS, LOOPS, MESSAGES_TOOLS, PROMPT, RESPONSES_TOOLS
from tests.support.clients import TURNS, anthropic_client, openai_client
from tests.support.router import running_router
from tests.support.simulated import PLACES, Simulated, route

UNKNOWN = "llmock_unknown_tool"
CUT_OFF = '{"city": "'  # what llmock leaves of {"city": "mock-city"}
Shown = tuple[str, str]  # name and arguments of the one call


async def chat(base_url: str) -> Shown:
    async with openai_client(base_url) as client:
        answer = await client.chat.completions.create(model="m", messages=TURNS, tools=CHAT_TOOLS)
    assert answer.choices[0].finish_reason == "tool_calls"
    (call,) = answer.choices[0].message.tool_calls
    return call.function.name, call.function.arguments


async def chat_stream(base_url: str) -> Shown:
    async with openai_client(base_url) as client:
        async with client.chat.completions.stream(model="m", messages=TURNS, tools=CHAT_TOOLS) as stream:
            answer = await stream.get_final_completion()
    assert answer.choices[0].finish_reason == "tool_calls"
    (call,) = answer.choices[0].message.tool_calls
    return call.function.name, call.function.arguments


async def responses(base_url: str) -> Shown:
    async with openai_client(base_url) as client:
        answer = await client.responses.create(model="m", input=PROMPT, tools=RESPONSES_TOOLS)
    (call,) = answer.output
    return call.name, call.arguments


async def responses_stream(base_url: str) -> Shown:
    async with openai_client(base_url) as client:
        async with client.responses.stream(model="m", input=PROMPT, tools=RESPONSES_TOOLS) as stream:
            answer = await stream.get_final_response()
    (call,) = answer.output
    return call.name, call.arguments


async def messages(base_url: str) -> Shown:
    async with anthropic_client(base_url) as client:
        answer = await client.messages.create(model="m", max_tokens=500, messages=TURNS, tools=MESSAGES_TOOLS)
    assert answer.stop_reason == "tool_use"
    (call,) = answer.content
    # Anthropic's own way to hand on arguments that are no JSON where they have to be an object.
    return call.name, call.input.get("INVALID_JSON") or json.dumps(call.input)


async def messages_stream(base_url: str) -> Shown:
    arguments = ""
    async with anthropic_client(base_url) as client:
        async with client.messages.stream(model="m", max_tokens=500, messages=TURNS, tools=MESSAGES_TOOLS) as stream:
            async for event in stream:
                arguments += event.partial_json if event.type == "input_json" else ""
            answer = await stream.get_final_message()
    assert answer.stop_reason == "tool_use"
    (call,) = answer.content
    return call.name, arguments or json.dumps(call.input)


ASKS = (chat, chat_stream, responses, responses_stream, messages, messages_stream)


def sent(at: str, ask: Callable[[str], Awaitable[Shown]]) -> str:
    """What a provider can say of arguments that are no JSON: where they are an object, llmock makes it an empty one."""
    as_object = at == "gemini" or (at == "anthropic" and not ask.__name__.endswith("stream"))
    return "{}" if as_object else CUT_OFF


@pytest.mark.parametrize("ask", ASKS)
@pytest.mark.parametrize("at", PLACES)
async def test_a_call_is_shown_as_it_was_made(company: Simulated, at: str, ask: Callable[[str], Awaitable[Shown]]) -> None:
    company.break_tool_call("unknown_tool")
    async with running_router(route((company, at))) as router:
        name, arguments = await ask(router.base_url)
        company.break_tool_call("malformed_arguments")
        broken = await ask(router.base_url)

    assert (name, json.loads(arguments)) == (UNKNOWN, {"city": "mock-city"})
    assert broken == ("get_weather", sent(at, ask))
    assert company.findings() == []


@pytest.mark.parametrize("loop", [name for name in LOOPS if name.startswith("openai-agents")])
async def test_the_agents_sdk_knows_a_tool_that_nobody_offered_and_goes_on_after_arguments_that_it_cannot_read(
    company: Simulated, loop: str
) -> None:
    async with running_router(route((company, "openai"))) as router:
        company.break_tool_call("unknown_tool")
        with pytest.raises(agents.ModelBehaviorError, match=UNKNOWN):
            await LOOPS[loop](router.base_url)
        company.break_tool_call("malformed_arguments")
        said = await LOOPS[loop](router.base_url)

    assert said
    assert company.findings() == []
