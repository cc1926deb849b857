"""Real clients, unmodified, as a table: each asks model `m` a plain question, as its users would write it.

Their own retries are off, so that what a provider sees is n4n's doing alone.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

import anthropic
import openai
from agents import Agent, Model, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, set_tracing_disabled
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import BaseChatModel
from langchain_openai import ChatOpenAI

from tests.support.router import KEY

T = TypeVar("T")
_TIMEOUTS_S = itertools.count(60)
set_tracing_disabled(True)  # it would tell OpenAI of every run
PROMPT = "Say something short"
TURNS = [{"role": "user", "content": PROMPT}]
RAISED = (openai.APIError, anthropic.APIError)  # what an application has to catch, also under a framework
Made = Callable[[str], AbstractAsyncContextManager[BaseChatModel]]  # a LangChain model at a base URL
Seen = list[str]  # pieces of text in the order an application sees them


@dataclass(frozen=True)
class Client:
    """`ask(base_url, seen)` returns once the client holds its whole answer, and raises what the client raises."""

    name: str
    stream: bool
    ask: Callable[[str, Seen], Awaitable[None]]

    def __str__(self) -> str:
        return f"{self.name}-{'stream' if self.stream else 'whole'}"


def openai_client(base_url: str) -> openai.AsyncOpenAI:
    """Of the `openai` package."""
    return openai.AsyncOpenAI(base_url=base_url, api_key=KEY, max_retries=0)


def anthropic_client(base_url: str) -> anthropic.AsyncAnthropic:
    """Of the `anthropic` package, which adds `/v1` itself."""
    return anthropic.AsyncAnthropic(base_url=base_url.removesuffix("/v1"), api_key=KEY, max_retries=0)


@asynccontextmanager
async def langchain_openai(base_url: str, *, responses: bool = False) -> AsyncIterator[ChatOpenAI]:
    """Of `langchain-openai`; `responses`: over /v1/responses instead of chat."""
    async with openai.DefaultAsyncHttpxClient() as http:
        yield ChatOpenAI(model="m", base_url=base_url, api_key=KEY, max_retries=0, use_responses_api=responses, http_async_client=http)


def langchain_openai_responses(base_url: str) -> AbstractAsyncContextManager[ChatOpenAI]:
    """The same over /v1/responses."""
    return langchain_openai(base_url, responses=True)


@asynccontextmanager
async def langchain_anthropic(base_url: str) -> AsyncIterator[ChatAnthropic]:
    """Of `langchain-anthropic`, which keeps one HTTP client per address and timeout for as long as the process lives: ours are closed."""
    address, timeout = base_url.removesuffix("/v1"), float(next(_TIMEOUTS_S))
    model = ChatAnthropic(model="m", base_url=address, api_key=KEY, max_retries=0, max_tokens=500, timeout=timeout)
    try:
        yield model
    finally:
        await model._async_client.close()


def told_code(error: BaseException) -> str | None:
    """n4n's error code in what a client raised, whichever client it is."""
    body = getattr(error, "body", None)
    inner = body.get("error") if isinstance(body, dict) else None
    if isinstance(inner, dict):
        return inner.get("code")
    return getattr(error, "code", None)


def in_turn(clients: Sequence[Client], places: Sequence[str], faults: Sequence[T]) -> Iterator[tuple[Client, str, T]]:
    """Each client with each fault, at one place after the other, so that each place has each fault too where clients are many."""
    for number, client in enumerate(clients):
        for turn, fault in enumerate(faults):
            yield client, places[(number + turn) % len(places)], fault


# ── openai


async def _chat(base_url: str, seen: Seen) -> None:
    async with openai_client(base_url) as client:
        answer = await client.chat.completions.create(model="m", messages=TURNS)
        assert answer.choices[0].finish_reason == "stop"
        seen.append(answer.choices[0].message.content)


async def _chat_stream(base_url: str, seen: Seen) -> None:
    async with openai_client(base_url) as client, client.chat.completions.stream(model="m", messages=TURNS) as stream:
        async for event in stream:
            if event.type == "content.delta":
                seen.append(event.delta)
        answer = await stream.get_final_completion()
        assert (answer.choices[0].finish_reason, answer.choices[0].message.content) == ("stop", "".join(seen))


async def _responses(base_url: str, seen: Seen) -> None:
    async with openai_client(base_url) as client:
        answer = await client.responses.create(model="m", input=PROMPT)
        assert answer.status == "completed"
        seen.append(answer.output_text)


async def _responses_stream(base_url: str, seen: Seen) -> None:
    async with openai_client(base_url) as client, client.responses.stream(model="m", input=PROMPT) as stream:
        async for event in stream:
            if event.type == "response.output_text.delta":
                seen.append(event.delta)
        answer = await stream.get_final_response()
        assert (answer.status, answer.output_text) == ("completed", "".join(seen))


# ── anthropic


async def _messages(base_url: str, seen: Seen) -> None:
    async with anthropic_client(base_url) as client:
        answer = await client.messages.create(model="m", max_tokens=500, messages=TURNS)
        assert answer.stop_reason == "end_turn"
        seen += [block.text for block in answer.content]


async def _messages_stream(base_url: str, seen: Seen) -> None:
    async with anthropic_client(base_url) as client, client.messages.stream(model="m", max_tokens=500, messages=TURNS) as stream:
        async for text in stream.text_stream:
            seen.append(text)
        answer = await stream.get_final_message()
        assert (answer.stop_reason, [block.text for block in answer.content]) == ("end_turn", ["".join(seen)])


# ── frameworks


def _invoked(made: Made) -> Callable[[str, Seen], Awaitable[None]]:
    async def ask(base_url: str, seen: Seen) -> None:
        async with made(base_url) as model:
            seen.append((await model.ainvoke(PROMPT)).text)

    return ask


def _streamed(made: Made) -> Callable[[str, Seen], Awaitable[None]]:
    async def ask(base_url: str, seen: Seen) -> None:
        async with made(base_url) as model:
            async for chunk in model.astream(PROMPT):
                seen.append(chunk.text)

    return ask


def _ran(model: Callable[..., Model]) -> Callable[[str, Seen], Awaitable[None]]:
    async def ask(base_url: str, seen: Seen) -> None:
        async with openai_client(base_url) as client:
            done = await Runner.run(Agent(name="Talker", model=model(model="m", openai_client=client)), PROMPT)
            seen.append(done.final_output)

    return ask


def _ran_streamed(model: Callable[..., Model]) -> Callable[[str, Seen], Awaitable[None]]:
    async def ask(base_url: str, seen: Seen) -> None:
        async with openai_client(base_url) as client:
            run = Runner.run_streamed(Agent(name="Talker", model=model(model="m", openai_client=client)), PROMPT)
            async for event in run.stream_events():
                if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                    seen.append(event.data.delta)
            assert run.final_output == "".join(seen)

    return ask


SDKS = (
    Client("openai-chat", False, _chat),
    Client("openai-chat", True, _chat_stream),
    Client("openai-responses", False, _responses),
    Client("openai-responses", True, _responses_stream),
    Client("anthropic-messages", False, _messages),
    Client("anthropic-messages", True, _messages_stream),
)
FRAMEWORKS = (
    Client("langchain-openai", False, _invoked(langchain_openai)),
    Client("langchain-openai", True, _streamed(langchain_openai)),
    Client("langchain-openai-responses", False, _invoked(langchain_openai_responses)),
    Client("langchain-openai-responses", True, _streamed(langchain_openai_responses)),
    Client("langchain-anthropic", False, _invoked(langchain_anthropic)),
    Client("langchain-anthropic", True, _streamed(langchain_anthropic)),
    Client("openai-agents-chat", False, _ran(OpenAIChatCompletionsModel)),
    Client("openai-agents-chat", True, _ran_streamed(OpenAIChatCompletionsModel)),
    Client("openai-agents-responses", False, _ran(OpenAIResponsesModel)),
    Client("openai-agents-responses", True, _ran_streamed(OpenAIResponsesModel)),
)
CLIENTS = SDKS + FRAMEWORKS
