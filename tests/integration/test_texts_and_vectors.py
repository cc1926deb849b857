"""The skins /v1/completions and /v1/embeddings, and /v1/responses in a provider's own words, through OpenAI's own SDK."""

from __future__ import annotations

import json

import openai
import pytest

from tests.support.answers import EVENTS, JSON, completion, sse
from tests.support.router import KEY, RunningRouter, catalog, running_router
from tests.support.script import Answer, Raw, Whole
from tests.support.upstream import ScriptedUpstream

TEXTS = {"supports": ["text_completions", "stream_options"]}
VECTORS = {"supports": ["embeddings"]}
EMBEDDED = {
    "object": "list",
    "data": [{"object": "embedding", "index": 0, "embedding": "AAAAPwAAAMA="}],
    "model": "x",
    "usage": {"prompt_tokens": 3, "total_tokens": 3},
}
HEAD = {"id": "resp_1", "object": "response", "created_at": 7, "model": "gpt", "output": [], "parallel_tool_calls": True}
COUNTS = {"input_tokens": 9, "output_tokens": 2, "total_tokens": 11}


def client(house: RunningRouter) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=house.base_url, api_key=KEY, max_retries=0)


def text(words: str, reason: str | None = None) -> dict[str, object]:
    choice = {"text": words, "index": 0, "logprobs": None, "finish_reason": reason}
    return {"id": "cmpl-1", "object": "text_completion", "created": 7, "model": "x", "choices": [choice]}


def stream(*events: object) -> Answer:
    pieces = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)
    return (EVENTS, Raw(pieces))


async def test_a_text_goes_on_where_the_catalog_has_an_endpoint_for_that() -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    async with ScriptedUpstream() as e1:
        e1.script(
            (JSON, Whole(json.dumps({**text(" upon a time", "length"), "usage": usage}).encode())), stream(text(" upon"), text("", "stop"))
        )
        async with running_router(catalog(e1.base_url, endpoint=TEXTS)) as house, client(house) as sdk:
            whole = await sdk.completions.create(model="m", prompt="Once", max_tokens=5)
            chunks = [chunk async for chunk in await sdk.completions.create(model="m", prompt="Once", stream=True)]

    assert whole.choices[0].text == " upon a time"
    assert whole.model_extra is not None and whole.model_extra["n4n"]["usage"]["completion_tokens"] == 2
    assert "".join(chunk.choices[0].text for chunk in chunks) == " upon"
    assert all(call.path.endswith("/completions") and "/chat/" not in call.path for call in e1.calls)


async def test_elsewhere_a_text_is_what_the_user_of_a_chat_says() -> None:
    async with ScriptedUpstream() as e1:
        e1.script(completion("hello"), sse("hel", "lo"))
        async with running_router(catalog(e1.base_url)) as house, client(house) as sdk:
            whole = await sdk.completions.create(model="m", prompt="Say hello.")
            chunks = [chunk async for chunk in await sdk.completions.create(model="m", prompt="Say hello.", stream=True)]
            with pytest.raises(openai.BadRequestError, match="suffix"):
                await sdk.completions.create(model="m", prompt="a", suffix="b")

    assert whole.choices[0].text == "hello"
    assert "".join(chunk.choices[0].text for chunk in chunks) == "hello"


async def test_vectors_come_from_endpoints_of_vectors_alone() -> None:
    async with ScriptedUpstream() as e1:
        e1.script((JSON, Whole(json.dumps(EMBEDDED).encode())))
        async with running_router(catalog(e1.base_url, endpoint=VECTORS)) as house, client(house) as sdk:
            made = await sdk.embeddings.create(model="m", input=["a"])
            with pytest.raises(openai.BadRequestError):
                await sdk.chat.completions.create(model="m", messages=[{"role": "user", "content": "a"}])
        assert len(e1.calls) == 1

    assert made.data[0].embedding == [0.5, -2.0]
    assert made.model_extra is not None and made.model_extra["n4n"]["usage"]["prompt_tokens"] == 3


async def test_a_response_passes_in_a_providers_own_words() -> None:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed"}
    part = {"type": "output_text", "text": "hello", "annotations": []}
    events = [
        {"type": "response.created", "sequence_number": 0, "response": {**HEAD, "status": "in_progress"}},
        {"type": "response.output_item.added", "sequence_number": 1, "output_index": 0, "item": {**message, "content": []}},
        {
            "type": "response.content_part.added",
            "sequence_number": 2,
            "item_id": "msg_1",
            "output_index": 0,
            "content_index": 0,
            "part": part,
        },
        {
            "type": "response.output_text.delta",
            "sequence_number": 3,
            "item_id": "msg_1",
            "output_index": 0,
            "content_index": 0,
            "delta": "hello",
        },
        {
            "type": "response.completed",
            "sequence_number": 4,
            "response": {**HEAD, "status": "completed", "output": [{**message, "content": [part]}], "usage": COUNTS},
        },
    ]
    async with ScriptedUpstream() as e1:
        e1.script(stream(*events))
        document = catalog(e1.base_url)
        document["providers"]["pe1"]["dialect"] = "openai_responses"  # type: ignore[index]
        async with running_router(document) as house, client(house) as sdk:
            got = [event async for event in await sdk.responses.create(model="m", input="Say hello.", stream=True, store=True)]

    assert [event.type for event in got] == [event["type"] for event in events]
    last = got[-1]
    assert last.type == "response.completed" and last.response.output_text == "hello"
    assert last.response.model_extra is not None and last.response.model_extra["n4n"]["endpoint"] == "e1"
    assert e1.calls[0].path.endswith("/responses")
