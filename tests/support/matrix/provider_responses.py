"""OpenAI's Responses API as a provider speaks it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.support.call import Call as HttpCall
from tests.support.matrix.provider import events, halves, in_row, named, page, woven
from tests.support.matrix.provider_openai import FAULTS
from tests.support.matrix.words import Ask, Call, Image, Object, Part, Result, Text, Thought, Tokens, Told, Turn, merged, same, tool
from tests.support.script import Answer, Raw, Step

SEALED = "gAAAAABsealed-by-openai=="
ERROR = {"code": "server_error", "message": "The server had an error while processing your request"}


def usage(tokens: Tokens) -> Object:
    """Usage, which counts the cached input in the input."""
    return {
        "input_tokens": tokens.prompt,
        "input_tokens_details": {"cached_tokens": tokens.cached, "cache_write_tokens": tokens.written},
        "output_tokens": tokens.completion,
        "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
        "total_tokens": tokens.prompt + tokens.completion,
    }


@dataclass(frozen=True)
class ResponsesProvider:
    """OpenAI, at /v1/responses."""

    name: str = "openai_responses"
    dialect: str = "openai_responses"
    model: str = "gpt-5.6-pro"
    broken_class: str = "server_error"
    signature: str | None = SEALED

    def whole(self, told: Told) -> Answer:
        return page(200, _response(told))

    def stream(self, told: Told) -> Answer:
        return _framed(told, in_row([_events_of(index, item) for index, item in enumerate(_items(told))]))

    def by_turns(self, told: Told) -> Answer | None:
        return _framed(told, woven([_events_of(index, item) for index, item in enumerate(_items(told))]))

    def begun(self, text: str) -> Answer:
        (item,) = _items(Told(text))
        return _numbered([named("response.created", response=_empty()), *_events_of(0, item)[:4]])

    def broken(self) -> tuple[Step, ...]:
        return (Raw(named("response.failed", sequence_number=99, response={**_empty(), "status": "failed", "error": ERROR})),)

    def inside(self) -> Answer:
        return page(200, {**_empty(), "status": "failed", "error": ERROR})

    def fault(self, kind: str, stream: bool) -> Answer:
        status, body, headers = FAULTS[kind]
        return page(status, body, headers=headers)

    def tells(self, told: Told) -> Told:
        return told

    def refuses(self) -> Told:
        return Told(refusal="I cannot help with that.")

    def asked(self, call: HttpCall) -> Ask:
        assert call.path.endswith("/v1/responses") and call.header("authorization") == "Bearer sk-provider-canary"
        return read_responses(call.json)


def _framed(told: Told, made: list[bytes]) -> Answer:
    start = [named("response.created", response=_empty()), named("response.in_progress", response=_empty())]
    end = _response(told)
    return _numbered([*start, *made, named(f"response.{end['status']}", response=end)])


def _empty() -> Object:
    return {
        "id": "resp_1", "object": "response", "created_at": 1_750_000_000, "model": "theirs", "status": "in_progress", "error": None,
        "incomplete_details": None, "instructions": None, "metadata": {}, "output": [], "parallel_tool_calls": True, "temperature": None,
        "tool_choice": "auto", "tools": [], "top_p": None, "usage": None, "store": False,
    }  # fmt: skip


def _response(told: Told) -> Object:
    cut = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(told.finish)
    state = {"status": "incomplete", "incomplete_details": {"reason": cut}} if cut else {"status": "completed"}
    return {**_empty(), **state, "output": _items(told), "usage": usage(told.tokens)}


def _items(told: Told) -> list[Object]:
    made: list[Object] = []
    if told.thought:
        summary = [{"type": "summary_text", "text": told.thought}]
        made.append({"id": "rs_1", "type": "reasoning", "summary": summary, "encrypted_content": SEALED, "status": "completed"})
    parts: list[Object] = []
    if told.text:
        parts.append({"type": "output_text", "text": told.text, "annotations": [], "logprobs": []})
    if told.refusal:
        parts.append({"type": "refusal", "refusal": told.refusal})
    if parts:
        made.append({"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": parts})
    for call in told.calls:
        names = {"call_id": call.id, "name": call.name, "arguments": call.arguments}
        made.append({"id": f"fc_{call.id}", "type": "function_call", "status": "completed", **names})
    return made


def _events_of(index: int, item: Object) -> list[bytes]:
    at = {"output_index": index, "item_id": item["id"]}
    opened = {name: [] if name in ("content", "summary") else value for name, value in item.items()}
    made: list[bytes] = []
    match item["type"]:
        case "reasoning":
            text = item["summary"][0]["text"]
            part = {"type": "summary_text", "text": ""}
            made.append(named("response.reasoning_summary_part.added", **at, summary_index=0, part=part))
            made += [named("response.reasoning_summary_text.delta", **at, summary_index=0, delta=piece) for piece in halves(text)]
            made.append(named("response.reasoning_summary_text.done", **at, summary_index=0, text=text))
            made.append(named("response.reasoning_summary_part.done", **at, summary_index=0, part=item["summary"][0]))
        case "message":
            for place, part in enumerate(item["content"]):
                word = "refusal" if part["type"] == "refusal" else "text"
                kind = f"response.{part['type']}"
                more: Object = {} if word == "refusal" else {"logprobs": []}
                made.append(named("response.content_part.added", **at, content_index=place, part={**part, word: ""}))
                made += [named(f"{kind}.delta", **at, content_index=place, delta=piece, **more) for piece in halves(part[word])]
                made.append(named(f"{kind}.done", **at, content_index=place, **{word: part[word]}, **more))
                made.append(named("response.content_part.done", **at, content_index=place, part=part))
        case "function_call":
            opened["arguments"] = ""
            kind = "response.function_call_arguments"
            made += [named(f"{kind}.delta", **at, delta=piece) for piece in halves(item["arguments"]) if piece]
            made.append(named(f"{kind}.done", **at, name=item["name"], arguments=item["arguments"]))
    opening = named("response.output_item.added", output_index=index, item={**opened, "status": "in_progress"})
    return [opening, *made, named("response.output_item.done", output_index=index, item=item)]


def _numbered(made: list[bytes]) -> Answer:
    return events([one.replace(b'{"type"', b'{"sequence_number": %d, "type"' % at, 1) for at, one in enumerate(made)])


# ── what it was asked


def read_responses(body: Object) -> Ask:
    """A request, with nothing in it that the API does not know."""
    known = {
        "model", "input", "instructions", "stream", "store", "max_output_tokens", "tools", "tool_choice", "parallel_tool_calls", "text",
        "reasoning", "include", "temperature",
    }  # fmt: skip
    assert body.keys() <= known, body.keys() - known
    assert body["store"] is False
    names: dict[str, str] = {}
    system, turns = [body.get("instructions") or ""], list[Turn]()
    said = body["input"]
    items: list[Object] = [{"role": "user", "content": said}] if isinstance(said, str) else said
    for item in items:
        match item.get("type", "message"):
            case "message" if item["role"] in ("system", "developer"):
                system += [part.text for part in _content(item["content"]) if isinstance(part, Text)]
            case "message":
                turns.append(Turn(item["role"], _content(item["content"])))
            case "function_call":
                names[item["call_id"]] = item["name"]
                turns.append(Turn("assistant", (Call(item["name"], same(item["arguments"])),)))
            case "function_call_output":
                turns.append(Turn("user", (Result(names[item["call_id"]], item["output"]),)))
            case "reasoning":
                turns.append(Turn("assistant", (Thought("".join(part["text"] for part in item["summary"]), item["encrypted_content"]),)))
            case kind:
                raise AssertionError(f"an item of type {kind}")
    tools = [tool(one["name"], one.get("description"), one["parameters"]) for one in body.get("tools") or ()]
    form = (body.get("text") or {}).get("format") or {}
    return Ask(
        turns=merged(turns),
        system="".join(system),
        max_tokens=body["max_output_tokens"],
        tools=tuple(tools),
        choice=_choice(body.get("tool_choice", "auto")),
        one_call=body.get("parallel_tool_calls") is False,
        answer=tuple(form["schema"]["properties"]) if form.get("type") == "json_schema" else (),
        effort=(body.get("reasoning") or {}).get("effort"),
        temperature=body.get("temperature"),
    )


def _content(content: Any) -> tuple[Part, ...]:
    if isinstance(content, str):
        return (Text(content),)
    return tuple(Image(part["image_url"]) if part["type"] == "input_image" else Text(part["text"]) for part in content)


def _choice(said: Any) -> str:
    return said if isinstance(said, str) else str(said["name"])


PROVIDERS = (ResponsesProvider(),)
