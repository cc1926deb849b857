"""The skin of chat completions, through OpenAI's SDK."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import openai
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types import CompletionUsage
from openai.types.chat import ChatCompletion
from openai.types.chat.chat_completion import Choice

from tests.support.matrix.client import KINDS, block_of
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


class ChatClient:
    """Chat completions."""

    name = "chat"
    path = "/v1/chat/completions"

    def __init__(self, sdk: openai.AsyncOpenAI) -> None:
        self._sdk = sdk

    def says(self, ask: Ask) -> Ask:
        return ask

    def hears(self, told: Told) -> Told:
        return told

    def kind(self, code: str) -> str:
        return KINDS.get(code, "server_error")

    async def ask(self, model: str, ask: Ask, *, stream: bool, headers: Mapping[str, str] | None = None, **more: Any) -> Heard | Refused:
        body = {"model": model, **body_of(ask), "extra_headers": headers, **more}
        try:
            if not stream:
                return _heard(await self._sdk.chat.completions.create(**body))
        except openai.APIStatusError as error:
            return refused(error)
        return await self._streamed(body)

    async def _streamed(self, body: Object) -> Heard | Refused:
        state, before = ChatCompletionStreamState(), list[str]()
        block: Object | None = None
        body = {"stream_options": {"include_usage": True}, **body}
        asks = body["stream_options"]["include_usage"]
        try:
            chunks = await self._sdk.chat.completions.create(**body, stream=True)
        except openai.APIStatusError as error:
            return refused(error)
        try:
            async for chunk in chunks:
                assert block is None, "the block rides on the last chunk"
                state.handle_chunk(chunk)
                before += [choice.delta.content or "" for choice in chunk.choices]
                if "n4n" in (chunk.model_extra or {}):
                    assert (chunk.usage is not None, chunk.choices == []) == (asks, asks)
                    block = block_of(chunk.model_extra)
        except openai.APIError as error:
            return broken(error, "".join(before))
        assert block is not None
        return _heard(ChatCompletion.model_validate({**state.current_completion_snapshot.to_dict(), "n4n": block}))


def refused(error: openai.APIStatusError) -> Refused:
    """An error with a status."""
    body: Any = error.body
    return Refused(error.status_code, body["code"], body["type"], body["n4n"], error.response.headers.get("retry-after"))


def broken(error: openai.APIError, before: str) -> Refused:
    """An error in a stream."""
    body: Any = error.body
    return Refused(None, body["code"], body["type"], body["n4n"], before=before)


def body_of(ask: Ask) -> Object:
    """A request."""
    messages: list[Object] = [{"role": "system", "content": ask.system}] if ask.system else []
    for turn in ask.turns:
        messages += _messages(turn)
    body: Object = {"messages": messages, "max_completion_tokens": ask.max_tokens}
    if ask.tools:
        body["tools"] = [
            {"type": "function", "function": {"name": one.name, "description": one.description, "parameters": one.parameters}}
            for one in ask.tools
        ]
        if ask.choice != "auto":
            named = {"type": "function", "function": {"name": ask.choice}}
            body["tool_choice"] = ask.choice if ask.choice in ("required", "none") else named
        if ask.one_call:
            body["parallel_tool_calls"] = False
    if ask.answer:
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema(ask.answer)}}
    if ask.effort:
        body["reasoning_effort"] = ask.effort
    if ask.temperature is not None:
        body["temperature"] = ask.temperature
    if ask.stop:
        body["stop"] = list(ask.stop)
    return body


def _messages(turn: Turn) -> list[Object]:
    if isinstance(turn.parts[0], Own):
        return list(turn.parts[0].told)
    if turn.role == "assistant":
        calls = [
            {"id": part.id, "type": "function", "function": {"name": part.name, "arguments": part.arguments}}
            for part in turn.parts
            if isinstance(part, Call)
        ]
        text = "".join(part.text for part in turn.parts if isinstance(part, Text))
        return [{"role": "assistant", "content": text or None, **({"tool_calls": calls} if calls else {})}]
    made: list[Object] = [
        {"role": "tool", "tool_call_id": part.id, "content": part.text} for part in turn.parts if isinstance(part, Result)
    ]
    parts = [_part(part) for part in turn.parts if not isinstance(part, Result)]
    if len(parts) == 1 and parts[0]["type"] == "text":
        return [*made, {"role": "user", "content": parts[0]["text"]}]
    return [*made, {"role": "user", "content": parts}] if parts else made


def _part(part: Part) -> Object:
    match part:
        case Text(text):
            return {"type": "text", "text": text}
        case Image(url):
            return {"type": "image_url", "image_url": {"url": url}}
        case Thought() | Call() | Result() | Own():
            raise AssertionError("not a user's")


def _heard(whole: ChatCompletion) -> Heard:
    block = block_of(whole.model_extra)
    tokens = _tokens(whole.usage or CompletionUsage.model_validate(block["usage"]))
    first, *others = [_told(choice, tokens) for choice in whole.choices]
    return Heard(first, block, (whole.choices[0].message.to_dict(exclude_none=True),), tuple(others))


def _told(choice: Choice, tokens: Tokens) -> Told:
    message = choice.message
    calls = [(call.function, call.id) for call in message.tool_calls or () if call.type == "function"]
    assert len({name for _, name in calls}) == len(calls) and all(name for _, name in calls)
    return Told(
        text=message.content or "",
        thought=(message.model_extra or {}).get("reasoning_content") or "",
        calls=tuple(Call(function.name, same(function.arguments), name) for function, name in calls),
        refusal=message.refusal or "",
        finish=choice.finish_reason,
        tokens=tokens,
    )


def _tokens(usage: Any) -> Tokens:
    prompt, completion = usage.prompt_tokens_details, usage.completion_tokens_details
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    return Tokens(
        usage.prompt_tokens,
        (prompt.cached_tokens or 0) if prompt else 0,
        (prompt.cache_write_tokens or 0) if prompt else 0,
        usage.completion_tokens,
        (completion.reasoning_tokens or 0) if completion else 0,
    )
