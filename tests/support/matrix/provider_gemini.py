"""Google's generateContent as a provider speaks it, at AI Studio and at Vertex; and Claude behind Vertex' door."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from tests.support.call import Call as HttpCall
from tests.support.matrix.provider import data, events, halves, page
from tests.support.matrix.provider_anthropic import AnthropicProvider, read_messages
from tests.support.matrix.words import Ask, Call, Image, Object, Part, Result, Text, Thought, Tokens, Told, Turn, merged, same, tool
from tests.support.script import Answer, Raw, Step

SIGNATURE = "CsIBsigned-by-google=="
_STOPS = {"stop": "STOP", "tool_calls": "STOP", "length": "MAX_TOKENS", "content_filter": "SAFETY"}
_MODES = {"AUTO": "auto", "ANY": "required", "NONE": "none"}


def usage(tokens: Tokens) -> Object:
    """Usage, which counts thoughts beside the candidates."""
    return {
        "promptTokenCount": tokens.prompt,
        "cachedContentTokenCount": tokens.cached,
        "candidatesTokenCount": tokens.completion - tokens.reasoning,
        "thoughtsTokenCount": tokens.reasoning,
        "totalTokenCount": tokens.prompt + tokens.completion,
    }


def error(code: int, status: str, message: str, *details: Object) -> Object:
    """An error."""
    return {"error": {"code": code, "message": message, "status": status, "details": list(details)}}


LONG = "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."
RETRY = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "30s"}
QUOTA = {
    "@type": "type.googleapis.com/google.rpc.QuotaFailure",
    "violations": [{"quotaId": "GenerateRequestsPerMinutePerProjectPerModel", "quotaValue": "5"}],
}
BLOCKED = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 40, "totalTokenCount": 40}}
FAULTS: dict[str, tuple[int, Object]] = {
    "context_length": (400, error(400, "INVALID_ARGUMENT", LONG)),
    "rate_limited": (429, error(429, "RESOURCE_EXHAUSTED", "You exceeded your current quota", QUOTA, RETRY)),
    "overloaded": (529, error(503, "UNAVAILABLE", "The model is overloaded. Please try again later.")),
}
BROKEN = error(503, "UNAVAILABLE", "The model is overloaded. Please try again later.")


@dataclass(frozen=True)
class GeminiProvider:
    """AI Studio."""

    name: str = "gemini"
    dialect: str = "gemini"
    model: str = "gemini-3-pro"
    broken_class: str = "overloaded"
    signature: str | None = SIGNATURE

    def whole(self, told: Told) -> Answer:
        return page(200, _response(_parts(told), _STOPS[told.finish], told.tokens))

    def stream(self, told: Told) -> Answer:
        made = []
        for part in _parts(told):
            pieces = [{**part, "text": piece} for piece in halves(part["text"])] if part.get("text") else [part]
            made += [_response([piece], None, replace(told.tokens, completion=told.tokens.reasoning)) for piece in pieces]
        return events(list(map(data, [*made, _response([], _STOPS[told.finish], told.tokens)])))

    def by_turns(self, told: Told) -> Answer | None:
        return None

    def begun(self, text: str) -> Answer:
        return events([data(_response([{"text": text}], None, Tokens()))])

    def broken(self) -> tuple[Step, ...]:
        return (Raw(data(BROKEN)),)

    def inside(self) -> Answer:
        return page(200, BROKEN)

    def fault(self, kind: str, stream: bool) -> Answer:
        if kind == "content_policy":
            return events([data(BLOCKED)]) if stream else page(200, BLOCKED)
        status, body = FAULTS[kind]
        return page(status, body)

    def tells(self, told: Told) -> Told:
        return replace(told, tokens=replace(told.tokens, written=0))

    def refuses(self) -> Told:
        return Told("I was about", finish="content_filter")

    def asked(self, call: HttpCall) -> Ask:
        assert call.path.startswith("/v1beta/models/gemini-3-pro:") and call.header("x-goog-api-key") == "sk-provider-canary"
        return read_generate(call.json)


@dataclass(frozen=True)
class VertexProvider(GeminiProvider):
    """Vertex AI with Gemini."""

    name: str = "vertex"
    dialect: str = "vertex"

    def asked(self, call: HttpCall) -> Ask:
        assert "/publishers/google/models/gemini-3-pro:" in call.path and call.header("authorization") == "Bearer sk-provider-canary"
        return read_generate(call.json)


@dataclass(frozen=True)
class VertexClaudeProvider(AnthropicProvider):
    """Vertex AI with Claude, which speaks Anthropic's words there."""

    name: str = "vertex-claude"
    dialect: str = "vertex"

    def asked(self, call: HttpCall) -> Ask:
        method = "streamRawPredict" if call.json.get("stream") else "rawPredict"
        assert call.path.endswith(f"/publishers/anthropic/models/claude-sonnet-5:{method}")
        assert call.header("authorization") == "Bearer sk-provider-canary" and call.header("x-api-key") is None
        body = call.json
        assert body.pop("anthropic_version") == "vertex-2023-10-16" and "model" not in body
        return read_messages(body)


def _response(parts: list[Object], finish: str | None, tokens: Tokens) -> Object:
    candidate: Object = {"index": 0, "content": {"role": "model", "parts": parts}}
    if finish is not None:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], "usageMetadata": usage(tokens), "modelVersion": "theirs", "responseId": "resp-1"}


def _parts(told: Told) -> list[Object]:
    made: list[Object] = []
    if told.thought:
        made.append({"text": told.thought, "thought": True})
    if told.text:
        made.append({"text": told.text, **({"thoughtSignature": SIGNATURE} if told.thought and not told.calls else {})})
    for place, call in enumerate(told.calls):
        signed = {"thoughtSignature": SIGNATURE} if place == 0 else {}
        made.append({"functionCall": {"name": call.name, "args": json.loads(call.arguments)}, **signed})
    return made


# ── what it was asked


def read_generate(body: Object) -> Ask:
    """A request, with nothing in it that the API does not know."""
    assert body.keys() <= {"contents", "systemInstruction", "tools", "toolConfig", "generationConfig"}, body.keys()
    config = body.get("generationConfig") or {}
    known = {"maxOutputTokens", "temperature", "stopSequences", "responseMimeType", "responseJsonSchema", "thinkingConfig"}
    assert config.keys() <= known, config.keys()
    turns = [Turn({"model": "assistant"}.get(one["role"], one["role"]), tuple(map(_part, one["parts"]))) for one in body["contents"]]
    assert turns[0].role == "user"
    declared = [one for entry in body.get("tools") or () for one in entry["functionDeclarations"]]
    calling = (body.get("toolConfig") or {}).get("functionCallingConfig") or {"mode": "AUTO"}
    level = (config.get("thinkingConfig") or {}).get("thinkingLevel")
    answer = config.get("responseJsonSchema") or {}
    assert not answer or config["responseMimeType"] == "application/json"
    return Ask(
        turns=merged(turns),
        system="".join(part["text"] for part in (body.get("systemInstruction") or {"parts": []})["parts"]),
        max_tokens=config["maxOutputTokens"],
        tools=tuple(tool(one["name"], one.get("description"), one.get("parameters") or {}) for one in declared),
        choice=(calling.get("allowedFunctionNames") or [_MODES[calling["mode"]]])[0],
        answer=tuple(answer.get("properties") or ()),
        effort=None if level is None else level.lower(),
        temperature=config.get("temperature"),
        stop=tuple(config.get("stopSequences") or ()),
    )


def _part(part: Object) -> Part:
    if "functionCall" in part:
        return Call(part["functionCall"]["name"], same(part["functionCall"]["args"]))
    if "functionResponse" in part:
        return Result(part["functionResponse"]["name"], _answered(part["functionResponse"]["response"]))
    if "inlineData" in part:
        return Image(f"data:{part['inlineData']['mimeType']};base64,{part['inlineData']['data']}")
    if "fileData" in part:
        return Image(part["fileData"]["fileUri"])
    if part.get("thought"):
        return Thought(part["text"], part["thoughtSignature"])
    return Text(part["text"])


def _answered(response: Any) -> str:
    return str(response["output"] if response.keys() == {"output"} else response)


PROVIDERS = (GeminiProvider(), VertexProvider(), VertexClaudeProvider())
