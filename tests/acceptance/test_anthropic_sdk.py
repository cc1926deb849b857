"""The unmodified `anthropic` SDK against a running house: models of every dialect, by their names."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import anthropic
import openai
import pytest

from tests.support.house import House

TURNS = [{"role": "user", "content": "Say something short"}]
TOOL = {"name": "get_weather", "description": "Weather of a city", "input_schema": {"type": "object", "properties": {"city": {}}}}
PROVIDERS = {
    "gpt-4o": "sim-",
    "gpt-5": "sim-",
    "claude-haiku-4-5": "sim-",
    "claude-sonnet-5-5": "sim-anthropic",
    "gemini-2.5-pro": "sim-gemini",
    "mistral-large-3": "sim-mistral",
    "gpt-oss-120b": "sim-",
}


@pytest.fixture
def client(house: House) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=house.base_url.removesuffix("/v1"), api_key=house.api_key, max_retries=0) as made:
        yield made


@contextmanager
def down(house: House, **match: str) -> Iterator[None]:
    """While it lasts, simulated providers fail what matches."""
    urls = [f"http://127.0.0.1:{one['port']}/_llmock/scenario" for one in house.runtime["sim"].values()]
    told = json.dumps({"behaviors": [{"type": "fail", "status": 503, "times": None, "match": match}]}).encode()
    for url in urls:
        urllib.request.urlopen(urllib.request.Request(url, told, {"content-type": "application/json"}), timeout=5).close()
    yield
    for url in urls:
        urllib.request.urlopen(urllib.request.Request(url, method="DELETE"), timeout=5).close()


@pytest.mark.parametrize("model", PROVIDERS)
def test_a_message_a_stream_and_a_tool_call_of_every_model(client, model):
    message = client.messages.create(model=model, max_tokens=100, messages=TURNS)
    with client.messages.stream(model=model, max_tokens=100, messages=TURNS) as stream:
        text = "".join(stream.text_stream)
    called = client.messages.create(model=model, max_tokens=100, messages=TURNS, tools=[TOOL])
    counted = client.messages.count_tokens(model=model, messages=TURNS)

    assert message.content[0].text
    assert message.usage.output_tokens > 0
    assert message.model_extra["n4n"]["provider"].startswith(PROVIDERS[model])
    assert text
    assert (called.stop_reason, called.content[0].name) == ("tool_use", "get_weather")
    assert counted.input_tokens > 0


def test_models_are_listed_by_the_sdk(client):
    assert PROVIDERS.keys() | {"tier/reasoning"} <= {model.id for model in client.models.list()}


@pytest.mark.parametrize(
    ("ask", "error"),
    [
        ({"model": "no-such-model"}, anthropic.NotFoundError),
        ({"messages": []}, anthropic.BadRequestError),
        ({"extra_headers": {"x-n4n-routing": "region=mars"}}, anthropic.BadRequestError),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_errors_arrive_as_the_sdks_own_exceptions(client, ask, error, stream):
    with pytest.raises(error) as raised:
        client.messages.create(**{"model": "gpt-4o", "max_tokens": 100, "messages": TURNS, "stream": stream, **ask})
    assert raised.value.body["type"] == "error"
    assert raised.value.body["error"]["n4n"]["request_id"]


def test_a_tier_moves_a_tool_conversation_from_anthropic_to_openai_to_gemini(house, client):
    asked = {"model": "tier/reasoning", "max_tokens": 100, "tools": [TOOL], "messages": TURNS}
    first = client.messages.create(**asked)
    (call,) = [block for block in first.content if block.type == "tool_use"]
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "sunny"}
    told = {**asked, "messages": [*TURNS, {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]}

    with down(house, model="claude-sonnet-5-5"):
        second = client.messages.create(**told)
        with openai.OpenAI(base_url=house.base_url, api_key=house.api_key, max_retries=0) as other:
            chat = other.chat.completions.create(model="tier/reasoning", messages=TURNS)
        with down(house, model="gpt-5"):
            with client.messages.stream(**told) as stream:
                third = stream.get_final_message()

    assert first.model_extra["n4n"]["provider"] == "sim-anthropic"
    assert second.model_extra["n4n"]["endpoint"].endswith("gpt-5")
    assert chat.model_extra["n4n"]["endpoint"].endswith("gpt-5")
    assert third.model == "gemini-2.5-pro"
    assert all(isinstance(one.content[0].text, str) for one in (second, third))
