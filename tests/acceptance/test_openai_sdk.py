"""The unmodified `openai` SDK against a running house."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

import openai
import pytest

from tests.support.house import House

MESSAGES = [{"role": "user", "content": "Say something short"}]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Weather of a city",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]


@pytest.fixture
def client(house: House) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=house.base_url, api_key=house.api_key, max_retries=0) as made:
        yield made


def test_a_completion(client):
    answer = client.chat.completions.create(model="gpt-4o", messages=MESSAGES)
    assert answer.choices[0].message.content
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens > 0
    assert answer.model_extra["n4n"]["provider"].startswith("sim-")


def test_a_stream_joins_to_one_answer_and_ends(client):
    text, finishes, blocks = "", [], []
    for chunk in client.chat.completions.create(model="gpt-4o", messages=MESSAGES, stream=True):
        for choice in chunk.choices:
            text += choice.delta.content or ""
            finishes += [choice.finish_reason] if choice.finish_reason else []
        blocks += [chunk.model_extra["n4n"]] if "n4n" in (chunk.model_extra or {}) else []
        assert chunk.usage is None
    assert text
    assert finishes == ["stop"]
    assert len(blocks) == 1
    assert blocks[0]["usage"]["completion_tokens"] > 0


def test_a_stream_with_usage_ends_in_one_usage_chunk(client):
    chunks = list(client.chat.completions.create(model="gpt-4o", messages=MESSAGES, stream=True, stream_options={"include_usage": True}))
    assert [bool(chunk.usage) for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert chunks[-1].choices == []


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_conversation(client, stream):
    asked = client.chat.completions.create(model="gpt-4o", messages=MESSAGES, tools=TOOLS, stream=stream)
    if stream:
        calls: dict[int, dict[str, str]] = {}
        for chunk in asked:
            for call in chunk.choices[0].delta.tool_calls or [] if chunk.choices else []:
                known = calls.setdefault(call.index, {"id": "", "name": "", "arguments": ""})
                known["id"] += call.id or ""
                known["name"] += call.function.name or ""
                known["arguments"] += call.function.arguments or ""
        (call,) = calls.values()
        call_id, name, arguments = call["id"], call["name"], call["arguments"]
    else:
        assert asked.choices[0].finish_reason == "tool_calls"
        (only,) = asked.choices[0].message.tool_calls
        call_id, name, arguments = only.id, only.function.name, only.function.arguments
    assert name == "get_weather"
    told = [
        *MESSAGES,
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}],
        },
        {"role": "tool", "tool_call_id": call_id, "content": "sunny"},
    ]
    answer = client.chat.completions.create(model="gpt-4o", messages=told, tools=TOOLS)
    assert answer.choices[0].message.content


def test_raw_headers_tell_route_version_and_cost(client):
    raw = client.chat.completions.with_raw_response.create(
        model="gpt-4o", messages=MESSAGES, extra_headers={"x-n4n-routing": "only=provider:sim-eu", "x-request-id": "my-label"}
    )
    assert raw.headers["x-n4n-provider"] == "sim-eu"
    assert raw.headers["x-n4n-endpoint"] == "sim-eu-gpt-4o"
    assert raw.headers["x-request-id"] == "my-label"
    assert int(raw.headers["x-n4n-catalog-version"]) >= 1
    assert Decimal(raw.headers["x-n4n-usage-cost-usd"]) == Decimal(str(raw.parse().model_extra["n4n"]["cost_usd"])) > 0


def test_models_are_listed_by_the_sdk(client):
    names = {model.id for model in client.models.list()}
    assert {"gpt-4o", "gpt-4o-mini"} <= names
    assert client.models.retrieve("gpt-4o").id == "gpt-4o"


@pytest.mark.parametrize(
    ("ask", "error", "code"),
    [
        ({"model": "no-such-model"}, openai.NotFoundError, "model_not_found"),
        ({"extra_headers": {"x-n4n-routing": "region=mars"}}, openai.BadRequestError, "no_eligible_endpoint"),
        ({"extra_headers": {"x-n4n-routing": "colour=red"}}, openai.BadRequestError, "invalid_directive"),
        ({"messages": []}, openai.BadRequestError, "invalid_request"),
        (
            {"model": "claude-sonnet-5-5", "extra_headers": {"x-n4n-routing": "require=sim-east"}},
            openai.BadRequestError,
            "no_eligible_endpoint",
        ),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_errors_arrive_as_the_sdks_own_exceptions(client, ask, error, code, stream):
    with pytest.raises(error) as raised:
        client.chat.completions.create(**{"model": "gpt-4o", "messages": MESSAGES, "stream": stream, **ask})
    assert raised.value.code == code
    assert raised.value.body["n4n"]["request_id"]


def test_a_wrong_key_is_an_authentication_error(house):
    with openai.OpenAI(base_url=house.base_url, api_key="sk-wrong", max_retries=0) as client, pytest.raises(openai.AuthenticationError):
        client.chat.completions.create(model="gpt-4o", messages=MESSAGES)


async def test_the_asynchronous_client_works_side_by_side(house):
    import asyncio

    async with openai.AsyncOpenAI(base_url=house.base_url, api_key=house.api_key, max_retries=0) as client:
        answers = await asyncio.gather(*(client.chat.completions.create(model="gpt-4o", messages=MESSAGES) for _ in range(20)))
    assert all(answer.choices[0].message.content for answer in answers)
    assert len({answer.model_extra["n4n"]["provider"] for answer in answers}) > 1
