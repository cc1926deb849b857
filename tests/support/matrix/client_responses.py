"""The skin of Responses, through OpenAI's SDK."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import openai
from openai.types.responses import Response, ResponseOutputItem

from tests.support.matrix.client import KINDS, block_of
from tests.support.matrix.client_chat import broken, refused
from tests.support.matrix.words import (
    Ask,
    Call,
    Heard,
    Image,
    Object,
    Own,
    Part,
    Refused,
    Result,
    Text,
    Thought,
    Tokens,
    Told,
    Turn,
    same,
    schema,
)

_CUTS = {"max_output_tokens": "length", "content_filter": "content_filter"}


class ResponsesClient:
    """Responses, stateless."""

    name = "responses"
    path = "/v1/responses"

    def __init__(self, sdk: openai.AsyncOpenAI) -> None:
        self._sdk = sdk

    def says(self, ask: Ask) -> Ask:
        return replace(ask, stop=())

    def hears(self, told: Told) -> Told:
        return told

    def kind(self, code: str) -> str:
        return KINDS.get(code, "server_error")

    async def ask(self, model: str, ask: Ask, *, stream: bool, headers: Mapping[str, str] | None = None, **more: Any) -> Heard | Refused:
        body = {"model": model, **body_of(ask)}
        try:
            if not stream:
                return _heard(await self._sdk.responses.create(**body, extra_headers=headers, extra_body=more))
        except openai.APIStatusError as error:
            return refused(error)
        return await self._streamed(body, headers, more)

    async def _streamed(self, body: Object, headers: Mapping[str, str] | None, more: Object) -> Heard | Refused:
        before, items, began = list[str](), list[ResponseOutputItem](), False
        final: Response | None = None
        try:
            async with self._sdk.responses.stream(**body, extra_headers=headers, extra_body=more) as events:
                async for event in events:
                    assert final is None, "the response's end is the last event"
                    began = True
                    if event.type == "response.output_text.delta":
                        before.append(event.delta)
                    if event.type == "response.output_item.done":
                        items.append(event.item)
                    if event.type == "response.completed" or event.type == "response.incomplete":
                        final = event.response
            assert final is not None
            assert [item.type for item in final.output] in ([], [item.type for item in items])
            return _heard(final.model_copy(update={"output": items}))
        except openai.APIStatusError as error:
            return refused(error)
        except openai.APIError as error:
            assert began
            return broken(error, "".join(before))


def body_of(ask: Ask) -> Object:
    """A request."""
    body: Object = {
        "input": [item for turn in ask.turns for item in _items(turn)],
        "max_output_tokens": ask.max_tokens,
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }
    if ask.system:
        body["instructions"] = ask.system
    if ask.tools:
        body["tools"] = [
            {"type": "function", "name": one.name, "description": one.description, "parameters": one.parameters, "strict": False}
            for one in ask.tools
        ]
        if ask.choice != "auto":
            named = {"type": "function", "name": ask.choice}
            body["tool_choice"] = ask.choice if ask.choice in ("required", "none") else named
        if ask.one_call:
            body["parallel_tool_calls"] = False
    if ask.answer:
        body["text"] = {"format": {"type": "json_schema", "name": "answer", "strict": True, "schema": schema(ask.answer)}}
    if ask.effort:
        body["reasoning"] = {"effort": ask.effort}
    if ask.temperature is not None:
        body["temperature"] = ask.temperature
    return body


def _items(turn: Turn) -> list[Object]:
    made: list[Object] = []
    for part in turn.parts:
        match part:
            case Own(told):
                made += told
            case Call(name, arguments, id):
                made.append({"type": "function_call", "call_id": id, "name": name, "arguments": arguments})
            case Result(_, text, id):
                made.append({"type": "function_call_output", "call_id": id, "output": text})
            case Thought(text, signature):
                made.append({"type": "reasoning", "summary": [{"type": "summary_text", "text": text}], "encrypted_content": signature})
            case Text(text) if turn.role == "assistant":
                made.append({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]})
            case Text() | Image():
                if not made or made[-1].get("role") != "user":
                    made.append({"role": "user", "content": []})
                made[-1]["content"].append(_content(part))
    return made


def _content(part: Part) -> Object:
    if isinstance(part, Image):
        return {"type": "input_image", "image_url": part.url}
    assert isinstance(part, Text)
    return {"type": "input_text", "text": part.text}


def _heard(response: Response) -> Heard:
    text = thought = refusal = ""
    calls: list[Call] = []
    for item in response.output:
        match item.type:
            case "message":
                text += "".join(part.text for part in item.content if part.type == "output_text")
                refusal += "".join(part.refusal for part in item.content if part.type == "refusal")
            case "reasoning":
                thought += "".join(part.text for part in item.summary)
            case "function_call":
                calls.append(Call(item.name, same(item.arguments), item.call_id))
            case kind:
                raise AssertionError(f"an item of type {kind}")
    cut = response.incomplete_details.reason if response.incomplete_details else None
    assert response.status == ("incomplete" if cut else "completed") and response.error is None
    finish = _CUTS[cut] if cut else "tool_calls" if calls else "stop"
    assert response.usage is not None
    told = Told(text, thought, tuple(calls), refusal, finish, _tokens(response.usage))
    return Heard(told, block_of(response.model_extra), tuple(item.to_dict(exclude_none=True) for item in response.output))


def _tokens(usage: Any) -> Tokens:
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens
    inputs = usage.input_tokens_details
    return Tokens(
        usage.input_tokens,
        inputs.cached_tokens,
        inputs.cache_write_tokens or 0,
        usage.output_tokens,
        usage.output_tokens_details.reasoning_tokens,
    )
