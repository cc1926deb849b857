"""OpenAI's chat completions as a provider speaks them, and Azure's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.support.call import Call as HttpCall
from tests.support.matrix.provider import data, events, halves, page
from tests.support.matrix.words import Ask, Call, Image, Object, Part, Result, Text, Tokens, Told, Turn, merged, same, tool
from tests.support.script import Answer, Raw, Step

DONE = b"data: [DONE]\n\n"
OVERFLOW = "This model's maximum context length is 128000 tokens. However, your messages resulted in 210000 tokens."
POLICY = "Your request was rejected as a result of our safety system."


def usage(tokens: Tokens) -> Object:
    """Usage, which counts the cached input in the prompt."""
    return {
        "prompt_tokens": tokens.prompt,
        "completion_tokens": tokens.completion,
        "total_tokens": tokens.prompt + tokens.completion,
        "prompt_tokens_details": {"cached_tokens": tokens.cached, "cache_write_tokens": tokens.written},
        "completion_tokens_details": {"reasoning_tokens": tokens.reasoning},
    }


def error(message: str, kind: str, code: str | None, param: str | None = None) -> Object:
    """An error."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


FAULTS: dict[str, tuple[int, Object, dict[str, str]]] = {
    "context_length": (400, error(OVERFLOW, "invalid_request_error", "context_length_exceeded", "messages"), {}),
    "content_policy": (400, error(POLICY, "invalid_request_error", "content_policy_violation"), {}),
    "rate_limited": (429, error("Rate limit reached for requests", "requests", "rate_limit_exceeded"), {"retry-after": "30"}),
    "overloaded": (529, error("The engine is currently overloaded", "server_error", None), {}),
}
BROKEN = error("The server had an error while processing your request", "server_error", "server_error")


@dataclass(frozen=True)
class OpenAIProvider:
    """OpenAI, and who speaks like it: reasoning as DeepSeek tells it."""

    name: str = "openai"
    dialect: str = "openai"
    model: str = "gpt-5.6"
    broken_class: str = "server_error"
    signature: str | None = None

    def whole(self, told: Told) -> Answer:
        message: Object = {"role": "assistant", "content": told.text or None, "refusal": told.refusal or None}
        if told.thought:
            message["reasoning_content"] = told.thought
        if told.calls:
            message["tool_calls"] = [{"id": call.id, "type": "function", "function": _function(call)} for call in told.calls]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": told.finish}
        return page(200, {**_head("chat.completion"), "choices": [choice], "usage": usage(told.tokens)})

    def stream(self, told: Told) -> Answer:
        deltas: list[Object] = [{"role": "assistant", "content": ""}]
        for member, text in (("reasoning_content", told.thought), ("content", told.text), ("refusal", told.refusal)):
            deltas += [{member: piece} for piece in halves(text) if piece]
        for index, call in enumerate(told.calls):
            opening = {"index": index, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
            deltas.append({"tool_calls": [opening]})
        for piece in (0, 1):  # arguments by turns
            deltas += [
                {"tool_calls": [{"index": index, "function": {"arguments": halves(call.arguments)[piece]}}]}
                for index, call in enumerate(told.calls)
            ]
        last = {**_head("chat.completion.chunk"), "choices": [], "usage": usage(told.tokens)}
        return events([*self.first(), *map(_delta, deltas), _delta({}, told.finish), data(last), DONE])

    def by_turns(self, told: Told) -> Answer | None:
        return self.stream(told)

    def first(self) -> Sequence[bytes]:
        """What comes before the answer."""
        return ()

    def begun(self, text: str) -> Answer:
        return events([*self.first(), _delta({"role": "assistant", "content": ""}), _delta({"content": text})])

    def broken(self) -> tuple[Step, ...]:
        return (Raw(data(BROKEN)),)

    def inside(self) -> Answer:
        return page(200, BROKEN)

    def fault(self, kind: str, stream: bool) -> Answer:
        status, body, headers = FAULTS[kind]
        return page(status, body, headers=headers)

    def tells(self, told: Told) -> Told:
        return told

    def refuses(self) -> Told:
        return Told(refusal="I cannot help with that.")

    def asked(self, call: HttpCall) -> Ask:
        assert call.path.endswith("/v1/chat/completions") and call.header("authorization") == "Bearer sk-provider-canary"
        return read_chat(call.json)


@dataclass(frozen=True)
class AzureProvider(OpenAIProvider):
    """Azure, whose filter speaks first."""

    name: str = "azure"
    dialect: str = "azure"

    def first(self) -> Sequence[bytes]:
        verdict = [{"prompt_index": 0, "content_filter_results": {"hate": {"filtered": False, "severity": "safe"}}}]
        return (data({"id": "", "object": "", "model": "", "created": 0, "choices": [], "prompt_filter_results": verdict}),)

    def fault(self, kind: str, stream: bool) -> Answer:
        if kind == "content_policy":
            inner = {"code": "ResponsibleAIPolicyViolation", "content_filter_result": {"hate": {"filtered": True, "severity": "high"}}}
            message = "The response was filtered due to the prompt triggering Azure OpenAI's content management policy."
            told = {"message": message, "type": None, "param": "prompt", "code": "content_filter", "status": 400, "innererror": inner}
            return page(400, {"error": told})
        if kind == "rate_limited":
            return page(429, {"error": {"code": "429", "message": "Requests have exceeded call rate limit"}}, headers={"retry-after": "30"})
        return OpenAIProvider.fault(self, kind, stream)

    def refuses(self) -> Told:
        return Told("I was about", finish="content_filter")

    def asked(self, call: HttpCall) -> Ask:
        assert call.header("api-key") == "sk-provider-canary" and call.header("authorization") is None
        return read_chat(call.json)


def _head(kind: str) -> Object:
    return {"id": "chatcmpl-1", "object": kind, "created": 1_750_000_000, "model": "theirs"}


def _delta(delta: Object, finish: str | None = None) -> bytes:
    return data({**_head("chat.completion.chunk"), "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def _function(call: Call) -> Object:
    return {"name": call.name, "arguments": call.arguments}


# ── what it was asked


def read_chat(body: Object) -> Ask:
    """A chat, with nothing in it that OpenAI does not know."""
    known = {
        "model", "messages", "stream", "stream_options", "max_completion_tokens", "tools", "tool_choice", "parallel_tool_calls",
        "response_format", "reasoning_effort", "temperature", "stop",
    }  # fmt: skip
    assert body.keys() <= known, body.keys() - known
    assert not body.get("stream") or body["stream_options"] == {"include_usage": True}
    names: dict[str, str] = {}
    system: list[str] = []
    turns: list[Turn] = []
    for message in body["messages"]:
        assert message.keys() <= {"role", "content", "tool_calls", "tool_call_id", "reasoning_content"}, message
        parts = _content(message.get("content"))
        match message["role"]:
            case "system" | "developer":
                system += [part.text for part in parts if isinstance(part, Text)]
            case "tool":
                (text,) = parts
                assert isinstance(text, Text)
                turns.append(Turn("user", (Result(names[message["tool_call_id"]], text.text),)))
            case role:
                calls = message.get("tool_calls") or []
                names |= {call["id"]: call["function"]["name"] for call in calls}
                made = [Call(call["function"]["name"], same(call["function"]["arguments"])) for call in calls]
                turns.append(Turn(role, (*parts, *made)))
    return Ask(
        turns=merged(turns),
        system="".join(system),
        max_tokens=body["max_completion_tokens"],
        tools=tuple(tool(**_definition(one)) for one in body.get("tools") or ()),
        choice=_choice(body.get("tool_choice", "auto")),
        one_call=body.get("parallel_tool_calls") is False,
        answer=_answer(body.get("response_format")),
        effort=body.get("reasoning_effort"),
        temperature=body.get("temperature"),
        stop=tuple(body.get("stop") or ()),
    )


def _content(content: Any) -> tuple[Part, ...]:
    if content is None:
        return ()
    if isinstance(content, str):
        return (Text(content),)
    return tuple(Text(part["text"]) if part["type"] == "text" else Image(part["image_url"]["url"]) for part in content)


def _definition(one: Object) -> Object:
    function = one["function"]
    assert one["type"] == "function" and function["parameters"]["required"] == list(function["parameters"]["properties"])
    return {name: function.get(name) for name in ("name", "description", "parameters")}


def _choice(said: Any) -> str:
    return said if isinstance(said, str) else str(said["function"]["name"])


def _answer(said: Any) -> tuple[str, ...]:
    return () if said is None else tuple(said["json_schema"]["schema"]["properties"])


PROVIDERS = (OpenAIProvider(), AzureProvider())
