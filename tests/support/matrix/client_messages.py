"""The skin of Messages, through Anthropic's SDK."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import anthropic

from tests.support.matrix.client import block_of
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

_FINISHES = {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "tool_use": "tool_calls", "refusal": "content_filter"}
_KINDS = {
    "context_length_exceeded": "invalid_request_error",
    "content_filter": "invalid_request_error",
    "no_eligible_endpoint": "invalid_request_error",
    "rate_limited": "rate_limit_error",
    "overloaded": "overloaded_error",
    "timeout": "timeout_error",
}


class MessagesClient:
    """Messages."""

    name = "messages"
    path = "/v1/messages"

    def __init__(self, sdk: anthropic.AsyncAnthropic) -> None:
        self._sdk = sdk

    def says(self, ask: Ask) -> Ask:
        return ask

    def hears(self, told: Told) -> Told:
        """A refusal is text, and the reason that the answer stops for."""
        if told.refusal:
            return replace(told, text=told.text + told.refusal, finish="content_filter")
        return told

    def kind(self, code: str) -> str:
        return _KINDS.get(code, "api_error")

    async def ask(self, model: str, ask: Ask, *, stream: bool, headers: Mapping[str, str] | None = None, **more: Any) -> Heard | Refused:
        body = {"model": model, **body_of(ask)}
        more |= {} if ask.temperature is None else {"temperature": ask.temperature}  # newer SDKs have no word for it
        try:
            if not stream:
                return _heard(await self._sdk.messages.create(**body, extra_headers=headers, extra_body=more), None)
        except anthropic.APIStatusError as error:
            return _refused(error)
        return await self._streamed(body, headers, more)

    async def _streamed(self, body: Object, headers: Mapping[str, str] | None, more: Object) -> Heard | Refused:
        before, began = list[str](), False
        block: Object | None = None
        try:
            async with self._sdk.messages.stream(**body, extra_headers=headers, extra_body=more) as events:
                async for event in events:
                    began = True
                    if event.type == "text":
                        before.append(event.text)
                    if event.type == "message_delta":
                        block = block_of(event.model_extra)
                return _heard(await events.get_final_message(), block)
        except anthropic.APIStatusError as error:
            return replace(_refused(error), status=None, before="".join(before)) if began else _refused(error)


def _refused(error: anthropic.APIStatusError) -> Refused:
    body: Any = error.body
    assert body["type"] == "error" and body["request_id"]
    inner = body["error"]
    return Refused(error.status_code, inner["code"], inner["type"], inner["n4n"], error.response.headers.get("retry-after"))


def body_of(ask: Ask) -> Object:
    """A request."""
    body: Object = {"max_tokens": ask.max_tokens, "messages": [_message(turn) for turn in ask.turns]}
    if ask.system:
        body["system"] = ask.system
    if ask.tools:
        body["tools"] = [{"name": one.name, "description": one.description, "input_schema": one.parameters} for one in ask.tools]
        choice: Object = {"type": {"required": "any"}.get(ask.choice, ask.choice)}
        if choice["type"] not in ("auto", "any", "none"):
            choice = {"type": "tool", "name": ask.choice}
        if ask.one_call:
            choice["disable_parallel_tool_use"] = True
        if choice != {"type": "auto"}:
            body["tool_choice"] = choice
    output: Object = {}
    if ask.answer:
        output["format"] = {"type": "json_schema", "schema": schema(ask.answer)}
    if ask.effort:
        output["effort"] = ask.effort
        body["thinking"] = {"type": "adaptive"}
    if output:
        body["output_config"] = output
    if ask.stop:
        body["stop_sequences"] = list(ask.stop)
    return body


def _message(turn: Turn) -> Object:
    if isinstance(turn.parts[0], Own):
        return turn.parts[0].told[0]
    if len(turn.parts) == 1 and isinstance(turn.parts[0], Text):
        return {"role": turn.role, "content": turn.parts[0].text}
    return {"role": turn.role, "content": [_block(part) for part in turn.parts]}


def _block(part: Part) -> Object:
    match part:
        case Text(text):
            return {"type": "text", "text": text}
        case Image(url) if url.startswith("data:"):
            media_type, _, inner = url.removeprefix("data:").partition(";base64,")
            return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": inner}}
        case Image(url):
            return {"type": "image", "source": {"type": "url", "url": url}}
        case Call(name, arguments, id):
            return {"type": "tool_use", "id": id, "name": name, "input": json.loads(arguments)}
        case Result(_, text, id):
            return {"type": "tool_result", "tool_use_id": id, "content": text}
        case Thought(text, signature):
            return {"type": "thinking", "thinking": text, "signature": signature}
        case Own():
            raise AssertionError("a whole turn")


def _heard(message: anthropic.types.Message, block: Object | None) -> Heard:
    found = {"text": "", "thinking": ""}
    calls: list[Call] = []
    for one in message.content:
        match one.type:
            case "text":
                found["text"] += one.text
            case "thinking":
                found["thinking"] += one.thinking
            case "tool_use":
                calls.append(Call(one.name, same(one.input), one.id))
            case "redacted_thinking":
                assert one.data
            case kind:
                raise AssertionError(f"a block of type {kind}")
    assert message.stop_reason is not None
    refusal = message.stop_details.explanation if message.stop_details else None
    told = Told(found["text"], found["thinking"], tuple(calls), refusal or "", _FINISHES[message.stop_reason], _tokens(message.usage))
    own = {"role": "assistant", "content": [one.to_dict() for one in message.content]}
    return Heard(told, block_of(message.model_extra) if block is None else block, (own,))


def _tokens(usage: anthropic.types.Usage) -> Tokens:
    read, written = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
    thinking = usage.output_tokens_details.thinking_tokens if usage.output_tokens_details else 0
    return Tokens(usage.input_tokens + read + written, read, written, usage.output_tokens, thinking)
