"""AWS Bedrock's Converse as a provider speaks it, with Claude behind it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.support.call import Call as HttpCall
from tests.support.event_stream import START, event, exception, metadata, stop
from tests.support.event_stream import text as text_event
from tests.support.matrix.provider import events, halves, in_row, page, woven
from tests.support.matrix.provider_anthropic import SIGNATURE  # Claude's, wherever it runs
from tests.support.matrix.words import Ask, Call, Image, Object, Part, Result, Text, Thought, Tokens, Told, Turn, merged, same, tool
from tests.support.script import Answer, Raw, Step

FRAMES = "application/vnd.amazon.eventstream"
_STOPS = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "content_filter": "guardrail_intervened"}
FAULTS = {
    "context_length": (400, "ValidationException", "Input is too long for requested model."),
    "rate_limited": (429, "ThrottlingException", "Too many requests, please wait before trying again."),
    "overloaded": (529, "ServiceUnavailableException", "Bedrock is unable to process your request."),
}


def usage(tokens: Tokens) -> dict[str, int]:
    """Usage, which counts the cached input apart."""
    return {
        "inputTokens": tokens.prompt - tokens.cached - tokens.written,
        "cacheReadInputTokens": tokens.cached,
        "cacheWriteInputTokens": tokens.written,
        "outputTokens": tokens.completion,
        "totalTokens": tokens.prompt + tokens.completion,
    }


@dataclass(frozen=True)
class BedrockProvider:
    """Bedrock, asked with an API key."""

    name: str = "bedrock"
    dialect: str = "bedrock"
    model: str = "us.anthropic.claude-sonnet-4-6"
    broken_class: str = "overloaded"
    signature: str | None = SIGNATURE

    def whole(self, told: Told) -> Answer:
        message = {"role": "assistant", "content": _blocks(told)}
        said = {"output": {"message": message}, "stopReason": _STOPS[told.finish], "usage": usage(told.tokens), "metrics": {"latencyMs": 7}}
        return page(200, said)

    def stream(self, told: Told) -> Answer:
        return _framed(told, in_row([_events_of(index, block) for index, block in enumerate(_blocks(told))]))

    def by_turns(self, told: Told) -> Answer | None:
        return _framed(told, woven([_events_of(2 * index, block) for index, block in enumerate(_blocks(told))]))

    def begun(self, text: str) -> Answer:
        return events([START, text_event(text)], FRAMES)

    def broken(self) -> tuple[Step, ...]:
        return (Raw(exception("serviceUnavailableException", message="Bedrock is unable to process your request.")),)

    def inside(self) -> Answer:
        raise AssertionError("a cell that is none")

    def fault(self, kind: str, stream: bool) -> Answer:
        status, name, message = FAULTS[kind]
        return page(status, {"message": message}, headers={"x-amzn-errortype": f"{name}:http://internal.amazon.com/coral/"})

    def tells(self, told: Told) -> Told:
        return replace(told, tokens=replace(told.tokens, reasoning=0))

    def refuses(self) -> Told:
        return Told("I was about", finish="content_filter")

    def asked(self, call: HttpCall) -> Ask:
        assert call.header("authorization") == "Bearer sk-provider-canary"
        assert call.path.partition("/model/")[2].startswith("us.anthropic.claude-sonnet-4-6/converse")
        return read_converse(call.json)


def _framed(told: Told, made: Sequence[bytes]) -> Answer:
    return events([START, *made, stop(_STOPS[told.finish]), metadata(**usage(told.tokens))], FRAMES)


def _blocks(told: Told) -> list[Object]:
    made: list[Object] = []
    if told.thought:
        made.append({"reasoningContent": {"reasoningText": {"text": told.thought, "signature": SIGNATURE}}})
    if told.text:
        made.append({"text": told.text})
    for call in told.calls:
        made.append({"toolUse": {"toolUseId": call.id, "name": call.name, "input": json.loads(call.arguments)}})
    return made


def _events_of(index: int, block: Object) -> Sequence[bytes]:
    at, end = {"contentBlockIndex": index}, event("contentBlockStop", contentBlockIndex=index)
    if "text" in block:
        return [*(text_event(piece, index) for piece in halves(block["text"])), end]
    if "toolUse" in block:
        use = block["toolUse"]
        start = event("contentBlockStart", **at, start={"toolUse": {"toolUseId": use["toolUseId"], "name": use["name"]}})
        pieces = halves(same(use["input"])) if use["input"] else ()
        return [start, *(event("contentBlockDelta", **at, delta={"toolUse": {"input": piece}}) for piece in pieces), end]
    thought = block["reasoningContent"]["reasoningText"]
    deltas = [{"text": piece} for piece in halves(thought["text"])] + [{"signature": thought["signature"]}]
    return [*(event("contentBlockDelta", **at, delta={"reasoningContent": delta}) for delta in deltas), end]


# ── what it was asked


def read_converse(body: Object) -> Ask:
    """A request, with nothing in it that the API does not know."""
    known = {
        "messages", "system", "inferenceConfig", "toolConfig", "outputConfig", "additionalModelRequestFields",
        "additionalModelResponseFieldPaths",
    }  # fmt: skip
    assert body.keys() <= known, body.keys() - known
    names: dict[str, str] = {}
    turns: list[Turn] = []
    for message in body["messages"]:
        uses = [block["toolUse"] for block in message["content"] if "toolUse" in block]
        names |= {use["toolUseId"]: use["name"] for use in uses}
        turns.append(Turn(message["role"], tuple(_part(block, names) for block in message["content"])))
    assert [turn.role for turn in turns] == [turn.role for turn in merged(turns)] and turns[0].role == "user"
    config, offered = body.get("inferenceConfig") or {}, body.get("toolConfig") or {}
    own = body.get("additionalModelRequestFields") or {}
    choice = offered.get("toolChoice") or {"auto": {}}
    told = own.get("tool_choice") or {}
    form = ((body.get("outputConfig") or {}).get("textFormat") or {}).get("structure") or {}
    specs = [one["toolSpec"] for one in offered.get("tools") or ()]
    return Ask(
        turns=merged(turns),
        system="".join(block["text"] for block in body.get("system") or ()),
        max_tokens=config["maxTokens"],
        tools=tuple(tool(spec["name"], spec.get("description"), spec["inputSchema"]["json"]) for spec in specs),
        choice=_choice(choice if not told.get("type") else {told["type"]: told}),
        one_call=told.get("disable_parallel_tool_use") is True,
        answer=tuple(json.loads(form["jsonSchema"]["schema"])["properties"]) if form else (),
        effort=(own.get("output_config") or {}).get("effort"),
        temperature=config.get("temperature"),
        stop=tuple(config.get("stopSequences") or ()),
    )


def _choice(said: Any) -> str:
    ((kind, inner),) = said.items()
    return str(inner["name"]) if kind == "tool" else {"any": "required"}.get(kind, kind)


def _part(block: Object, names: dict[str, str]) -> Part:
    ((kind, inner),) = block.items()
    match kind:
        case "text":
            return Text(inner)
        case "image":
            return Image(f"data:image/{inner['format']};base64,{inner['source']['bytes']}")
        case "toolUse":
            return Call(inner["name"], same(inner["input"]))
        case "toolResult":
            return Result(names[inner["toolUseId"]], "".join(one["text"] for one in inner["content"]))
        case "reasoningContent":
            return Thought(inner["reasoningText"]["text"], inner["reasoningText"]["signature"])
    raise AssertionError(f"a block of type {kind}")


PROVIDERS = (BedrockProvider(),)
