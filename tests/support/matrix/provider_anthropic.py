"""Anthropic's Messages as a provider speaks them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.support.call import Call as HttpCall
from tests.support.matrix.provider import events, halves, in_row, named, page, woven
from tests.support.matrix.words import Ask, Call, Image, Object, Part, Result, Text, Thought, Tokens, Told, Turn, merged, same, tool
from tests.support.script import Answer, Raw, Step

SIGNATURE = "EqQBCgIYAhIMsigned-by-anthropic"
EFFORTS = ("low", "medium", "high")
_STOPS = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "content_filter": "refusal"}


def usage(tokens: Tokens) -> Object:
    """Usage, which counts the cached input apart."""
    return {
        "input_tokens": tokens.prompt - tokens.cached - tokens.written,
        "cache_creation_input_tokens": tokens.written,
        "cache_read_input_tokens": tokens.cached,
        "output_tokens": tokens.completion,
        "output_tokens_details": {"thinking_tokens": tokens.reasoning},
    }


def error(kind: str, message: str) -> Object:
    """An error."""
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_011"}


FAULTS: dict[str, tuple[int, Object, dict[str, str]]] = {
    "context_length": (400, error("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"), {}),
    "content_policy": (400, error("invalid_request_error", "Output blocked by content filtering policy"), {}),
    "rate_limited": (429, error("rate_limit_error", "This request would exceed your rate limit"), {"retry-after": "30"}),
    "overloaded": (529, error("overloaded_error", "Overloaded"), {}),
}


@dataclass(frozen=True)
class AnthropicProvider:
    """Anthropic."""

    name: str = "anthropic"
    dialect: str = "anthropic"
    model: str = "claude-sonnet-5"
    broken_class: str = "overloaded"
    signature: str | None = SIGNATURE

    def whole(self, told: Told) -> Answer:
        return page(200, _message(_blocks(told), _STOPS[told.finish], usage(told.tokens)))

    def stream(self, told: Told) -> Answer:
        return _framed(told, in_row([_events_of(index, block) for index, block in enumerate(_blocks(told))]))

    def by_turns(self, told: Told) -> Answer | None:
        return _framed(told, woven([_events_of(index, block) for index, block in enumerate(_blocks(told))]))

    def begun(self, text: str) -> Answer:
        start = named("message_start", message=_message([], None, usage(Tokens())))
        return events([start, *_events_of(0, {"type": "text", "text": text})[:-1]])

    def broken(self) -> tuple[Step, ...]:
        return (Raw(named("error", **{**error("overloaded_error", "Overloaded"), "type": "error"})),)

    def inside(self) -> Answer:
        return page(200, error("overloaded_error", "Overloaded"))

    def fault(self, kind: str, stream: bool) -> Answer:
        status, body, headers = FAULTS[kind]
        return page(status, body, headers=headers)

    def tells(self, told: Told) -> Told:
        return told

    def refuses(self) -> Told:
        return Told("I was about", finish="content_filter")

    def asked(self, call: HttpCall) -> Ask:
        assert call.path.endswith("/v1/messages") and call.header("x-api-key") == "sk-provider-canary"
        assert call.header("anthropic-version") == "2023-06-01" and call.header("authorization") is None
        return read_messages(call.json)


def _framed(told: Told, made: Sequence[bytes]) -> Answer:
    early = {**usage(told.tokens), "output_tokens": 1}
    delta = {"stop_reason": _STOPS[told.finish], "stop_sequence": None}
    start, end = named("message_start", message=_message([], None, early)), named("message_delta", delta=delta, usage=usage(told.tokens))
    return events([start, named("ping"), *made, end, named("message_stop")])


def _message(blocks: list[Object], stop: str | None, counts: Object) -> Object:
    said = {"content": blocks, "stop_reason": stop, "stop_sequence": None, "usage": counts}
    return {"id": "msg_01", "type": "message", "role": "assistant", "model": "theirs", **said}


def _blocks(told: Told) -> list[Object]:
    made: list[Object] = []
    if told.thought:
        made.append({"type": "thinking", "thinking": told.thought, "signature": SIGNATURE})
    if told.text:
        made.append({"type": "text", "text": told.text})
    return made + [{"type": "tool_use", "id": call.id, "name": call.name, "input": _parsed(call)} for call in told.calls]


def _parsed(call: Call) -> Any:
    return json.loads(call.arguments)


def _events_of(index: int, block: Object) -> list[bytes]:
    match block["type"]:
        case "thinking":
            opening: Object = {"type": "thinking", "thinking": "", "signature": ""}
            deltas: list[Object] = [{"type": "thinking_delta", "thinking": piece} for piece in halves(block["thinking"])]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        case "text":
            opening = {"type": "text", "text": ""}
            deltas = [{"type": "text_delta", "text": piece} for piece in halves(block["text"])]
        case _:
            opening = {**block, "input": {}}
            pieces = halves(same(block["input"])) if block["input"] else ()
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in ("", *pieces)]
    return [
        named("content_block_start", index=index, content_block=opening),
        *(named("content_block_delta", index=index, delta=delta) for delta in deltas),
        named("content_block_stop", index=index),
    ]


# ── what it was asked


def read_messages(body: Object) -> Ask:
    """A request, with nothing in it that the API does not know."""
    known = {
        "model", "messages", "system", "stream", "max_tokens", "tools", "tool_choice", "output_config", "thinking", "temperature",
        "stop_sequences",
    }  # fmt: skip
    assert body.keys() <= known, body.keys() - known
    names: dict[str, str] = {}
    turns: list[Turn] = []
    for message in body["messages"]:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        names |= {block["id"]: block["name"] for block in blocks if block["type"] == "tool_use"}
        turns.append(Turn(message["role"], tuple(_part(block, names) for block in blocks)))
    assert [turn.role for turn in turns] == [turn.role for turn in merged(turns)] and turns[0].role == "user"
    output, choice = body.get("output_config") or {}, body.get("tool_choice") or {"type": "auto"}
    assert output.keys() <= {"format", "effort"}
    assert not output.get("effort") or body["thinking"]["type"] == "adaptive"
    system = body.get("system") or ""
    form = output.get("format") or {}
    return Ask(
        turns=merged(turns),
        system=system if isinstance(system, str) else "".join(block["text"] for block in system),
        max_tokens=body["max_tokens"],
        tools=tuple(tool(one["name"], one.get("description"), one["input_schema"]) for one in body.get("tools") or ()),
        choice=str(choice["name"]) if choice["type"] == "tool" else {"any": "required"}.get(choice["type"], choice["type"]),
        one_call=choice.get("disable_parallel_tool_use") is True,
        answer=tuple(form["schema"]["properties"]) if form else (),
        effort=output.get("effort"),
        temperature=body.get("temperature"),
        stop=tuple(body.get("stop_sequences") or ()),
    )


def _part(block: Object, names: dict[str, str]) -> Part:
    match block["type"]:
        case "text":
            return Text(block["text"])
        case "image":
            source = block["source"]
            url = source["url"] if source["type"] == "url" else f"data:{source['media_type']};base64,{source['data']}"
            return Image(url)
        case "tool_use":
            return Call(block["name"], same(block["input"]))
        case "tool_result":
            content = block["content"]
            text = content if isinstance(content, str) else "".join(one["text"] for one in content)
            return Result(names[block["tool_use_id"]], text)
        case "thinking":
            return Thought(block["thinking"], block["signature"])
        case kind:
            raise AssertionError(f"a block of type {kind}")


PROVIDERS = (AnthropicProvider(),)
