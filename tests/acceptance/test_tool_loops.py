"""Every real client runs its tools through n4n, for every provider, until the model answers; and sees broken calls as they were made."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping

import agents
import anthropic
import pytest
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from llmock.scenarios import Reply, ToolCall

from tests.support.clients import Made, anthropic_client, langchain_anthropic, langchain_openai, langchain_openai_responses, openai_client
from tests.support.router import running_router
from tests.support.simulated import PLACES, Simulated, route

PROMPT = "What's the weather in Paris and in Oslo?"
ANSWER = "Both are fine"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FUNCTION = {"name": "get_weather", "description": "Get the current weather of a city.", "parameters": SCHEMA}
CHAT_TOOLS = [{"type": "function", "function": FUNCTION}]
RESPONSES_TOOLS = [{"type": "function", **FUNCTION}]
MESSAGES_TOOLS = [{"name": "get_weather", "description": FUNCTION["description"], "input_schema": SCHEMA}]
Loop = Callable[[str], Awaitable[str]]
MOST_TURNS = 4


def weather(city: str) -> str:
    """What every tool here answers."""
    return f"21 degrees in {city}"


# ── the loops, as their users write them; each gives the last text


async def openai_chat(base_url: str) -> str:
    messages: list[object] = [{"role": "user", "content": PROMPT}]
    async with openai_client(base_url) as client:
        for _ in range(MOST_TURNS):
            answer = await client.chat.completions.create(model="m", messages=messages, tools=CHAT_TOOLS)
            said = answer.choices[0].message
            if not said.tool_calls:
                return str(said.content)
            messages += [said, *(_chat_result(call) for call in said.tool_calls)]
    raise AssertionError("the loop does not end")


async def openai_chat_stream(base_url: str) -> str:
    messages: list[object] = [{"role": "user", "content": PROMPT}]
    async with openai_client(base_url) as client:
        for _ in range(MOST_TURNS):
            async with client.chat.completions.stream(model="m", messages=messages, tools=CHAT_TOOLS) as stream:
                said = (await stream.get_final_completion()).choices[0].message
            if not said.tool_calls:
                return str(said.content)
            turn = said.model_dump(include={"role", "content", "tool_calls"}, exclude_none=True)
            messages += [turn, *(_chat_result(call) for call in said.tool_calls)]
    raise AssertionError("the loop does not end")


def _chat_result(call: object) -> dict[str, object]:
    return {"role": "tool", "tool_call_id": call.id, "content": weather(**json.loads(call.function.arguments))}


async def openai_responses(base_url: str, *, stream: bool = False) -> str:
    items: list[object] = [{"role": "user", "content": PROMPT}]
    async with openai_client(base_url) as client:
        for _ in range(MOST_TURNS):
            if stream:
                async with client.responses.stream(model="m", input=items, tools=RESPONSES_TOOLS) as events:
                    answer = await events.get_final_response()
            else:
                answer = await client.responses.create(model="m", input=items, tools=RESPONSES_TOOLS)
            calls = [item for item in answer.output if item.type == "function_call"]
            if not calls:
                return answer.output_text
            items += [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in answer.output]
            for call in calls:
                output = weather(**json.loads(call.arguments))
                items.append({"type": "function_call_output", "call_id": call.call_id, "output": output})
    raise AssertionError("the loop does not end")


async def openai_responses_stream(base_url: str) -> str:
    return await openai_responses(base_url, stream=True)


async def anthropic_messages_stream(base_url: str) -> str:
    messages: list[object] = [{"role": "user", "content": PROMPT}]
    async with anthropic_client(base_url) as client:
        for _ in range(MOST_TURNS):
            async with client.messages.stream(model="m", max_tokens=500, messages=messages, tools=MESSAGES_TOOLS) as stream:
                said = await stream.get_final_message()
            calls = [block for block in said.content if block.type == "tool_use"]
            if not calls:
                return "".join(block.text for block in said.content)
            results = [{"type": "tool_result", "tool_use_id": call.id, "content": weather(**call.input)} for call in calls]
            messages += [{"role": "assistant", "content": said.content}, {"role": "user", "content": results}]
    raise AssertionError("the loop does not end")


async def anthropic_tool_runner(base_url: str) -> str:
    @anthropic.beta_async_tool
    async def get_weather(city: str) -> str:
        """Get the current weather of a city."""
        return weather(city)

    async with anthropic_client(base_url) as client:
        runner = client.beta.messages.tool_runner(
            model="m", max_tokens=500, tools=[get_weather], messages=[{"role": "user", "content": PROMPT}]
        )
        said = await runner.until_done()
        return "".join(block.text for block in said.content)


def langchain(made: Made) -> Loop:
    @tool
    def get_weather(city: str) -> str:
        """Get the current weather of a city."""
        return weather(city)

    async def loop(base_url: str) -> str:
        messages: list[object] = [HumanMessage(PROMPT)]
        async with made(base_url) as model:
            for _ in range(MOST_TURNS):
                said = await model.bind_tools([get_weather]).ainvoke(messages)
                messages.append(said)
                if not said.tool_calls:
                    return str(said.text)
                messages += [await get_weather.ainvoke(call) for call in said.tool_calls]
        raise AssertionError("the loop does not end")

    return loop


def openai_agents(model: Callable[..., agents.Model], *, stream: bool = False) -> Loop:
    @agents.function_tool
    def get_weather(city: str) -> str:
        """Get the current weather of a city."""
        return weather(city)

    async def loop(base_url: str) -> str:
        async with openai_client(base_url) as client:
            agent = agents.Agent(name="Weather", tools=[get_weather], model=model(model="m", openai_client=client))
            if not stream:
                return str((await agents.Runner.run(agent, PROMPT)).final_output)
            run = agents.Runner.run_streamed(agent, PROMPT)
            async for _ in run.stream_events():
                pass
            return str(run.final_output)

    return loop


LOOPS: Mapping[str, Loop] = {
    "openai-chat": openai_chat,
    "openai-chat-stream": openai_chat_stream,
    "openai-responses": openai_responses,
    "openai-responses-stream": openai_responses_stream,
    "anthropic-stream": anthropic_messages_stream,
    "anthropic-tool-runner": anthropic_tool_runner,
    "langchain-openai": langchain(langchain_openai),
    "langchain-openai-responses": langchain(langchain_openai_responses),
    "langchain-anthropic": langchain(langchain_anthropic),
    "openai-agents-chat": openai_agents(agents.OpenAIChatCompletionsModel),
    "openai-agents-chat-stream": openai_agents(agents.OpenAIChatCompletionsModel, stream=True),
    "openai-agents-responses": openai_agents(agents.OpenAIResponsesModel),
    "openai-agents-responses-stream": openai_agents(agents.OpenAIResponsesModel, stream=True),
}


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("at", PLACES)
async def test_two_tools_run_side_by_side_and_their_results_reach_the_provider(company: Simulated, at: str, loop: str) -> None:
    calls = (ToolCall("get_weather", {"city": "Paris"}), ToolCall("get_weather", {"city": "Oslo"}))
    company.add(Reply(tool_calls=calls), Reply(text=ANSWER))

    async with running_router(route((company, at))) as router:
        said = await LOOPS[loop](router.base_url)

    assert said == ANSWER
    asked, answered = company.requests
    assert "get_weather" in json.dumps(asked.body)
    assert all(weather(city) in json.dumps(answered.body) for city in ("Paris", "Oslo"))
    assert company.findings() == []
