"""What a provider may answer, one function per sentence a test wants to say. OpenAI's dialect.

Each returns an `Answer`, a plain tuple of steps: `partial("Hel") + (Rst(),)` is a new answer.
"""

from collections.abc import Mapping, Sequence

from tests.support.script import (
    Answer,
    Bill,
    Chunk,
    EchoHeaders,
    Fin,
    Gate,
    Hang,
    Head,
    Headers,
    Json,
    Raw,
    Rst,
    Sleep,
    Status,
    Step,
    Wait,
    Whole,
    compact,
)

ID = "chatcmpl-scripted"
MODEL = "scripted-model"
CREATED = 1_750_000_000
DONE = Raw(b"data: [DONE]\n\n")
JSON = Headers((("Content-Type", "application/json"),))
EVENTS = Headers((("Content-Type", "text/event-stream"), ("Cache-Control", "no-cache")))


def usage(prompt: int = 11, completion: int = 7, *, cached: int = 0, reasoning: int = 0) -> Mapping[str, Json]:
    """Usage in OpenAI's shape: `cached` is part of `prompt`, `reasoning` part of `completion`."""
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }


USAGE = usage()


def tool_call(name: str, arguments: str = "{}", *, id: str = "call_1") -> Mapping[str, Json]:
    """A tool call as it stands in a message; `arguments` is JSON text."""
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


# --- whole answers ---------------------------------------------------------------------------------------------


def completion(
    text: str | None = "pong",
    *,
    usage: Mapping[str, Json] | None = USAGE,
    tool_calls: Sequence[Mapping[str, Json]] = (),
    finish: str | None = None,
    model: str = MODEL,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """One good chat completion. `finish` is `stop`, or `tool_calls` where there are some, unless given."""
    message: dict[str, Json] = {"role": "assistant", "content": text}
    if tool_calls:
        message["tool_calls"] = list(tool_calls)
    choice: Json = {"index": 0, "message": message, "finish_reason": finish or ("tool_calls" if tool_calls else "stop")}
    body: dict[str, Json] = {
        "id": ID,
        "object": "chat.completion",
        "created": CREATED,
        "model": model,
        "choices": [choice],
    }
    billed = () if usage is None else (Bill(usage),)
    if usage is not None:
        body["usage"] = usage
    return (*billed, *_json(200, body, headers))


def error(
    status: int,
    *,
    code: str | None = None,
    type: str = "api_error",
    message: str = "the scripted upstream refuses",
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """An error in OpenAI's shape."""
    return _json(status, {"error": {"message": message, "type": type, "param": None, "code": code}}, headers)


def rate_limited(*, retry_after: float | None = None) -> Answer:
    """429 because of a rate, with or without a `retry-after` in seconds."""
    hint = {} if retry_after is None else {"retry-after": f"{retry_after:g}"}
    return error(429, code="rate_limit_exceeded", type="requests", message="Rate limit reached", headers=hint)


def html(status: int) -> Answer:
    """A page from some box in front of the provider."""
    page = b"<!doctype html><html><body><h1>nginx says no</h1></body></html>\n"
    return (Status(status), Headers((("Content-Type", "text/html"),)), Whole(page))


def nothing() -> Answer:
    """200 with an empty body."""
    return (JSON, Whole(b""))


def garbled() -> Answer:
    """200 whose JSON stops in the middle though its length is honoured."""
    return (JSON, Whole(b'{"id":"chatcmpl-scripted","object":"chat.completion","choices":[{"index":0,"mess'))


def echo_headers() -> Answer:
    """A completion whose text is what the upstream was sent: `[[name, value], …]`."""
    return (JSON, EchoHeaders())


# --- streams ---------------------------------------------------------------------------------------------------


def delta(content: Mapping[str, Json], *, finish: str | None = None, model: str = MODEL) -> Chunk:
    """One `chat.completion.chunk` with this delta."""
    choice: Json = {"index": 0, "delta": content, "finish_reason": finish}
    return Chunk(_chunk(model) | {"choices": [choice]})


def usage_chunk(usage: Mapping[str, Json] = USAGE, *, model: str = MODEL) -> Chunk:
    """The extra chunk of `stream_options.include_usage`: no choices, only usage."""
    return Chunk(_chunk(model) | {"choices": [], "usage": usage})


def error_event(code: str, *, type: str = "server_error", message: str = "the scripted upstream gives up") -> Chunk:
    """An error as an event inside a stream that began well."""
    return Chunk({"error": {"message": message, "type": type, "code": code}})


def partial(*pieces: str, gap: float = 0.0, model: str = MODEL, headers: Mapping[str, str] | None = None) -> Answer:
    """The beginning of a stream: the role, then one chunk per piece of text, `gap` seconds before each."""
    steps: list[Step] = [EVENTS, Headers(tuple((headers or {}).items())), delta({"role": "assistant"}, model=model)]
    for piece in pieces:
        steps += [Sleep(gap)] if gap else []
        steps.append(delta({"content": piece}, model=model))
    return tuple(steps)


def sse(
    *pieces: str,
    usage: Mapping[str, Json] | None = USAGE,
    finish: str | None = "stop",
    done: bool = True,
    gap: float = 0.0,
    model: str = MODEL,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """A stream: role, pieces, finish chunk (unless None), usage chunk (unless None), `[DONE]` (if `done`)."""
    steps = partial(*pieces, gap=gap, model=model, headers=headers)
    steps += () if finish is None else (delta({}, finish=finish, model=model),)
    steps += () if usage is None else (Bill(usage), usage_chunk(usage, model=model))
    return (*steps, DONE) if done else steps


# --- faults ----------------------------------------------------------------------------------------------------


def hang_before_headers() -> Answer:
    """The request is taken and nothing comes back."""
    return (Hang(),)


def hang_after_headers() -> Answer:
    """A stream's head, and nothing after it."""
    return (EVENTS, Head(), Hang())


def hang_after(*pieces: str) -> Answer:
    """The beginning of a stream, then silence on an open connection."""
    return (*partial(*pieces), Hang())


def reset() -> Answer:
    """The connection is reset before any answer."""
    return (Rst(),)


def reset_after(*pieces: str) -> Answer:
    """The beginning of a stream, then a reset."""
    return (*partial(*pieces), Rst())


def hung_up() -> Answer:
    """The connection is closed in order before any answer, as an idle keep-alive connection is."""
    return (Fin(),)


def cut_after(*pieces: str) -> Answer:
    """The beginning of a stream, then an orderly close inside the chunked body."""
    return (*partial(*pieces), Fin())


def silent_end(*pieces: str) -> Answer:
    """A stream whose body ends properly, but without finish reason, usage or `[DONE]`."""
    return partial(*pieces)


def fails_after(*pieces: str, code: str = "server_error", type: str = "server_error") -> Answer:
    """The beginning of a stream, then an error event, then the proper end of the body."""
    return (*partial(*pieces), error_event(code, type=type))


def held(gate: Gate, answer: Answer) -> Answer:
    """The answer, once the test opens the gate."""
    return (Wait(gate), *answer)


def _json(status: int, body: Mapping[str, Json], headers: Mapping[str, str] | None) -> Answer:
    return (Status(status), JSON, Headers(tuple((headers or {}).items())), Whole(compact(body)))


def _chunk(model: str) -> dict[str, Json]:
    return {"id": ID, "object": "chat.completion.chunk", "created": CREATED, "model": model}
