"""The tables of the matrix: clients × providers × situations, what has to come of each cell, and which cells there cannot be.

A new skin is one more client, a new dialect one more provider.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import anthropic
import openai

from tests.support.matrix import provider_anthropic, provider_bedrock, provider_gemini, provider_openai, provider_responses
from tests.support.matrix.client import Client
from tests.support.matrix.client_chat import ChatClient
from tests.support.matrix.client_messages import MessagesClient
from tests.support.matrix.client_responses import ResponsesClient
from tests.support.matrix.provider import Provider
from tests.support.matrix.words import Ask, Call, Image, Result, Text, Tokens, Told, Tool, Turn, same, says

CLIENTS: Mapping[str, Callable[[openai.AsyncOpenAI, anthropic.AsyncAnthropic], Client]] = {
    "chat": lambda sdk, _: ChatClient(sdk),
    "messages": lambda _, sdk: MessagesClient(sdk),
    "responses": lambda sdk, _: ResponsesClient(sdk),
}
PROVIDERS: Mapping[str, Provider] = {
    one.name: one
    for family in (provider_openai, provider_responses, provider_anthropic, provider_gemini, provider_bedrock)
    for one in family.PROVIDERS
}

PIXEL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
WEATHER = Tool("weather", "The weather in a city", ("city", "day"))
CLOCK = Tool("clock", "The time", ())
ZURICH = same({"city": "Zürich 🏔", "day": "today"})
NOTHING = Tokens(40, completion=9)


@dataclass(frozen=True)
class Situation:
    """What is asked, and what a provider makes of it: an answer, or a fault by its class."""

    ask: Ask
    told: Told | None = None
    fault: str | None = None  # before any answer
    breaks: str | None = None  # error, reset: in the middle of one
    refuses: bool = False  # the provider's own way not to answer


_ASK = Ask(says("How is the weather? 你好"))
SITUATIONS: Mapping[str, Situation] = {
    "text": Situation(
        Ask(says("Say hello. 你好 👩‍👩‍👧"), temperature=0.5, stop=("END",)),
        Told("Grüezi 🏔 漢字 👩‍👩‍👧‍👦.", tokens=Tokens(120, 80, 20, 9)),
    ),
    "cut off": Situation(_ASK, Told("Once upon a", finish="length")),
    "tools": Situation(
        Ask(
            (
                Turn("user", (Text("How is the weather in Bern?"),)),
                Turn("assistant", (Text("I will look."), Call("weather", same({"city": "Bern"}), "call_000000001"))),
                Turn("user", (Result("weather", "sunny, 20 °C", "call_000000001"), Text("And in Zürich?"))),
            ),
            tools=(WEATHER,),
            choice="weather",
        ),
        Told("Wait.", calls=(Call("weather", ZURICH, "call_000000002"),), finish="tool_calls"),
    ),
    "parallel tools": Situation(
        Ask(
            (
                Turn("user", (Text("Weather and time?"),)),
                Turn("assistant", (Call("weather", same({"city": "Bern"}), "call_000000001"), Call("clock", "{}", "call_000000002"))),
                Turn("user", (Result("weather", "sunny", "call_000000001"), Result("clock", "noon", "call_000000002"))),
            ),
            tools=(WEATHER, CLOCK),
            choice="required",
        ),
        Told(calls=(Call("weather", ZURICH, "call_000000003"), Call("clock", "{}", "call_000000004")), finish="tool_calls"),
    ),
    "one call at a time": Situation(
        Ask(says("Weather?"), tools=(WEATHER, CLOCK), one_call=True),
        Told(calls=(Call("clock", "{}", "call_000000001"),), finish="tool_calls"),
    ),
    "no call": Situation(Ask(says("Weather?"), tools=(WEATHER,), choice="none"), Told("I may not look.")),
    "image": Situation(Ask((Turn("user", (Text("What is this?"), Image(PIXEL))),)), Told("A pixel.")),
    "image by address": Situation(Ask((Turn("user", (Text("What is this?"), Image("https://a.example/p.png"))),)), Told("A pixel.")),
    "json schema": Situation(Ask(says("A city, as JSON."), answer=("city", "land")), Told('{"city":"Genève","land":"CH"}')),
    "reasoning": Situation(
        Ask(says("Think."), effort="low"), Told("42.", thought="Let me think… 思", tokens=Tokens(40, completion=30, reasoning=20))
    ),
    "refusal": Situation(_ASK, refuses=True),
    "context length": Situation(_ASK, fault="context_length"),
    "content policy": Situation(_ASK, fault="content_policy"),
    "429": Situation(_ASK, fault="rate_limited"),
    "529": Situation(_ASK, fault="overloaded"),
    "mid-stream error": Situation(_ASK, Told("Once upon a time there was a town."), breaks="error"),
    "disconnect": Situation(_ASK, Told("Once upon a time there was a town."), breaks="reset"),
}

# What a client is told where a class is all there was: status, code.
TOLD: Mapping[str, tuple[int, str]] = {
    "context_length": (400, "context_length_exceeded"),
    "content_policy": (400, "content_filter"),
    "rate_limited": (429, "rate_limited"),
    "overloaded": (503, "overloaded"),
    "server_error": (502, "server_error"),
}


@dataclass(frozen=True)
class Cell:
    """One request of one client to one provider."""

    client: str
    provider: str
    situation: str
    stream: bool

    @property
    def name(self) -> str:
        """As a test's id, and as a model's name."""
        words = f"{self.client}.{self.provider}.{self.situation}.{'stream' if self.stream else 'whole'}"
        return words.replace(" ", "-")


# Cells that there cannot be, with the reason.
IMPOSSIBLE: Mapping[str, Callable[[Cell], bool]] = {
    "Bedrock reports a block by its guardrail as the reason to stop, never as an error: see 'refusal'": lambda cell: (
        cell.provider == "bedrock" and cell.situation == "content policy"
    ),
    "Bedrock has no error inside an answer that is no stream": lambda cell: (
        cell.provider == "bedrock" and cell.situation == "mid-stream error" and not cell.stream
    ),
}


@dataclass(frozen=True)
class Loss:
    """What of a request a provider's words cannot hold, and how the client is told; no warning: the answer is the same without it."""

    left: Callable[[Ask], Ask]
    warning: str | None = None


_ONE_CALL = Loss(lambda ask: replace(ask, one_call=False), "parallel_tool_calls was left out: Gemini has no such field")
LOSSES: Mapping[tuple[str, str], Loss] = {  # by provider and situation
    ("openai_responses", "text"): Loss(lambda ask: replace(ask, stop=()), "stop was left out: endpoint {endpoint} has no word for it"),
    ("gemini", "one call at a time"): _ONE_CALL,
    ("vertex", "one call at a time"): _ONE_CALL,
    ("bedrock", "no call"): Loss(lambda ask: replace(ask, tools=(), choice="auto")),
}
# What is refused before anybody is asked, because an answer would be to another question: by provider and situation, the reason.
UNTELLABLE: Mapping[tuple[str, str], str] = {
    ("bedrock", "image by address"): "takes no image by its address; send it as a data URI",
}


def cells() -> list[Cell]:
    """Every cell that there can be."""
    every = [
        Cell(client, provider, situation, stream)
        for client in CLIENTS
        for provider in PROVIDERS
        for situation in SITUATIONS
        for stream in (False, True)
    ]
    return [cell for cell in every if not any(is_so(cell) for is_so in IMPOSSIBLE.values())]


def told_in(cell: Cell) -> Told | None:
    """What the provider of a cell tells."""
    situation, provider = SITUATIONS[cell.situation], PROVIDERS[cell.provider]
    return provider.refuses() if situation.refuses else situation.told
